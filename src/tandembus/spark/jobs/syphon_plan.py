"""What the next batch of the syphon on Spark consists of: new messages of the backlog queues, and those that wait.

Pure but for the ledger it asks. What was sent home, or became a dead letter, leaves the ledger while a batch runs, so
that whatever of a batch is still reserved afterwards waits for its destination. It stays reserved: nothing is lost, and
messages behind it pass. Order is kept by holding back later messages for a destination until those that wait for it are
in the same batch, in front of them (N12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tandembus.client.reservations import Ranges, Reservation
from tandembus.clock import Clock
from tandembus.spark.source.ranges import (
    count_of,
    first_of,
    full_number,
    intersection,
    ranges_of,
    union,
    without,
)

PROBE_COUNT: Final = 100
"""So many messages ask whether a destination takes messages again."""
LONGEST_PAUSE_S: Final = 120.0


class Ledger(Protocol):
    """The reservations of one backlog queue, as the syphon's own."""

    async def reserved(self) -> Ranges:
        """A range may span messages that are gone, but none of anybody else's."""

    async def reserve(self, max_messages: int, up_to: Mapping[int, int] | None) -> Reservation: ...

    async def destinations(self, ranges: Ranges) -> Iterable[tuple[int, int, str]]:
        """Fragment, number and destination of those that are still there; "" of malformed ones."""


@dataclass(frozen=True, slots=True)
class QueueBatch:
    """What is to be moved of one backlog queue."""

    ranges: Ranges
    waiting: Ranges = field(default_factory=dict)
    """Those of them that may pass though their destination is held back."""
    held_back: tuple[str, ...] = ()
    """Destinations whose other messages stay where they are."""


@dataclass(slots=True)
class _Lane:
    """The messages that wait for one destination."""

    ranges: Ranges
    retry_at: float
    pause_s: float
    planned: Ranges = field(default_factory=dict)
    tries: int = 1
    """In a row that moved nothing."""


