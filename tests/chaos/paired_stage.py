"""A primary, a secondary and a syphon between them, each in processes of its own, for a test that takes them away."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tandembus.client import ReceivedMessage, ServiceBus, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import EntityCounts, QueueSettings
from tandembus.clock import SystemClock
from tandembus.pairing.aliases import PATH, backlog_path
from tests.chaos.cluster import Broker, Cluster, Loss, wait_until_gone
from tests.chaos.pairing_checks import DISABLED, STOPPED
from tests.chaos.pairs import BACKLOG_QUEUES, PRIMARY, Ends
from tests.chaos.recorder import Recorder
from tests.chaos.syphon_processes import SyphonProcess, syphon_process
from tests.integration.serving import RunningNamespace, start_namespace
from tests.scale import scaled

BROKERS = scaled(1, 2, 2)
"""More processes take longer to start, and there are many starts."""
BACKLOG_LOCK_S = 10.0
"""What a killed syphon held comes back when its locks lapse: sooner than after the minute that pairing would choose."""
NEVER_TOO_OFTEN = 2147483647
PATIENCE_S = 60.0
LOOK_AGAIN_S = 0.02
PAGE = 250
AT_ONCE_S = 0.1
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Outage:
    """Of one part of the pair, from the moment when it was taken away."""

    number: int
    how: str
    began_at: float
    note: str = ""
    entity: str = ""
    """The only one that it concerns, if there is only one."""


class PairedStage:
    """`async with`. Whatever is taken away, and whenever it is back, goes into the history."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self._folder = folder
        self._recorder = recorder
        self._syphons: list[SyphonProcess] = []
        self._stopped: list[int] = []
        self._disabled = ""
        self.syphon_log: list[str] = []

    async def __aenter__(self) -> PairedStage:
        self.primary, self.secondary = await asyncio.gather(self._start("primary"), self._start("secondary"))
        async with Administration(self.secondary.connection_string) as administration:
            for queue in self.backlog_queues:
                settings = QueueSettings(lock_duration_s=BACKLOG_LOCK_S, max_delivery_count=NEVER_TOO_OFTEN)
                await administration.create_queue(queue, settings)
        async with Cluster(self.primary.connection_string):
            return self  # it has made the queue with which the primary is asked whether it is back

    async def __aexit__(self, *_: object) -> None:
        for pid in self._stopped:
            os.kill(pid, signal.SIGCONT)
        for syphon in self._syphons:
            if syphon.is_running:
                syphon.kill()
        for namespace in (self.primary, self.secondary):
            if namespace.process.poll() is None:
                await asyncio.to_thread(namespace.kill)

    async def _start(self, name: str, port: int = 0) -> RunningNamespace:
        stores = ("--brokers", str(BROKERS)) if BROKERS > 1 else ("--stores", "2")
        options = stores if name == "primary" else ()
        return await asyncio.to_thread(start_namespace, self._folder / name, *options, port=port)

    @property
    def ends(self) -> Ends:
        ca_path = str(self.secondary.ca_path)
        return Ends(self.primary.connection_string, self.secondary.connection_string, ca_path)

    @property
    def backlog_queues(self) -> list[str]:
        return [backlog_path(PRIMARY, index) for index in range(BACKLOG_QUEUES)]

    # The primary.

    async def kill_primary(self) -> Outage:
        """kill -9. Its brokers go with it."""
        pids = await self._broker_pids()
        outage = self._begin("primary")
        await asyncio.to_thread(self.primary.kill)
        for pid in pids:
            await asyncio.to_thread(wait_until_gone, pid)
        return outage

    async def restart_primary(self, outage: Outage) -> None:
        self._say_down(outage)
        self.primary = await self._start("primary", self.primary.port)
        await self._until_primary_takes(outage)

    async def stop_primary(self) -> Outage:
        """SIGSTOP: its sockets stay open, and nobody answers."""
        pids = [self.primary.process.pid, *await self._broker_pids()]
        outage = self._begin("primary", STOPPED)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._stopped = pids
        return outage

    async def continue_primary(self, outage: Outage) -> None:
        stopped, self._stopped = self._stopped, []
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        self._say_down(outage)
        await self._until_primary_takes(outage)

    async def disable(self, entity: str) -> Outage:
        """A queue that takes nothing any more, while all others do."""
        outage = Outage(self._recorder.number(), "primary", CLOCK.now(), DISABLED, entity)
        await self._set_status(entity, "SendDisabled")
        self._disabled = entity
        return outage

    async def enable(self, outage: Outage) -> None:
        self._say_down(outage)
        self._disabled = ""
        await self._set_status(outage.entity, "Active")
        self._recorder.say("up", kill=outage.number, took_s=CLOCK.now() - outage.began_at)

    async def _set_status(self, entity: str, status: str) -> None:
        async with Administration(self.primary.connection_string) as administration:
            await administration.update_queue(entity, QueueSettings(status=status))

    async def _broker_pids(self) -> list[int]:
        if BROKERS == 1:
            return []
        async with Cluster(self.primary.connection_string, makes_probe=False) as cluster:
            return [(await cluster.broker(index)).pid for index in range(BROKERS)]

    async def _until_primary_takes(self, outage: Outage) -> None:
        """Every fragment of every broker."""
        async with Cluster(self.primary.connection_string, makes_probe=False) as cluster:
            for index in range(BROKERS):
                loss = Loss(outage.number, Broker(index, 0, "", 0), outage.began_at)
                await cluster.until_owned_again(loss, self._recorder)

    # The secondary.

    async def kill_secondary(self) -> Outage:
        outage = self._begin("secondary")
        await asyncio.to_thread(self.secondary.kill)
        return outage

    async def restart_secondary(self, outage: Outage) -> None:
        self._say_down(outage)
        self.secondary = await self._start("secondary", self.secondary.port)
        self._recorder.say("up", kill=outage.number, took_s=CLOCK.now() - outage.began_at)

    async def backlog(self) -> list[EntityCounts]:
        async with Administration(self.secondary.connection_string) as administration:
            return [(await administration.get_queue(queue)).counts for queue in self.backlog_queues]

    async def depth(self) -> int:
        return sum(one.active or 0 for one in await self.backlog())

    async def until_depth(self, is_so: Callable[[int], bool]) -> int:
        give_up_at = CLOCK.monotonic() + PATIENCE_S
        while not is_so(depth := await self.depth()):
            assert CLOCK.monotonic() < give_up_at, f"{depth} messages are in the backlog; {self.syphon_log[-20:]}"
            await asyncio.sleep(LOOK_AGAIN_S)
        return depth

    # The syphons.

    async def start_syphons(self, *kinds: str) -> None:
        """All of them empty all backlog queues."""
        for kind in kinds:
            syphon = syphon_process(kind, self.ends, self.syphon_log.append)
            await syphon.start()
            self._syphons.append(syphon)

    async def kill_syphon(self) -> None:
        """The first of those that were started; what it holds then is written down. It is stopped first, so that this
        stays what it is."""
        syphon = self._syphons.pop(0)
        outage = self._begin("syphon")
        os.kill(syphon.pid, signal.SIGSTOP)
        await self._write_down_what_is_held(outage)
        syphon.kill()
        await syphon.ended()
        self._say_down(outage)

    async def kill_all_syphons(self) -> int:
        """How many there were."""
        count = len(self._syphons)
        while self._syphons:
            await self.kill_syphon()
        return count

    async def stop_syphons(self) -> None:
        """In order, as a user does."""
        for syphon in self._syphons:
            syphon.stop()
            assert await asyncio.wait_for(syphon.ended(), PATIENCE_S) == 0, self.syphon_log
        assert not [line for line in self.syphon_log if "Traceback" in line], self.syphon_log

    async def _write_down_what_is_held(self, outage: Outage) -> None:
        """By it or another syphon: all that is in the backlog and nobody else can receive. What is put aside may be on
        its way, too, unless its entity takes nothing."""
        async with await connect(self.secondary.connection_string) as bus:
            for queue in self.backlog_queues:
                receiver = await bus.receiver(queue)
                free: list[ReceivedMessage] = []
                while some := await receiver.receive(PAGE, AT_ONCE_S):
                    free += some
                numbers = {one.sequence_number for one in free}
                for one in await _browsed(bus, queue):
                    path = str(one.properties[PATH])
                    is_waiting = one.state == "deferred" and path == self._disabled
                    if one.sequence_number not in numbers and not is_waiting:
                        self._recorder.say("held", kill=outage.number, entity=path, id=one.message_id)
                await receiver.release(*free)
                await receiver.close()

    # The history.

    def _begin(self, how: str, note: str = "") -> Outage:
        return Outage(self._recorder.number(), how, CLOCK.now(), note)

    def _say_down(self, outage: Outage) -> None:
        """It lasted until now at the least."""
        self._recorder.say_at(
            outage.began_at,
            "down",
            kill=outage.number,
            took_s=CLOCK.now() - outage.began_at,
            how=outage.how,
            note=outage.note,
            places={outage.entity: []} if outage.entity else {},
        )


async def _browsed(bus: ServiceBus, queue: str) -> list[ReceivedMessage]:
    management = await bus.management(queue)
    found: list[ReceivedMessage] = []
    while some := await management.peek(found[-1].sequence_number + 1 if found else 0, PAGE):
        found += some
    return found
