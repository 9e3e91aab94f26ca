package tandembus;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** JMS over plain AMQP 1.0, with the policy's name and key as user and password. */
class QpidJms extends Case {
    private static final String USER = setting("SharedAccessKeyName");

    private Connection connect(String scheme, String key) throws JMSException {
        JmsConnectionFactory factory = new JmsConnectionFactory(USER, key, scheme + "://localhost:" + PORT);
        Connection connection = closing(factory.createConnection());
        connection.start();
        return connection;
    }

    private Session session(int acknowledging) throws JMSException {
        return connect("amqp", setting("SharedAccessKey")).createSession(acknowledging);
    }

    private static MessageProducer producer(Session session, String queue) throws JMSException {
        return session.createProducer(session.createQueue(queue));
    }

    private static MessageConsumer consumer(Session session, String queue) throws JMSException {
        return session.createConsumer(session.createQueue(queue));
    }

    private static void send(Session session, Kind kind, String queue, String... bodies) throws JMSException {
        MessageProducer producer = producer(session, queue);
        for (String body : bodies) {
            Message message = session.createTextMessage(body);
            if (kind != PLAIN) {
                // On partitioned entities the key that keeps messages in order and in one transaction.
                message.setStringProperty("JMSXGroupID", SESSION);
            }
            producer.send(message);
        }
    }

    private static String text(MessageConsumer consumer) throws JMSException {
        Message found = consumer.receive(SOON.toMillis());
        return assertInstanceOf(TextMessage.class, found).getText();
    }

    @Shows(
            calls = {"MessageProducer.send", "MessageConsumer.receive", "Session.createTextMessage"},
            on = {PLAIN, PARTITIONED})
    void aTextMessageArrivesWithItsProperties(Kind kind) throws JMSException {
        String queue = queue(kind);
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        TextMessage sent = session.createTextMessage("content");
        sent.setJMSCorrelationID("correlation");
        sent.setJMSType("subject");
        sent.setStringProperty("text", "é");
        sent.setLongProperty("number", 42);
        sent.setBooleanProperty("flag", true);
        producer(session, queue).send(sent);
        TextMessage found = assertInstanceOf(
                TextMessage.class, consumer(session, queue).receive(SOON.toMillis()));
        assertEquals("content", found.getText());
        assertEquals(sent.getJMSMessageID(), found.getJMSMessageID());
        assertEquals("correlation", found.getJMSCorrelationID());
        assertEquals("subject", found.getJMSType());
        assertEquals("é", found.getStringProperty("text"));
        assertEquals(42, found.getLongProperty("number"));
        assertTrue(found.getBooleanProperty("flag"));
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"MessageProducer.send", "Session.createBytesMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void theSdkReceivesWhatJmsSends(Kind kind) throws JMSException {
        String queue = queue(kind);
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[] {1, 2, 3});
        message.setStringProperty("JMSXGroupID", SESSION);
        producer(session, queue).send(message);
        ServiceBusReceivedMessage found = receive(receiver(kind, queue));
        assertArrayEquals(new byte[] {1, 2, 3}, found.getBody().toBytes());
        assertEquals(SESSION, found.getSessionId());
    }

    @Shows(
            calls = {"Message.acknowledge", "MessageConsumer.receive"},
            on = {PLAIN, PARTITIONED})
    void aMessageStaysUntilItIsAcknowledged(Kind kind) throws JMSException {
        String queue = queue(kind);
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        send(session, kind, queue, "kept");
        Message found = consumer(session, queue).receive(SOON.toMillis());
        assertNotNull(found);
        assertEquals(1, activeMessages(queue));
        found.acknowledge();
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"Session.recover", "MessageConsumer.receive"},
            on = {PLAIN, PARTITIONED})
    void aRecoveredMessageIsDeliveredAgain(Kind kind) throws JMSException {
        String queue = queue(kind);
        Session session = session(Session.CLIENT_ACKNOWLEDGE);
        send(session, kind, queue, "twice");
        MessageConsumer consumer = consumer(session, queue);
        assertEquals("twice", text(consumer));
        session.recover();
        Message again = consumer.receive(SOON.toMillis());
        assertTrue(again.getJMSRedelivered());
        again.acknowledge();
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"Session.commit", "Session.rollback", "MessageProducer.send"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aTransactedSessionSendsAtTheCommit(Kind kind) throws JMSException {
        String queue = queue(kind);
        Session session = session(Session.SESSION_TRANSACTED);
        send(session, kind, queue, "never");
        session.rollback();
        send(session, kind, queue, "1", "2");
        assertEquals(0, activeMessages(queue));
        session.commit();
        assertEquals(List.of("1", "2"), receive(receiver(kind, queue), 2).stream()
                .map(one -> (String) one.getRawAmqpMessage().getBody().getValue())
                .toList());
    }

    @Shows(
            calls = {"Session.commit", "Session.rollback", "MessageConsumer.receive"},
            on = {PLAIN, PARTITIONED})
    void aTransactedSessionReceivesAtTheCommit(Kind kind) throws JMSException {
        String queue = queue(kind);
        Session session = session(Session.SESSION_TRANSACTED);
        send(session, kind, queue, "work");
        session.commit();
        MessageConsumer consumer = consumer(session, queue);
        assertEquals("work", text(consumer));
        session.rollback();
        assertEquals("work", text(consumer));
        assertEquals(1, activeMessages(queue));
        session.commit();
        assertEquals(0, activeMessages(queue));
    }

    @Shows(
            calls = {"MessageConsumer.setMessageListener"},
            on = {PLAIN, PARTITIONED})
    void aListenerIsGivenMessages(Kind kind) throws Exception {
        String queue = queue(kind);
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        BlockingQueue<Message> seen = new LinkedBlockingQueue<>();
        consumer(session, queue).setMessageListener(seen::add);
        send(session(Session.AUTO_ACKNOWLEDGE), kind, queue, "1", "2");
        assertNotNull(seen.poll(SOON.toSeconds(), TimeUnit.SECONDS));
        assertNotNull(seen.poll(SOON.toSeconds(), TimeUnit.SECONDS));
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"MessageProducer.setTimeToLive"},
            on = {PLAIN, PARTITIONED})
    void anExpiredMessageIsDeadLettered(Kind kind) throws JMSException {
        String queue = queue(queueOptions(kind).setDeadLetteringOnMessageExpiration(true));
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = producer(session, queue);
        producer.setTimeToLive(1000);
        producer.send(session.createTextMessage("short"));
        // JMS itself discards expired messages that it receives.
        assertEquals("TTLExpiredException", receive(deadLetters(queue)).getDeadLetterReason());
    }

    @Shows(
            calls = {"Session.createTopic", "MessageProducer.send", "MessageConsumer.receive"},
            on = {PLAIN, PARTITIONED})
    void aSubscriptionGetsWhatIsPublished(Kind kind) throws JMSException {
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        Session session = session(Session.AUTO_ACKNOWLEDGE);
        session.createProducer(session.createTopic(topic)).send(session.createTextMessage("published"));
        assertEquals("published", text(consumer(session, topic + "/Subscriptions/" + subscription)));
    }

    @Shows(
            calls = {"ConnectionFactory.createConnection"},
            on = {PLAIN})
    void connectionsAreTrustedInTlsAndRefusedWithAWrongKey(Kind kind) throws JMSException {
        String queue = queue(kind);
        Session session = connect("amqps", setting("SharedAccessKey")).createSession();
        send(session, kind, queue, "safe");
        assertEquals(1, activeMessages(queue));
        assertThrows(JMSSecurityException.class, () -> connect("amqps", "d3Jvbmc="));
    }
}
