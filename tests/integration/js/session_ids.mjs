// SessionIds where there are no sessions; prints what it saw as one JSON document.
import { ServiceBusClient } from "@azure/service-bus";
import { bodies, receive } from "./scenarios/common.mjs";

const client = new ServiceBusClient(process.env.CONNECTION_STRING, { retryOptions: { maxRetries: 0, timeoutInMs: 30000 } });
const prefix = process.env.QUEUE_PREFIX;

async function send(queue, ...messages) {
  const sender = client.createSender(queue);
  for (const message of messages) await sender.sendMessages(message);
  await sender.close();
}

async function deferAndComplete(receiver) {
  const [message] = await receive(receiver, 1);
  await receiver.deferMessage(message);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  await receiver.completeMessage(deferred);
  await receiver.close();
  return { sessionId: deferred.sessionId, bodies: bodies([deferred]) };
}

const scenarios = {
  async deferred(queue) {
    await send(queue, { sessionId: "s", body: "x" });
    return deferAndComplete(client.createReceiver(queue));
  },

  async letters(queue) {
    await send(queue, { sessionId: "s", body: "x" });
    const receiver = await client.acceptSession(queue, "s");
    const [message] = await receive(receiver, 1);
    await receiver.deadLetterMessage(message);
    await receiver.close();
    return deferAndComplete(client.createReceiver(queue, { subQueueType: "deadLetter" }));
  },
};

const seen = {};
for (const [name, scenario] of Object.entries(scenarios)) {
  try {
    seen[name] = await scenario(prefix + name);
  } catch (error) {
    seen[name] = { failed: String(error) };
  }
}
await client.close();
console.log(JSON.stringify(seen));
