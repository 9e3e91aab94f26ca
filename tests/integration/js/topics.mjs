// Administration of topics, subscriptions and rules with the unmodified SDK; prints what it saw as one JSON document.
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const client = new ServiceBusAdministrationClient(process.env.CONNECTION_STRING);
const topic = process.env.TOPIC_NAME;
const key = { primaryKey: "d29ya2VyIG9uZQ==", secondaryKey: "d29ya2VyIHR3bw==" };

async function refused(operation) {
  try {
    await operation();
    return "accepted";
  } catch (error) {
    return { code: error.code, status: error.statusCode, message: error.message };
  }
}

async function names(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each.name ?? each.subscriptionName);
  return found;
}

async function pages(iterator) {
  const sizes = [];
  for await (const page of iterator) sizes.push(page.length);
  return sizes;
}

const seen = {};
seen.topicExistsBefore = await client.topicExists(topic);
seen.topic = await client.createTopic(topic, {
  maxSizeInMegabytes: 2048,
  defaultMessageTimeToLive: "P14D",
  userMetadata: "<made in> & by JavaScript",
  authorizationRules: [{ claimType: "SharedAccessKey", accessRights: ["Send"], keyName: "worker", ...key }],
});
seen.topicRead = await client.getTopic(topic);
seen.topicUpdated = await client.updateTopic({ ...seen.topicRead, userMetadata: "changed" });
seen.topicExistsAfter = await client.topicExists(topic);

seen.subscription = await client.createSubscription(topic, "audit", { maxDeliveryCount: 7, lockDuration: "PT30S" });
seen.subscriptionRead = await client.getSubscription(topic, "audit");
seen.subscriptionUpdated = await client.updateSubscription({ ...seen.subscriptionRead, maxDeliveryCount: 8 });
seen.subscriptionExists = await client.subscriptionExists(topic, "audit");
seen.withDefaultRule = await client.createSubscription(topic, "picky", {
  defaultRuleOptions: { name: "mine", filter: { sqlExpression: "size > 5" } },
});
seen.defaultRules = await names(client.listRules(topic, "picky"));
const moment = new Date(Date.UTC(2030, 0, 31, 12));
const properties = { text: "<x>", number: 5, half: 1.5, yes: true, no: false, moment };
seen.rules = {
  plain: await client.createRule(topic, "audit", "plain"),
  sql: await client.createRule(
    topic,
    "audit",
    "sql",
    { sqlExpression: "a = @a", sqlParameters: { a: 1.5 } },
    { sqlExpression: "SET b = @b", sqlParameters: { b: "x" } },
  ),
  correlation: await client.createRule(topic, "audit", "correlation", {
    correlationId: "c",
    subject: "l",
    to: "t",
    replyTo: "rt",
    replyToSessionId: "rs",
    sessionId: "s",
    messageId: "m",
    contentType: "ct",
    applicationProperties: properties,
  }),
};
seen.ruleRead = await client.getRule(topic, "audit", "correlation");
seen.ruleUpdated = await client.updateRule(topic, "audit", { ...(await client.getRule(topic, "audit", "sql")), action: undefined });
seen.defaultRule = await client.getRule(topic, "audit", "$Default");
seen.ruleExists = await client.ruleExists(topic, "audit", "sql");
seen.ruleNames = await names(client.listRules(topic, "audit"));
seen.rulePages = await pages(client.listRules(topic, "audit").byPage({ maxPageSize: 3 }));
await client.deleteRule(topic, "audit", "sql");
seen.ruleGone = await client.ruleExists(topic, "audit", "sql");

const many = Array.from({ length: 7 }, (_, number) => `many-${number}`);
for (const each of many) await client.createSubscription(topic, each);
seen.subscriptionNames = await names(client.listSubscriptions(topic));
seen.subscriptionPages = await pages(client.listSubscriptionsRuntimeProperties(topic).byPage({ maxPageSize: 4 }));
const topics = Array.from({ length: 7 }, (_, number) => `${topic}/${number}`);
for (const each of topics) await client.createTopic(each);
seen.topicNames = await names(client.listTopics());
seen.topicPages = await pages(client.listTopicsRuntimeProperties().byPage({ maxPageSize: 4 }));
for (const each of topics) await client.deleteTopic(each);

seen.topicRuntime = await client.getTopicRuntimeProperties(topic);
seen.subscriptionRuntime = await client.getSubscriptionRuntimeProperties(topic, "audit");

seen.conflicts = [
  await refused(() => client.createTopic(topic)),
  await refused(() => client.createQueue(topic)),
  await refused(() => client.createSubscription(topic, "audit")),
  await refused(() => client.createRule(topic, "audit", "plain")),
];
seen.absent = [
  await refused(() => client.getTopic(`${topic}-absent`)),
  await refused(() => client.getSubscription(topic, "absent")),
  await refused(() => client.getRule(topic, "audit", "absent")),
  await refused(() => client.createSubscription(`${topic}-absent`, "s")),
];
seen.invalid = [
  await refused(() => client.createRule(topic, "audit", "bad", { sqlExpression: "a = =" })),
  await refused(() => client.createSubscription(topic, "bad", { lockDuration: "PT10M" })),
  await refused(() => client.createTopic(`${topic}-bad`, { maxSizeInMegabytes: 7 })),
];
const target = `${topic}-target`;
await client.createQueue(target);
const forwards = { forwardTo: target, forwardDeadLetteredMessagesTo: target };
seen.forwarding = await client.createSubscription(topic, "forwarding", forwards);
seen.forwardingKept = await client.updateSubscription({ ...seen.forwarding, maxDeliveryCount: 3 });
seen.forwardingGone = await client.updateSubscription({ ...seen.forwardingKept, forwardTo: undefined });
seen.forwardingQueue = await client.createQueue(`${topic}-source`, forwards);
seen.forwardingNowhere = await refused(() => client.createQueue(`${topic}-bad`, { forwardTo: `${topic}-absent` }));
for (const each of [`${topic}-source`, target]) await client.deleteQueue(each);

await client.deleteSubscription(topic, "audit");
seen.subscriptionGone = await client.subscriptionExists(topic, "audit");
await client.deleteTopic(topic);
seen.topicGone = await client.topicExists(topic);
console.log(JSON.stringify(seen));
