"""What waiting for a backlog costs: a syphon of empty queues, over a month that takes seconds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial

import pytest

from tandembus.client import connect
from tandembus.clock import JumpingClock
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_rules import SyphonSettings
from tandembus.testing import AsyncEmbeddedNamespace
from tests.covers import covers
from tests.integration.simulated_time import SimulatedTimeLoop, run_simulated

QUEUES = [backlog_path("contoso", index) for index in range(10)]
POLL_S = 15 * 60
HOUR_S = 3600
DAY_S = 24 * HOUR_S
Counts = Counter[tuple[str, str]]


class Waiting:
    """The syphon of the program on ten queues, as `tandembus syphon` puts it together, and the time that it sees."""

    def __init__(
        self, loop: SimulatedTimeLoop, primary: AsyncEmbeddedNamespace, secondary: AsyncEmbeddedNamespace
    ) -> None:
        self._loop = loop
        self._namespace = secondary
        self._clock = JumpingClock()
        self.figures = SyphonFigures(self._clock)
        self._connections = [SharedConnection(partial(connect, it.connection_string)) for it in (primary, secondary)]
        backlogs = [ClientBacklog(self._connections[1], queue) for queue in QUEUES]
        home = ClientPrimary(self._connections[0])
        self.syphon = Syphon(backlogs, home, SyphonSettings(), self.figures, Runtime(self._clock))
        self._running: asyncio.Future[bool] | None = None

    async def start(self) -> None:
        """Returns when each queue is waited for."""
        for each in self._connections:
            await each.get()  # Hosts are looked up in a thread, of which the loop does not know that it is busy.
        self._running = asyncio.ensure_future(self.syphon.run())
        await self._loop.quiet()

    async def let_pass(self, seconds: int, step_s: int = POLL_S) -> None:
        """After each step everybody does what is due."""
        for _ in range(seconds // step_s):
            self._clock.jump(step_s)
            self._loop.jump(step_s)
            await self._namespace.clock.advance(step_s)
            await self._loop.quiet()

    def counted(self) -> Counts:
        """Operations by kind and reason, of all entities."""
        found: Counts = Counter()
        for one in self._namespace.node.meter.totals().since_start:
            found[one.operation, one.reason] += one.count.operations
        return found

    async def end(self) -> None:
        assert self._running is not None
        await self.syphon.stop()
        await self._running
        for each in self._connections:
            await each.close()


def recorded(namespace: AsyncEmbeddedNamespace) -> int:
    """Empty receives in the files of the meter, from which bills are made."""
    namespace.node.meter.flush()
    files = (namespace.node.settings.data / "meter").glob("*.jsonl")
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sum(one["operations"] for one in records if one.get("operation") == "empty_receive")


async def month(loop: SimulatedTimeLoop) -> None:
    async with AsyncEmbeddedNamespace() as primary, AsyncEmbeddedNamespace() as secondary:
        for queue in QUEUES:
            await secondary.create_queue(queue)
        waiting = Waiting(loop, primary, secondary)
        await waiting.start()
        at_first = waiting.counted()
        assert at_first["empty_receive", "longpoll"] == 0
        await waiting.let_pass(POLL_S - 1, POLL_S - 1)
        assert waiting.counted() == at_first, "the polls are not over before their time"
        await waiting.let_pass(1, 1)
        assert waiting.counted() - at_first == {("empty_receive", "longpoll"): 10}
        for seconds, step_s, receives in (
            (HOUR_S - POLL_S, 60, 40),
            (DAY_S - HOUR_S, POLL_S // 3, 960),
            (29 * DAY_S, POLL_S, 28_800),
        ):
            await waiting.let_pass(seconds, step_s)
            assert waiting.counted() - at_first == {("empty_receive", "longpoll"): receives}
        assert recorded(secondary) == 28_800
        await waiting.end()


@covers("N11")
@pytest.mark.timeout(120)
def test_a_syphon_of_ten_idle_queues_takes_40_receives_an_hour_960_a_day_and_28800_in_30_days() -> None:
    run_simulated(month)
