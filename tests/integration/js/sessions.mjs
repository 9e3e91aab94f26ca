// Sessions with the unmodified SDK; prints what it saw as one JSON document.
import { ServiceBusClient } from "@azure/service-bus";
import { bodies, receive, refused } from "./scenarios/common.mjs";

const connectionString = process.env.CONNECTION_STRING;
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 30000 } });
const impatient = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 3000 } });
const prefix = process.env.QUEUE_PREFIX;

async function send(queue, ...pairs) {
  const sender = client.createSender(queue);
  await sender.sendMessages(pairs.map(([sessionId, body]) => ({ sessionId, body })));
  await sender.close();
}

const scenarios = {
  async named(queue) {
    await send(queue, ["a", "a1"], ["b", "b1"], ["a", "a2"]);
    const receiver = await client.acceptSession(queue, "a");
    const messages = await receive(receiver, 2);
    const seen = {
      sessionId: receiver.sessionId,
      bodies: bodies(messages),
      ids: messages.map((message) => message.sessionId),
      isLockedForAMinute: receiver.sessionLockedUntilUtc.getTime() - Date.now(),
    };
    for (const message of messages) await receiver.completeMessage(message);
    await receiver.close();
    return seen;
  },

  async next(queue) {
    await send(queue, ["first", "1"]);
    await send(queue, ["second", "2"]);
    const one = await client.acceptNextSession(queue);
    const two = await client.acceptNextSession(queue);
    const seen = [];
    for (const each of [one, two]) seen.push([each.sessionId, ...bodies(await receive(each, 1))]);
    await one.close();
    await two.close();
    return seen;
  },

  async waiting(queue) {
    const accepting = client.acceptNextSession(queue);
    await send(queue, ["late", "x"]);
    const receiver = await accepting;
    await receiver.close();
    return receiver.sessionId;
  },

  async none(queue) {
    return refused(() => impatient.acceptNextSession(queue));
  },

  async taken(queue) {
    const holder = await client.acceptSession(queue, "a");
    const seen = await refused(() => client.acceptSession(queue, "a"));
    await holder.close();
    return seen;
  },

  async state(queue) {
    const receiver = await client.acceptSession(queue, "a");
    const seen = { before: await receiver.getSessionState() };
    await receiver.setSessionState({ step: 5 });
    seen.set = await receiver.getSessionState();
    await receiver.close();
    const again = await client.acceptSession(queue, "a");
    seen.kept = await again.getSessionState();
    await again.setSessionState(null);
    seen.cleared = await again.getSessionState();
    await again.close();
    return seen;
  },

  async settling(queue) {
    await send(queue, ["a", "0"], ["a", "1"], ["a", "2"], ["a", "3"]);
    const receiver = await client.acceptSession(queue, "a");
    const [zero, one, two, three] = await receive(receiver, 4);
    await receiver.completeMessage(zero);
    await receiver.abandonMessage(one, { tried: true });
    await receiver.deferMessage(two);
    await receiver.deadLetterMessage(three, { deadLetterReason: "enough" });
    const [again] = await receive(receiver, 1);
    const [deferred] = await receiver.receiveDeferredMessages(two.sequenceNumber);
    const seen = {
      again: [again.body, again.deliveryCount, again.applicationProperties],
      deferred: [deferred.body, deferred.state],
      peeked: bodies(await receiver.peekMessages(10)),
    };
    await receiver.completeMessage(again);
    await receiver.completeMessage(deferred);
    await receiver.close();
    const dead = client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [letter] = await receive(dead, 1);
    seen.dead = [letter.body, letter.sessionId, letter.deadLetterReason];
    await dead.completeMessage(letter);
    await dead.close();
    return seen;
  },

  async renew(queue) {
    await send(queue, ["a", "x"]);
    const receiver = await client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receive(receiver, 1);
    const firstEnd = receiver.sessionLockedUntilUtc.getTime();
    while (Date.now() < firstEnd + 1000) await receiver.renewSessionLock();
    const seen = receiver.sessionLockedUntilUtc.getTime() > firstEnd;
    await receiver.completeMessage(message);
    await receiver.close();
    return seen;
  },

  async lost(queue) {
    await send(queue, ["a", "x"]);
    const receiver = await client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receive(receiver, 1);
    const next = await client.acceptNextSession(queue, { maxAutoLockRenewalDurationInMs: 0 });
    const [again] = await receive(next, 1);
    const seen = {
      deliveryCount: again.deliveryCount,
      settling: await refused(() => receiver.completeMessage(message)),
      state: await refused(() => receiver.getSessionState()),
    };
    await next.completeMessage(again);
    await next.close();
    return seen;
  },

  async quiet(queue) {
    const receiver = await client.acceptSession(queue, "a", { maxAutoLockRenewalDurationInMs: 0 });
    const seen = await receiver.receiveMessages(1, { maxWaitTimeInMs: 3000 });
    await receiver.close();
    const again = await client.acceptSession(queue, "a");
    await again.close();
    return seen;
  },

  async subscribing(queue) {
    const count = 20;
    await send(queue, ...Array.from({ length: count }, (_, number) => ["a", number]));
    const receiver = await client.acceptSession(queue, "a");
    const received = [];
    await new Promise((resolve, reject) => {
      const handlers = {
        async processMessage(message) {
          await receiver.completeMessage(message);
          received.push(message.body);
          if (received.length === count) resolve();
        },
        async processError({ error }) {
          reject(error);
        },
      };
      receiver.subscribe(handlers, { autoCompleteMessages: false });
    });
    await receiver.close();
    return received;
  },

  async receiveAndDelete(queue) {
    await send(queue, ["a", "0"], ["a", "1"]);
    const receiver = await client.acceptSession(queue, "a", { receiveMode: "receiveAndDelete" });
    const seen = bodies(await receive(receiver, 2));
    await receiver.close();
    return seen;
  },

  async mismatches(queue) {
    const plain = prefix + "plain";
    return {
      noSession: await refused(() => send(queue, [undefined, "x"])),
      plainReceiver: await refused(() => client.createReceiver(queue).receiveMessages(1, { maxWaitTimeInMs: 1000 })),
      sessionReceiver: await refused(() => client.acceptSession(plain, "a")),
    };
  },
};

const seen = {};
await Promise.all(
  Object.entries(scenarios).map(async ([name, scenario]) => {
    try {
      seen[name] = await scenario(prefix + name);
    } catch (error) {
      seen[name] = { failed: error.stack };
    }
  }),
);
await client.close();
await impatient.close();
console.log(JSON.stringify(seen));
