package sdktests

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// answered checks the status that the service answered with.
func answered(t testing.TB, err error, status int) {
	t.Helper()
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		t.Fatalf("expected the status %d, found %v", status, err)
	}
	equal(t, response.StatusCode, status)
}

func TestAQueueKeepsItsSettings(t *testing.T) {
	shows(t, "admin.Client.CreateQueue admin.Client.GetQueue admin.Client.DeleteQueue", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue(func(properties *admin.QueueProperties) {
			properties.LockDuration = to.Ptr("PT30S")
			properties.MaxDeliveryCount = to.Ptr(int32(3))
			properties.DefaultMessageTimeToLive = to.Ptr("P2D")
			properties.RequiresDuplicateDetection = to.Ptr(true)
			properties.DuplicateDetectionHistoryTimeWindow = to.Ptr("PT7M")
			properties.UserMetadata = to.Ptr("for <tests> & more")
		})
		found, err := b.admin.GetQueue(b.ctx, queue, nil)
		must(b, err)
		equal(b, found.QueueName, queue)
		equal(b, *found.LockDuration, "PT30S")
		equal(b, *found.MaxDeliveryCount, 3)
		equal(b, *found.DefaultMessageTimeToLive, "P2D")
		equal(b, *found.DuplicateDetectionHistoryTimeWindow, "PT7M")
		equal(b, *found.UserMetadata, "for <tests> & more")
		equal(b, *found.RequiresSession, b.kind == sessions)
		equal(b, *found.EnablePartitioning, b.kind == partitioned)
		_, err = b.admin.DeleteQueue(b.ctx, queue, nil)
		must(b, err)
		found, err = b.admin.GetQueue(b.ctx, queue, nil)
		must(b, err)
		if found != nil {
			b.Fatal("the queue is still there")
		}
	})
}

func TestAQueueIsChanged(t *testing.T) {
	shows(t, "admin.Client.UpdateQueue", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		found, err := b.admin.GetQueue(b.ctx, queue, nil)
		must(b, err)
		found.MaxDeliveryCount = to.Ptr(int32(7))
		changed, err := b.admin.UpdateQueue(b.ctx, queue, found.QueueProperties, nil)
		must(b, err)
		equal(b, *changed.MaxDeliveryCount, 7)
	})
}

func TestQueuesAreListed(t *testing.T) {
	shows(t, "admin.Client.NewListQueuesPager admin.Client.NewListQueuesRuntimePropertiesPager", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		listed, counted := 0, 0
		for pager := b.admin.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 5}); pager.More(); {
			page, err := pager.NextPage(b.ctx)
			must(b, err)
			for _, one := range page.Queues {
				if one.QueueName == queue {
					listed++
				}
			}
		}
		for pager := b.admin.NewListQueuesRuntimePropertiesPager(nil); pager.More(); {
			page, err := pager.NextPage(b.ctx)
			must(b, err)
			for _, one := range page.QueueRuntimeProperties {
				if one.QueueName == queue {
					counted++
				}
			}
		}
		equal(b, listed, 1)
		equal(b, counted, 1)
	})
}

func TestAQueueCountsItsMessages(t *testing.T) {
	shows(t, "admin.Client.GetQueueRuntimeProperties", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "1", "2", "3")
		later := []*azservicebus.Message{b.message("later")}
		_, err := b.sender(queue).ScheduleMessages(b.ctx, later, time.Now().Add(time.Hour), nil)
		must(b, err)
		receiver := b.receiver(queue)
		must(b, receiver.DeadLetterMessage(b.ctx, b.one(receiver), nil))
		found := b.counts(queue)
		equal(b, found.ActiveMessageCount, 2)
		equal(b, found.ScheduledMessageCount, 1)
		equal(b, found.DeadLetterMessageCount, 1)
		equal(b, found.TotalMessageCount, 4)
		if found.SizeInBytes <= 0 || time.Since(found.CreatedAt) > time.Hour {
			b.Fatal(found)
		}
	})
}

func TestTopicsAreAdministered(t *testing.T) {
	shows(t, "admin.Client.CreateTopic admin.Client.GetTopic admin.Client.UpdateTopic admin.Client.DeleteTopic admin.Client.GetTopicRuntimeProperties admin.Client.NewListTopicsPager admin.Client.NewListTopicsRuntimePropertiesPager", on(plain, partitioned), func(b *bench) {
		topic := b.topic()
		b.subscription(topic)
		found, err := b.admin.GetTopic(b.ctx, topic, nil)
		must(b, err)
		equal(b, *found.EnablePartitioning, b.kind == partitioned)
		found.DefaultMessageTimeToLive = to.Ptr("P3D")
		changed, err := b.admin.UpdateTopic(b.ctx, topic, found.TopicProperties, nil)
		must(b, err)
		equal(b, *changed.DefaultMessageTimeToLive, "P3D")
		counts, err := b.admin.GetTopicRuntimeProperties(b.ctx, topic, nil)
		must(b, err)
		equal(b, counts.SubscriptionCount, 1)
		topics, err := b.admin.NewListTopicsPager(nil).NextPage(b.ctx)
		must(b, err)
		runtimes, err := b.admin.NewListTopicsRuntimePropertiesPager(nil).NextPage(b.ctx)
		must(b, err)
		if len(topics.Topics) == 0 || len(runtimes.TopicRuntimeProperties) == 0 {
			b.Fatal("no topics are listed")
		}
		_, err = b.admin.DeleteTopic(b.ctx, topic, nil)
		must(b, err)
		found, err = b.admin.GetTopic(b.ctx, topic, nil)
		must(b, err)
		if found != nil {
			b.Fatal("the topic is still there")
		}
	})
}

