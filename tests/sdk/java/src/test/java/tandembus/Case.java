package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.MalformedURLException;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import reactor.core.publisher.Mono;

/** What every test has: clients of the running namespace, closed after the test, and entities nobody else uses. */
abstract class Case {
    static final String CONNECTION_STRING = System.getenv("TANDEMBUS_CONNECTION_STRING");
    static final int PORT = URI.create(setting("Endpoint").replace("sb:", "tcp:")).getPort();
    static final Duration SOON = Duration.ofSeconds(30);
    /** How long to look for a message that must not come. */
    static final Duration NOT_COMING = Duration.ofMillis(300);
    static final String SESSION = "one";
    static final ServiceBusAdministrationClient ADMIN = administration().buildClient();

    final ServiceBusClientBuilder client = client();
    private final List<AutoCloseable> open = new ArrayList<>();

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(CONNECTION_STRING).retryOptions(patience(3));
    }

    static AmqpRetryOptions patience(int retries) {
        return new AmqpRetryOptions().setTryTimeout(SOON).setMaxRetries(retries);
    }

    static ServiceBusAdministrationClientBuilder administration() {
        return new ServiceBusAdministrationClientBuilder()
                .connectionString(CONNECTION_STRING)
                .addPolicy(new PortOfTheNamespace());
    }

    static String setting(String name) {
        for (String part : CONNECTION_STRING.split(";")) {
            if (part.startsWith(name + "=")) {
                return part.substring(name.length() + 1);
            }
        }
        throw new IllegalStateException(name + " is missing");
    }

    /** The administration client keeps the host of a connection string only, and asks port 443. */
    private static final class PortOfTheNamespace implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            try {
                context.getHttpRequest().setUrl(UrlBuilder.parse(context.getHttpRequest().getUrl())
                        .setPort(PORT)
                        .toUrl());
            } catch (MalformedURLException error) {
                return Mono.error(error);
            }
            return next.process();
        }
    }

    <T extends AutoCloseable> T closing(T one) {
        open.add(0, one);
        return one;
    }

    @AfterEach
    void close() throws Exception {
        for (AutoCloseable one : open) {
            one.close();
        }
    }

    static String name(String of) {
        return "java-" + of + "-" + UUID.randomUUID();
    }

    static CreateQueueOptions queueOptions(Kind kind) {
        return new CreateQueueOptions()
                .setSessionRequired(kind == Kind.SESSIONS)
                .setPartitioningEnabled(kind == Kind.PARTITIONED);
    }

    static String queue(Kind kind) {
        return queue(queueOptions(kind));
    }

    static String queue(CreateQueueOptions options) {
        return ADMIN.createQueue(name("queue"), options).getName();
    }

    static String topic(Kind kind) {
        return ADMIN.createTopic(name("topic"), new CreateTopicOptions().setPartitioningEnabled(kind == Kind.PARTITIONED))
                .getName();
    }

    static String subscription(String topic, Kind kind) {
        CreateSubscriptionOptions options = new CreateSubscriptionOptions().setSessionRequired(kind == Kind.SESSIONS);
        return ADMIN.createSubscription(topic, name("sub"), options).getSubscriptionName();
    }

    ServiceBusSenderClient sender(String queue) {
        return closing(client.sender().queueName(queue).buildClient());
    }

    /** A receiver of the queue; where sessions are required, of the session that `message` selects. */
    ServiceBusReceiverClient receiver(Kind kind, String queue) {
        if (kind == Kind.SESSIONS) {
            return session(queue, SESSION);
        }
        return closing(client.receiver().queueName(queue).disableAutoComplete().buildClient());
    }

    ServiceBusReceiverClient session(String queue, String id) {
        return closing(closing(client.sessionReceiver().queueName(queue).disableAutoComplete().buildClient())
                .acceptSession(id));
    }

    ServiceBusReceiverClient deadLetters(String queue) {
        return closing(client.receiver()
                .queueName(queue)
                .subQueue(SubQueue.DEAD_LETTER_QUEUE)
                .disableAutoComplete()
                .buildClient());
    }

    ServiceBusReceiverClient subscriber(Kind kind, String topic, String subscription) {
        if (kind == Kind.SESSIONS) {
            return closing(closing(client.sessionReceiver()
                            .topicName(topic)
                            .subscriptionName(subscription)
                            .disableAutoComplete()
                            .buildClient())
                    .acceptSession(SESSION));
        }
        return closing(client.receiver()
                .topicName(topic)
                .subscriptionName(subscription)
                .disableAutoComplete()
                .buildClient());
    }

    static ServiceBusMessage message(Kind kind, String body) {
        ServiceBusMessage message = new ServiceBusMessage(body);
        return kind == Kind.SESSIONS ? message.setSessionId(SESSION) : message;
    }

    /** One of several that must be in one fragment, for their order or a transaction. */
    static ServiceBusMessage keyed(Kind kind, String body) {
        ServiceBusMessage message = message(kind, body);
        return kind == Kind.PARTITIONED ? message.setPartitionKey("together") : message;
    }

    static List<ServiceBusMessage> keyed(Kind kind, String... bodies) {
        return List.of(bodies).stream().map(body -> keyed(kind, body)).toList();
    }

    static ServiceBusReceivedMessage receive(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    /** Exactly so many: the SDK may return before all have arrived. */
    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        Instant giveUp = Instant.now().plus(SOON);
        while (found.size() < count && Instant.now().isBefore(giveUp)) {
            receiver.receiveMessages(count - found.size(), SOON).forEach(found::add);
        }
        assertEquals(count, found.size());
        return found;
    }

    static void completeAll(ServiceBusReceiverClient receiver, int count) {
        receive(receiver, count).forEach(receiver::complete);
    }

    static void assertNothingComes(ServiceBusReceiverClient receiver) {
        assertEquals(List.of(), bodies(receiver.receiveMessages(1, NOT_COMING)));
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(one -> found.add(one.getBody().toString()));
        return found;
    }

    /** For what happens without an answer: asks until it holds. */
    static void assertSoon(Supplier<Boolean> condition) {
        Instant giveUp = Instant.now().plus(SOON);
        while (!condition.get()) {
            assertTrue(Instant.now().isBefore(giveUp), "the condition did not come to hold");
        }
    }

    static int activeMessages(String queue) {
        return ADMIN.getQueueRuntimeProperties(queue).getActiveMessageCount();
    }
}
