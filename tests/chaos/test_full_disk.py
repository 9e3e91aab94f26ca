"""F4: the disk is full for real. Sends are refused by name; receiving and settling go on; room brings service back."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.client import Receiver, Sender, connect
from tandembus.client.administration import Administration
from tandembus.errors import StoreUnavailable
from tests.chaos.history import History
from tests.chaos.load import drain
from tests.covers import covers
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

QUEUE = "full"
VOLUME_MB = 64
PATIENCE_S = 30.0
MOST_MESSAGES = 200_000
"""More than any volume of this size takes: the loop ends by refusal, not here."""


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A volume of 64 MB of its own, where this user may mount one."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small volume needs root")
    folder = tmp_path / "volume"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={VOLUME_MB}m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small volume cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def namespace_on_small_volume(small_volume: Path) -> Iterator[RunningNamespace]:
    namespace = start_namespace(small_volume / "data")
    yield namespace
    assert namespace.stop() == 0, "".join(namespace.log)


async def _fill(sender: Sender, history: History) -> None:
    """Until the first refusal, which must be the store's and nobody else's."""
    for _ in range(MOST_MESSAGES):
        message_id, message = history.new_message(largest=60_000)
        try:
            await asyncio.wait_for(sender.send(message), PATIENCE_S)
        except StoreUnavailable:
            return
        history.accepted.add(message_id)
    raise AssertionError("the volume never filled up")


async def _settle_half(receiver: Receiver, history: History) -> None:
    half = len(history.accepted - history.completed) // 2
    while half > 0:
        messages = await receiver.receive(min(half, 200), PATIENCE_S)
        assert messages, "receiving must go on while the disk is full"
        await receiver.complete(*messages)
        history.completed.update([history.received(message) for message in messages])
        half -= len(messages)


async def _send_until_accepted(sender: Sender, history: History) -> None:
    """Service comes back by itself once there is room; every refusal until then is the store's."""
    while True:
        message_id, message = history.new_message(largest=1000)
        try:
            await sender.send(message)
        except StoreUnavailable:
            continue
        history.accepted.add(message_id)
        return


@pytest.mark.chaos
@covers("F4", "M13")
async def test_a_full_volume_refuses_sends_and_nothing_else(namespace_on_small_volume: RunningNamespace) -> None:
    target = namespace_on_small_volume.connection_string
    history = History(seed=4)
    async with Administration(target) as administration:
        await administration.create_queue(QUEUE)
    async with await connect(target, timeout_s=PATIENCE_S) as client:
        sender, receiver = await client.sender(QUEUE), await client.receiver(QUEUE)
        for _ in range(scaled(1, 20, 50)):
            await _fill(sender, history)
            await _settle_half(receiver, history)
            await asyncio.wait_for(_send_until_accepted(sender, history), PATIENCE_S)
    history.check(await drain(target, QUEUE, history))


@pytest.mark.chaos
@covers("F4")
async def test_what_was_accepted_before_the_disk_filled_up_survives_a_kill(small_volume: Path) -> None:
    history = History(seed=5)
    namespace = start_namespace(small_volume / "data")
    async with Administration(namespace.connection_string) as administration:
        await administration.create_queue(QUEUE)
    async with await connect(namespace.connection_string, timeout_s=PATIENCE_S) as client:
        await _fill(await client.sender(QUEUE), history)
        namespace.kill()
    namespace = start_namespace(small_volume / "data")
    try:
        history.check(await drain(namespace.connection_string, QUEUE, history))
    finally:
        assert namespace.stop() == 0
