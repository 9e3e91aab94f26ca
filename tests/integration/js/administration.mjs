// Queue administration with the unmodified SDK; prints what it saw as one JSON document.
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const client = new ServiceBusAdministrationClient(process.env.CONNECTION_STRING);
const name = process.env.QUEUE_NAME;

async function refused(operation) {
  try {
    await operation();
    return "accepted";
  } catch (error) {
    return { code: error.code, status: error.statusCode, message: error.message };
  }
}

const seen = {};
seen.existsBefore = await client.queueExists(name);
seen.created = await client.createQueue(name, {
  maxDeliveryCount: 7,
  lockDuration: "PT30S",
  userMetadata: "<made in> & by JavaScript",
  authorizationRules: [
    {
      claimType: "SharedAccessKey",
      accessRights: ["Send", "Listen"],
      keyName: "worker",
      primaryKey: "d29ya2VyIG9uZQ==",
      secondaryKey: "d29ya2VyIHR3bw==",
    },
  ],
});
seen.read = await client.getQueue(name);
seen.updated = await client.updateQueue({ ...seen.read, maxDeliveryCount: 8 });
seen.runtime = await client.getQueueRuntimeProperties(name);
seen.existsAfter = await client.queueExists(name);
seen.conflict = await refused(() => client.createQueue(name));
seen.invalid = await refused(() => client.createQueue(`${name}-invalid`, { lockDuration: "PT10M" }));
seen.absent = await refused(() => client.getQueue(`${name}-absent`));

const many = Array.from({ length: 12 }, (_, number) => `${name}/${String(number).padStart(2, "0")}`);
for (const each of many) await client.createQueue(each);
seen.many = many;
seen.listed = [];
for await (const queue of client.listQueues()) seen.listed.push(queue.name);
seen.pages = [];
for await (const page of client.listQueuesRuntimeProperties().byPage({ maxPageSize: 5 })) seen.pages.push(page.length);
for (const each of many) await client.deleteQueue(each);

// A queue of which no fragment can be reached: somebody has made it so before.
const out = process.env.UNREACHABLE_QUEUE_NAME;
for await (const queue of client.listQueues()) if (queue.name === out) seen.unreachable = queue;
for await (const queue of client.listQueuesRuntimeProperties()) if (queue.name === out) seen.unreachableRuntime = queue;
const impatient = new ServiceBusAdministrationClient(process.env.CONNECTION_STRING, { retryOptions: { maxRetries: 0 } });
seen.unreachableAlone = await refused(() => impatient.getQueueRuntimeProperties(out));

seen.namespace = await client.getNamespaceProperties();
await client.deleteQueue(name);
seen.gone = await client.queueExists(name);
console.log(JSON.stringify(seen));
