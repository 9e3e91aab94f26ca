package tandembus;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

class SendingTest extends Case {
    @Shows(
            calls = {"ServiceBusSenderClient.sendMessage", "ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aMessageArrivesWithAllItsProperties(Kind kind) {
        String queue = queue(kind);
        ServiceBusMessage sent = message(kind, "content")
                .setMessageId("id")
                .setCorrelationId("correlation")
                .setSubject("subject")
                .setTo("to")
                .setReplyTo("reply")
                .setReplyToSessionId("reply-session")
                .setContentType("text/plain")
                .setTimeToLive(Duration.ofHours(1));
        sent.getApplicationProperties().putAll(Map.of("text", "é", "number", 42L, "small", 7, "flag", true, "real", 1.5));
        OffsetDateTime before = OffsetDateTime.now().minusSeconds(5);
        sender(queue).sendMessage(sent);

        ServiceBusReceivedMessage found = receive(receiver(kind, queue));
        assertEquals("content", found.getBody().toString());
        assertEquals("id", found.getMessageId());
        assertEquals("correlation", found.getCorrelationId());
        assertEquals("subject", found.getSubject());
        assertEquals("to", found.getTo());
        assertEquals("reply", found.getReplyTo());
        assertEquals("reply-session", found.getReplyToSessionId());
        assertEquals("text/plain", found.getContentType());
        assertEquals(Duration.ofHours(1), found.getTimeToLive());
        assertEquals(kind == SESSIONS ? SESSION : null, found.getSessionId());
        assertEquals(sent.getApplicationProperties(), found.getApplicationProperties());
        assertTrue(found.getEnqueuedTime().isAfter(before));
        assertTrue(found.getSequenceNumber() > 0);
    }

    @Shows(
            calls = {"ServiceBusSenderClient.sendMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aListOfMessagesArrivesInOrder(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2", "3", "4", "5"));
        assertEquals(List.of("1", "2", "3", "4", "5"), bodies(receive(receiver(kind, queue), 5)));
    }

