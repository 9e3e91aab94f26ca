package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

class ReceivingTest extends Case {
    @Shows(
            calls = {"ServiceBusReceiverClient.complete", "ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aCompletedMessageIsGone(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage found = receive(receiver);
        assertNotNull(found.getLockToken());
        assertTrue(found.getDeliveryCount() <= 1);
        receiver.complete(found);
        assertEquals("2", receive(receiver).getBody().toString());
        assertEquals(1, activeMessages(queue));
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.abandon"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void anAbandonedMessageComesAgainWithItsNewProperties(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(message(kind, "twice"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage first = receive(receiver);
        receiver.abandon(first, new AbandonOptions().setPropertiesToModify(Map.of("attempt", 1)));
        ServiceBusReceivedMessage second = receive(receiver);
        assertEquals(first.getDeliveryCount() + 1, second.getDeliveryCount());
        assertEquals(1, second.getApplicationProperties().get("attempt"));
        receiver.complete(second);
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.abandon"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aMessageAbandonedTooOftenIsDeadLettered(Kind kind) {
        String queue = queue(queueOptions(kind).setMaxDeliveryCount(2));
        sender(queue).sendMessage(message(kind, "poison"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        receiver.abandon(receive(receiver));
        receiver.abandon(receive(receiver));
        assertEquals("MaxDeliveryCountExceeded", receive(deadLetters(queue)).getDeadLetterReason());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.deadLetter"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aDeadLetteredMessageSaysWhy(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(message(kind, "bad"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        receiver.deadLetter(
                receive(receiver),
                new DeadLetterOptions()
                        .setDeadLetterReason("malformed")
                        .setDeadLetterErrorDescription("line 1")
                        .setPropertiesToModify(Map.of("checked", true)));
        ServiceBusReceiverClient deadLetters = deadLetters(queue);
        ServiceBusReceivedMessage found = receive(deadLetters);
        assertEquals("bad", found.getBody().toString());
        assertEquals("malformed", found.getDeadLetterReason());
        assertEquals("line 1", found.getDeadLetterErrorDescription());
        assertEquals(true, found.getApplicationProperties().get("checked"));
        deadLetters.complete(found);
        assertSoon(() -> ADMIN.getQueueRuntimeProperties(queue).getDeadLetterMessageCount() == 0);
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.deadLetter"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aMessageIsDeadLetteredWithoutAReason(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(message(kind, "bad"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        receiver.deadLetter(receive(receiver));
        assertNull(receive(deadLetters(queue)).getDeadLetterReason());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.defer", "ServiceBusReceiverClient.receiveDeferredMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aDeferredMessageIsReceivedByItsNumberOnly(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "later", "now"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage first = receive(receiver);
        receiver.defer(first, new DeferOptions().setPropertiesToModify(Map.of("why", "order")));
        ServiceBusReceivedMessage second = receive(receiver);
        assertEquals("now", second.getBody().toString());
        receiver.complete(second);

        ServiceBusReceivedMessage found = receiver.receiveDeferredMessage(first.getSequenceNumber());
        assertEquals("later", found.getBody().toString());
        assertEquals("order", found.getApplicationProperties().get("why"));
        assertEquals(ServiceBusMessageState.DEFERRED, found.getState());
        receiver.complete(found);
        assertNull(receiver.peekMessage());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.defer", "ServiceBusReceiverClient.receiveDeferredMessageBatch"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void severalDeferredMessagesAreReceivedAtOnce(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        List<ServiceBusReceivedMessage> found = receive(receiver, 2);
        found.forEach(receiver::defer);
        List<Long> numbers =
                found.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList();
        List<ServiceBusReceivedMessage> again =
                receiver.receiveDeferredMessageBatch(numbers).stream().toList();
        assertEquals(List.of("1", "2"), bodies(again));
        receiver.deadLetter(again.get(0));
        receiver.abandon(again.get(1));
        assertEquals("1", receive(deadLetters(queue)).getBody().toString());
        assertEquals(ServiceBusMessageState.DEFERRED, receiver.peekMessage().getState());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.receiveDeferredMessageBatch"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aNumberThatIsNotDeferredIsNotFound(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(message(kind, "active"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        long number = receiver.peekMessage().getSequenceNumber();
        assertEquals(List.of(), bodies(receiver.receiveDeferredMessageBatch(List.of(number))));
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.renewMessageLock"},
            on = {PLAIN, PARTITIONED})
    void aRenewedLockLastsLonger(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(message(kind, "slow"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage found = receive(receiver);
        OffsetDateTime before = found.getLockedUntil();
        OffsetDateTime renewed = before;
        for (int tries = 0; tries < 1000 && !renewed.isAfter(before); tries++) {
            // Times are in milliseconds, and a renewal is faster.
            renewed = receiver.renewMessageLock(found);
        }
        assertTrue(renewed.isAfter(before), renewed + " after " + before);
        receiver.complete(found);
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.complete", "ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, PARTITIONED})
    void aLapsedLockIsLost(Kind kind) {
        String queue = queue(queueOptions(kind).setLockDuration(Duration.ofSeconds(1)));
        sender(queue).sendMessage(message(kind, "slow"));
        ServiceBusReceiverClient first = closing(client.receiver()
                .queueName(queue)
                .disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO)
                .buildClient());
        ServiceBusReceivedMessage lapsing = receive(first);
        ServiceBusReceiverClient second = closing(client().receiver()
                .queueName(queue)
                .disableAutoComplete()
                .buildClient());
        ServiceBusReceivedMessage again = receive(second);
        assertEquals(lapsing.getDeliveryCount() + 1, again.getDeliveryCount());
        ServiceBusException error = assertThrows(ServiceBusException.class, () -> first.complete(lapsing));
        assertEquals(ServiceBusFailureReason.MESSAGE_LOCK_LOST, error.getReason());
        second.complete(again);
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.peekMessage", "ServiceBusReceiverClient.peekMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void peekingChangesNothing(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2", "3"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage first = receiver.peekMessage();
        assertEquals("1", first.getBody().toString());
        assertEquals(ServiceBusMessageState.ACTIVE, first.getState());
        assertEquals(List.of("2", "3"), bodies(receiver.peekMessages(10)));
        assertEquals("1", receiver.peekMessage(first.getSequenceNumber()).getBody().toString());
        assertEquals(List.of("1", "2"), bodies(receiver.peekMessages(2, first.getSequenceNumber())));
        assertEquals(List.of("1", "2", "3"), bodies(receive(receiver, 3)));
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void receiveAndDeleteTakesTheMessage(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2"));
        ServiceBusReceiverClient receiver = closing(
                kind == SESSIONS
                        ? closing(client.sessionReceiver()
                                        .queueName(queue)
                                        .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
                                        .buildClient())
                                .acceptSession(SESSION)
                        : client.receiver()
                                .queueName(queue)
                                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
                                .buildClient());
        assertEquals("1", receive(receiver).getBody().toString());
        ServiceBusReceivedMessage second = receive(receiver);
        assertEquals("2", second.getBody().toString());
        assertEquals(0, activeMessages(queue));
        assertThrows(UnsupportedOperationException.class, () -> receiver.complete(second));
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.receiveMessages", "ServiceBusReceiverClient.complete"},
            on = {PLAIN, PARTITIONED})
    void prefetchedMessagesAreReceivedAndCompleted(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2", "3", "4"));
        ServiceBusReceiverClient receiver = closing(client.receiver()
                .queueName(queue)
                .prefetchCount(10)
                .disableAutoComplete()
                .buildClient());
        completeAll(receiver, 4);
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void anExpiredMessageIsDeadLettered(Kind kind) {
        String queue = queue(queueOptions(kind).setDeadLetteringOnMessageExpiration(true));
        sender(queue).sendMessage(message(kind, "short").setTimeToLive(Duration.ofSeconds(1)));
        assertEquals("TTLExpiredException", receive(deadLetters(queue)).getDeadLetterReason());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void anEmptyQueueGivesNothing(Kind kind) {
        ServiceBusReceiverClient receiver = receiver(kind, queue(kind));
        assertNothingComes(receiver);
        assertNull(receiver.peekMessage());
    }

    @Shows(
            calls = {
                "ServiceBusReceiverClient.getEntityPath",
                "ServiceBusReceiverClient.getIdentifier",
                "ServiceBusReceiverClient.getSessionId",
                "ServiceBusReceiverClient.getFullyQualifiedNamespace"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aReceiverKnowsWhatItReceivesFrom(Kind kind) {
        String queue = queue(kind);
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        assertEquals(queue, receiver.getEntityPath());
        assertEquals(kind == SESSIONS ? SESSION : null, receiver.getSessionId());
        assertEquals("localhost", receiver.getFullyQualifiedNamespace().split(":")[0]);
        assertFalse(receiver.getIdentifier().isEmpty());
    }

    @Shows(
            calls = {"ServiceBusReceiverAsyncClient.receiveMessages", "ServiceBusReceiverAsyncClient.complete"},
            on = {PLAIN, PARTITIONED})
    void theAsyncReceiverReceives(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2", "3"));
        ServiceBusReceiverAsyncClient receiver =
                closing(client.receiver().queueName(queue).disableAutoComplete().buildAsyncClient());
        List<String> found = receiver.receiveMessages()
                .concatMap(one -> receiver.complete(one).thenReturn(one.getBody().toString()))
                .take(3)
                .collectList()
                .block(SOON);
        assertEquals(List.of("1", "2", "3"), found);
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"ServiceBusReceiverAsyncClient.peekMessages", "ServiceBusReceiverAsyncClient.peekMessage"},
            on = {PLAIN, PARTITIONED})
    void theAsyncReceiverPeeks(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2", "3"));
        ServiceBusReceiverAsyncClient receiver =
                closing(client.receiver().queueName(queue).buildAsyncClient());
        assertEquals("1", receiver.peekMessage().block(SOON).getBody().toString());
        List<ServiceBusReceivedMessage> rest = receiver.peekMessages(10).collectList().block(SOON);
        assertEquals(Set.of("2", "3"), new TreeSet<>(bodies(rest)));
    }

    @Shows(
            calls = {"ServiceBusSenderClient.sendMessage", "ServiceBusReceiverClient.complete"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aReceivedMessageIsSentOnAsItIs(Kind kind) {
        String from = queue(kind);
        String to = queue(kind);
        ServiceBusMessage sent = keyed(kind, "travels").setCorrelationId("c");
        sent.getApplicationProperties().put("step", 1);
        sender(from).sendMessage(sent);
        ServiceBusReceiverClient receiver = receiver(kind, from);
        ServiceBusReceivedMessage found = receive(receiver);
        sender(to).sendMessage(new ServiceBusMessage(found));
        receiver.complete(found);
        ServiceBusReceivedMessage arrived = receive(receiver(kind, to));
        assertEquals("travels", arrived.getBody().toString());
        assertEquals("c", arrived.getCorrelationId());
        assertEquals(Map.of("step", 1), arrived.getApplicationProperties());
        assertEquals(sent.getSessionId(), arrived.getSessionId());
        assertEquals(sent.getPartitionKey(), arrived.getPartitionKey());
    }
}
