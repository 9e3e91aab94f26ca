// Sends, receives and asks with the unmodified SDK, each time after a line has come on standard input: meanwhile
// everything it has open may have gone. Prints a line for each, after one that says that all is open.
import { createInterface } from "node:readline";
import { ServiceBusClient } from "@azure/service-bus";

// Each call waits for its own time-out when its connection is reset, and is tried again then.
const retryOptions = { retryDelayInMs: 200, timeoutInMs: 3000 };
const client = new ServiceBusClient(process.env.CONNECTION_STRING, { retryOptions });
const sender = client.createSender(process.env.QUEUE);
const receiver = client.createReceiver(process.env.QUEUE);

async function send() {
  await sender.sendMessages({ body: "x" });
}

async function complete() {
  let messages = [];
  while (messages.length === 0) messages = await receiver.receiveMessages(1, { maxWaitTimeInMs: 3000 });
  await receiver.completeMessage(messages[0]);
}

const steps = [send, complete, () => receiver.peekMessages(1)];
for (const step of steps) await step();
console.log("open");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
for (const step of steps) {
  await lines.next();
  // What has come from the broker is seen before: that its connection is closed, and then that the socket is.
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  try {
    await step();
    console.log("done");
  } catch (error) {
    console.log(error.stack.replaceAll("\n", " "));
  }
}
await client.close();
process.exit(0);
