"""What is in the queues when all is quiet: as the service counts it, as browsing shows it, as it can be received."""

from __future__ import annotations

from collections.abc import Iterable

from tandembus.client import Receiver, ServiceBus, SubQueue, connect
from tandembus.client.administration import Administration
from tandembus.errors import OperationTimeout
from tests.chaos.load import PATIENCE_S, Target
from tests.chaos.recorder import Recorder

PAGE = 200


async def take_inventory(connection_string: str, recorder: Recorder, targets: Iterable[Target]) -> int:
    """Writes counts and contents into the history, then receives everything; returns how many messages it were."""
    total = 0
    async with (
        Administration(connection_string) as administration,
        await connect(connection_string, timeout_s=PATIENCE_S) as client,
    ):
        for target in targets:
            counts = (await administration.get_queue(target.name)).counts
            dead, scheduled = counts.dead_letter, counts.scheduled
            recorder.say("count", entity=target.name, active=counts.active, dead=dead, scheduled=scheduled)
            left = await _browse(client, recorder, target, None)
            total += len(left) + len(await _browse(client, recorder, target, SubQueue.DEAD_LETTER))
            received = await _receive_all(client, target, len(left))
            assert received == left, f"what {target.name} shows is not what it gives: {sorted(received ^ left)[:5]}"
    return total


async def _browse(client: ServiceBus, recorder: Recorder, target: Target, sub_queue: SubQueue | None) -> set[int]:
    """All of it, call by call: one answer may be short, only an empty one is the end."""
    management = await client.management(target.name, sub_queue)
    numbers: set[int] = set()
    after = 0
    while messages := await management.peek(after + 1, PAGE):
        for message in messages:
            recorder.left(target.name, message, message.state if sub_queue is None else "dead")
        numbers.update(message.sequence_number for message in messages)
        after = messages[-1].sequence_number
    await management.close()
    return numbers


async def _receive_all(client: ServiceBus, target: Target, count: int) -> set[int]:
    """Locks of receivers that are gone may have to lapse first."""
    numbers: set[int] = set()
    while len(numbers) < count:
        receiver: Receiver
        try:
            receiver = await (
                client.accept_session(target.name, None, PATIENCE_S)
                if target.sessions
                else client.receiver(target.name)
            )
        except OperationTimeout:
            break
        before = len(numbers)
        wait_s = 0.1 if target.sessions else PATIENCE_S
        while len(numbers) < count and (messages := await receiver.receive(PAGE, wait_s)):
            await receiver.complete(*messages)
            numbers.update(message.sequence_number for message in messages)
        await receiver.close()
        if len(numbers) == before and not target.sessions:
            break
    return numbers
