// Rules with the unmodified SDK's rule manager, over AMQP, and what goes through them. Prints what it saw as JSON.
import { ServiceBusClient } from "@azure/service-bus";
import { bodies, receive, refused } from "./scenarios/common.mjs";

const { CONNECTION_STRING, TOPIC } = process.env;
const client = new ServiceBusClient(CONNECTION_STRING, { retryOptions: { maxRetries: 0 } });
const rules = (subscription) => client.createRuleManager(TOPIC, subscription);

/** Of an empty list the SDK's iterator makes one element that is undefined. */
async function all(manager) {
  const listed = [];
  for await (const rule of manager.listRules()) if (rule !== undefined) listed.push(rule);
  return listed;
}

async function pages(manager, maxPageSize) {
  const sizes = [];
  for await (const page of manager.listRules().byPage({ maxPageSize })) sizes.push(page.length);
  return sizes;
}

async function lifeOfRules() {
  const manager = rules("managed");
  const seen = { first: await all(manager) };
  await manager.deleteRule("$Default");
  seen.none = await all(manager);
  await manager.createRule("sql", { sqlExpression: "color = 'red'" });
  await manager.createRule("acting", { sqlExpression: "quantity > 1" }, { sqlExpression: "SET quantity = quantity + 1" });
  await manager.createRule("correlation", {
    correlationId: "c",
    messageId: "m",
    to: "t",
    replyTo: "r",
    subject: "s",
    sessionId: "session",
    replyToSessionId: "answers",
    contentType: "text/plain",
    applicationProperties: { text: "x", number: 5, double: 1.5, yes: true, at: new Date(1700000000000) },
  });
  seen.listed = await all(manager);
  seen.again = await refused(() => manager.createRule("SQL", { sqlExpression: "1=1" }));
  seen.wrong = await refused(() => manager.createRule("wrong", { sqlExpression: "color = upper('x')" }));
  seen.wrongAction = await refused(() =>
    manager.createRule("wrong", { sqlExpression: "1=1" }, { sqlExpression: "REMOVE sys.Label" }),
  );
  seen.absent = await refused(() => manager.deleteRule("nobody"));
  await manager.deleteRule("Correlation");
  seen.left = (await all(manager)).map((rule) => rule.name);
  return seen;
}

async function manyRules() {
  const manager = rules("many");
  const names = Array.from({ length: 120 }, (_, number) => `rule-${String(number).padStart(3, "0")}`);
  await Promise.all(names.map((name) => manager.createRule(name, { sqlExpression: `number = ${Number(name.slice(5))}` })));
  return { listed: (await all(manager)).map((rule) => rule.name), pages: await pages(manager, 50), names };
}

async function filtering() {
  const manager = rules("filtered");
  await manager.deleteRule("$Default");
  const at = new Date(1700000000000);
  await manager.createRule("small", { sqlExpression: "quantity < 3 AND sys.Label LIKE 'order%'" });
  await manager.createRule("dated", { applicationProperties: { at } });
  await manager.createRule("doubled", { subject: "double" }, { sqlExpression: "SET quantity = quantity * 2; SET sys.To = 'there'" });
  await client.createSender(TOPIC).sendMessages([
    { body: "one", subject: "order-1", applicationProperties: { quantity: 1 } },
    { body: "five", subject: "order-5", applicationProperties: { quantity: 5 } },
    { body: "dated", applicationProperties: { at } },
    { body: "double", subject: "double", applicationProperties: { quantity: 21 } },
  ]);
  const messages = await receive(client.createReceiver(TOPIC, "filtered"), 3);
  return { bodies: bodies(messages), last: { ...messages[2].applicationProperties, to: messages[2].to } };
}

async function elsewhere() {
  return {
    topic: await refused(() => client.createRuleManager(TOPIC, "nobody").createRule("x", { sqlExpression: "1=1" })),
  };
}

const seen = {};
for (const scenario of [lifeOfRules, manyRules, filtering, elsewhere]) {
  try {
    seen[scenario.name] = await scenario();
  } catch (error) {
    seen[scenario.name] = { failed: error.stack };
  }
}
await client.close();
console.log(JSON.stringify(seen));
