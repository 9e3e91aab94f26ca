// Parts of entity paths: "orders", "events/subscriptions/large".
const SUBSCRIPTION = /^(.+)\/subscriptions\/([^/]+)$/i;

export function topicOf(path) { return SUBSCRIPTION.exec(path)?.[1] ?? null; }
/** What an entity is called below its topic; queues and topics by their whole path. */
export function nameOf(path) { return SUBSCRIPTION.exec(path)?.[2] ?? path; }
export function subscriptionPath(topic, name) { return `${topic}/subscriptions/${name}`; }
