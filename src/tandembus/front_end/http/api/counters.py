"""What the meter has counted, for people who look: fetched once a second at most, however many of them there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tandembus.clock import Clock
from tandembus.errors import BusError, OperationTimeout
from tandembus.metering import MeterTotals
from tandembus.metering.slot import COMPLETE, RECEIVE, RECEIVE_DEFERRED, SCHEDULE, SEND

FETCHED_EVERY_S: Final = 0.9
"""A little less than pages take between two looks."""
ANSWERED_WITHIN_S: Final = 2.0


@dataclass(slots=True)
class Moved:
    """Messages since the start, and the operations that took."""

    sent: int = 0
    received: int = 0
    completed: int = 0
    operations: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    started_at: float
    total: Moved = field(default_factory=Moved)
    by_entity: dict[str, Moved] = field(default_factory=dict)


class Counters:
    def __init__(self, fetch: Callable[[], Awaitable[MeterTotals]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._counted: Counted | None = None
        self._fetched_at = 0.0
        self._turn = asyncio.Lock()

    async def now(self) -> Counted:
        async with self._turn:
            at = self._clock.monotonic()
            if self._counted is None or at - self._fetched_at >= FETCHED_EVERY_S:
                self._counted = await self._summed()
                self._fetched_at = at
            return self._counted

    async def _summed(self) -> Counted:
        """Of processes that cannot be asked at the moment the last is told that is known: the page goes on."""
        try:
            totals = await asyncio.wait_for(self._fetch(), ANSWERED_WITHIN_S)
        except (TimeoutError, BusError):
            if self._counted is None:
                raise OperationTimeout("The other processes of the namespace do not answer.") from None
            return self._counted
        return await asyncio.to_thread(_summed, totals)


def _summed(totals: MeterTotals) -> Counted:
    counted = Counted(totals.started_at)
    for row in totals.since_start:
        for moved in (counted.total, counted.by_entity.setdefault(row.entity, Moved())):
            moved.operations += row.count.operations
            if row.operation in (SEND, SCHEDULE):
                moved.sent += row.count.messages
            elif row.operation in (RECEIVE, RECEIVE_DEFERRED):
                moved.received += row.count.messages
            elif row.operation == COMPLETE:
                moved.completed += row.count.messages
    return counted


def of_entity(by_entity: Mapping[str, Moved], key: str) -> dict[str, object]:
    moved = by_entity.get(key) or Moved()
    return {"sent": moved.sent, "received": moved.received}
