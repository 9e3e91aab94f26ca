"""Operations that change something, between the moment they are asked for and the moment their fate is known.

A channel numbers them 1, 2, 3 ... when it carries them to its broker. The store's mark knows what became of the last
4,096 numbers, so the numbers of all open ones lie within so many; what comes on top waits here, unnumbered, and can
still go elsewhere at any time.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from tandembus.errors import BusError, FragmentUnavailable, OutcomeUnknown
from tandembus.large_messages import counted
from tandembus.store.messaging_store import MARK_NUMBERS

SLOT_MASK: Final = MARK_NUMBERS - 1


def unavailable(index: i64, why: str) -> FragmentUnavailable:
    """The error for a client whose operation a fragment did not take. It names the fragment and says that retrying
    helps."""
    return FragmentUnavailable(
        f"Fragment {int(index)} is unavailable, and nothing was changed. Try again in a few seconds. {why}"
    )


def named(index: i64, error: BusError) -> BusError:
    """The error that a fragment gave, for a client: one that says that the fragment took nothing names it."""
    return unavailable(index, str(error)) if isinstance(error, FragmentUnavailable) else error


def outcome_unknown(index: i64, who: str) -> OutcomeUnknown:
    """The error for a client whose operation nobody answered in time."""
    return OutcomeUnknown(
        f"The {who} of fragment {int(index)} did not answer in time: the operation may have been carried out, or not. "
        "Trying again helps, and may carry it out twice."
    )


class OpenOperation:
    """One of them. What it is and whom it answers is its children's affair."""

    def __init__(self, size_bytes: i64, deadline: float, index: i64) -> None:
        self.index: i64 = index
        """Index of the fragment in its entity."""
        self.number: i64 = 0
        """0 while it waits."""
        self.size_bytes: i64 = size_bytes
        self.deadline: float = deadline
        """Monotonic time at which the caller gets OutcomeUnknown."""
        self.epoch: i64 = 0
        """Of the store, when it was carried there."""

    def write(self, out: BytesWriter) -> None:
        raise AssertionError("an operation must be implemented")

    def can_be_repeated(self) -> bool:
        """Whether it is asked for once more, of the same life of the broker, when it is known that it was not carried
        out. A send is not: another fragment may be there for it."""
        return False

    def answered(self, error: BusError | None) -> None:
        raise AssertionError("an operation must be implemented")


@final
class OpenOperations:
    """Those of one kind on one channel: sends have one table and settlements another, so that neither can use up the
    numbers of the other."""

    def __init__(self, max_count: i64, max_bytes: i64) -> None:
        self.max_count: i64 = max_count
        self.max_bytes: i64 = max_bytes
        """What the broker takes at a time; a single operation may be larger."""
        self.open_count: i64 = 0
        self.open_bytes: i64 = 0
        self.waiting_bytes: i64 = 0
        """Of large messages only the first 1 MiB."""
        self._slots: list[OpenOperation | None] = [None] * MARK_NUMBERS
        self._next: i64 = 1
        self._lowest: i64 = 1
        """All numbers below it are over."""
        self._waiting: deque[OpenOperation] = deque()

    def add(self, operation: OpenOperation) -> None:
        self._waiting.append(operation)
        self.waiting_bytes += counted(operation.size_bytes)

    def can_open(self) -> bool:
        """Whether the next one that waits may be carried to the broker now."""
        if not self._waiting or self.open_count >= self.max_count or self._next - self._lowest >= MARK_NUMBERS:
            return False
        return self.open_count == 0 or self.open_bytes + self._waiting[0].size_bytes <= self.max_bytes

    def open_next(self) -> OpenOperation:
        """It has a number from now on."""
        operation = self._waiting.popleft()
        self.waiting_bytes -= counted(operation.size_bytes)
        operation.number = self._next
        self._slots[self._next & SLOT_MASK] = operation
        self._next += 1
        self.open_count += 1
        self.open_bytes += operation.size_bytes
        return operation

    def find(self, number: i64) -> OpenOperation | None:
        """None where nobody waits for it any more."""
        operation = self._slots[number & SLOT_MASK]
        return operation if operation is not None and operation.number == number else None

    def take(self, number: i64) -> OpenOperation | None:
        """It is over. None where nobody waits for it any more."""
        operation = self.find(number)
        if operation is None:
            return None
        self._slots[number & SLOT_MASK] = None
        self.open_count -= 1
        self.open_bytes -= operation.size_bytes
        if number == self._lowest:
            self._advance()
        return operation

    def _advance(self) -> None:
        while self._lowest < self._next and self._slots[self._lowest & SLOT_MASK] is None:
            self._lowest += 1

    def first_waiting(self) -> OpenOperation:
        return self._waiting[0]

    def shorten(self, number: i64, deadline: float) -> None:
        """It is not waited for longer than that."""
        operation = self.find(number)
        if operation is not None and operation.deadline > deadline:
            operation.deadline = deadline

    def has_waiting(self) -> bool:
        return len(self._waiting) > 0

    def take_waiting(self) -> list[OpenOperation]:
        """Those that were never carried anywhere."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self.waiting_bytes = 0
        return waiting

    def numbers(self) -> list[int]:
        """Of those whose fate is not known, in order."""
        numbers: list[int] = []
        number = self._lowest
        while number < self._next:
            if self._slots[number & SLOT_MASK] is not None:
                numbers.append(int(number))
            number += 1
        return numbers

    def bring_forward(self, deadline: float) -> None:
        """None of the open ones is waited for longer than that."""
        number = self._lowest
        while number < self._next:
            operation = self._slots[number & SLOT_MASK]
            if operation is not None and operation.deadline > deadline:
                operation.deadline = deadline
            number += 1

    def take_overdue(self, now: float) -> list[OpenOperation]:
        """Those that were not answered in time."""
        overdue: list[OpenOperation] = []
        number = self._lowest
        while number < self._next:
            operation = self._slots[number & SLOT_MASK]
            if operation is not None and operation.deadline <= now:
                overdue.append(operation)
            number += 1
        for operation in overdue:
            self.take(operation.number)
        return overdue

    def take_overdue_waiting(self, now: float) -> list[OpenOperation]:
        overdue: list[OpenOperation] = []
        while self._waiting and self._waiting[0].deadline <= now:
            operation = self._waiting.popleft()
            self.waiting_bytes -= counted(operation.size_bytes)
            overdue.append(operation)
        return overdue
