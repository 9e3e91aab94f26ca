package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;

class TransactionTest extends Case {
    private static CompleteOptions in(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    @Shows(
            calls = {
                "ServiceBusSenderClient.createTransaction",
                "ServiceBusSenderClient.commitTransaction",
                "ServiceBusSenderClient.sendMessage"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void committedSendsArriveTogether(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(keyed(kind, "1"), transaction);
        sender.sendMessages(keyed(kind, "2", "3"), transaction);
        assertEquals(0, activeMessages(queue));
        sender.commitTransaction(transaction);
        assertEquals(List.of("1", "2", "3"), bodies(receive(receiver(kind, queue), 3)));
    }

    @Shows(
            calls = {"ServiceBusSenderClient.createTransaction", "ServiceBusSenderClient.rollbackTransaction"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void sendsThatAreRolledBackDoNotArrive(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(keyed(kind, "never"), transaction);
        sender.rollbackTransaction(transaction);
        sender.sendMessage(keyed(kind, "after"));
        assertEquals(1, activeMessages(queue));
        assertEquals("after", receive(receiver(kind, queue)).getBody().toString());
    }

    @Shows(
            calls = {
                "ServiceBusReceiverClient.createTransaction",
                "ServiceBusReceiverClient.commitTransaction",
                "ServiceBusReceiverClient.complete"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aCompletionTakesEffectAtTheCommit(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(keyed(kind, "once"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage found = receive(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        receiver.complete(found, in(transaction));
        assertEquals(1, activeMessages(queue));
        receiver.commitTransaction(transaction);
        assertEquals(0, activeMessages(queue));
    }

    @Shows(
            calls = {
                "ServiceBusReceiverClient.createTransaction",
                "ServiceBusReceiverClient.rollbackTransaction",
                "ServiceBusReceiverClient.complete"
            },
            on = {PLAIN, PARTITIONED})
    void aRollbackSettlesNothing(Kind kind) {
        String queue = queue(queueOptions(kind).setLockDuration(Duration.ofSeconds(2)));
        sender(queue).sendMessage(keyed(kind, "kept"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage found = receive(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        receiver.complete(found, in(transaction));
        receiver.rollbackTransaction(transaction);
        ServiceBusReceivedMessage again = receive(receiver);
        assertEquals("kept", again.getBody().toString());
        assertEquals(found.getDeliveryCount() + 1, again.getDeliveryCount());
    }

    @Shows(
            calls = {
                "ServiceBusReceiverClient.defer",
                "ServiceBusReceiverClient.deadLetter",
                "ServiceBusReceiverClient.abandon",
                "ServiceBusReceiverClient.commitTransaction"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void everySettlementMayBePartOfATransaction(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "defer", "dead", "abandon"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        List<ServiceBusReceivedMessage> found = receive(receiver, 3);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        receiver.defer(found.get(0), new DeferOptions().setTransactionContext(transaction));
        receiver.deadLetter(
                found.get(1),
                new DeadLetterOptions().setDeadLetterReason("why").setTransactionContext(transaction));
        receiver.abandon(found.get(2), new AbandonOptions().setTransactionContext(transaction));
        receiver.commitTransaction(transaction);
        assertEquals("abandon", receive(receiver).getBody().toString());
        assertEquals("why", receive(deadLetters(queue)).getDeadLetterReason());
        assertEquals(
                "defer",
                receiver.receiveDeferredMessage(found.get(0).getSequenceNumber())
                        .getBody()
                        .toString());
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.complete", "ServiceBusSenderClient.sendMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aMessageIsReplacedInItsQueue(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        sender.sendMessage(keyed(kind, "old"));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        ServiceBusReceivedMessage found = receive(receiver);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(keyed(kind, "new"), transaction);
        receiver.complete(found, in(transaction));
        sender.commitTransaction(transaction);
        assertEquals("new", receive(receiver).getBody().toString());
        assertEquals(1, activeMessages(queue));
    }

    @Shows(
            calls = {"ServiceBusSenderClient.scheduleMessage", "ServiceBusSenderClient.commitTransaction"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aMessageIsScheduledInATransaction(Kind kind) {
        String queue = queue(kind);
        ServiceBusSenderClient sender = sender(queue);
        ServiceBusTransactionContext dropped = sender.createTransaction();
        sender.scheduleMessage(keyed(kind, "never"), OffsetDateTime.now().plusHours(1), dropped);
        sender.rollbackTransaction(dropped);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        long number = sender.scheduleMessage(keyed(kind, "later"), OffsetDateTime.now().plusHours(1), transaction);
        assertEquals(0, ADMIN.getQueueRuntimeProperties(queue).getScheduledMessageCount());
        sender.commitTransaction(transaction);
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        assertEquals(List.of("later"), bodies(receiver.peekMessages(10)));
        sender.cancelScheduledMessage(number);
        assertNull(receiver.peekMessage(1));
    }

    @Shows(
            calls = {"ServiceBusSenderClient.commitTransaction"},
            on = {PLAIN})
    void aTransactionEndsOnce(Kind kind) {
        ServiceBusSenderClient sender = sender(queue(kind));
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(message(kind, "x"), transaction);
        sender.commitTransaction(transaction);
        assertThrows(ServiceBusException.class, () -> sender.commitTransaction(transaction));
    }
}
