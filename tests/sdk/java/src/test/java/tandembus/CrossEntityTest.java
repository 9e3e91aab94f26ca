package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CompleteOptions;

/** Transactions over several entities: the first that the client uses becomes the one that the others are sent through. */
class CrossEntityTest extends Case {
    private final ServiceBusClientBuilder across =
            client().retryOptions(patience(0)).enableCrossEntityTransactions();

    private ServiceBusReceiverClient first(Kind kind, String queue) {
        if (kind == SESSIONS) {
            return closing(closing(across.sessionReceiver().queueName(queue).disableAutoComplete().buildClient())
                    .acceptSession(SESSION));
        }
        return closing(across.receiver().queueName(queue).disableAutoComplete().buildClient());
    }

    private ServiceBusSenderClient onward(String queue) {
        return closing(across.sender().queueName(queue).buildClient());
    }

    @Shows(
            calls = {
                "ServiceBusClientBuilder.enableCrossEntityTransactions",
                "ServiceBusReceiverClient.createTransaction",
                "ServiceBusReceiverClient.commitTransaction"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void oneMessageBecomesTwoInOtherQueues(Kind kind) {
        String from = queue(kind);
        String b = queue(kind);
        String c = queue(kind);
        sender(from).sendMessage(keyed(kind, "order"));
        ServiceBusReceiverClient receiver = first(kind, from);
        ServiceBusReceivedMessage found = receive(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        onward(b).sendMessage(keyed(kind, "bill"), transaction);
        onward(c).sendMessage(keyed(kind, "parcel"), transaction);
        receiver.complete(found, new CompleteOptions().setTransactionContext(transaction));
        assertEquals(0, activeMessages(b) + activeMessages(c));
        receiver.commitTransaction(transaction);
        assertEquals("bill", receive(receiver(kind, b)).getBody().toString());
        assertEquals("parcel", receive(receiver(kind, c)).getBody().toString());
        assertEquals(0, activeMessages(from));
    }

    @Shows(
            calls = {
                "ServiceBusClientBuilder.enableCrossEntityTransactions",
                "ServiceBusReceiverClient.rollbackTransaction"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aRollbackLeavesAllQueuesAsTheyWere(Kind kind) {
        String from = queue(kind);
        String to = queue(kind);
        sender(from).sendMessage(keyed(kind, "order"));
        ServiceBusReceiverClient receiver = first(kind, from);
        ServiceBusReceivedMessage found = receive(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        onward(to).sendMessage(keyed(kind, "bill"), transaction);
        receiver.complete(found, new CompleteOptions().setTransactionContext(transaction));
        receiver.rollbackTransaction(transaction);
        assertEquals(1, activeMessages(from));
        sender(to).sendMessage(keyed(kind, "after"));
        assertEquals("after", receive(receiver(kind, to)).getBody().toString());
        assertEquals(1, activeMessages(to));
    }

    @Shows(
            calls = {"ServiceBusClientBuilder.enableCrossEntityTransactions", "ServiceBusSenderClient.sendMessage"},
            on = {PLAIN, PARTITIONED})
    void aMessageIsPublishedFromAQueue(Kind kind) {
        String from = queue(kind);
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        sender(from).sendMessage(keyed(kind, "order"));
        ServiceBusReceiverClient receiver = first(kind, from);
        ServiceBusReceivedMessage found = receive(receiver);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        closing(across.sender().topicName(topic).buildClient()).sendMessage(keyed(kind, "ordered"), transaction);
        receiver.complete(found, new CompleteOptions().setTransactionContext(transaction));
        receiver.commitTransaction(transaction);
        assertEquals("ordered", receive(subscriber(kind, topic, subscription)).getBody().toString());
        assertEquals(0, activeMessages(from));
    }

    @Shows(
            calls = {"ServiceBusClientBuilder.enableCrossEntityTransactions", "ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, PARTITIONED})
    void aSecondEntityIsNotReceivedFrom(Kind kind) {
        String from = queue(kind);
        sender(from).sendMessage(keyed(kind, "order"));
        receive(first(kind, from));
        ServiceBusReceiverClient second = first(kind, queue(kind));
        RuntimeException error =
                assertThrows(RuntimeException.class, () -> second.receiveMessages(1, SOON).forEach(one -> {}));
        assertInstanceOf(UnsupportedOperationException.class, error.getCause());
    }
}
