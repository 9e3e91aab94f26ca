"""Counts every billable operation once, where the client is answered.

The loop's thread counts; once a second a thread writes what changed. So a kill -9 loses at most the last
second, and the next start says which (`files.py`). What a figure costs in money is nobody's business here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.clock import Clock
from tandembus.metering.files import MeterFiles, MeterSettings, Record, Totals
from tandembus.metering.slot import OPERATIONS, REASONS, Count, MeterSlot

NAMESPACE_ENTITY: Final = ""
"""Whose operations belong to no entity: the namespace's own."""
OTHER_ENTITIES: Final = "$other"
"""Who shares a slot once every slot is given away: no legal name, so it is nobody's."""

SLICE: Final = 500
"""Slots looked at before others have their turn."""

Key = tuple[str, str, str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EntityTotal:
    """Counted since the meter was opened for one entity, operation and reason."""

    entity: str
    operation: str
    reason: str
    count: Count


@dataclass(frozen=True, slots=True)
class MeterTotals:
    """Live figures: what no file holds yet is in them already."""

    since_start: Sequence[EntityTotal]
    cumulative: Totals
    started_at: float
    gap: tuple[int, int] | None


class Meter:
    """The namespace's meter. Everything but the writing itself belongs to the loop's thread."""

    def __init__(self, clock: Clock, folder: Path, namespace_name: str, settings: MeterSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or MeterSettings()
        self._started_at = clock.now()
        self._files = MeterFiles(folder, namespace_name, self._settings, self._started_at)
        self._carried = self._files.totals()
        self._slots: dict[Key, MeterSlot] = {}
        self._changed: list[MeterSlot] = []
        self._taken: Totals = {}
        self._forgotten: Totals = {}
        self._returned: dict[Key, Record] = {}
        self._window_second = int(self._started_at)
        self._is_failing = False

    def slot(self, entity: str, operation: str, reason: str) -> MeterSlot:
        """The counter to hold on to.

        The number of counters is bounded: late comers share one per operation.
        """
        key = (entity, operation, reason)
        slot = self._slots.get(key)
        if slot is not None:
            return slot
        assert operation in OPERATIONS, operation
        assert reason in REASONS, reason
        if len(self._slots) >= self._settings.max_slots and entity != OTHER_ENTITIES:
            return self.slot(OTHER_ENTITIES, operation, reason)
        self._files.mark_running(self._clock.now())
        slot = MeterSlot(entity, operation, reason, self._changed)
        self._slots[key] = slot
        return slot

    def count(self, entity: str, operation: str, reason: str, messages: int, operations: int, size_bytes: int) -> None:
        """For callers too rare to hold a slot."""
        self.slot(entity, operation, reason).add(messages, operations, size_bytes)

    def forget(self, entity: str) -> None:
        """A deleted entity gives its slots back.

        Whoever still holds one may go on counting: it is still written.
        """
        for operation in OPERATIONS:
            for reason in REASONS:
                slot = self._slots.pop((entity, operation, reason), None)
                if slot is not None:
                    self._forgotten.setdefault((operation, reason), Count()).include(_count_of(slot))

    def totals(self) -> MeterTotals:
        since_start = self._forgotten_rows() + _rows_of(self._slots.values())
        return MeterTotals(since_start, self.cumulative(), self._started_at, self._files.gap)

    async def look(self) -> MeterTotals:
        """The same, with turns for others in between: there may be very many slots. What is counted meanwhile may be in
        it or not."""
        since_start, slots = self._forgotten_rows(), list(self._slots.values())
        for begin in range(0, len(slots), SLICE):
            since_start += _rows_of(slots[begin : begin + SLICE])
            await asyncio.sleep(0)
        return MeterTotals(since_start, self.cumulative(), self._started_at, self._files.gap)

    def _forgotten_rows(self) -> list[EntityTotal]:
        rows = self._forgotten.items()
        return [EntityTotal(OTHER_ENTITIES, *key, _count_of(count)) for key, count in rows if count.calls]

    def flush(self) -> None:
        """Write and sync what changed.

        Raises OSError when that fails; nothing is lost by it, the next flush tries again.
        """
        now = self._clock.now()
        records = self._take_changed(now)
        try:
            self._write(records, now)
        except OSError:
            self._take_back(records)
            raise

    async def run(self, stop: asyncio.Event) -> None:
        """Flush at every full second, in a thread, until told to stop. `close` writes the rest."""
        while not stop.is_set():
            await self._until_next_flush(stop)
            now = self._clock.now()
            records = self._take_changed(now)
            try:
                await asyncio.to_thread(self._write, records, now)
            except OSError as error:
                self._take_back(records)
                self._tell_failure(error)
            else:
                self._is_failing = False

    def close(self) -> None:
        """Write the rest and mark the stop as clean; if the rest cannot be written, the stop is none."""
        try:
            self.flush()
        except OSError as error:
            self._tell_failure(error)
            return
        self._files.close()

    async def _until_next_flush(self, stop: asyncio.Event) -> None:
        interval_s = self._settings.flush_interval_s
        # A moment behind the boundary, so that a timer that fires early does not cut the second in two.
        delay_s = interval_s - self._clock.now() % interval_s + 0.001
        try:
            await asyncio.wait_for(stop.wait(), delay_s)
        except TimeoutError:
            return

    def _take_changed(self, now: float) -> list[Record]:
        """Everything counted since the last flush, dated with the second in which that flush was."""
        second, self._window_second = self._window_second, int(now)
        records, self._returned = self._returned, {}
        for slot in self._changed:
            taken = slot.take()
            self._taken.setdefault((slot.operation, slot.reason), Count()).include(taken)
            key = (slot.entity, slot.operation, slot.reason)
            earlier = records.get(key)
            if earlier is None:
                records[key] = Record(second, slot.entity, slot.operation, slot.reason, taken)
            else:
                earlier.count.include(taken)
        self._changed.clear()
        return list(records.values())

    def _take_back(self, records: list[Record]) -> None:
        """Unwritten records join the next flush: one per slot, so a disk that stays full costs no memory."""
        for record in records:
            key = (record.entity, record.operation, record.reason)
            later = self._returned.get(key)
            if later is not None:
                record.count.include(later.count)
            self._returned[key] = record

    def _write(self, records: list[Record], now: float) -> None:
        self._files.append(records)
        self._files.touch(now)

    def _tell_failure(self, error: OSError) -> None:
        if not self._is_failing:
            logger.error("the meter cannot be written and keeps its counts in memory: %s", error)
        self._is_failing = True

    def cumulative(self) -> Totals:
        """All that was ever counted: few figures, however many entities there are."""
        totals: Totals = {}
        for part in (self._carried, self._taken):
            for key, count in part.items():
                totals.setdefault(key, Count()).include(count)
        for slot in self._changed:
            totals.setdefault((slot.operation, slot.reason), Count()).include(slot.untaken())
        return totals


def _rows_of(slots: Iterable[MeterSlot]) -> list[EntityTotal]:
    return [EntityTotal(slot.entity, slot.operation, slot.reason, _count_of(slot)) for slot in slots if slot.calls]


def _count_of(counted: MeterSlot | Count) -> Count:
    """As it is now."""
    return Count(counted.calls, counted.messages, counted.operations, counted.size_bytes)
