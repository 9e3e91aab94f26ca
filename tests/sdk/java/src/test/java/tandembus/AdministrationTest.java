package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.core.exception.ClientAuthenticationException;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationAsyncClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.SubscriptionRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;

class AdministrationTest extends Case {
    @Shows(
            calls = {
                "ServiceBusAdministrationClient.createQueue",
                "ServiceBusAdministrationClient.getQueue",
                "ServiceBusAdministrationClient.getQueueExists",
                "ServiceBusAdministrationClient.deleteQueue"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aQueueKeepsItsSettings(Kind kind) {
        String queue = name("queue");
        assertFalse(ADMIN.getQueueExists(queue));
        ADMIN.createQueue(
                queue,
                queueOptions(kind)
                        .setLockDuration(Duration.ofSeconds(30))
                        .setMaxDeliveryCount(3)
                        .setDefaultMessageTimeToLive(Duration.ofDays(2))
                        .setDeadLetteringOnMessageExpiration(true)
                        .setDuplicateDetectionRequired(true)
                        .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(7))
                        .setAutoDeleteOnIdle(Duration.ofHours(1))
                        .setMaxSizeInMegabytes(2048)
                        .setUserMetadata("for <tests> & more"));
        QueueProperties found = ADMIN.getQueue(queue);
        assertEquals(queue, found.getName());
        assertEquals(Duration.ofSeconds(30), found.getLockDuration());
        assertEquals(3, found.getMaxDeliveryCount());
        assertEquals(Duration.ofDays(2), found.getDefaultMessageTimeToLive());
        assertTrue(found.isDeadLetteringOnMessageExpiration());
        assertTrue(found.isDuplicateDetectionRequired());
        assertEquals(Duration.ofMinutes(7), found.getDuplicateDetectionHistoryTimeWindow());
        assertEquals(Duration.ofHours(1), found.getAutoDeleteOnIdle());
        assertEquals("for <tests> & more", found.getUserMetadata());
        assertEquals(kind == SESSIONS, found.isSessionRequired());
        assertEquals(kind == PARTITIONED, found.isPartitioningEnabled());
        assertEquals(EntityStatus.ACTIVE, found.getStatus());
        assertTrue(ADMIN.getQueueExists(queue));
        ADMIN.deleteQueue(queue);
        assertFalse(ADMIN.getQueueExists(queue));
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.updateQueue", "ServiceBusAdministrationClient.getQueue"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aQueueIsChanged(Kind kind) {
        QueueProperties queue = ADMIN.getQueue(queue(kind));
        ADMIN.updateQueue(queue.setMaxDeliveryCount(7).setLockDuration(Duration.ofSeconds(45)));
        QueueProperties found = ADMIN.getQueue(queue.getName());
        assertEquals(7, found.getMaxDeliveryCount());
        assertEquals(Duration.ofSeconds(45), found.getLockDuration());
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.listQueues"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void queuesAreListed(Kind kind) {
        String queue = queue(kind);
        assertTrue(ADMIN.listQueues().stream().anyMatch(one -> one.getName().equals(queue)));
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.getQueueRuntimeProperties"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aQueueCountsItsMessages(Kind kind) {
        OffsetDateTime before = OffsetDateTime.now().minusMinutes(1);
        String queue = queue(kind);
        sender(queue).sendMessages(keyed(kind, "1", "2", "3"));
        sender(queue).scheduleMessage(message(kind, "later"), OffsetDateTime.now().plusHours(1));
        ServiceBusReceiverClient receiver = receiver(kind, queue);
        receiver.deadLetter(receive(receiver));
        QueueRuntimeProperties found = ADMIN.getQueueRuntimeProperties(queue);
        assertEquals(2, found.getActiveMessageCount());
        assertEquals(1, found.getScheduledMessageCount());
        assertEquals(1, found.getDeadLetterMessageCount());
        assertEquals(4, found.getTotalMessageCount());
        assertTrue(found.getSizeInBytes() > 0);
        assertTrue(found.getCreatedAt().isAfter(before));
        assertTrue(found.getAccessedAt().isAfter(before));
    }

    @Shows(
            calls = {
                "ServiceBusAdministrationClient.createTopic",
                "ServiceBusAdministrationClient.getTopic",
                "ServiceBusAdministrationClient.updateTopic",
                "ServiceBusAdministrationClient.listTopics",
                "ServiceBusAdministrationClient.getTopicExists",
                "ServiceBusAdministrationClient.getTopicRuntimeProperties",
                "ServiceBusAdministrationClient.deleteTopic"
            },
            on = {PLAIN, PARTITIONED})
    void topicsAreAdministered(Kind kind) {
        String name = name("topic");
        ADMIN.createTopic(
                name,
                new CreateTopicOptions()
                        .setPartitioningEnabled(kind == PARTITIONED)
                        .setOrderingSupported(true)
                        .setDefaultMessageTimeToLive(Duration.ofDays(2)));
        TopicProperties topic = ADMIN.getTopic(name);
        assertEquals(Duration.ofDays(2), topic.getDefaultMessageTimeToLive());
        assertEquals(kind == PARTITIONED, topic.isPartitioningEnabled());
        ADMIN.updateTopic(topic.setDefaultMessageTimeToLive(Duration.ofDays(3)).setUserMetadata("changed"));
        assertEquals(Duration.ofDays(3), ADMIN.getTopic(name).getDefaultMessageTimeToLive());
        ADMIN.createSubscription(name, "one");
        assertEquals(1, ADMIN.getTopicRuntimeProperties(name).getSubscriptionCount());
        assertTrue(ADMIN.listTopics().stream().anyMatch(one -> one.getName().equals(name)));
        ADMIN.deleteTopic(name);
        assertFalse(ADMIN.getTopicExists(name));
    }

    @Shows(
            calls = {
                "ServiceBusAdministrationClient.createSubscription",
                "ServiceBusAdministrationClient.getSubscription",
                "ServiceBusAdministrationClient.updateSubscription",
                "ServiceBusAdministrationClient.listSubscriptions",
                "ServiceBusAdministrationClient.getSubscriptionExists",
                "ServiceBusAdministrationClient.getSubscriptionRuntimeProperties",
                "ServiceBusAdministrationClient.deleteSubscription"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void subscriptionsAreAdministered(Kind kind) {
        String topic = topic(kind);
        ADMIN.createSubscription(
                topic,
                "one",
                new CreateSubscriptionOptions()
                        .setSessionRequired(kind == SESSIONS)
                        .setMaxDeliveryCount(3)
                        .setLockDuration(Duration.ofSeconds(30)));
        SubscriptionProperties found = ADMIN.getSubscription(topic, "one");
        assertEquals(3, found.getMaxDeliveryCount());
        assertEquals(kind == SESSIONS, found.isSessionRequired());
        ADMIN.updateSubscription(found.setMaxDeliveryCount(5));
        assertEquals(5, ADMIN.getSubscription(topic, "one").getMaxDeliveryCount());
        closing(client.sender().topicName(topic).buildClient()).sendMessages(keyed(kind, "1", "2"));
        SubscriptionRuntimeProperties counts = ADMIN.getSubscriptionRuntimeProperties(topic, "one");
        assertEquals(2, counts.getActiveMessageCount());
        assertEquals(2, counts.getTotalMessageCount());
        assertEquals(
                List.of("one"),
                ADMIN.listSubscriptions(topic).stream()
                        .map(SubscriptionProperties::getSubscriptionName)
                        .toList());
        ADMIN.deleteSubscription(topic, "one");
        assertFalse(ADMIN.getSubscriptionExists(topic, "one"));
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.createQueue", "ServiceBusAdministrationClient.getQueue"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void messagesAreForwarded(Kind kind) {
        String last = queue(kind);
        String first = queue(new CreateQueueOptions()
                .setPartitioningEnabled(kind == PARTITIONED)
                .setForwardTo(last));
        assertTrue(ADMIN.getQueue(first).getForwardTo().endsWith(last));
        sender(first).sendMessage(message(kind, "onward"));
        assertEquals("onward", receive(receiver(kind, last)).getBody().toString());
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.createQueue"},
            on = {PLAIN})
    void aQueueHasAuthorizationRules(Kind kind) {
        CreateQueueOptions options = queueOptions(kind);
        options.getAuthorizationRules()
                .add(new SharedAccessAuthorizationRule("reads", List.of(AccessRights.LISTEN)));
        SharedAccessAuthorizationRule found = (SharedAccessAuthorizationRule)
                ADMIN.getQueue(queue(options)).getAuthorizationRules().get(0);
        assertEquals("reads", found.getKeyName());
        assertEquals(List.of(AccessRights.LISTEN), found.getAccessRights());
        assertFalse(found.getPrimaryKey().isEmpty());
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.createQueue"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aNameIsTakenOnce(Kind kind) {
        String queue = queue(kind);
        ResourceExistsException error =
                assertThrows(ResourceExistsException.class, () -> ADMIN.createQueue(queue, queueOptions(kind)));
        assertTrue(error.getMessage().contains(queue), error.getMessage());
    }

    @Shows(
            calls = {
                "ServiceBusAdministrationClient.getQueue",
                "ServiceBusAdministrationClient.getTopic",
                "ServiceBusAdministrationClient.getSubscription",
                "ServiceBusAdministrationClient.deleteQueue"
            },
            on = {PLAIN})
    void whatDoesNotExistIsNotFound(Kind kind) {
        assertThrows(ResourceNotFoundException.class, () -> ADMIN.getQueue("no-such-queue"));
        assertThrows(ResourceNotFoundException.class, () -> ADMIN.getTopic("no-such-topic"));
        assertThrows(ResourceNotFoundException.class, () -> ADMIN.getSubscription(topic(kind), "no-such-subscription"));
        assertThrows(ResourceNotFoundException.class, () -> ADMIN.deleteQueue("no-such-queue"));
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.createQueue"},
            on = {PLAIN})
    void badSettingsAreRefused(Kind kind) {
        CreateQueueOptions options = queueOptions(kind).setLockDuration(Duration.ofHours(1));
        HttpResponseException error =
                assertThrows(HttpResponseException.class, () -> ADMIN.createQueue(name("queue"), options));
        assertEquals(400, error.getResponse().getStatusCode());
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.getNamespaceProperties"},
            on = {PLAIN})
    void theNamespaceSaysWhatItIs(Kind kind) {
        assertFalse(ADMIN.getNamespaceProperties().getName().isEmpty());
        assertNotNull(ADMIN.getNamespaceProperties().getMessagingSku());
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.getQueueExists"},
            on = {PLAIN})
    void aWrongKeyIsRefused(Kind kind) {
        ServiceBusAdministrationClientBuilder builder = administration()
                .connectionString(CONNECTION_STRING.replace(setting("SharedAccessKey"), "d3Jvbmc="));
        assertThrows(ClientAuthenticationException.class, () -> builder.buildClient().getQueueExists("any"));
    }

    @Shows(
            calls = {
                "ServiceBusAdministrationAsyncClient.createQueue",
                "ServiceBusAdministrationAsyncClient.getQueue",
                "ServiceBusAdministrationAsyncClient.updateQueue",
                "ServiceBusAdministrationAsyncClient.listQueues",
                "ServiceBusAdministrationAsyncClient.deleteQueue"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void theAsyncClientAdministersQueues(Kind kind) {
        ServiceBusAdministrationAsyncClient admin = administration().buildAsyncClient();
        String name = name("queue");
        QueueProperties queue = admin.createQueue(name, queueOptions(kind)).block(SOON);
        admin.updateQueue(queue.setMaxDeliveryCount(4)).block(SOON);
        assertEquals(4, admin.getQueue(name).block(SOON).getMaxDeliveryCount());
        assertTrue(admin.listQueues().any(one -> one.getName().equals(name)).block(SOON));
        admin.deleteQueue(name).block(SOON);
        assertFalse(ADMIN.getQueueExists(name));
    }
}
