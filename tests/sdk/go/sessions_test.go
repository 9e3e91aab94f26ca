package sdktests

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (b *bench) sendIn(queueOrTopic, id, body string) {
	b.Helper()
	message := &azservicebus.Message{Body: []byte(body), SessionID: to.Ptr(id)}
	must(b, b.sender(queueOrTopic).SendMessage(b.ctx, message, nil))
}

func TestASessionGivesItsOwnMessagesInOrder(t *testing.T) {
	shows(t, "Client.AcceptSessionForQueue SessionReceiver.ReceiveMessages SessionReceiver.SessionID", on(sessions), func(b *bench) {
		queue := b.queue()
		for _, body := range []string{"1", "2", "3"} {
			b.sendIn(queue, "mine", body)
			b.sendIn(queue, "other", body)
		}
		receiver := b.session(queue, "mine")
		equal(b, receiver.SessionID(), "mine")
		equal(b, bodies(b.receive(receiver, 3)), "1 2 3")
	})
}

func TestTheNextSessionsAreThoseWithMessages(t *testing.T) {
	shows(t, "Client.AcceptNextSessionForQueue SessionReceiver.SessionID", on(sessions), func(b *bench) {
		queue := b.queue()
		b.sendIn(queue, "a", "x")
		b.sendIn(queue, "b", "x")
		var found []string
		for range 2 {
			receiver, err := b.client.AcceptNextSessionForQueue(b.ctx, queue, nil)
			must(b, err)
			found = append(found, receiver.SessionID())
		}
		slices.Sort(found)
		equal(b, found[0]+found[1], "ab")
	})
}

func TestASessionKeepsItsState(t *testing.T) {
	shows(t, "SessionReceiver.SetSessionState SessionReceiver.GetSessionState SessionReceiver.Close", on(sessions), func(b *bench) {
		queue := b.queue()
		first := b.session(queue, "kept")
		must(b, first.SetSessionState(b.ctx, []byte("step 2"), nil))
		must(b, first.Close(b.ctx))
		second := b.session(queue, "kept")
		state, err := second.GetSessionState(b.ctx, nil)
		must(b, err)
		equal(b, string(state), "step 2")
		must(b, second.SetSessionState(b.ctx, nil, nil))
		state, err = second.GetSessionState(b.ctx, nil)
		must(b, err)
		equal(b, len(state), 0)
	})
}

func TestASessionLockIsRenewed(t *testing.T) {
	shows(t, "SessionReceiver.RenewSessionLock SessionReceiver.LockedUntil", on(sessions), func(b *bench) {
		receiver := b.session(b.queue(), "long")
		before := receiver.LockedUntil()
		for !receiver.LockedUntil().After(before) { // times are in milliseconds, and a renewal is faster
			must(b, receiver.RenewSessionLock(b.ctx, nil))
		}
		if time.Until(receiver.LockedUntil()) <= 0 {
			b.Fatalf("%s is over", receiver.LockedUntil())
		}
	})
}

func TestAReceiverThatWaitsLongerThanItsLockEndsQuietly(t *testing.T) {
	shows(t, "SessionReceiver.ReceiveMessages SessionReceiver.Close", on(sessions), func(b *bench) {
		queue := b.queue(func(properties *admin.QueueProperties) { properties.LockDuration = to.Ptr("PT1S") })
		receiver := b.session(queue, session)
		ctx, cancel := context.WithTimeout(b.ctx, 1500*time.Millisecond)
		defer cancel()
		if _, err := receiver.ReceiveMessages(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			b.Fatal(err)
		}
		must(b, receiver.Close(b.ctx))
	})
}

func TestAClosedReceiverFreesItsSession(t *testing.T) {
	shows(t, "SessionReceiver.Close Client.AcceptSessionForQueue", on(sessions), func(b *bench) {
		queue := b.queue()
		b.send(queue, "x")
		first := b.session(queue, session)
		b.one(first)
		must(b, first.Close(b.ctx))
		equal(b, string(b.one(b.session(queue, session)).Body), "x")
	})
}

func TestASessionOfASubscriptionIsAccepted(t *testing.T) {
	shows(t, "Client.AcceptSessionForSubscription Client.AcceptNextSessionForSubscription", on(sessions), func(b *bench) {
		topic := b.topic()
		subscription := b.subscription(topic)
		b.sendIn(topic, "a", "1")
		next, err := b.client.AcceptNextSessionForSubscription(b.ctx, topic, subscription, nil)
		must(b, err)
		equal(b, next.SessionID(), "a")
		named, err := b.client.AcceptSessionForSubscription(b.ctx, topic, subscription, "b", nil)
		must(b, err)
		b.sendIn(topic, "b", "2")
		equal(b, string(b.one(named).Body), "2")
	})
}

func TestSessionsAreListed(t *testing.T) {
	shows(t, "Client.NewListSessionsForQueuePager", on(sessions), func(b *bench) {
		queue := b.queue()
		b.sendIn(queue, "a", "x")
		b.sendIn(queue, "b", "x")
		var found []string
		for pager := b.client.NewListSessionsForQueuePager(queue, nil); pager.More(); {
			page, err := pager.NextPage(b.ctx)
			must(b, err)
			found = append(found, page.Sessions...)
		}
		slices.Sort(found)
		equal(b, len(found), 2)
		equal(b, found[0]+found[1], "ab")
	})
}

func TestSessionsOfASubscriptionAreListed(t *testing.T) {
	shows(t, "Client.NewListSessionsForSubscriptionPager", on(sessions), func(b *bench) {
		topic := b.topic()
		subscription := b.subscription(topic)
		b.sendIn(topic, "a", "x")
		pager := b.client.NewListSessionsForSubscriptionPager(topic, subscription, nil)
		page, err := pager.NextPage(b.ctx)
		must(b, err)
		equal(b, len(page.Sessions), 1)
		equal(b, page.Sessions[0], "a")
	})
}
