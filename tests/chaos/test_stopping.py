"""A process that is told to stop, or that is stopped and continued, under load."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from tandembus.client import connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.clock import SystemClock
from tandembus.errors import MessageLockLost
from tests.chaos.tally import Tally
from tests.chaos.tally_load import PATIENCE_S, drain, keep_receiving, keep_sending
from tests.covers import covers
from tests.integration.serving import start_namespace
from tests.scale import scaled

QUEUE = "stopped"
SHORT_LOCK = "[limits]\nmin_lock_duration_s = 0.5\n"


@pytest.mark.chaos
@covers("M1")
async def test_a_graceful_stop_under_load_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    tally = Tally(seed=30)
    for number in range(scaled(3, 50, 200)):
        namespace = start_namespace(tmp_path / "data")
        if number == 0:
            async with Administration(namespace.connection_string) as administration:
                await administration.create_queue(QUEUE)
        enough = asyncio.Event()
        before = len(tally.accepted)

        def told(enough: asyncio.Event = enough, before: int = before) -> None:
            if len(tally.accepted) - before >= 500:
                enough.set()

        target = namespace.connection_string
        clients = [asyncio.create_task(keep_sending(target, QUEUE, tally, told)) for _ in range(2)]
        clients.append(asyncio.create_task(keep_receiving(target, QUEUE, tally)))
        await asyncio.wait_for(enough.wait(), PATIENCE_S)
        assert await asyncio.to_thread(namespace.stop) == 0, "".join(namespace.log)
        await asyncio.wait_for(asyncio.gather(*clients), PATIENCE_S)
    namespace = start_namespace(tmp_path / "data")
    tally.check(await drain(namespace.connection_string, QUEUE, tally))
    assert namespace.stop() == 0


@pytest.mark.chaos
@covers("M2", "F9")
async def test_locks_lapse_while_the_process_is_stopped_and_nothing_else_is_forgotten(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(SHORT_LOCK)
    namespace = start_namespace(tmp_path / "data", "--config", str(config))
    tally = Tally(seed=31)
    async with Administration(namespace.connection_string) as administration:
        await administration.create_queue(QUEUE, QueueSettings(lock_duration_s=0.5))
    async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
        sender, receiver = await client.sender(QUEUE), await client.receiver(QUEUE)
        for _ in range(20):
            message_id, message = tally.new_message()
            await sender.send(message)
            tally.accepted.add(message_id)
        held = await receiver.receive(20, PATIENCE_S)
        assert len(held) == 20
        namespace.process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(_wait_past, held[0].locked_until or 0.0)
        namespace.process.send_signal(signal.SIGCONT)
        with pytest.raises(MessageLockLost):
            await receiver.complete(held[0])
        again: list[str] = []
        while len(again) < 20:
            messages = await receiver.receive(20, PATIENCE_S)
            assert all(message.delivery_count == 1 for message in messages)
            await receiver.complete(*messages)
            again += [tally.received(message) for message in messages]
            tally.completed.update(again)
        assert sorted(again) == sorted(tally.accepted)
    assert namespace.stop() == 0


def _wait_past(wall_time: float) -> None:
    """Nothing can be waited on in a process that is stopped, but the clock."""
    remaining = wall_time + 0.2 - SystemClock().now()
    if remaining > 0:
        threading.Event().wait(remaining)
