"""A namespace of several processes, seen from outside: who owns what, and what becomes of one that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.errors import ClientFailure
from tandembus.client.topology import topology_of
from tandembus.clock import SystemClock
from tandembus.namespace.partitioning import FRAGMENT_COUNT, fragment_of_key
from tests.chaos.recorder import Recorder

PATIENCE_S = 60.0
PROBE = "probe"
LOOK_AGAIN_S = 0.01
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Broker:
    index: int
    pid: int
    """0 while there is none."""
    state: str


class Cluster:
    """Use it as `async with Cluster(connection_string) as cluster`."""

    def __init__(self, connection_string: str) -> None:
        self._administration = Administration(connection_string, timeout_s=PATIENCE_S)
        self._connection_string = connection_string
        self._client: ServiceBus | None = None

    async def __aenter__(self) -> Cluster:
        self._client = await connect(self._connection_string, timeout_s=PATIENCE_S)
        await self._administration.create_queue(PROBE, QueueSettings(partitioning=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._administration.close()
        if self._client is not None:
            await self._client.close()

    async def broker(self, index: int) -> Broker:
        found = (await topology_of(self._administration.requests)).brokers[index]
        return Broker(index, _whole(found["pid"] or 0), str(found["state"]))

    async def places(self, index: int) -> dict[str, list[int]]:
        """The fragments of every entity that this broker owns."""
        places: dict[str, list[int]] = {}
        for entity in (await topology_of(self._administration.requests)).entities:
            fragments: Any = entity["fragments"]
            places[str(entity["path"])] = [one["index"] for one in fragments if one["broker"] == index]
        return places

    async def kill(self, index: int, recorder: Recorder) -> float:
        """kill -9; returns when it was. What happened until the process was gone happened while it died."""
        broker, places = await self.broker(index), await self.places(index)
        killed_at = CLOCK.now()
        os.kill(broker.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until_gone, broker.pid)
        recorder.say_at(killed_at, "down", broker=index, places=places, took_s=CLOCK.now() - killed_at)
        return killed_at

    async def until_owned_again(self, index: int, since: float, recorder: Recorder) -> None:
        """Until each fragment of the broker takes a message; when that was goes into the history."""
        fragments = (await self.places(index))[PROBE]
        await asyncio.wait_for(asyncio.gather(*(self._until_taken(one) for one in fragments)), PATIENCE_S)
        recorder.say("up", broker=index, took_s=CLOCK.now() - since)

    async def until_replaced(self, broker: Broker) -> None:
        """Until another process has its place."""
        await asyncio.to_thread(wait_until_gone, broker.pid)
        while (await self.broker(broker.index)).pid in (0, broker.pid):
            pass

    async def until_ready(self, index: int) -> None:
        while (await self.broker(index)).state != "ready":
            pass

    async def _until_taken(self, fragment: int) -> None:
        assert self._client is not None
        sender = await self._client.sender(PROBE)
        while True:
            try:
                await sender.send(OutgoingMessage(b"", partition_key=key_in(fragment)))
                break
            except ClientFailure:
                await asyncio.sleep(LOOK_AGAIN_S)
        await sender.close()


def key_in(fragment: int, number: int = 0) -> str:
    """A partition key of this fragment; each number gives another."""
    found = (f"{number}-{at}" for at in range(100 * FRAGMENT_COUNT))
    return next(key for key in found if fragment_of_key(key) == fragment)


def wait_until_gone(pid: int) -> None:
    """Nobody but its parent can wait for a process: others have to look."""
    give_up_at = CLOCK.monotonic() + PATIENCE_S
    while is_running(pid):
        assert CLOCK.monotonic() < give_up_at, f"process {pid} does not end"
        threading.Event().wait(0.001)


def is_running(pid: int) -> bool:
    """A process that is dead and not yet waited for runs no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _whole(value: object) -> int:
    assert isinstance(value, int), f"{value!r} is no number"
    return value
