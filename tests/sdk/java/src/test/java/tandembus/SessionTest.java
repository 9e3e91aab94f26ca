package tandembus;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static tandembus.Kind.SESSIONS;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;

class SessionTest extends Case {
    /** The session for another client, as soon as the one that held it has let go. */
    private ServiceBusReceiverClient sessionOfAnother(String queue, String id) {
        ServiceBusSessionReceiverClient sessions =
                closing(client().sessionReceiver().queueName(queue).disableAutoComplete().buildClient());
        AtomicReference<ServiceBusReceiverClient> accepted = new AtomicReference<>();
        assertSoon(() -> {
            try {
                accepted.set(closing(sessions.acceptSession(id)));
            } catch (AmqpException error) {
                assertEquals(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, error.getErrorCondition());
            }
            return accepted.get() != null;
        });
        return accepted.get();
    }

    @Shows(
            calls = {"ServiceBusSessionReceiverClient.acceptSession", "ServiceBusReceiverClient.receiveMessages"},
            on = {SESSIONS})
    void aSessionGivesItsOwnMessagesInOrder(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        for (int number = 0; number < 6; number++) {
            sender.sendMessage(new ServiceBusMessage("" + number).setSessionId(number % 2 == 0 ? "even" : "odd"));
        }
        assertEquals(List.of("0", "2", "4"), bodies(receive(session(queue, "even"), 3)));
        assertEquals(List.of("1", "3", "5"), bodies(receive(session(queue, "odd"), 3)));
    }

    @Shows(
            calls = {"ServiceBusSessionReceiverClient.acceptNextSession"},
            on = {SESSIONS})
    void theNextSessionsAreThoseWithMessages(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        sender.sendMessage(new ServiceBusMessage("a").setSessionId("first"));
        sender.sendMessage(new ServiceBusMessage("b").setSessionId("second"));
        ServiceBusSessionReceiverClient sessions =
                closing(client.sessionReceiver().queueName(queue).disableAutoComplete().buildClient());
        ServiceBusReceiverClient one = closing(sessions.acceptNextSession());
        ServiceBusReceiverClient other = closing(sessions.acceptNextSession());
        assertEquals(Set.of("first", "second"), Set.of(one.getSessionId(), other.getSessionId()));
        completeAll(one, 1);
        completeAll(other, 1);
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.setSessionState", "ServiceBusReceiverClient.getSessionState"},
            on = {SESSIONS})
    void aSessionKeepsItsState(Kind kind) {
        String queue = queue(kind);
        ServiceBusReceiverClient first = session(queue, "kept");
        assertNull(first.getSessionState());
        byte[] state = "step 2".getBytes(StandardCharsets.UTF_8);
        first.setSessionState(state);
        first.close();
        ServiceBusReceiverClient second = sessionOfAnother(queue, "kept");
        assertArrayEquals(state, second.getSessionState());
        second.setSessionState(null);
        assertNull(second.getSessionState());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.renewSessionLock"},
            on = {SESSIONS})
    void aSessionLockIsRenewed(Kind kind) {
        ServiceBusReceiverClient receiver = session(queue(kind), "long");
        OffsetDateTime first = receiver.renewSessionLock();
        assertFalse(receiver.renewSessionLock().isBefore(first));
    }

    @Shows(
            calls = {"ServiceBusSessionReceiverClient.acceptSession"},
            on = {SESSIONS})
    void aSessionHasOneReceiverAtATime(Kind kind) {
        String queue = queue(kind);
        session(queue, "held");
        ServiceBusSessionReceiverClient another = closing(
                client().retryOptions(patience(0)).sessionReceiver().queueName(queue).buildClient());
        AmqpException error = assertThrows(AmqpException.class, () -> another.acceptSession("held"));
        assertEquals(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, error.getErrorCondition());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.receiveMessages", "ServiceBusReceiverClient.close"},
            on = {SESSIONS})
    void aReceiverThatWaitsLongerThanItsLockEndsQuietly(Kind kind) {
        Duration lock = Duration.ofSeconds(1);
        String queue = queue(queueOptions(kind).setLockDuration(lock));
        ServiceBusSessionReceiverClient sessions = closing(client.sessionReceiver()
                .queueName(queue)
                .disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO)
                .buildClient());
        ServiceBusReceiverClient receiver = closing(sessions.acceptSession("waits"));
        assertEquals(0, receiver.receiveMessages(1, lock.multipliedBy(3)).stream().count());
        receiver.close();
        sender(queue).sendMessage(new ServiceBusMessage("x").setSessionId("waits"));
        assertEquals("x", receive(sessionOfAnother(queue, "waits")).getBody().toString());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.close", "ServiceBusSessionReceiverClient.acceptSession"},
            on = {SESSIONS})
    void aClosedReceiverFreesItsSession(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(message(kind, "x"));
        ServiceBusReceiverClient first = session(queue, SESSION);
        receive(first);
        first.close();
        assertEquals("x", receive(sessionOfAnother(queue, SESSION)).getBody().toString());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.peekMessages"},
            on = {SESSIONS})
    void peekingShowsTheSessionOnly(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        sender.sendMessage(new ServiceBusMessage("mine").setSessionId("mine"));
        sender.sendMessage(new ServiceBusMessage("other").setSessionId("other"));
        assertEquals(List.of("mine"), bodies(session(queue, "mine").peekMessages(10)));
    }

    @Shows(
            calls = {
                "ServiceBusSessionReceiverAsyncClient.acceptSession",
                "ServiceBusSessionReceiverAsyncClient.acceptNextSession",
                "ServiceBusReceiverAsyncClient.receiveMessages",
                "ServiceBusReceiverAsyncClient.setSessionState",
                "ServiceBusReceiverAsyncClient.getSessionState",
                "ServiceBusReceiverAsyncClient.renewSessionLock"
            },
            on = {SESSIONS})
    void theAsyncReceiverHasSessions(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2"));
        ServiceBusSessionReceiverAsyncClient sessions =
                closing(client.sessionReceiver().queueName(queue).disableAutoComplete().buildAsyncClient());
        ServiceBusReceiverAsyncClient next = closing(sessions.acceptNextSession().block(SOON));
        assertEquals(SESSION, next.getSessionId());
        List<String> found = next.receiveMessages()
                .concatMap(one -> next.complete(one).thenReturn(one.getBody().toString()))
                .take(2)
                .collectList()
                .block(SOON);
        assertEquals(List.of("1", "2"), found);
        ServiceBusReceiverAsyncClient named = closing(sessions.acceptSession("other").block(SOON));
        byte[] state = {1, 2};
        named.setSessionState(state).block(SOON);
        assertArrayEquals(state, named.getSessionState().block(SOON));
        assertFalse(named.renewSessionLock().block(SOON).isBefore(OffsetDateTime.now()));
    }
}
