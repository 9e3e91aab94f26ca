// Package sdktests holds tests with the unmodified Go SDK: tests/sdk/go/test_go.py runs them.
package sdktests

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// kind says what sort of queues and topics a test runs on.
type kind string

const (
	plain       kind = "plain"
	sessions    kind = "sessions"
	partitioned kind = "partitioned"

	session = "one"
	soon    = 30 * time.Second
	// notComing is how long to look for a message that must not come.
	notComing = 300 * time.Millisecond
)

var connectionString = os.Getenv("TANDEMBUS_CONNECTION_STRING")

// on names the kinds of entities of a test.
func on(kinds ...kind) []kind { return kinds }

// shows runs a test on each kind of entity. It names the public calls that the test shows: tools/sdk_calls.py reads them.
func shows(t *testing.T, calls string, kinds []kind, test func(b *bench)) {
	t.Helper()
	t.Parallel()
	for _, one := range kinds {
		t.Run(string(one), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*soon)
			t.Cleanup(cancel)
			test(&bench{T: t, ctx: ctx, kind: one, client: newClient(t, connectionString), admin: newAdmin(t, connectionString)})
		})
	}
}

// bench has the clients of one test.
type bench struct {
	*testing.T
	ctx    context.Context
	kind   kind
	client *azservicebus.Client
	admin  *admin.Client
}

func newClient(t *testing.T, connectionString string) *azservicebus.Client {
	t.Helper()
	client, err := azservicebus.NewClientFromConnectionString(connectionString, nil)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

func newAdmin(t *testing.T, connectionString string) *admin.Client {
	t.Helper()
	client, err := admin.NewClientFromConnectionString(connectionString, nil)
	must(t, err)
	return client
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[V comparable](t testing.TB, found, expected V) {
	t.Helper()
	if found != expected {
		t.Fatalf("found %v, expected %v", found, expected)
	}
}

// refused checks the code of an error of the SDK.
func refused(t testing.TB, err error, code azservicebus.Code) {
	t.Helper()
	var found *azservicebus.Error
	if !errors.As(err, &found) {
		t.Fatalf("expected an error with the code %s, found %v", code, err)
	}
	equal(t, found.Code, code)
}

func name(of string) string {
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	return "go-" + of + "-" + hex.EncodeToString(random)
}

func (b *bench) queue(change ...func(*admin.QueueProperties)) string {
	b.Helper()
	properties := &admin.QueueProperties{
		RequiresSession:    to.Ptr(b.kind == sessions),
		EnablePartitioning: to.Ptr(b.kind == partitioned),
	}
	for _, one := range change {
		one(properties)
	}
	queue := name("queue")
	_, err := b.admin.CreateQueue(b.ctx, queue, &admin.CreateQueueOptions{Properties: properties})
	must(b, err)
	return queue
}

func (b *bench) topic() string {
	b.Helper()
	topic := name("topic")
	properties := &admin.TopicProperties{EnablePartitioning: to.Ptr(b.kind == partitioned)}
	_, err := b.admin.CreateTopic(b.ctx, topic, &admin.CreateTopicOptions{Properties: properties})
	must(b, err)
	return topic
}

func (b *bench) subscription(topic string) string {
	b.Helper()
	subscription := name("sub")
	properties := &admin.SubscriptionProperties{RequiresSession: to.Ptr(b.kind == sessions)}
	_, err := b.admin.CreateSubscription(b.ctx, topic, subscription, &admin.CreateSubscriptionOptions{Properties: properties})
	must(b, err)
	return subscription
}

func (b *bench) sender(queueOrTopic string) *azservicebus.Sender {
	b.Helper()
	sender, err := b.client.NewSender(queueOrTopic, nil)
	must(b, err)
	return sender
}

func (b *bench) send(queueOrTopic string, bodies ...string) {
	b.Helper()
	sender := b.sender(queueOrTopic)
	for _, body := range bodies {
		must(b, sender.SendMessage(b.ctx, b.message(body), nil))
	}
}

// message is one of several in the same session or, on partitioned entities, under the same key.
func (b *bench) message(body string) *azservicebus.Message {
	message := &azservicebus.Message{Body: []byte(body)}
	switch b.kind {
	case sessions:
		message.SessionID = to.Ptr(session)
	case partitioned:
		message.PartitionKey = to.Ptr("together")
	}
	return message
}

// receiving is what receivers and receivers of sessions have in common.
type receiving interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
	Close(context.Context) error
}

func (b *bench) receiver(queue string) receiving {
	b.Helper()
	if b.kind == sessions {
		return b.session(queue, session)
	}
	receiver, err := b.client.NewReceiverForQueue(queue, nil)
	must(b, err)
	return receiver
}

func (b *bench) session(queue, id string) *azservicebus.SessionReceiver {
	b.Helper()
	receiver, err := b.client.AcceptSessionForQueue(b.ctx, queue, id, nil)
	must(b, err)
	return receiver
}

func (b *bench) subscriber(topic, subscription string) receiving {
	b.Helper()
	if b.kind == sessions {
		receiver, err := b.client.AcceptSessionForSubscription(b.ctx, topic, subscription, session, nil)
		must(b, err)
		return receiver
	}
	receiver, err := b.client.NewReceiverForSubscription(topic, subscription, nil)
	must(b, err)
	return receiver
}

func (b *bench) deadLetters(queue string) receiving {
	b.Helper()
	options := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	receiver, err := b.client.NewReceiverForQueue(queue, options)
	must(b, err)
	return receiver
}

// receive waits for exactly so many: the SDK may return before all have arrived.
func (b *bench) receive(receiver receiving, count int) []*azservicebus.ReceivedMessage {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, soon)
	defer cancel()
	var found []*azservicebus.ReceivedMessage
	for len(found) < count {
		more, err := receiver.ReceiveMessages(ctx, count-len(found), nil)
		must(b, err)
		found = append(found, more...)
	}
	return found
}

func (b *bench) one(receiver receiving) *azservicebus.ReceivedMessage {
	b.Helper()
	return b.receive(receiver, 1)[0]
}

func (b *bench) nothingComes(receiver receiving) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, notComing)
	defer cancel()
	found, err := receiver.ReceiveMessages(ctx, 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		b.Fatalf("found %d messages and %v", len(found), err)
	}
}

func (b *bench) counts(queue string) admin.QueueRuntimeProperties {
	b.Helper()
	found, err := b.admin.GetQueueRuntimeProperties(b.ctx, queue, nil)
	must(b, err)
	return found.QueueRuntimeProperties
}

func bodies(messages []*azservicebus.ReceivedMessage) string {
	var found []string
	for _, one := range messages {
		found = append(found, string(one.Body))
	}
	return strings.Join(found, " ")
}
