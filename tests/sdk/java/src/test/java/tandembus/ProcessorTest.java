package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.messaging.servicebus.ServiceBusErrorContext;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

class ProcessorTest extends Case {
    private final BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    private final BlockingQueue<ServiceBusErrorContext> errors = new LinkedBlockingQueue<>();

    /** Started, and stopped after the test. */
    private ServiceBusProcessorClient processor(
            Kind kind, String queue, boolean completes, Consumer<ServiceBusReceivedMessageContext> handler) {
        ServiceBusProcessorClient processor;
        if (kind == SESSIONS) {
            var builder = client.sessionProcessor()
                    .queueName(queue)
                    .maxConcurrentSessions(2)
                    .processMessage(handler)
                    .processError(errors::add);
            processor = (completes ? builder : builder.disableAutoComplete()).buildProcessorClient();
        } else {
            var builder = client.processor()
                    .queueName(queue)
                    .maxConcurrentCalls(2)
                    .processMessage(handler)
                    .processError(errors::add);
            processor = (completes ? builder : builder.disableAutoComplete()).buildProcessorClient();
        }
        closing(processor);
        processor.start();
        return processor;
    }

    private String next() {
        try {
            String found = seen.poll(SOON.toSeconds(), TimeUnit.SECONDS);
            assertNotNull(found, "nothing was processed");
            return found;
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private void note(ServiceBusReceivedMessageContext context) {
        seen.add(context.getMessage().getBody().toString());
    }

    @Shows(
            calls = {
                "ServiceBusProcessorClient.start",
                "ServiceBusProcessorClient.isRunning",
                "ServiceBusProcessorClient.getQueueName",
                "ServiceBusProcessorClient.close",
                "ServiceBusReceivedMessageContext.getMessage"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aProcessorCompletesWhatItsHandlerReturnsFrom(Kind kind) {
        String queue = queue(kind);
        ServiceBusProcessorClient processor = processor(kind, queue, true, this::note);
        assertTrue(processor.isRunning());
        assertEquals(queue, processor.getQueueName());
        sender(queue).sendMessages(keyed(kind, "1", "2", "3"));
        assertEquals(Set.of("1", "2", "3"), new TreeSet<>(Set.of(next(), next(), next())));
        assertSoon(() -> activeMessages(queue) == 0);
        processor.close();
        assertFalse(processor.isRunning());
    }

    @Shows(
            calls = {"ServiceBusProcessorClient.start", "ServiceBusReceivedMessageContext.getMessage"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aMessageWhoseHandlerFailsComesAgain(Kind kind) {
        String queue = queue(kind);
        sender(queue).sendMessage(message(kind, "hard"));
        processor(kind, queue, true, context -> {
            note(context);
            if (seen.size() == 1) {
                throw new IllegalStateException("not at once");
            }
        });
        assertSoon(() -> seen.size() == 2);
        assertSoon(() -> activeMessages(queue) == 0);
        assertEquals("not at once", errors.remove().getException().getCause().getMessage());
    }

    @Shows(
            calls = {
                "ServiceBusReceivedMessageContext.complete",
                "ServiceBusReceivedMessageContext.abandon",
                "ServiceBusReceivedMessageContext.deadLetter",
                "ServiceBusReceivedMessageContext.defer",
                "ServiceBusReceivedMessageContext.getEntityPath"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aHandlerSettlesMessagesItself(Kind kind) {
        String queue = queue(kind);
        BlockingQueue<ServiceBusReceivedMessage> deferred = new LinkedBlockingQueue<>();
        processor(kind, queue, false, context -> {
            assertEquals(queue, context.getEntityPath());
            note(context);
            ServiceBusReceivedMessage message = context.getMessage();
            switch (message.getBody().toString()) {
                case "complete" -> context.complete();
                case "bad" -> context.deadLetter(new DeadLetterOptions().setDeadLetterReason("bad"));
                case "defer" -> {
                    context.defer();
                    deferred.add(message);
                }
                default -> {
                    if (message.getApplicationProperties().isEmpty()) {
                        context.abandon(new AbandonOptions()
                                .setPropertiesToModify(Map.of("tried", true)));
                    } else {
                        context.complete();
                    }
                }
            }
        });
        sender(queue).sendMessages(keyed(kind, "complete", "bad", "defer", "again"));
        for (int count = 0; count < 5; count++) {
            next();
        }
        assertEquals("bad", receive(deadLetters(queue)).getDeadLetterReason());
        assertSoon(() -> deferred.size() == 1);
        assertSoon(() -> activeMessages(queue) == 1 && ADMIN.getQueueRuntimeProperties(queue).getTotalMessageCount() == 2);
    }

    @Shows(
            calls = {"ServiceBusProcessorClient.stop", "ServiceBusProcessorClient.start"},
            on = {PLAIN, PARTITIONED})
    void aStoppedProcessorStartsAgain(Kind kind) {
        String queue = queue(kind);
        ServiceBusProcessorClient processor = processor(kind, queue, true, this::note);
        sender(queue).sendMessage(message(kind, "first"));
        assertEquals("first", next());
        assertSoon(() -> activeMessages(queue) == 0);
        processor.stop();
        assertFalse(processor.isRunning());
        sender(queue).sendMessage(message(kind, "second"));
        processor.start();
        assertEquals("second", next());
    }

    @Shows(
            calls = {"ServiceBusProcessorClient.start"},
            on = {SESSIONS})
    void aSessionProcessorGoesThroughManySessions(Kind kind) {
        String queue = queue(kind);
        for (int number = 0; number < 4; number++) {
            sender(queue).sendMessage(new ServiceBusMessage("" + number).setSessionId("session-" + number));
        }
        closing(client.sessionProcessor()
                        .queueName(queue)
                        .maxConcurrentSessions(2)
                        .sessionIdleTimeout(Duration.ofMillis(200))
                        .processMessage(this::note)
                        .processError(errors::add)
                        .buildProcessorClient())
                .start();
        assertEquals(Set.of("0", "1", "2", "3"), Set.of(next(), next(), next(), next()));
    }

    @Shows(
            calls = {
                "ServiceBusProcessorClient.start",
                "ServiceBusProcessorClient.getTopicName",
                "ServiceBusProcessorClient.getSubscriptionName"
            },
            on = {PLAIN, PARTITIONED})
    void aProcessorReceivesFromASubscription(Kind kind) {
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        ServiceBusProcessorClient processor = closing(client.processor()
                .topicName(topic)
                .subscriptionName(subscription)
                .processMessage(this::note)
                .processError(errors::add)
                .buildProcessorClient());
        assertEquals(topic, processor.getTopicName());
        assertEquals(subscription, processor.getSubscriptionName());
        processor.start();
        closing(client.sender().topicName(topic).buildClient()).sendMessage(message(kind, "published"));
        assertEquals("published", next());
    }
}
