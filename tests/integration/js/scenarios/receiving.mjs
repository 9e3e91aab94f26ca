import { bodies, numbered, receive } from "./common.mjs";

export async function receiveAndDelete(client, queue) {
  await client.createSender(queue).sendMessages(numbered(5));
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  return bodies(await receive(receiver, 3));
}

/** The SDK drains after each batch: without the broker's answer it would close its link, and be slow. */
export async function batchesOfAReceiver(client, queue) {
  const receiver = client.createReceiver(queue);
  const sender = client.createSender(queue);
  const empty = await receiver.receiveMessages(10, { maxWaitTimeInMs: 200 });
  const link = receiver._batchingReceiver;
  const parts = [];
  for (let round = 0; round < 3; round += 1) {
    await sender.sendMessages(numbered(4));
    parts.push(bodies(await receive(receiver, 4)));
  }
  return { empty, parts, sameLink: link.isOpen() && receiver._batchingReceiver === link };
}

export async function subscription(client, queue) {
  const sender = client.createSender(queue);
  await sender.sendMessages(numbered(5));
  const receiver = client.createReceiver(queue);
  const found = [];
  await new Promise((resolve, reject) => {
    receiver.subscribe(
      {
        processMessage: async (message) => {
          await receiver.completeMessage(message);
          found.push(message.body);
          if (found.length === 5) await sender.sendMessages({ body: "sent while subscribed" });
          if (found.length === 6) resolve();
        },
        processError: async ({ error }) => reject(error),
      },
      { maxConcurrentCalls: 2, autoCompleteMessages: false },
    );
  });
  await receiver.close();
  return found;
}

export async function iteration(client, queue) {
  await client.createSender(queue).sendMessages(numbered(4));
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  const found = [];
  for await (const message of receiver.getMessageIterator()) {
    found.push(message.body);
    if (found.length === 4) break;
  }
  return found;
}

export async function deadLetters(client, queue) {
  await client.createSender(queue).sendMessages(numbered(2));
  const receiver = client.createReceiver(queue);
  const [first, second] = await receive(receiver, 2);
  await receiver.deadLetterMessage(first, {
    deadLetterReason: "tried",
    deadLetterErrorDescription: "in vain",
    added: 7,
  });
  await receiver.deadLetterMessage(second);
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
  const messages = await receive(dead, 2);
  await dead.completeMessage(messages[0]);
  return messages.map((message) => ({
    body: message.body,
    reason: message.deadLetterReason,
    description: message.deadLetterErrorDescription,
    properties: message.applicationProperties,
  }));
}
