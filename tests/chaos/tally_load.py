"""Clients that send and receive as fast as they are let, and write down what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from tandembus.client import connect
from tandembus.client.errors import ClientFailure
from tests.chaos.tally import Tally

WINDOW = 40
BATCH = 20
PATIENCE_S = 60.0


async def keep_sending(connection_string: str, queue: str, tally: Tally, told: Callable[[], None]) -> None:
    """Until the connection is lost: always `WINDOW` sends under way on one link."""
    try:
        async with await connect(connection_string, timeout_s=PATIENCE_S) as client:
            sender = await client.sender(queue)

            async def send_one_after_another() -> None:
                while True:
                    message_id, message = tally.new_message()
                    await sender.send(message)
                    tally.accepted.add(message_id)
                    told()

            async def send_batches() -> None:
                while True:
                    ids, messages = tally.new_batch(BATCH)
                    await sender.send_batch(messages)
                    tally.accepted |= ids
                    told()

            await _all(send_batches(), *(send_one_after_another() for _ in range(WINDOW)))
    except ClientFailure:
        return


async def keep_receiving(connection_string: str, queue: str, tally: Tally) -> None:
    """Until the connection is lost: complete everything that comes."""
    try:
        async with await connect(connection_string, timeout_s=PATIENCE_S) as client:
            receiver = await client.receiver(queue, prefetch=2 * BATCH)
            while True:
                messages = await receiver.receive(BATCH, PATIENCE_S)
                ids = {tally.received(message) for message in messages}
                tally.unsure |= ids
                await receiver.complete(*messages)
                tally.completed |= ids
                tally.unsure -= ids
    except ClientFailure:
        return


async def drain(connection_string: str, queue: str, tally: Tally) -> set[str]:
    """Everything that is left, completed."""
    left: set[str] = set()
    async with await connect(connection_string, timeout_s=PATIENCE_S) as client:
        receiver = await client.receiver(queue)
        while messages := await receiver.receive(500, 1.0):
            left.update(tally.received(message) for message in messages)
            await receiver.complete(*messages)
    return left


async def _all(*work: Coroutine[object, object, None]) -> None:
    """Like a task group: the first failure ends the others."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
