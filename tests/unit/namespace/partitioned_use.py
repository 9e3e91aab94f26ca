"""Using an entity of any shape through its traffic and requests, as a front end does."""

from __future__ import annotations

from tandembus.broker.locks import COMPLETE
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.message import Message
from tandembus.store.messaging_store import MAIN
from tests.unit.broker.one_queue import Answer, body_of, message
from tests.unit.namespace.namespace_lives import Life


async def send(life: Life, name: str, *bodies: str, session_id: str | None = None) -> None:
    entity = await life.namespace.entity(name)
    answers = []
    for body in bodies:
        answer = Answer()
        reply = CallbackSendReply(lambda _operation, error, answer=answer: answer.give(error))  # type: ignore[misc]
        sent = message(body, session_id=session_id)
        entity.traffic.send(SendOperation([sent], len(sent.sections), reply, 0))
        answers.append(answer)
    await life.quiet()
    assert all(answer.is_accepted for answer in answers)


async def peek(life: Life, name: str) -> list[str]:
    return sorted(await peek_in_order(life, name))


async def peek_in_order(life: Life, name: str) -> list[str]:
    """Fragment after fragment."""
    requests = (await life.namespace.entity(name)).requests
    found: list[str] = []
    number = 1
    while page := await requests.peek(MAIN, number, 100, 1 << 20):
        found += [body_of(one.message) for one in page]
        number = page[-1].sequence_number + 1
    return found


async def receive_all(life: Life, name: str) -> list[str]:
    entity = await life.namespace.entity(name)
    received: list[str] = []

    def take(taken: Message, lock: object) -> None:
        received.append(body_of(taken))
        entity.traffic.settle(lock, COMPLETE, None)  # type: ignore[arg-type]

    consumer = CallbackConsumer(False, take)
    entity.traffic.attach(consumer, MAIN)
    consumer.credit = 1000
    entity.traffic.feed(consumer, MAIN, False)
    for _ in range(4):
        await life.quiet()
    entity.traffic.detach(consumer, MAIN)
    await life.quiet()
    return sorted(received)
