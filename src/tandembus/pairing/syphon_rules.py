"""What the syphon decides (N12), apart from doing it: what a refusal means, how much to ask for, what waits."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandembus.errors import (
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    MalformedData,
    MessageTooLarge,
    NotSupported,
)

LONG_POLL_S: Final = 15 * 60.0
MIN_RETRY_INTERVAL_S: Final = 1.0
MAX_RETRY_INTERVAL_S: Final = 120.0
MAX_REMEMBERED: Final = 100_000
"""Sequence numbers kept in memory per dead destination, at 8 bytes each; what is beyond is found again by browsing."""


def destination_of(path: str) -> str:
    """Paths that differ in case only name the same entity."""
    return path.lower()


class Verdict(Enum):
    """What a failed send to the primary means for the messages in it."""

    LATER = "later"
    """The destination does not take them now: not available, disabled, over quota, busy, not authorized."""
    REFUSED = "refused"
    """The destination will never take one of these messages."""
    GONE = "gone"
    """There is no such destination, so it takes none at all."""
    UNREACHABLE = "unreachable"
    """No destination of the primary can be reached."""


class PrimaryUnreachable(Exception):
    """There is no connection to the primary. Ports raise it, because they alone know what has become of theirs."""


REFUSALS: Final[Mapping[type[BaseException], Verdict]] = {
    PrimaryUnreachable: Verdict.UNREACHABLE,
    EntityNotFound: Verdict.GONE,
    MessageTooLarge: Verdict.REFUSED,
    InvalidOperation: Verdict.REFUSED,
    InvalidArgument: Verdict.REFUSED,
    MalformedData: Verdict.REFUSED,
    NotSupported: Verdict.REFUSED,
}
"""For good, or all of them; every other error passes by itself, or when somebody does something about it."""


def verdict_on(error: BaseException) -> Verdict:
    for kind, verdict in REFUSALS.items():
        if isinstance(error, kind):
            return verdict
    return Verdict.LATER


_REASONS: Final[Mapping[Verdict, str]] = {
    Verdict.GONE: "DestinationNotFound",
    Verdict.REFUSED: "RefusedByDestination",
}


def dead_letter_reason(verdict: Verdict, path: str, error: BaseException) -> tuple[str, str]:
    """Reason and description of the dead letter of a message that was refused for good."""
    return _REASONS[verdict], f"'{path}' on the primary: {error}"[:1024]


@dataclass(frozen=True, slots=True)
class SyphonSettings:
    """How a syphon works. Raises ValueError for what is out of range."""

    retry_interval_s: float = 1.0
    poll_s: float = LONG_POLL_S
    window: int = 500
    """Messages of a backlog queue in hand at a time, at most."""
    window_bytes: int = 8 * 1024 * 1024
    """The same in bytes, as far as messages yet unseen can be told from those seen before."""
    batch_size: int = 250
    batch_bytes: int = 240 * 1024
    scan_beyond: int = 4_000
    """How many untouched messages in a row end a search for deferred ones: others may have so many in hand."""
    quiet_s: float = 1.0
    """After messages came, one poll as short as this tells that the queue is empty, so that it can be swept."""
    others_wait_s: float = 90.0
    """How long a syphon that runs once waits for what others hold: longer than a lock lasts."""
    max_dead_destinations: int = 1_000
    """Whose order is kept at a time; messages for more of them are put aside, and found again later."""

    def __post_init__(self) -> None:
        if not MIN_RETRY_INTERVAL_S <= self.retry_interval_s <= MAX_RETRY_INTERVAL_S:
            raise ValueError(f"the syphon's retry interval must be 1 s to 2 min, and is {self.retry_interval_s:g} s")
        if self.window < 1 or self.batch_size < 1:
            raise ValueError("the syphon needs room for a message")


class Window:
    """How many messages to ask for: as many as the bytes allow, judged by the largest of the last ones.

    It grows by doubling, so that a row of large messages behind small ones is noticed before there are many of them.
    """

    def __init__(self, settings: SyphonSettings) -> None:
        self._settings: Final = settings
        self.count = min(32, settings.window)

    def received(self, largest_bytes: int, count: int) -> None:
        fitting = max(1, self._settings.window_bytes // max(1, largest_bytes))
        grown = self.count * 2 if count >= self.count else self.count
        self.count = min(grown, fitting, self._settings.window)


class Followers:
    """Deferred messages behind the lead of a dead destination, by sequence number, in their order.

    Only so many are kept. What is in the queue from `look_from` on is not known and must be looked for; those below it
    are all here.
    """

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit: Final = limit
        self._numbers = array("q")
        self._taken = 0
        self.look_from: int | None = None

    def __len__(self) -> int:
        return len(self._numbers) - self._taken

    def add(self, numbers: Iterable[int]) -> None:
        """Newly deferred ones."""
        for number in numbers:
            if self.look_from is None or number < self.look_from:
                self.found(number)

    def found(self, number: int) -> bool:
        """Whether there was room for it."""
        if len(self) >= self._limit:
            self.look_again(number)
            return False
        self._insert(number)
        return True

    def look_again(self, number: int) -> None:
        """There may be others from this number on."""
        self.look_from = number if self.look_from is None else min(self.look_from, number)

    def known_below(self, number: int | None) -> None:
        """Up to there everything was looked at; without a number up to the end."""
        self.look_from = None if number is None else max(self.look_from or 0, number)

    def take(self, count: int) -> list[int]:
        taken = self._numbers[self._taken : self._taken + count].tolist()
        self._taken += len(taken)
        if self._taken > 1_024 and self._taken * 2 > len(self._numbers):
            del self._numbers[: self._taken]
            self._taken = 0
        return taken

    def put_back(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._insert(number)

    def _insert(self, number: int) -> None:
        if not len(self) or number > self._numbers[-1]:
            self._numbers.append(number)
            return
        at = bisect_left(self._numbers, number, self._taken)
        if self._numbers[at] != number:
            self._numbers.insert(at, number)
