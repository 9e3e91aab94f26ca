"""What is in the queues when all is quiet: as the service counts it, as browsing shows it, as it can be received."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tandembus.client import Receiver, ServiceBus, SubQueue, connect
from tandembus.client.administration import Administration
from tandembus.clock import SystemClock
from tandembus.errors import OperationTimeout
from tests.chaos.recorder import Recorder
from tests.chaos.targets import Target

PAGE = 200
PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.02
CLOCK = SystemClock()


async def take_inventory(connection_string: str, recorder: Recorder, targets: Iterable[Target]) -> int:
    """Writes counts and contents into the history, then receives everything; returns how many messages it were."""
    total = 0
    async with (
        Administration(connection_string) as administration,
        await connect(connection_string, timeout_s=PATIENCE_S) as client,
    ):
        for target in targets:
            if target.forwards_to:
                await _until_forwarded(administration, target)
            for path in target.outlets:
                total += await _take(administration, client, recorder, target, path)
    return total


async def _take(
    administration: Administration, client: ServiceBus, recorder: Recorder, target: Target, path: str
) -> int:
    counts = await target.counts(administration, path)
    dead, scheduled = counts.dead_letter, counts.scheduled
    recorder.say("count", entity=path, active=counts.active, dead=dead, scheduled=scheduled)
    left = await _browse(client, recorder, path, None)
    dead_ones = await _browse(client, recorder, path, SubQueue.DEAD_LETTER)
    received = await _receive_all(client, path, target.sessions > 0, len(left))
    assert received == left, f"what {path} shows is not what it gives: {sorted(received ^ left)[:5]}"
    return len(left) + len(dead_ones)


async def _until_forwarded(administration: Administration, target: Target) -> None:
    """What was accepted has left it for good: whatever is not at its destination now is lost."""
    give_up_at = CLOCK.monotonic() + PATIENCE_S
    while (counts := await target.counts(administration, target.name)).active:
        assert CLOCK.monotonic() < give_up_at, f"{counts.active} messages of {target.name} are not forwarded"
        await asyncio.sleep(LOOK_AGAIN_S)
    assert counts.dead_letter == counts.transfer_dead_letter == 0, f"{target.name} gave messages up: {counts}"


async def _browse(client: ServiceBus, recorder: Recorder, path: str, sub_queue: SubQueue | None) -> set[int]:
    """All of it, call by call: one answer may be short, only an empty one is the end."""
    management = await client.management(path, sub_queue)
    numbers: set[int] = set()
    after = 0
    while messages := await management.peek(after + 1, PAGE):
        for message in messages:
            recorder.left(path, message, message.state if sub_queue is None else "dead")
        numbers.update(message.sequence_number for message in messages)
        after = messages[-1].sequence_number
    await management.close()
    return numbers


async def _receive_all(client: ServiceBus, path: str, has_sessions: bool, count: int) -> set[int]:
    """Locks of receivers that are gone may have to lapse first."""
    numbers: set[int] = set()
    give_up_at = CLOCK.monotonic() + 2 * PATIENCE_S
    while len(numbers) < count and CLOCK.monotonic() < give_up_at:
        receiver: Receiver
        try:
            receiver = await (client.accept_session(path, None, PATIENCE_S) if has_sessions else client.receiver(path))
        except OperationTimeout:
            break
        before = len(numbers)
        wait_s = 0.1 if has_sessions else PATIENCE_S
        while len(numbers) < count and (messages := await receiver.receive(PAGE, wait_s)):
            await receiver.complete(*messages)
            numbers.update(message.sequence_number for message in messages)
        await receiver.close()
        if len(numbers) == before and not has_sessions:
            break
    return numbers
