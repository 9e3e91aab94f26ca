import { numbered, receive, refused } from "./common.mjs";

export async function complete(client, queue) {
  await client.createSender(queue).sendMessages(numbered(3));
  const receiver = client.createReceiver(queue);
  for (const message of await receive(receiver, 3)) await receiver.completeMessage(message);
  return receiver.receiveMessages(1, { maxWaitTimeInMs: 200 });
}

export async function abandon(client, queue) {
  const applicationProperties = { kept: "so", changed: "old" };
  await client.createSender(queue).sendMessages({ body: "x", applicationProperties });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.abandonMessage(message, { changed: 7, added: true });
  const [again] = await receive(receiver, 1);
  return { count: again.deliveryCount, properties: again.applicationProperties };
}

export async function defer(client, queue) {
  await client.createSender(queue).sendMessages(numbered(2));
  const receiver = client.createReceiver(queue);
  const messages = await receive(receiver, 2);
  for (const message of messages) await receiver.deferMessage(message, { why: "later" });
  const numbers = messages.map((message) => message.sequenceNumber);
  const fetched = await receiver.receiveDeferredMessages(numbers);
  await receiver.completeMessage(fetched[0]);
  await receiver.abandonMessage(fetched[1]);
  return {
    fetched: fetched.map(({ body, state, applicationProperties }) => ({ body, state, applicationProperties })),
    completed: await refused(() => receiver.receiveDeferredMessages(numbers[0])),
    abandoned: (await receiver.receiveDeferredMessages(numbers[1]))[0].deliveryCount,
  };
}

export async function renew(client, queue) {
  await client.createSender(queue).sendMessages({ body: "x" });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  const until = message.lockedUntilUtc.getTime();
  const renewed = await receiver.renewMessageLock(message);
  await receiver.completeMessage(message);
  return {
    isLater: renewed.getTime() >= until,
    isKept: message.lockedUntilUtc.getTime() === renewed.getTime(),
    afterwards: await refused(() => receiver.renewMessageLock(message)),
  };
}

/** The queue's locks last a second: the message comes again when the first lock has lapsed. */
export async function lapse(client, queue) {
  await client.createSender(queue).sendMessages({ body: "x" });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [first] = await receive(receiver, 1);
  const [second] = await receive(receiver, 1);
  const lost = await refused(() => receiver.completeMessage(first));
  await receiver.completeMessage(second);
  return { count: second.deliveryCount, lost };
}
