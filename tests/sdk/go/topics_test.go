package sdktests

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// selecting makes a subscription with this rule only.
func (b *bench) selecting(topic string, rule admin.CreateRuleOptions) string {
	b.Helper()
	subscription := b.subscription(topic)
	rule.Name = to.Ptr("only")
	_, err := b.admin.CreateRule(b.ctx, topic, subscription, &rule)
	must(b, err)
	_, err = b.admin.DeleteRule(b.ctx, topic, subscription, "$Default", nil)
	must(b, err)
	return subscription
}

func (b *bench) order(body, subject string, total int64) *azservicebus.Message {
	message := b.message(body)
	message.Subject = to.Ptr(subject)
	message.ApplicationProperties = map[string]any{"total": total}
	return message
}

func TestEverySubscriptionGetsACopy(t *testing.T) {
	shows(t, "Client.NewReceiverForSubscription Client.AcceptSessionForSubscription", on(plain, sessions, partitioned), func(b *bench) {
		topic := b.topic()
		subscriptions := []string{b.subscription(topic), b.subscription(topic)}
		b.send(topic, "1", "2")
		for _, subscription := range subscriptions {
			equal(b, bodies(b.receive(b.subscriber(topic, subscription), 2)), "1 2")
		}
	})
}

func TestASQLRuleSelectsMessages(t *testing.T) {
	shows(t, "admin.Client.CreateRule admin.Client.DeleteRule", on(plain, sessions, partitioned), func(b *bench) {
		topic := b.topic()
		filter := &admin.SQLFilter{Expression: "total > @least", Parameters: map[string]any{"@least": 100}}
		subscription := b.selecting(topic, admin.CreateRuleOptions{Filter: filter})
		sender := b.sender(topic)
		must(b, sender.SendMessage(b.ctx, b.order("no", "small", 5), nil))
		must(b, sender.SendMessage(b.ctx, b.order("yes", "large", 500), nil))
		equal(b, string(b.one(b.subscriber(topic, subscription)).Body), "yes")
		counts, err := b.admin.GetSubscriptionRuntimeProperties(b.ctx, topic, subscription, nil)
		must(b, err)
		equal(b, counts.ActiveMessageCount, 1)
	})
}

func TestACorrelationRuleSelectsMessages(t *testing.T) {
	shows(t, "admin.Client.CreateRule", on(plain, sessions, partitioned), func(b *bench) {
		topic := b.topic()
		filter := &admin.CorrelationFilter{
			Subject:               to.Ptr("large"),
			ApplicationProperties: map[string]any{"total": int64(500)},
		}
		subscription := b.selecting(topic, admin.CreateRuleOptions{Filter: filter})
		sender := b.sender(topic)
		must(b, sender.SendMessage(b.ctx, b.order("no", "large", 501), nil))
		must(b, sender.SendMessage(b.ctx, b.order("yes", "large", 500), nil))
		equal(b, string(b.one(b.subscriber(topic, subscription)).Body), "yes")
	})
}

func TestAnActionChangesTheCopy(t *testing.T) {
	shows(t, "admin.Client.CreateRule", on(plain, sessions, partitioned), func(b *bench) {
		topic := b.topic()
		subscription := b.selecting(topic, admin.CreateRuleOptions{
			Filter: &admin.TrueFilter{},
			Action: &admin.SQLAction{Expression: "SET sys.Label = 'seen'; SET total = total + 1"},
		})
		must(b, b.sender(topic).SendMessage(b.ctx, b.order("x", "new", 1), nil))
		found := b.one(b.subscriber(topic, subscription))
		equal(b, *found.Subject, "seen")
		equal(b, found.ApplicationProperties["total"], any(int64(2)))
	})
}

func TestRulesAreAdministered(t *testing.T) {
	shows(t, "admin.Client.CreateRule admin.Client.GetRule admin.Client.UpdateRule admin.Client.NewListRulesPager admin.Client.DeleteRule", on(plain, sessions, partitioned), func(b *bench) {
		topic := b.topic()
		subscription := b.selecting(topic, admin.CreateRuleOptions{Filter: &admin.SQLFilter{Expression: "a = 1"}})
		rule, err := b.admin.GetRule(b.ctx, topic, subscription, "only", nil)
		must(b, err)
		equal(b, rule.Filter.(*admin.SQLFilter).Expression, "a = 1")
		rule.Filter = &admin.FalseFilter{}
		_, err = b.admin.UpdateRule(b.ctx, topic, subscription, rule.RuleProperties)
		must(b, err)
		page, err := b.admin.NewListRulesPager(topic, subscription, nil).NextPage(b.ctx)
		must(b, err)
		equal(b, len(page.Rules), 1)
		if _, isFalse := page.Rules[0].Filter.(*admin.FalseFilter); !isFalse {
			b.Fatalf("%T", page.Rules[0].Filter)
		}
		_, err = b.admin.DeleteRule(b.ctx, topic, subscription, "only", nil)
		must(b, err)
		rule, err = b.admin.GetRule(b.ctx, topic, subscription, "only", nil)
		must(b, err)
		if rule != nil {
			b.Fatal("the rule is still there")
		}
	})
}