class QueuePlan:
    """Plans for one backlog queue, batch after batch. Between two of them `finish` looks what became of the last."""

    def __init__(self, ledger: Ledger, clock: Clock, retry_interval_s: float) -> None:
        self._ledger: Final = ledger
        self._clock: Final = clock
        self._retry_interval_s: Final = retry_interval_s
        self._orphans: Ranges | None = None
        self._lanes: Final[dict[str, _Lane]] = {}
        self._planned: Ranges = {}
        self.missing_fragments: tuple[int, ...] = ()
        """Out of reach when it planned last."""

    async def finish(self) -> None:
        """Take note of what is left of the last batch; at the start, of what an earlier run left behind."""
        if self._orphans == {} and not self._planned and not self._lanes:
            return  # Nothing is reserved, and an idle syphon asks for no more than it must.
        reserved = await self._ledger.reserved()
        if self._orphans is None:
            self._orphans = reserved
            return
        self._orphans = intersection(self._orphans, reserved)
        left = await self._left(intersection(self._planned, reserved))
        now = self._clock.monotonic()
        for path in {*self._lanes, *left}:
            lane = self._lanes.get(path)
            if lane is None:
                pause_s = self._retry_interval_s
                self._lanes[path] = _Lane(left[path], now + pause_s, pause_s)
            else:
                self._judge(lane, left.get(path, {}), reserved, now)
                if not lane.ranges:
                    del self._lanes[path]
        self._planned = {}

    async def plan(self, max_messages: int, up_to: Mapping[int, int] | None, retry_all: bool = False) -> QueueBatch:
        """`up_to`: reserve nothing beyond. `retry_all`: whatever waits is tried, however short ago it was."""
        assert self._orphans is not None, "finish comes first"
        due = self._due(max_messages, retry_all)
        waiting = union(due.values())
        room = max_messages - count_of(waiting)
        new = first_of(self._orphans, room)
        orphans = without(self._orphans, new)
        if not orphans and (room := room - count_of(new)) > 0:
            new = union((new, await self._reserve(room, up_to)))
        # Only now: a plan that comes to nothing has tried nothing.
        self._orphans = orphans
        for path, lane in self._lanes.items():
            lane.planned = due.get(path, {})
        held_back = tuple(sorted(path for path, lane in self._lanes.items() if without(lane.ranges, lane.planned)))
        self._planned = union((new, waiting))
        return QueueBatch(self._planned, waiting, held_back)

    def tries_left(self, tries: int) -> bool:
        """Whether a destination has been tried less often, in a row that moved nothing."""
        return any(lane.tries < tries for lane in self._lanes.values())

    async def _reserve(self, count: int, up_to: Mapping[int, int] | None) -> Ranges:
        was_missing = self.missing_fragments
        answer = await self._ledger.reserve(count, up_to)
        self.missing_fragments = answer.missing_fragments or was_missing
        if answer.missing_fragments or not was_missing:
            return answer.ranges
        # One that went out of reach may have reserved messages and not said so: they are nobody's plan yet.
        reserved = await self._ledger.reserved()
        self.missing_fragments = ()
        return without(reserved, union(lane.ranges for lane in self._lanes.values()))

    def _due(self, max_messages: int, retry_all: bool) -> dict[str, Ranges]:
        """What of each lane is to be tried now."""
        now = self._clock.monotonic()
        found: dict[str, Ranges] = {}
        room = max_messages
        for path, lane in self._lanes.items():
            if room > 0 and (retry_all or lane.retry_at <= now):
                found[path] = first_of(lane.ranges, room if lane.tries == 0 else min(room, PROBE_COUNT))
                room -= count_of(found[path])
        return found

    def _judge(self, lane: _Lane, left: Ranges, reserved: Ranges, now: float) -> None:
        tried, failed = count_of(lane.planned), count_of(intersection(lane.planned, left))
        if tried:
            lane.tries = 0 if not failed else lane.tries + 1 if failed == tried else 1
            lane.pause_s = min(2 * lane.pause_s, LONGEST_PAUSE_S) if failed == tried else self._retry_interval_s
            lane.retry_at = now + lane.pause_s if failed else now
        untried = intersection(without(lane.ranges, lane.planned), reserved)
        lane.ranges, lane.planned = union((untried, left)), {}

    async def _left(self, ranges: Ranges) -> dict[str, Ranges]:
        """By destination. The ledger's ranges span what is gone, so that those that are there are looked at."""
        if not ranges:
            return {}
        found: dict[str, list[int]] = {}
        for fragment, number, path in await self._ledger.destinations(ranges):
            found.setdefault(path, []).append(full_number(fragment, number))
        return {path: ranges_of(numbers) for path, numbers in found.items()}


def passes(batch: QueueBatch, fragment: int, number: int, destination: str) -> bool:
    """Whether a message of the batch is to be moved now, and is not held back behind others that wait."""
    if destination not in batch.held_back:
        return True
    return any(first <= number <= last for first, last in batch.waiting.get(fragment, ()))


def offset_of(counter: int, batches: Mapping[str, QueueBatch], epochs: Mapping[str, int]) -> dict[str, object]:
    """As it is written to Spark's log, before anything is read: a replayed batch decides as the first one did."""
    return {
        "v": 1,
        "e": counter,
        "p": dict(epochs),
        "b": {entity: _shown(batch.ranges) for entity, batch in batches.items()},
        "w": {entity: _shown(batch.waiting) for entity, batch in batches.items() if batch.waiting},
        "h": {entity: list(batch.held_back) for entity, batch in batches.items() if batch.held_back},
    }


def batches_in(offset: Mapping[str, object]) -> dict[str, QueueBatch]:
    ranges, waiting, held_back = [_part(offset, name) for name in ("b", "w", "h")]
    return {
        entity: QueueBatch(_read(some), _read(waiting.get(entity, {})), tuple(held_back.get(entity, ())))
        for entity, some in ranges.items()
    }


def epochs_in(offset: Mapping[str, object]) -> dict[str, int]:
    """Of all queues that the job had then, also those that the batch has nothing of."""
    return _part(offset, "p")


def _part(offset: Mapping[str, object], name: str) -> dict[str, Any]:
    part = offset.get(name, {})
    assert isinstance(part, dict)
    return part


def _shown(ranges: Ranges) -> dict[str, list[list[int]]]:
    return {str(fragment): [list(each) for each in some] for fragment, some in ranges.items()}


def _read(shown: Mapping[str, Sequence[Sequence[int]]]) -> Ranges:
    return {int(fragment): [(first, last) for first, last in some] for fragment, some in shown.items()}
