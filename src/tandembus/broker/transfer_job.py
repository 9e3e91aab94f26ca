"""What leaves one lane of one fragment for other entities, from one pass to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tandembus.broker.fragment import Fragment
from tandembus.broker.transfer_destination import as_forwarded
from tandembus.message import Message
from tandembus.metering.slot import operations_for
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER

if TYPE_CHECKING:
    from tandembus.broker.transfer_flight import Flight

FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0
ENOUGH: Final = 500
"""A destination that takes so many at once takes any number."""

Target = tuple[str, int]
"""A destination's path and the index of its fragment; `WHOLE` for the entity itself."""
WHOLE: Final = -1
WhenMoved = Callable[[Message, str, str], None]
"""Told of each message that has arrived elsewhere: from which entity, and where."""
OURSELVES: Final[Target] = ("", WHOLE)
"""Trouble of our own."""


class Waiting:
    """For a destination that takes nothing for now."""

    def __init__(self, now: float, delay_s: float, full: Fragment | None) -> None:
        self.retry_at = now + delay_s
        self.delay_s: Final = delay_s
        self.full: Final = full


class Job:
    """What leaves one lane of one fragment: one pass at a time, since order counts."""

    def __init__(self, fragment: Fragment, lane: int, when_moved: WhenMoved | None = None) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self._when_moved: Final = when_moved
        self.cursor = 1
        """Where the search goes on behind messages whose destinations are waited for."""
        self.skipped_to = 1
        """All that is left below this number is for destinations that are waited for."""
        self.is_queued = False
        self.is_running = False
        self.is_asked_again = False
        self.moving_count = 0
        self.large_bytes = 0
        """Of the large messages among them."""
        """Messages on their way: staged and not yet committed, or sent and not yet answered."""
        self.flights: dict[Target, Flight] = {}
        """What was sent to other stores and may have arrived there, or not."""
        self.waiting: dict[Target, Waiting] = {}
        """By destination that takes nothing for now."""
        self.most: dict[Target, int] = {}
        """How much some destinations take at once: one that refused many is given fewer, to find out which it is."""
        self._moved = (0, 0, 0)

    @property
    def is_busy(self) -> bool:
        return self.is_running or self.moving_count > 0

    def path(self) -> str | None:
        """Where all of the lane goes; None where each message says for itself."""
        settings = self.fragment.settings
        if self.lane == TRANSFER:
            return None
        return settings.forward_to if self.lane == MAIN else settings.forward_dead_letters_to

    def as_arriving(self, message: Message) -> Message:
        """The form in which it leaves."""
        return as_forwarded(message, self.fragment.settings.path if self.lane == DEAD_LETTER else "")

    def first_held(self) -> int:
        """The lowest number that somebody has and may give back, to go another way than it was to go before; 0: none.
        What may have arrived where it would still be sent to is none of these: it never goes anywhere else."""
        path, lane = self.path(), self.fragment.lane(self.lane)
        bound = {
            int(message.number)
            for flight in self.flights.values()
            if path is None or flight.target[0] == path
            for message in flight.messages
        }
        if not bound:
            return int(lane.first_held())
        return min((number for number in lane.held if number not in bound and not lane.is_parked(number)), default=0)

    def rewind(self) -> None:
        """Something that was passed by may be ready to go."""
        self.cursor = self.skipped_to = 1

    # Waiting.

    def is_waiting_for(self, target: Target, now: float) -> bool:
        return target in self.waiting and self.waiting[target].retry_at > now

    def is_due(self, now: float) -> bool:
        return any(one.retry_at <= now for one in self.waiting.values())

    def wait_for(self, target: Target, now: float, full: Fragment | None = None) -> None:
        """`full` is a destination that will take more when something has left it."""
        last_s = self.waiting[target].delay_s if target in self.waiting else FIRST_RETRY_S / 2
        self.waiting[target] = Waiting(now, min(last_s * 2, LAST_RETRY_S), full)

    def full_ones(self) -> list[Fragment]:
        return [one.full for one in self.waiting.values() if one.full is not None]

    def stop_waiting(self, now: float, full: Fragment | None = None) -> bool:
        """For one destination, or for all; returns whether it did."""
        is_over = False
        for one in self.waiting.values():
            if full is None or one.full is full:
                one.retry_at = now
                is_over = True
        return is_over

    def due_ones(self, now: float) -> set[Target]:
        return {target for target, one in self.waiting.items() if one.retry_at <= now}

    def forget_waiting(self, targets: set[Target]) -> None:
        """All of the lane was looked at, and nothing is left for these, unless something may have arrived there."""
        for target in targets - self.flights.keys():
            self.waiting.pop(target, None)

    def forget(self, target: Target) -> None:
        """It is gone: another one by its name is not to blame for what this one did not take."""
        self.waiting.pop(target, None)
        self.most.pop(target, None)

    def took_all(self, target: Target) -> None:
        """It may be given more the next time."""
        if target in self.most:
            self.most[target] *= 2
            if self.most[target] > ENOUGH:
                del self.most[target]

    # What was moved.

    def note_moved(self, target: Target, message: Message) -> None:
        size_bytes = len(message.sections)
        if self._when_moved is not None:
            self._when_moved(message, self.fragment.settings.path, target[0])
        self.waiting.pop(target, None)
        messages, operations, total_bytes = self._moved
        self._moved = (messages + 1, operations + operations_for(size_bytes), total_bytes + size_bytes)

    def take_moved(self) -> tuple[int, int, int]:
        """Messages, billable operations and bytes since the last time."""
        moved, self._moved = self._moved, (0, 0, 0)
        return moved
