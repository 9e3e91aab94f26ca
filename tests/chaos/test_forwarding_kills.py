"""The process is killed while messages travel along a chain of queues: each arrives once, in the order it was sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tandembus.client import OutgoingMessage, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.errors import ClientFailure
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

CHAIN = ("start", "middle", "end")
BATCH = 50
MODES = ("loop", "thread")
PATIENCE_S = 60.0


class Sender:
    """Sends numbered messages, a batch at a time; after a kill it goes on with new numbers."""

    def __init__(self) -> None:
        self.next_number = 0
        self.accepted: list[int] = []

    async def send_until_lost(self, namespace: RunningNamespace, enough: int, when_enough: asyncio.Event) -> None:
        sent = 0
        try:
            async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
                link = await client.sender(CHAIN[0])
                while True:
                    numbers = range(self.next_number, self.next_number + BATCH)
                    self.next_number += BATCH
                    await link.send_batch([OutgoingMessage(str(number).encode()) for number in numbers])
                    self.accepted += numbers
                    sent += BATCH
                    if sent >= enough:
                        when_enough.set()
        except ClientFailure:
            return


async def make_chain(namespace: RunningNamespace) -> None:
    async with Administration(namespace.connection_string) as administration:
        await administration.create_queue(CHAIN[2])
        await administration.create_queue(CHAIN[1], QueueSettings(forward_to=CHAIN[2]))
        await administration.create_queue(CHAIN[0], QueueSettings(forward_to=CHAIN[1]))


async def receive_all(namespace: RunningNamespace, least: int) -> list[int]:
    received: list[int] = []
    async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
        receiver = await client.receiver(CHAIN[2], prefetch=500)
        while messages := await receiver.receive(500, PATIENCE_S if len(received) < least else 1.0):
            received += [int(bytes(message.body)) for message in messages if isinstance(message.body, bytes)]
            await receiver.complete(*messages)
    return received


@pytest.mark.chaos
@covers("M1", "M10", "F2")
async def test_each_message_arrives_once_and_in_order_however_often_the_process_is_killed(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    rounds = scaled(6, 100, 1_000)
    sender, moments = Sender(), random.Random(5)
    for number in range(rounds):
        mode = {"TANDEMBUS_LIMITS_COMMIT_MODE": MODES[number % len(MODES)]}
        namespace = start_namespace(tmp_path / "data", environment=mode)
        if number == 0:
            await make_chain(namespace)
        when_enough = asyncio.Event()
        sending = asyncio.create_task(
            sender.send_until_lost(namespace, moments.randint(1, 40) * BATCH, when_enough), name="sending"
        )
        await asyncio.wait_for(when_enough.wait(), PATIENCE_S)
        await asyncio.to_thread(namespace.kill)
        await asyncio.wait_for(sending, PATIENCE_S)
    namespace = start_namespace(tmp_path / "data")
    received = await receive_all(namespace, len(sender.accepted))
    async with Administration(namespace.connection_string) as administration:
        left = [(await administration.get_queue(name)).counts for name in CHAIN]
    assert namespace.stop() == 0
    assert received == sorted(set(received)), "something came twice, or out of order"
    missing = set(sender.accepted) - set(received)
    assert not missing, f"{len(missing)} accepted messages are lost"
    assert [(one.active, one.size_bytes) for one in left] == [(0, 0)] * len(CHAIN)
    tell(f"kill -9 of a chain: {rounds} rounds, {len(sender.accepted)} accepted, {len(received)} received")
