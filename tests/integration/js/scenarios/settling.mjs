import { ServiceBusClient } from "@azure/service-bus";
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
    fetched: fetched.map(({ body, state, deliveryCount, applicationProperties }) => ({
      body,
      state,
      deliveryCount,
      applicationProperties,
    })),
    completed: await refused(() => receiver.receiveDeferredMessages(numbers[0])),
    abandoned: (await receiver.receiveDeferredMessages(numbers[1]))[0].deliveryCount,
  };
}

/** The queue gives each message one delivery. */
export async function deferredInVain(client, queue) {
  await client.createSender(queue).sendMessages({ body: "x" });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deferMessage(message, { why: "later" });
  const [dead] = await receive(client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  return {
    reason: dead.deadLetterReason,
    description: dead.deadLetterErrorDescription,
    count: dead.deliveryCount,
    why: dead.applicationProperties.why,
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

/** Their receiver is closed: another connection settles them by their tokens, over its management link. */
export async function settledElsewhere(client, queue) {
  await client.createSender(queue).sendMessages(numbered(4));
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const messages = await receive(receiver, 4);
  messages.sort((one, other) => one.body.localeCompare(other.body));
  await receiver.close();
  const elsewhere = new ServiceBusClient(process.env.CONNECTION_STRING, { retryOptions: { maxRetries: 0 } });
  const other = elsewhere.createReceiver(queue);
  const until = messages[0].lockedUntilUtc.getTime();
  const isLater = (await other.renewMessageLock(messages[0])).getTime() >= until;
  await other.completeMessage(messages[0]);
  await other.abandonMessage(messages[1]);
  await other.deferMessage(messages[2]);
  await other.deadLetterMessage(messages[3]);
  const [again] = await receive(other, 1);
  const [deferred] = await other.receiveDeferredMessages(messages[2].sequenceNumber);
  await elsewhere.close();
  return { isLater, abandoned: again.deliveryCount, deferred: deferred.body };
}
