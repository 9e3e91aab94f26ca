import { receive, refused } from "./common.mjs";

export async function properties(client, queue) {
  const sender = client.createSender(queue);
  await sender.sendMessages({
    body: { json: [1, "two", null] },
    messageId: "id-1",
    correlationId: "correlation-1",
    subject: "subject",
    to: "destination",
    replyTo: "answers",
    replyToSessionId: "session of the answer",
    contentType: "application/json",
    partitionKey: "key",
    timeToLive: 420000,
    applicationProperties: {
      text: "t\u00e9xt",
      int: 5,
      long: 2 ** 40,
      double: 1.5,
      true: true,
      false: false,
      date: new Date(1700000000123),
      none: null,
    },
  });
  const [message] = await receive(client.createReceiver(queue), 1);
  return {
    body: message.body,
    messageId: message.messageId,
    correlationId: message.correlationId,
    subject: message.subject,
    to: message.to,
    replyTo: message.replyTo,
    replyToSessionId: message.replyToSessionId,
    contentType: message.contentType,
    partitionKey: message.partitionKey,
    timeToLive: message.timeToLive,
    applicationProperties: message.applicationProperties,
    deliveryCount: message.deliveryCount,
    sequenceNumber: message.sequenceNumber.toString(),
    state: message.state,
    life: message.expiresAtUtc - message.enqueuedTimeUtc,
    lock: message.lockedUntilUtc - message.enqueuedTimeUtc > 0,
  };
}

export async function bodiesOfAllKinds(client, queue) {
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: Buffer.from([0, 255]) });
  await sender.sendMessages({ body: "" });
  await sender.sendMessages({ body: null });
  await sender.sendMessages({ bodyType: "value", body: "a value" });
  await sender.sendMessages({ bodyType: "sequence", body: [1, "two"] });
  await sender.sendMessages({ body: "x".repeat(200000) });
  const messages = await receive(client.createReceiver(queue), 6);
  return messages.map(({ body, _rawAmqpMessage }) => ({
    type: _rawAmqpMessage.bodyType,
    body: Buffer.isBuffer(body) ? body.toString("hex") : typeof body === "string" && body.length > 100 ? body.length : body,
  }));
}

export async function sections(client, queue) {
  const sender = client.createSender(queue);
  await sender.sendMessages({
    bodyType: "data",
    body: "annotated",
    header: { durable: true, priority: 7, firstAcquirer: true },
    deliveryAnnotations: { "x-hop": "first", "x-opt-lock-token": "forged" },
    footer: { "x-foot": "note" },
  });
  await sender.sendMessages({ body: "plain" });
  const messages = await receive(client.createReceiver(queue), 2);
  return messages.map(({ lockToken, _rawAmqpMessage: raw }) => {
    const { "x-opt-lock-token": token, ...own } = raw.deliveryAnnotations;
    const { durable, priority, firstAcquirer } = raw.header;
    const bytes = Buffer.from(Object.values(token)).toString("hex"); // the SDK makes an object of the buffer
    return { header: { durable, priority, firstAcquirer }, own, footer: raw.footer, token: bytes, lockToken };
  });
}

export async function anIdForEachMessage(client, queue) {
  await client.createSender(queue).sendMessages([{ body: 1 }, { body: 2 }]);
  const receiver = client.createReceiver(queue); // renews locks, for which it needs ids
  const messages = await receive(receiver, 2);
  for (const message of messages) await receiver.completeMessage(message);
  return messages.map((message) => message.messageId);
}

export async function batches(client, queue) {
  const sender = client.createSender(queue);
  const batch = await sender.createMessageBatch();
  let added = 0;
  while (batch.tryAddMessage({ body: Buffer.alloc(50000) })) added += 1;
  await sender.sendMessages(batch);
  return { limit: batch.maxSizeInBytes, added };
}

export async function tooLarge(client, queue) {
  const sender = client.createSender(queue);
  const answer = await refused(() => sender.sendMessages({ body: Buffer.alloc(300000) }));
  await sender.sendMessages({ body: "fits" });
  return answer;
}

export async function unknownQueue(client, queue) {
  return {
    sender: await refused(() => client.createSender(`${queue}-unknown`).sendMessages({ body: 1 })),
    receiver: await refused(() => client.createReceiver(`${queue}-unknown`).receiveMessages(1)),
    peek: await refused(() => client.createReceiver(`${queue}-unknown`).peekMessages(1)),
  };
}
