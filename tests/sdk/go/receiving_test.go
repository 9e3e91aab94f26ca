package sdktests

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestACompletedMessageIsGone(t *testing.T) {
	shows(t, "Receiver.CompleteMessage Receiver.ReceiveMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "1", "2")
		receiver := b.receiver(queue)
		for _, found := range b.receive(receiver, 2) {
			must(b, receiver.CompleteMessage(b.ctx, found, nil))
		}
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestAnAbandonedMessageComesAgainWithItsNewProperties(t *testing.T) {
	shows(t, "Receiver.AbandonMessage", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "twice")
		receiver := b.receiver(queue)
		first := b.one(receiver)
		options := &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"attempt": "first"}}
		must(b, receiver.AbandonMessage(b.ctx, first, options))
		second := b.one(receiver)
		equal(b, second.DeliveryCount, first.DeliveryCount+1)
		equal(b, second.ApplicationProperties["attempt"], any("first"))
	})
}

func TestAMessageAbandonedTooOftenIsDeadLettered(t *testing.T) {
	shows(t, "Receiver.AbandonMessage", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue(func(properties *admin.QueueProperties) { properties.MaxDeliveryCount = to.Ptr(int32(2)) })
		b.send(queue, "poison")
		receiver := b.receiver(queue)
		must(b, receiver.AbandonMessage(b.ctx, b.one(receiver), nil))
		must(b, receiver.AbandonMessage(b.ctx, b.one(receiver), nil))
		equal(b, *b.one(b.deadLetters(queue)).DeadLetterReason, "MaxDeliveryCountExceeded")
	})
}

func TestADeadLetteredMessageSaysWhy(t *testing.T) {
	shows(t, "Receiver.DeadLetterMessage Client.NewReceiverForQueue", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "bad")
		receiver := b.receiver(queue)
		must(b, receiver.DeadLetterMessage(b.ctx, b.one(receiver), &azservicebus.DeadLetterOptions{
			Reason:             to.Ptr("malformed"),
			ErrorDescription:   to.Ptr("line 1"),
			PropertiesToModify: map[string]any{"checked": true},
		}))
		deadLetters := b.deadLetters(queue)
		found := b.one(deadLetters)
		equal(b, *found.DeadLetterReason, "malformed")
		equal(b, *found.DeadLetterErrorDescription, "line 1")
		equal(b, found.ApplicationProperties["checked"], any(true))
		must(b, deadLetters.CompleteMessage(b.ctx, found, nil))
		equal(b, b.counts(queue).DeadLetterMessageCount, 0)
	})
}

func TestADeferredMessageIsFetchedByItsNumberAndSettled(t *testing.T) {
	shows(t, "Receiver.DeferMessage Receiver.ReceiveDeferredMessages Receiver.Close", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		// The SessionId stands there also where no session is required.
		message := &azservicebus.Message{Body: []byte("later"), SessionID: to.Ptr(session)}
		must(b, b.sender(queue).SendMessage(b.ctx, message, nil))
		receiver := b.receiver(queue)
		first := b.one(receiver)
		must(b, receiver.DeferMessage(b.ctx, first, nil))
		for count := first.DeliveryCount + 1; count < 4; count++ {
			found, err := receiver.ReceiveDeferredMessages(b.ctx, []int64{*first.SequenceNumber}, nil)
			must(b, err)
			equal(b, bodies(found), "later")
			equal(b, found[0].DeliveryCount, count)
			if count < 3 {
				must(b, receiver.DeferMessage(b.ctx, found[0], nil))
			} else {
				must(b, receiver.CompleteMessage(b.ctx, found[0], nil))
			}
		}
		equal(b, b.counts(queue).TotalMessageCount, 0)
		must(b, receiver.Close(b.ctx))
	})
}

func TestANumberThatIsNotDeferredIsNotFound(t *testing.T) {
	shows(t, "Receiver.ReceiveDeferredMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "active")
		receiver := b.receiver(queue)
		peeked, err := receiver.PeekMessages(b.ctx, 1, nil)
		must(b, err)
		found, err := receiver.ReceiveDeferredMessages(b.ctx, []int64{*peeked[0].SequenceNumber}, nil)
		if err == nil {
			b.Fatalf("found %d messages", len(found))
		}
	})
}

