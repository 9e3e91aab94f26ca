// Messaging with the unmodified SDK: every scenario on a queue of its own, all at the same time over one connection.
// Prints what they saw as one JSON document, by the scenarios' names. WEB_SOCKETS: over a WebSocket, which needs TLS.
import { ServiceBusClient } from "@azure/service-bus";
import * as browsing from "./scenarios/browsing.mjs";
import * as receiving from "./scenarios/receiving.mjs";
import * as sending from "./scenarios/sending.mjs";
import * as settling from "./scenarios/settling.mjs";

const webSocketOptions = process.env.WEB_SOCKETS ? { webSocket: (await import("ws")).default } : undefined;
const options = { retryOptions: { maxRetries: 0 }, webSocketOptions };
const client = new ServiceBusClient(process.env.CONNECTION_STRING, options);
const scenarios = { ...browsing, ...receiving, ...sending, ...settling };

async function run(name) {
  const began = Date.now();
  try {
    return await scenarios[name](client, `${process.env.QUEUE_PREFIX}${name}`);
  } catch (error) {
    return { failed: error.stack, code: error.code };
  } finally {
    if (process.env.SHOW_TIMES) console.error(name, Date.now() - began);
  }
}

const names = process.env.SCENARIOS?.split(",") ?? Object.keys(scenarios);
const seen = await Promise.all(names.map(run));
await client.close();
console.log(JSON.stringify(Object.fromEntries(names.map((name, at) => [name, seen[at]]))));
