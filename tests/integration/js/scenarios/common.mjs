// What the scenarios share.

export const PATIENCE = { maxWaitTimeInMs: 20000 };

/** Exactly `count` messages: one call returns as soon as there is a pause. */
export async function receive(receiver, count) {
  const messages = [];
  while (messages.length < count) {
    const arrived = await receiver.receiveMessages(count - messages.length, PATIENCE);
    if (arrived.length === 0) throw new Error(`${messages.length} of ${count} messages came`);
    messages.push(...arrived);
  }
  return messages;
}

/** The code and the words of the error that an operation ends in. */
export async function refused(operation) {
  try {
    await operation();
    return "accepted";
  } catch (error) {
    return { code: error.code, message: error.message };
  }
}

export const bodies = (messages) => messages.map((message) => message.body);

export const numbered = (count) => Array.from({ length: count }, (_, number) => ({ body: `message ${number}` }));
