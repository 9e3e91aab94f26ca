package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.spring.cloud.service.servicebus.consumer.ServiceBusRecordMessageListener;
import com.azure.spring.cloud.service.servicebus.properties.ServiceBusEntityType;
import com.azure.spring.messaging.implementation.annotation.EnableAzureMessaging;
import com.azure.spring.messaging.servicebus.core.DefaultServiceBusNamespaceProcessorFactory;
import com.azure.spring.messaging.servicebus.core.DefaultServiceBusNamespaceProducerFactory;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import com.azure.spring.messaging.servicebus.core.listener.ServiceBusMessageListenerContainer;
import com.azure.spring.messaging.servicebus.core.properties.NamespaceProperties;
import com.azure.spring.messaging.servicebus.core.properties.ServiceBusContainerProperties;
import com.azure.spring.messaging.servicebus.implementation.core.annotation.ServiceBusListener;
import com.azure.spring.messaging.servicebus.implementation.core.config.ServiceBusMessageListenerContainerFactory;
import com.azure.spring.messaging.servicebus.support.ServiceBusMessageHeaders;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** Applications of Spring Cloud Azure. */
class CloudSpring extends Case {
    private final BlockingQueue<String> received = new LinkedBlockingQueue<>();

    private static NamespaceProperties namespace(ServiceBusEntityType type) {
        NamespaceProperties namespace = new NamespaceProperties();
        namespace.setConnectionString(CONNECTION_STRING);
        namespace.setEntityType(type);
        return namespace;
    }

    private void send(Kind kind, ServiceBusEntityType type, String entity, String body) {
        DefaultServiceBusNamespaceProducerFactory factory = new DefaultServiceBusNamespaceProducerFactory(namespace(type));
        closing(factory::destroy);
        Message<String> message = kind == SESSIONS
                ? MessageBuilder.withPayload(body)
                        .setHeader(ServiceBusMessageHeaders.SESSION_ID, SESSION)
                        .build()
                : MessageBuilder.withPayload(body).build();
        new ServiceBusTemplate(factory).sendAsync(entity, message).block(SOON);
    }

    private void listen(Kind kind, ServiceBusContainerProperties properties) {
        properties.setSessionEnabled(kind == SESSIONS);
        properties.setErrorHandler(context -> received.add(context.getException().toString()));
        properties.setMessageListener((ServiceBusRecordMessageListener) this::take);
        DefaultServiceBusNamespaceProcessorFactory factory =
                new DefaultServiceBusNamespaceProcessorFactory(namespace(properties.getEntityType()));
        closing(factory::destroy);
        ServiceBusMessageListenerContainer container = new ServiceBusMessageListenerContainer(factory, properties);
        container.start();
        closing(container::stop);
    }

    private void take(ServiceBusReceivedMessageContext context) {
        received.add(context.getMessage().getBody().toString());
    }

    private String next() throws InterruptedException {
        return received.poll(SOON.toMillis(), TimeUnit.MILLISECONDS);
    }

    @Shows(
            calls = {"ServiceBusTemplate.sendAsync", "ServiceBusMessageListenerContainer.start"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aTemplateSendsToAQueueAndAContainerListensToIt(Kind kind) throws InterruptedException {
        String queue = queue(kind);
        ServiceBusContainerProperties properties = new ServiceBusContainerProperties();
        properties.setEntityName(queue);
        properties.setEntityType(ServiceBusEntityType.QUEUE);
        listen(kind, properties);
        send(kind, ServiceBusEntityType.QUEUE, queue, "order");
        assertEquals("order", next());
        assertSoon(() -> activeMessages(queue) == 0);
    }

    @Shows(
            calls = {"ServiceBusTemplate.sendAsync", "ServiceBusMessageListenerContainer.stop"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aTemplateSendsToATopicAndAContainerListensToItsSubscription(Kind kind) throws InterruptedException {
        String topic = topic(kind);
        ServiceBusContainerProperties properties = new ServiceBusContainerProperties();
        properties.setEntityName(topic);
        properties.setSubscriptionName(subscription(topic, kind));
        properties.setEntityType(ServiceBusEntityType.TOPIC);
        listen(kind, properties);
        send(kind, ServiceBusEntityType.TOPIC, topic, "news");
        assertEquals("news", next());
    }

    /** What an application consists of. */
    @Configuration
    @EnableAzureMessaging
    static class Application {
        private final BlockingQueue<String> taken = new LinkedBlockingQueue<>();

        @Bean
        ServiceBusMessageListenerContainerFactory azureServiceBusListenerContainerFactory() {
            return new ServiceBusMessageListenerContainerFactory(
                    new DefaultServiceBusNamespaceProcessorFactory(namespace(ServiceBusEntityType.QUEUE)));
        }

        @ServiceBusListener(destination = "${orders}")
        void take(String body) {
            taken.add(body);
        }
    }

    @Shows(
            calls = {"ServiceBusListener.destination"},
            on = {PLAIN, PARTITIONED})
    void anAnnotatedMethodListensToAQueue(Kind kind) throws InterruptedException {
        String queue = queue(kind);
        AnnotationConfigApplicationContext context = closing(new AnnotationConfigApplicationContext());
        context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("test", Map.of("orders", queue)));
        context.register(Application.class);
        context.refresh();
        send(kind, ServiceBusEntityType.QUEUE, queue, "order");
        BlockingQueue<String> taken = context.getBean(Application.class).taken;
        assertEquals("order", taken.poll(SOON.toMillis(), TimeUnit.MILLISECONDS));
        assertSoon(() -> activeMessages(queue) == 0);
    }
}
