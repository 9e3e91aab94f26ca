package tandembus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static tandembus.Kind.PARTITIONED;
import static tandembus.Kind.PLAIN;
import static tandembus.Kind.SESSIONS;

import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;

class RulesTest extends Case {
    private ServiceBusSenderClient publisher(String topic) {
        return closing(client.sender().topicName(topic).buildClient());
    }

    private ServiceBusRuleManagerClient rules(String topic, String subscription) {
        return closing(client.ruleManager().topicName(topic).subscriptionName(subscription).buildClient());
    }

    private static ServiceBusMessage order(Kind kind, String body, int total) {
        ServiceBusMessage message = keyed(kind, body).setSubject(total > 100 ? "large" : "small");
        message.getApplicationProperties().put("total", total);
        return message;
    }

    private static Set<String> names(Iterable<RuleProperties> rules) {
        Set<String> found = new TreeSet<>();
        rules.forEach(one -> found.add(one.getName()));
        return found;
    }

    @Shows(
            calls = {"ServiceBusSenderClient.sendMessages", "ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void everySubscriptionGetsACopy(Kind kind) {
        String topic = topic(kind);
        List<String> subscriptions = List.of(subscription(topic, kind), subscription(topic, kind));
        publisher(topic).sendMessages(keyed(kind, "1", "2"));
        for (String subscription : subscriptions) {
            assertEquals(List.of("1", "2"), bodies(receive(subscriber(kind, topic, subscription), 2)));
        }
    }

    @Shows(
            calls = {
                "ServiceBusRuleManagerClient.createRule",
                "ServiceBusRuleManagerClient.deleteRule",
                "ServiceBusRuleManagerClient.listRules",
                "ServiceBusRuleManagerClient.getEntityPath"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aSqlRuleSelectsMessages(Kind kind) {
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        ServiceBusRuleManagerClient rules = rules(topic, subscription);
        assertEquals(Set.of("$Default"), names(rules.listRules()));
        rules.deleteRule("$Default");
        rules.createRule("large", new CreateRuleOptions(new SqlRuleFilter("total > 100")));
        assertEquals(Set.of("large"), names(rules.listRules()));
        assertTrue(rules.getEntityPath().startsWith(topic), rules.getEntityPath());
        publisher(topic).sendMessages(List.of(order(kind, "no", 5), order(kind, "yes", 500)));
        assertEquals("yes", receive(subscriber(kind, topic, subscription)).getBody().toString());
        assertEquals(1, ADMIN.getSubscriptionRuntimeProperties(topic, subscription).getActiveMessageCount());
    }

    @Shows(
            calls = {"ServiceBusRuleManagerClient.createRule", "ServiceBusRuleManagerClient.listRules"},
            on = {PLAIN, PARTITIONED})
    void aCorrelationRuleSelectsMessages(Kind kind) {
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        ServiceBusRuleManagerClient rules = rules(topic, subscription);
        rules.deleteRule("$Default");
        CorrelationRuleFilter filter = new CorrelationRuleFilter().setLabel("large");
        filter.getProperties().put("total", 500);
        rules.createRule("exact", new CreateRuleOptions(filter));
        RuleProperties listed = rules.listRules().iterator().next();
        CorrelationRuleFilter found = assertInstanceOf(CorrelationRuleFilter.class, listed.getFilter());
        assertEquals("large", found.getLabel());
        assertEquals("500", String.valueOf(found.getProperties().get("total")));
        publisher(topic).sendMessages(List.of(order(kind, "small", 5), order(kind, "yes", 500), order(kind, "no", 501)));
        assertEquals("yes", receive(subscriber(kind, topic, subscription)).getBody().toString());
        assertEquals(1, ADMIN.getSubscriptionRuntimeProperties(topic, subscription).getActiveMessageCount());
    }

    @Shows(
            calls = {"ServiceBusAdministrationClient.createRule", "ServiceBusAdministrationClient.createSubscription"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void anActionChangesTheCopy(Kind kind) {
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        ADMIN.deleteRule(topic, subscription, "$Default");
        ADMIN.createRule(
                topic,
                "changes",
                subscription,
                new CreateRuleOptions(new TrueRuleFilter())
                        .setAction(new SqlRuleAction("SET sys.Label = 'seen'; SET total = total + 1; REMOVE other")));
        ServiceBusMessage message = order(kind, "x", 1);
        message.getApplicationProperties().put("other", "x");
        publisher(topic).sendMessage(message);
        ServiceBusReceivedMessage found = receive(subscriber(kind, topic, subscription));
        assertEquals("seen", found.getSubject());
        assertEquals(2L, ((Number) found.getApplicationProperties().get("total")).longValue());
        assertEquals(Set.of("total"), found.getApplicationProperties().keySet().stream()
                .filter(name -> !name.equals("RuleName"))
                .collect(Collectors.toSet()));
    }

    @Shows(
            calls = {
                "ServiceBusAdministrationClient.createRule",
                "ServiceBusAdministrationClient.getRule",
                "ServiceBusAdministrationClient.updateRule",
                "ServiceBusAdministrationClient.listRules",
                "ServiceBusAdministrationClient.deleteRule"
            },
            on = {PLAIN, SESSIONS, PARTITIONED})
    void rulesAreAdministered(Kind kind) {
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        ADMIN.createRule(topic, "one", subscription, new CreateRuleOptions(new SqlRuleFilter("a = 1")));
        RuleProperties rule = ADMIN.getRule(topic, subscription, "one");
        assertEquals("a = 1", assertInstanceOf(SqlRuleFilter.class, rule.getFilter()).getSqlExpression());
        ADMIN.updateRule(topic, subscription, rule.setFilter(new FalseRuleFilter()));
        assertInstanceOf(FalseRuleFilter.class, ADMIN.getRule(topic, subscription, "one").getFilter());
        assertEquals(Set.of("$Default", "one"), names(ADMIN.listRules(topic, subscription)));
        assertThrows(
                ResourceExistsException.class,
                () -> ADMIN.createRule(topic, "one", subscription, new CreateRuleOptions(new TrueRuleFilter())));
        ADMIN.deleteRule(topic, subscription, "one");
        assertThrows(ResourceNotFoundException.class, () -> ADMIN.getRule(topic, subscription, "one"));
    }

    @Shows(
            calls = {"ServiceBusReceiverClient.deadLetter", "ServiceBusReceiverClient.receiveMessages"},
            on = {PLAIN, SESSIONS, PARTITIONED})
    void aSubscriptionHasItsOwnDeadLetterQueue(Kind kind) {
        String topic = topic(kind);
        String subscription = subscription(topic, kind);
        publisher(topic).sendMessage(message(kind, "bad"));
        ServiceBusReceiverClient receiver = subscriber(kind, topic, subscription);
        receiver.deadLetter(receive(receiver));
        ServiceBusReceiverClient deadLetters = closing(client.receiver()
                .topicName(topic)
                .subscriptionName(subscription)
                .subQueue(SubQueue.DEAD_LETTER_QUEUE)
                .buildClient());
        assertEquals("bad", receive(deadLetters).getBody().toString());
    }
}