func TestSubscriptionsAreAdministered(t *testing.T) {
	shows(t, "admin.Client.CreateSubscription admin.Client.GetSubscription admin.Client.UpdateSubscription admin.Client.DeleteSubscription admin.Client.GetSubscriptionRuntimeProperties admin.Client.NewListSubscriptionsPager admin.Client.NewListSubscriptionsRuntimePropertiesPager", on(plain, sessions, partitioned), func(b *bench) {
		topic := b.topic()
		subscription := b.subscription(topic)
		b.send(topic, "1", "2")
		found, err := b.admin.GetSubscription(b.ctx, topic, subscription, nil)
		must(b, err)
		equal(b, *found.RequiresSession, b.kind == sessions)
		found.MaxDeliveryCount = to.Ptr(int32(5))
		changed, err := b.admin.UpdateSubscription(b.ctx, topic, subscription, found.SubscriptionProperties, nil)
		must(b, err)
		equal(b, *changed.MaxDeliveryCount, 5)
		counts, err := b.admin.GetSubscriptionRuntimeProperties(b.ctx, topic, subscription, nil)
		must(b, err)
		equal(b, counts.ActiveMessageCount, 2)
		listed, err := b.admin.NewListSubscriptionsPager(topic, nil).NextPage(b.ctx)
		must(b, err)
		equal(b, len(listed.Subscriptions), 1)
		runtimes, err := b.admin.NewListSubscriptionsRuntimePropertiesPager(topic, nil).NextPage(b.ctx)
		must(b, err)
		equal(b, runtimes.SubscriptionRuntimeProperties[0].TotalMessageCount, 2)
		_, err = b.admin.DeleteSubscription(b.ctx, topic, subscription, nil)
		must(b, err)
	})
}

func TestMessagesAreForwarded(t *testing.T) {
	shows(t, "admin.Client.CreateQueue Sender.SendMessage", on(plain, partitioned), func(b *bench) {
		last := b.queue()
		first := b.queue(func(properties *admin.QueueProperties) { properties.ForwardTo = to.Ptr(last) })
		found, err := b.admin.GetQueue(b.ctx, first, nil)
		must(b, err)
		if !strings.HasSuffix(*found.ForwardTo, last) {
			b.Fatal(*found.ForwardTo)
		}
		b.send(first, "onward")
		equal(b, string(b.one(b.receiver(last)).Body), "onward")
	})
}

func TestAQueueHasAuthorizationRules(t *testing.T) {
	shows(t, "admin.Client.CreateQueue", on(plain), func(b *bench) {
		rights := []admin.AccessRight{admin.AccessRightManage, admin.AccessRightSend, admin.AccessRightListen}
		queue := b.queue(func(properties *admin.QueueProperties) {
			properties.AuthorizationRules = []admin.AuthorizationRule{{
				AccessRights: rights,
				KeyName:      to.Ptr("all"),
				PrimaryKey:   to.Ptr("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
				SecondaryKey: to.Ptr("YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY="),
			}}
		})
		found, err := b.admin.GetQueue(b.ctx, queue, nil)
		must(b, err)
		equal(b, *found.AuthorizationRules[0].KeyName, "all")
		equal(b, len(found.AuthorizationRules[0].AccessRights), 3)
	})
}

func TestANameIsTakenOnce(t *testing.T) {
	shows(t, "admin.Client.CreateQueue", on(plain, sessions, partitioned), func(b *bench) {
		_, err := b.admin.CreateQueue(b.ctx, b.queue(), nil)
		answered(b, err, 409)
	})
}

func TestBadSettingsAreRefused(t *testing.T) {
	shows(t, "admin.Client.CreateQueue", on(plain), func(b *bench) {
		properties := &admin.QueueProperties{LockDuration: to.Ptr("PT1H")}
		_, err := b.admin.CreateQueue(b.ctx, name("queue"), &admin.CreateQueueOptions{Properties: properties})
		answered(b, err, 400)
	})
}

func TestTheNamespaceSaysWhatItIs(t *testing.T) {
	shows(t, "admin.Client.GetNamespaceProperties", on(plain), func(b *bench) {
		found, err := b.admin.GetNamespaceProperties(b.ctx, nil)
		must(b, err)
		if found.Name == "" || found.SKU == "" {
			b.Fatal(found)
		}
	})
}

func TestAWrongKeyIsRefused(t *testing.T) {
	shows(t, "azservicebus.NewClientFromConnectionString admin.NewClientFromConnectionString", on(plain), func(b *bench) {
		begin, _, _ := strings.Cut(connectionString, ";SharedAccessKey=")
		wrong := begin + ";SharedAccessKey=d3Jvbmc=;UseDevelopmentEmulator=true"
		_, err := newAdmin(b.T, wrong).GetNamespaceProperties(b.ctx, nil)
		answered(b, err, 401)
		sender, err := newClient(b.T, wrong).NewSender(b.queue(), nil)
		must(b, err)
		refused(b, sender.SendMessage(b.ctx, b.message("x"), nil), azservicebus.CodeUnauthorizedAccess)
	})
}
