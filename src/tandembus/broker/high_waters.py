"""Up to where a fragment has taken what is forwarded to it from other stores.

The highest number taken of each source lane is stored in the commit that stores the message itself. A source that never
got its answer sends the same messages again: what is not above the high water was taken, and is not taken twice. One
small record for each source, however much comes from it; that is why a source has to keep strict order.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.operations import SendOperation
from tandembus.message import Message
from tandembus.store.messaging_store import Changes, HighWater

KEPT_MS: Final = 3_600_000
"""How long the record of a source that is gone is kept after the last arrival: nothing is on its way for an hour."""

Source = tuple[int, int]
"""Fragment and lane."""


@final
class HighWaters:
    def __init__(self, fragment: i64) -> None:
        self._fragment: i64 = fragment
        self._by_source: dict[Source, HighWater] = {}
        self._before: dict[Source, HighWater | None] = {}
        """Of what the commit under way raises: what it was before."""

    def load(self, records: list[HighWater]) -> None:
        self._before = {}
        self._by_source = {}
        for record in records:
            self._by_source[record.source, record.lane] = record

    def _number(self, source: Source) -> int:
        record = self._by_source.get(source)
        return 0 if record is None else record.number

    def has_all(self, operation: SendOperation) -> bool:
        """Whether all of it was taken before, so that it needs no room."""
        source = operation.source
        if source is None or not source.numbers:
            return False
        return self._number((int(source.fragment), int(source.lane))) >= source.numbers[-1]

    def new_ones(self, operation: SendOperation) -> list[Message]:
        """The messages of a forwarded operation that were not taken before."""
        source = operation.source
        if source is None:
            return operation.messages
        taken = self._number((int(source.fragment), int(source.lane)))
        position = 0
        while position < len(source.numbers) and source.numbers[position] <= taken:
            position += 1
        return operation.messages[position:] if position > 0 else operation.messages

    def take(self, operation: SendOperation, now_ms: i64) -> None:
        """It goes into the coming commit."""
        source = operation.source
        if source is None or not source.numbers:
            return
        key = (int(source.fragment), int(source.lane))
        if source.numbers[-1] <= self._number(key):
            return
        if key not in self._before:
            self._before[key] = self._by_source.get(key)
        self._by_source[key] = HighWater(int(self._fragment), key[0], key[1], source.numbers[-1], int(now_ms))

    def write(self, changes: Changes) -> None:
        for key in self._before:
            changes.high_waters.append(self._by_source[key])

    def committed(self) -> None:
        if self._before:
            self._before = {}

    def take_back(self) -> None:
        """What was to be taken was refused."""
        for key in self._before:
            before = self._before[key]
            if before is None:
                del self._by_source[key]
            else:
                self._by_source[key] = before
        self._before = {}

    def outdated(self, now_ms: i64) -> list[HighWater]:
        """Those to which nothing has been added for so long that nothing can be on its way, if their source is gone."""
        return [one for one in self._by_source.values() if one.at_ms + KEPT_MS < now_ms]

    def forget(self, high_water: HighWater) -> None:
        self._by_source.pop((high_water.source, high_water.lane), None)
