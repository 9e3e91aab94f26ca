import Long from "long";
import { bodies, numbered, receive, refused } from "./common.mjs";

export async function peek(client, queue) {
  await client.createSender(queue).sendMessages(numbered(7));
  const receiver = client.createReceiver(queue);
  return {
    first: bodies(await receiver.peekMessages(3)),
    next: bodies(await receiver.peekMessages(3)),
    from: bodies(await receiver.peekMessages(10, { fromSequenceNumber: Long.fromNumber(6) })),
    behind: await receiver.peekMessages(10, { fromSequenceNumber: Long.fromNumber(8) }),
    withoutBody: (await receiver.peekMessages(1, { fromSequenceNumber: Long.fromNumber(1), omitMessageBody: true })).length,
  };
}

export async function schedule(client, queue) {
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const later = new Date(Date.now() + 3600000);
  const many = await sender.scheduleMessages(numbered(3), later);
  const [one] = await sender.scheduleMessages({ body: "one" }, later);
  const states = (await receiver.peekMessages(10)).map((message) => message.state);
  await sender.cancelScheduledMessages(many);
  const again = await refused(() => sender.cancelScheduledMessages(many[0]));
  await sender.cancelScheduledMessages(one);
  return { many: many.length, states, again, left: await receiver.peekMessages(10, { fromSequenceNumber: Long.ONE }) };
}

export async function due(client, queue) {
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  await sender.sendMessages({ body: "both links are open now" });
  await sender.cancelScheduledMessages(await sender.scheduleMessages({ body: "x" }, new Date(Date.now() + 3600000)));
  const [first] = await receive(receiver, 1);
  await receiver.completeMessage(first);
  const at = new Date(Date.now() + 2000);
  await sender.scheduleMessages({ body: "scheduled" }, at);
  await sender.sendMessages({ body: "annotated", scheduledEnqueueTimeUtc: at });
  const messages = await receive(receiver, 2);
  return {
    bodies: bodies(messages).sort(),
    states: messages.map((message) => message.state),
    inTime: messages.every((message) => message.enqueuedTimeUtc >= at),
    told: messages.every((message) => message.scheduledEnqueueTimeUtc.getTime() === at.getTime()),
  };
}