    @Shows(
            calls = {
                "ServiceBusSenderClient.createMessageBatch",
                "ServiceBusSenderClient.sendMessages",
                "ServiceBusMessageBatch.tryAddMessage",
                "ServiceBusMessageBatch.getCount"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aBatchArrives(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (ServiceBusMessage one : keyed(kind, "1", "2", "3")) {
            assertTrue(batch.tryAddMessage(one));
        }
        assertEquals(3, batch.getCount());
        sender.sendMessages(batch);
        assertEquals(Set.of("1", "2", "3"), new TreeSet<>(bodies(receive(receiver(kind, queue), 3))));
    }

    @Shows(
            calls = {
                "ServiceBusSenderClient.createMessageBatch",
                "ServiceBusMessageBatch.tryAddMessage",
                "ServiceBusMessageBatch.getMaxSizeInBytes",
                "ServiceBusMessageBatch.getSizeInBytes"
            },
            on = {PLAIN})
    void aBatchRefusesWhatDoesNotFit(Kind kind) {
        ServiceBusSenderClient sender = sender(queue(kind));
        ServiceBusMessageBatch batch =
                sender.createMessageBatch(new CreateMessageBatchOptions().setMaximumSizeInBytes(2000));
        assertEquals(2000, batch.getMaxSizeInBytes());
        assertTrue(batch.tryAddMessage(new ServiceBusMessage(new byte[1000])));
        assertFalse(batch.tryAddMessage(new ServiceBusMessage(new byte[1000])));
        assertTrue(batch.getSizeInBytes() < 2000);
    }

    @Shows(
            calls = {"ServiceBusSenderClient.sendMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aMessageAboveTheLimitIsRefused(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        ServiceBusException error = assertThrows(
                ServiceBusException.class, () -> sender.sendMessage(message(kind, "x".repeat(300 * 1024))));
        assertEquals(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, error.getReason());
        assertEquals(0, activeMessages(queue));
    }

    @Shows(
            calls = {"ServiceBusSenderClient.sendMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void bodiesMayBeDataValuesAndSequences(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        for (AmqpMessageBody body : List.of(
                AmqpMessageBody.fromData("data".getBytes(StandardCharsets.UTF_8)),
                AmqpMessageBody.fromValue(Map.of("total", 42L)),
                AmqpMessageBody.fromSequence(List.of(1L, "two", true)))) {
            ServiceBusMessage message = new ServiceBusMessage(body);
            sender.sendMessage(
                    kind == PLAIN ? message : kind == SESSIONS ? message.setSessionId(SESSION) : message.setPartitionKey("k"));
        }
        List<AmqpMessageBody> found = receive(receiver(kind, queue), 3).stream()
                .map(one -> one.getRawAmqpMessage().getBody())
                .toList();
        assertArrayEquals("data".getBytes(StandardCharsets.UTF_8), found.get(0).getFirstData());
        assertEquals(AmqpMessageBodyType.VALUE, found.get(1).getBodyType());
        assertEquals(Map.of("total", 42L), found.get(1).getValue());
        assertEquals(List.of(1L, "two", true), found.get(2).getSequence());
    }

    @Shows(
            calls = {
                "ServiceBusSenderClient.sendMessage",
                "ServiceBusSenderClient.getEntityPath",
                "ServiceBusSenderClient.getFullyQualifiedNamespace",
                "ServiceBusSenderClient.getIdentifier"
            },
            on = {PLAIN})
    void anEntityThatDoesNotExistIsSaidToBeMissing(Kind kind) {
        ServiceBusSenderClient sender = closing(client.retryOptions(patience(0)).sender().queueName("no-such-queue").buildClient());
        assertEquals("no-such-queue", sender.getEntityPath());
        assertEquals("localhost", sender.getFullyQualifiedNamespace().split(":")[0]);
        assertFalse(sender.getIdentifier().isEmpty());
        ServiceBusException error =
                assertThrows(ServiceBusException.class, () -> sender.sendMessage(message(kind, "lost")));
        assertEquals(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, error.getReason());
    }

    @Shows(
            calls = {"ServiceBusSenderClient.sendMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void duplicatesAreDropped(Kind kind) {
        String queue = queue(queueOptions(kind).setDuplicateDetectionRequired(true));
        ServiceBusSenderClient sender = sender(queue);
        sender.sendMessage(message(kind, "first").setMessageId("same"));
        sender.sendMessage(message(kind, "again").setMessageId("same"));
        sender.sendMessage(message(kind, "other").setMessageId("other"));
        assertEquals(Set.of("first", "other"), new TreeSet<>(bodies(receive(receiver(kind, queue), 2))));
        assertEquals(2, activeMessages(queue));
    }

    @Shows(
            calls = {"ServiceBusSenderAsyncClient.sendMessage", "ServiceBusSenderAsyncClient.sendMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void theAsyncSenderSends(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderAsyncClient sender = closing(client.sender().queueName(queue).buildAsyncClient());
        sender.sendMessage(keyed(kind, "1")).then(sender.sendMessages(keyed(kind, "2", "3"))).block(SOON);
        assertEquals(List.of("1", "2", "3"), bodies(receive(receiver(kind, queue), 3)));
    }

    @Shows(
            calls = {"ServiceBusSenderClient.sendMessage"},
            on = {PARTITIONED})
    void aSessionIdAndAnotherPartitionKeyAreRefusedByTheClient(Kind kind) {
        ServiceBusMessage message = new ServiceBusMessage("x").setSessionId("one");
        assertThrows(IllegalArgumentException.class, () -> message.setPartitionKey("another"));
    }

    @Shows(
            calls = {"ServiceBusSenderClient.scheduleMessage", "ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aScheduledMessageArrivesWhenItIsDue(Kind kind) {
        String queue = queue(kind);
        OffsetDateTime due = OffsetDateTime.now().plusSeconds(2);
        sender(queue).scheduleMessage(message(kind, "later"), due);
        ServiceBusReceivedMessage found = receive(receiver(kind, queue));
        assertEquals("later", found.getBody().toString());
        assertFalse(OffsetDateTime.now().isBefore(due));
        assertEquals(due.toEpochSecond(), found.getScheduledEnqueueTime().toEpochSecond());
    }

    @Shows(
            calls = {"ServiceBusSenderClient.scheduleMessage", "ServiceBusSenderClient.cancelScheduledMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aScheduledMessageIsCancelled(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        long number = sender.scheduleMessage(message(kind, "never"), OffsetDateTime.now().plusHours(1));
        assertEquals(1, ADMIN.getQueueRuntimeProperties(queue).getScheduledMessageCount());
        sender.cancelScheduledMessage(number);
        assertEquals(0, ADMIN.getQueueRuntimeProperties(queue).getScheduledMessageCount());
    }

    @Shows(
            calls = {"ServiceBusSenderClient.scheduleMessages", "ServiceBusSenderClient.cancelScheduledMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void severalScheduledMessagesAreCancelled(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        List<Long> numbers = new ArrayList<>();
        sender.scheduleMessages(keyed(kind, "1", "2", "3"), OffsetDateTime.now().plusHours(1)).forEach(numbers::add);
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        assertEquals(List.of("1", "2", "3"), bodies(receiver.peekMessages(3)));
        sender.cancelScheduledMessages(numbers);
        assertEquals(List.of(), bodies(receiver.peekMessages(3)));
    }
}
