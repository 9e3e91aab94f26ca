package sdktests

import (
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func TestAMessageArrivesWithAllItsProperties(t *testing.T) {
	shows(t, "Sender.SendMessage Receiver.ReceiveMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		message := b.message("content")
		message.MessageID = to.Ptr("id")
		message.CorrelationID = to.Ptr("correlation")
		message.Subject = to.Ptr("subject")
		message.To = to.Ptr("to")
		message.ReplyTo = to.Ptr("reply")
		message.ReplyToSessionID = to.Ptr("reply-session")
		message.ContentType = to.Ptr("text/plain")
		message.TimeToLive = to.Ptr(time.Hour)
		message.ApplicationProperties = map[string]any{"text": "é", "number": int64(42), "flag": true, "real": 1.5}
		must(b, b.sender(queue).SendMessage(b.ctx, message, nil))

		found := b.one(b.receiver(queue))
		equal(b, string(found.Body), "content")
		equal(b, found.MessageID, "id")
		equal(b, *found.CorrelationID, "correlation")
		equal(b, *found.Subject, "subject")
		equal(b, *found.To, "to")
		equal(b, *found.ReplyTo, "reply")
		equal(b, *found.ReplyToSessionID, "reply-session")
		equal(b, *found.ContentType, "text/plain")
		equal(b, *found.TimeToLive, time.Hour)
		for key, value := range message.ApplicationProperties {
			equal(b, found.ApplicationProperties[key], value)
		}
		equal(b, found.DeliveryCount, 1)
		if b.kind == sessions {
			equal(b, *found.SessionID, session)
		}
	})
}

func TestABatchArrivesInOrder(t *testing.T) {
	shows(t, "Sender.NewMessageBatch Sender.SendMessageBatch MessageBatch.AddMessage MessageBatch.NumMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		batch, err := sender.NewMessageBatch(b.ctx, nil)
		must(b, err)
		for _, body := range []string{"1", "2", "3"} {
			must(b, batch.AddMessage(b.message(body), nil))
		}
		equal(b, batch.NumMessages(), 3)
		must(b, sender.SendMessageBatch(b.ctx, batch, nil))
		equal(b, bodies(b.receive(b.receiver(queue), 3)), "1 2 3")
	})
}

func TestABatchRefusesWhatDoesNotFit(t *testing.T) {
	shows(t, "Sender.NewMessageBatch MessageBatch.AddMessage MessageBatch.NumBytes", on(plain, sessions, partitioned), func(b *bench) {
		batch, err := b.sender(b.queue()).NewMessageBatch(b.ctx, &azservicebus.MessageBatchOptions{MaxBytes: 2000})
		must(b, err)
		must(b, batch.AddMessage(b.message(string(make([]byte, 1000))), nil))
		err = batch.AddMessage(b.message(string(make([]byte, 1000))), nil)
		if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
			b.Fatal(err)
		}
		if batch.NumBytes() > 2000 {
			b.Fatal(batch.NumBytes())
		}
	})
}

func TestAMessageAboveTheLimitIsRefused(t *testing.T) {
	shows(t, "Sender.SendMessage", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		err := b.sender(queue).SendMessage(b.ctx, b.message(string(make([]byte, 300*1024))), nil)
		if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
			b.Fatal(err)
		}
		equal(b, b.counts(queue).TotalMessageCount, 0)
	})
}

func TestAnEntityThatDoesNotExistIsSaidToBeMissing(t *testing.T) {
	shows(t, "Sender.SendMessage Client.NewSender", on(plain), func(b *bench) {
		err := b.sender("no-such-queue").SendMessage(b.ctx, b.message("lost"), nil)
		refused(b, err, azservicebus.CodeNotFound)
	})
}

func TestDuplicatesAreDropped(t *testing.T) {
	shows(t, "Sender.SendMessage", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue(func(properties *admin.QueueProperties) { properties.RequiresDuplicateDetection = to.Ptr(true) })
		sender := b.sender(queue)
		for _, body := range []string{"first", "again"} {
			message := b.message(body)
			message.MessageID = to.Ptr("same")
			must(b, sender.SendMessage(b.ctx, message, nil))
		}
		equal(b, string(b.one(b.receiver(queue)).Body), "first")
		equal(b, b.counts(queue).ActiveMessageCount, 1)
	})
}

