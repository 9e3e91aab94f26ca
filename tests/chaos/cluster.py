"""A namespace of several processes, seen from outside: who owns what, and what becomes of one that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.errors import ClientFailure
from tandembus.client.topology import topology_of
from tandembus.clock import SystemClock
from tests.chaos.recorder import Recorder
from tests.chaos.targets import key_in

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
    epoch: int
    """Of its hold on its store; 0 while it has none."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A broker that was killed, or lost its store in another way."""

    number: int
    broker: Broker
    began_at: float


class Cluster:
    """Use it as `async with Cluster(connection_string) as cluster`."""

    def __init__(self, connection_string: str, makes_probe: bool = True) -> None:
        """Without a probe nobody can say when fragments are owned again."""
        self._makes_probe = makes_probe
        self._administration = Administration(connection_string, timeout_s=PATIENCE_S)
        self._connection_string = connection_string
        self._client: ServiceBus | None = None

    async def __aenter__(self) -> Cluster:
        self._client = await connect(self._connection_string, timeout_s=PATIENCE_S)
        if self._makes_probe:
            await self._administration.create_queue(PROBE, QueueSettings(partitioning=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._administration.close()
        if self._client is not None:
            await self._client.close()

    async def broker(self, index: int) -> Broker:
        """There are as many stores as brokers, each with its own."""
        topology = await topology_of(self._administration.requests)
        found, store = topology.brokers[index], topology.stores[index]
        return Broker(index, _whole(found["pid"] or 0), str(found["state"]), _whole(store["epoch"] or 0))

    async def places(self, index: int) -> dict[str, list[int]]:
        """The fragments of every entity that this broker owns."""
        places: dict[str, list[int]] = {}
        for entity in (await topology_of(self._administration.requests)).entities:
            fragments: Any = entity["fragments"]
            places[str(entity["path"])] = [one["index"] for one in fragments if one["broker"] == index]
        return places

    async def kill(self, index: int, recorder: Recorder) -> Loss:
        """kill -9. What happened until the process was gone happened while it died."""
        broker, places = await self.broker(index), await self.places(index)
        loss = Loss(recorder.number(), broker, CLOCK.now())
        os.kill(broker.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until_gone, broker.pid)
        say_lost(recorder, loss, places)
        return loss

    async def until_owned_again(self, loss: Loss, recorder: Recorder) -> None:
        """Until each fragment of the broker takes a message; when that was goes into the history."""
        index = loss.broker.index
        fragments = (await self.places(index))[PROBE]
        work = asyncio.gather(*(self._until_taken(one, loss.began_at) for one in fragments))
        refused_at = min(await asyncio.wait_for(work, PATIENCE_S))
        took_s, out_s = CLOCK.now() - loss.began_at, refused_at - loss.began_at
        recorder.say("up", kill=loss.number, broker=index, took_s=took_s, out_s=out_s)

    async def until_replaced(self, broker: Broker) -> Broker:
        """Until another process has its place, and its store."""
        return await self.until(broker.index, lambda now: now.pid not in (0, broker.pid) and now.epoch > broker.epoch)

    async def until_ready(self, index: int) -> Broker:
        return await self.until(index, lambda now: now.state == "ready")

    async def until(self, index: int, is_so: Callable[[Broker], bool], within_s: float = PATIENCE_S) -> Broker:
        give_up_at = CLOCK.monotonic() + within_s
        while not is_so(now := await self.broker(index)):
            assert CLOCK.monotonic() < give_up_at, f"it did not come within {within_s} s: {now}"
            await asyncio.sleep(LOOK_AGAIN_S)
        return now

    async def _until_taken(self, fragment: int, began_at: float) -> float:
        """Returns when it was last asked for something that it refused."""
        assert self._client is not None
        sender = await self._client.sender(PROBE)
        refused_at = began_at
        while True:
            asked_at = CLOCK.now()
            try:
                await sender.send(OutgoingMessage(b"", partition_key=key_in(fragment)))
                break
            except ClientFailure:
                refused_at = asked_at
                await asyncio.sleep(LOOK_AGAIN_S)
        await sender.close()
        return refused_at


def say_lost(recorder: Recorder, loss: Loss, places: dict[str, list[int]]) -> None:
    """It lasted until now."""
    took_s = CLOCK.now() - loss.began_at
    recorder.say_at(loss.began_at, "down", kill=loss.number, broker=loss.broker.index, places=places, took_s=took_s)


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