func TestARenewedLockLastsLonger(t *testing.T) {
	shows(t, "Receiver.RenewMessageLock", on(plain, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "slow")
		receiver, err := b.client.NewReceiverForQueue(queue, nil)
		must(b, err)
		found := b.one(receiver)
		before := *found.LockedUntil
		for !found.LockedUntil.After(before) { // times are in milliseconds, and a renewal is faster
			must(b, receiver.RenewMessageLock(b.ctx, found, nil))
		}
		must(b, receiver.CompleteMessage(b.ctx, found, nil))
	})
}

func TestALapsedLockIsLost(t *testing.T) {
	shows(t, "Receiver.CompleteMessage Receiver.ReceiveMessages", on(plain, partitioned), func(b *bench) {
		queue := b.queue(func(properties *admin.QueueProperties) { properties.LockDuration = to.Ptr("PT1S") })
		b.send(queue, "slow")
		first := b.receiver(queue)
		lapsing := b.one(first)
		other, err := newClient(b.T, connectionString).NewReceiverForQueue(queue, nil)
		must(b, err)
		again := b.one(other)
		equal(b, again.DeliveryCount, lapsing.DeliveryCount+1)
		refused(b, first.CompleteMessage(b.ctx, lapsing, nil), azservicebus.CodeLockLost)
		must(b, other.CompleteMessage(b.ctx, again, nil))
	})
}

func TestPeekingChangesNothing(t *testing.T) {
	shows(t, "Receiver.PeekMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "1", "2", "3")
		receiver := b.receiver(queue)
		found, err := receiver.PeekMessages(b.ctx, 2, nil)
		must(b, err)
		equal(b, bodies(found), "1 2")
		found, err = receiver.PeekMessages(b.ctx, 10, nil)
		must(b, err)
		equal(b, bodies(found), "3")
		from := &azservicebus.PeekMessagesOptions{FromSequenceNumber: to.Ptr(int64(0))}
		found, err = receiver.PeekMessages(b.ctx, 1, from)
		must(b, err)
		equal(b, bodies(found), "1")
		equal(b, bodies(b.receive(receiver, 3)), "1 2 3")
	})
}

func TestReceiveAndDeleteTakesTheMessage(t *testing.T) {
	shows(t, "Client.NewReceiverForQueue Client.AcceptSessionForQueue Receiver.ReceiveMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		b.send(queue, "1", "2")
		var receiver receiving
		var err error
		if b.kind == sessions {
			options := &azservicebus.SessionReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
			receiver, err = b.client.AcceptSessionForQueue(b.ctx, queue, session, options)
		} else {
			options := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
			receiver, err = b.client.NewReceiverForQueue(queue, options)
		}
		must(b, err)
		equal(b, bodies(b.receive(receiver, 2)), "1 2")
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestAnExpiredMessageIsDeadLettered(t *testing.T) {
	shows(t, "Sender.SendMessage Receiver.ReceiveMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue(func(properties *admin.QueueProperties) {
			properties.DeadLetteringOnMessageExpiration = to.Ptr(true)
		})
		message := b.message("short")
		message.TimeToLive = to.Ptr(time.Second)
		must(b, b.sender(queue).SendMessage(b.ctx, message, nil))
		equal(b, *b.one(b.deadLetters(queue)).DeadLetterReason, "TTLExpiredException")
	})
}

func TestAnEmptyQueueGivesNothing(t *testing.T) {
	shows(t, "Receiver.ReceiveMessages Receiver.PeekMessages", on(plain, sessions, partitioned), func(b *bench) {
		receiver := b.receiver(b.queue())
		b.nothingComes(receiver)
		found, err := receiver.PeekMessages(b.ctx, 1, nil)
		must(b, err)
		equal(b, len(found), 0)
	})
}

func TestAReceivedMessageIsSentOn(t *testing.T) {
	shows(t, "ReceivedMessage.Message Sender.SendMessage", on(plain, sessions, partitioned), func(b *bench) {
		from, onward := b.queue(), b.queue()
		b.send(from, "travels")
		receiver := b.receiver(from)
		found := b.one(receiver)
		must(b, b.sender(onward).SendMessage(b.ctx, found.Message(), nil))
		must(b, receiver.CompleteMessage(b.ctx, found, nil))
		equal(b, string(b.one(b.receiver(onward)).Body), "travels")
	})
}