func TestAnnotatedMessagesHaveBodiesOfAllKinds(t *testing.T) {
	shows(t, "Sender.SendAMQPAnnotatedMessage Receiver.ReceiveMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		receiver := b.receiver(queue)
		for _, body := range []azservicebus.AMQPAnnotatedMessageBody{
			{Data: [][]byte{[]byte("data")}},
			{Value: "value"},
			{Sequence: [][]any{{int64(1), "two"}}},
		} {
			message := &azservicebus.AMQPAnnotatedMessage{Body: body}
			if b.kind == sessions {
				message.Properties = &azservicebus.AMQPAnnotatedMessageProperties{GroupID: to.Ptr(session)}
			}
			must(b, sender.SendAMQPAnnotatedMessage(b.ctx, message, nil))
			found := b.one(receiver)
			must(b, receiver.CompleteMessage(b.ctx, found, nil))
			raw := found.RawAMQPMessage.Body
			switch {
			case body.Data != nil:
				equal(b, string(raw.Data[0]), "data")
			case body.Value != nil:
				equal(b, raw.Value, body.Value)
			default:
				equal(b, raw.Sequence[0][1], any("two"))
			}
		}
	})
}

func TestAnnotatedMessagesFitIntoBatches(t *testing.T) {
	shows(t, "MessageBatch.AddAMQPAnnotatedMessage Sender.SendMessageBatch", on(plain, partitioned), func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		batch, err := sender.NewMessageBatch(b.ctx, nil)
		must(b, err)
		body := azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("annotated")}}
		must(b, batch.AddAMQPAnnotatedMessage(&azservicebus.AMQPAnnotatedMessage{Body: body}, nil))
		must(b, sender.SendMessageBatch(b.ctx, batch, nil))
		equal(b, string(b.one(b.receiver(queue)).Body), "annotated")
	})
}

func TestAScheduledMessageArrivesWhenItIsDue(t *testing.T) {
	shows(t, "Sender.ScheduleMessages Receiver.ReceiveMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		due := time.Now().Add(2 * time.Second)
		_, err := b.sender(queue).ScheduleMessages(b.ctx, []*azservicebus.Message{b.message("later")}, due, nil)
		must(b, err)
		found := b.one(b.receiver(queue))
		equal(b, string(found.Body), "later")
		if time.Now().Before(due) {
			b.Fatal("it came early")
		}
	})
}

func TestScheduledMessagesAreCancelled(t *testing.T) {
	shows(t, "Sender.ScheduleMessages Sender.CancelScheduledMessages", on(plain, sessions, partitioned), func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		messages := []*azservicebus.Message{b.message("1"), b.message("2")}
		numbers, err := sender.ScheduleMessages(b.ctx, messages, time.Now().Add(time.Hour), nil)
		must(b, err)
		equal(b, b.counts(queue).ScheduledMessageCount, 2)
		must(b, sender.CancelScheduledMessages(b.ctx, numbers, nil))
		equal(b, b.counts(queue).ScheduledMessageCount, 0)
	})
}

func TestAnnotatedMessagesAreScheduled(t *testing.T) {
	shows(t, "Sender.ScheduleAMQPAnnotatedMessages Sender.CancelScheduledMessages", on(plain, partitioned), func(b *bench) {
		queue := b.queue()
		sender := b.sender(queue)
		body := azservicebus.AMQPAnnotatedMessageBody{Value: "later"}
		messages := []*azservicebus.AMQPAnnotatedMessage{{Body: body}}
		numbers, err := sender.ScheduleAMQPAnnotatedMessages(b.ctx, messages, time.Now().Add(time.Hour), nil)
		must(b, err)
		equal(b, b.counts(queue).ScheduledMessageCount, 1)
		must(b, sender.CancelScheduledMessages(b.ctx, numbers, nil))
	})
}
