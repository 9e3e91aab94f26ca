"""What happens, act by act: calm, outage, return, end; and what is noticed on the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from azure.servicebus.aio import ServiceBusClient

from demo.hold_ups import HoldUps
from demo.report import Account, Measured, Operations, Reaction
from demo.stage import QUEUES, Stage
from demo.tally import Tally
from demo.traffic import Observed, Traffic
from demo.view import Picture, View
from tandembus.client import ConnectionLost
from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.pairing import EntityHealthy, FailoverEngaged, PairedServiceBusClient, PairingEvent, PingFailed

SENDERS: Final = 4
LOOK_EVERY_S: Final = 0.25
PATIENCE_S: Final = 30.0
"""How long each step may take before it counts as one that never happens."""
DELIVERED_WITHIN_S: Final = 60.0
"""The last one: receivers have all of the backlog before them then, and a busy machine completes a hundred a second."""


@dataclass(frozen=True, slots=True)
class Plan:
    rate: float
    """Messages per second."""
    calm_s: float
    outage_s: float
    """How long senders send into the backlog."""
    failover_interval_s: float
    ping_interval_s: float
    tolerance_s: float
    """By how much a failover may be early or late, and a return late."""


@dataclass(frozen=True, slots=True)
class Span:
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Demonstration:
    """The acts, one after the other, and what was noticed on the way."""

    def __init__(self, plan: Plan, stage: Stage, tally: Tally, view: View, clock: Clock, started_at: float) -> None:
        self._plan: Final = plan
        self._stage: Final = stage
        self._tally: Final = tally
        self._view: Final = view
        self._clock: Final = clock
        self._started_at: Final = started_at
        self._act = "getting ready"
        self._depth: int | None = None
        self._away: Final[set[str]] = set()
        """Queues that the senders have given up for now."""
        self._all_away: Final = asyncio.Event()
        self._all_back: Final = asyncio.Event()
        self._failovers: Final[dict[str, Span]] = {}
        """By queue, from the first refusal that its senders met."""
        self._healthy_at: Final[dict[str, float]] = {}
        self._drained_s: float | None = None
        self._hold_ups: Final = HoldUps(clock)

    async def run(self, paired: PairedServiceBusClient, primary: ServiceBusClient) -> Account:
        traffic = Traffic(paired, primary, self._tally, self._clock)
        paired.options.on_event(partial(self._hear, traffic.observed))
        beside = [asyncio.create_task(self._look(paired)), asyncio.create_task(self._hold_ups.run())]
        try:
            await self._calm(traffic)
            await self._outage(traffic)
            await self._return()
            await self._end(traffic)
        finally:
            for each in beside:
                each.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        return await self._account(traffic)

    # The acts.

    async def _calm(self, traffic: Traffic) -> None:
        self._begin("all is well")
        await self._stage.start_syphon()
        traffic.start(SENDERS, self._plan.rate)
        await asyncio.sleep(self._plan.calm_s)

    async def _outage(self, traffic: Traffic) -> None:
        self._begin(f"the primary is killed; senders are to fail over after {self._plan.failover_interval_s:g} s")
        traffic.forget()
        await self._stage.kill_primary()
        self._view.tell("kill -9 of the primary, with messages on their way", "bold red")
        await _within(self._all_away.wait())
        traffic.forget()
        self._begin("senders have failed over: their next sends go to the backlog")
        before = self._tally.diverted
        await _within(self._until_diverted(before))
        self._begin("sends go on, into the backlog")
        await asyncio.sleep(self._plan.outage_s)

    async def _until_diverted(self, before: int) -> None:
        while self._tally.diverted == before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def _return(self) -> None:
        self._begin("the primary is started again")
        await self._stage.restart_primary()
        self._view.tell("the primary is up again; nobody has told the senders", "bold")
        await _within(self._all_back.wait())
        self._begin("senders are back on the primary, the syphon brings the backlog home")
        await _within(self._until_drained())
        await asyncio.sleep(self._plan.calm_s / 2)

    async def _until_drained(self) -> None:
        while await self._stage.backlog_depth() > 0:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self._drained_s = self._clock.monotonic() - min(self._healthy_at.values(), default=0.0)
        self._view.tell("the backlog is empty", "green")

    async def _end(self, traffic: Traffic) -> None:
        self._begin("nothing more is sent; what is left is received")
        await traffic.stop_sending()
        await _within(self._until_delivered(), DELIVERED_WITHIN_S)
        await traffic.stop_receiving()

    async def _until_delivered(self) -> None:
        while not self._tally.is_complete:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def _begin(self, act: str) -> None:
        self._act = act
        self._view.tell(act)

    # What is noticed.

    def _hear(self, observed: Mapping[str, Observed], event: PairingEvent) -> None:
        now = self._clock.monotonic()
        if isinstance(event, FailoverEngaged):
            self._away.add(event.path)
            span = self._failovers[event.path] = Span(observed[event.path].refused_since or now, now)
            if len(self._away) == len(QUEUES):
                self._all_away.set()
            self._view.tell(f"{event.path}: failover, {span.seconds:.3f} s after the first failure", "yellow")
        elif isinstance(event, PingFailed):
            self._view.tell(f"{event.path}: ping not accepted", "dim")
        elif isinstance(event, EntityHealthy):
            self._away.discard(event.path)
            self._healthy_at.setdefault(event.path, now)
            if not self._away:
                self._all_back.set()
            self._view.tell(f"{event.path}: ping accepted, {event.failed_over_for_s:.1f} s after the failover", "green")

    async def _look(self, paired: PairedServiceBusClient) -> None:
        while True:
            with contextlib.suppress(BusError, ConnectionLost):
                self._depth = await self._stage.backlog_depth()
            self._view.show(self._picture(paired))
            await asyncio.sleep(LOOK_EVERY_S)

    def _picture(self, paired: PairedServiceBusClient) -> Picture:
        return Picture(
            elapsed_s=self._clock.monotonic() - self._started_at,
            act=self._act,
            is_primary_up=self._stage.is_primary_up,
            states={queue: paired.entity_state(queue).name.lower().replace("_", " ") for queue in QUEUES},
            accepted=self._tally.accepted_count,
            diverted=self._tally.diverted,
            delivered=self._tally.delivered_count,
            refused=self._tally.refused_sends,
            backlog_depth=self._depth,
        )

    async def _account(self, traffic: Traffic) -> Account:
        backlog_left = await self._stage.backlog_depth()  # asking is an operation, too: it is counted before the meter
        return Account(
            self._tally.balance(),
            self._reaction(traffic.observed),
            Operations.of(await self._stage.metered()),
            backlog_left,
            self._clock.monotonic() - self._started_at,
        )

    def _reaction(self, observed: Mapping[str, Observed]) -> Reaction:
        """Of the queue that did worst."""
        interval_s = self._plan.failover_interval_s
        failovers = [self._measured(self._failovers.get(queue), interval_s) for queue in QUEUES]
        returns = [self._measured(return_of(observed[queue], self._healthy_at.get(queue)), 0.0) for queue in QUEUES]
        accepted = [_since(self._healthy_at.get(queue), observed[queue].primary_accepted_at) for queue in QUEUES]
        return Reaction(
            interval_s,
            self._plan.tolerance_s,
            worst(failovers, interval_s),
            worst(returns, 0.0),
            None if None in accepted else max(each for each in accepted if each is not None),
            self._drained_s,
        )

    def _measured(self, span: Span | None, wanted_s: float) -> Measured | None:
        """With how long the program itself was late from when it should have happened until it did."""
        if span is None:
            return None
        return Measured(span.seconds, self._hold_ups.held_up_s(min(span.start + wanted_s, span.end), span.end))


def return_of(observed: Observed, healthy_at: float | None) -> Span | None:
    """Until the first send began on the primary, and the last in the backlog: later ones there are no return."""
    if healthy_at is None or observed.primary_tried_at is None:
        return None
    return Span(healthy_at, max(observed.primary_tried_at, observed.backlog_tried_at or 0.0))


def worst(values: Sequence[Measured | None], wanted_s: float) -> Measured | None:
    """The farthest from what was wanted; None if one never came."""
    known = [each for each in values if each is not None]
    return max(known, key=lambda each: abs(each.seconds - wanted_s)) if len(known) == len(values) else None


def _since(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


async def _within(step: Coroutine[Any, Any, object], patience_s: float = PATIENCE_S) -> None:
    """What does not come in time is missing in the account."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(step, patience_s)
