"""What a queue may hold, as far as anybody outside can know.

An answer that never came, or that said "unknown", leaves more than one possibility: each message has a set of
`Fate`s. An answer takes possibilities away, and looking at the queue leaves exactly one, which must have been among
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER, LAPSE, RELEASE
from tandembus.store.messaging_store import ACTIVE, DEFERRED, MAIN, SCHEDULED
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTER_LANE

MAX_DELIVERY_COUNT = 4


class Fate(NamedTuple):
    """Where a message is, and what it has gained. A lane of -1: it is gone, or never was."""

    lane: int
    state: int = ACTIVE
    delivery_count: int = 0
    mark: int = 0
    """The application property that settlements change."""


GONE = Fate(-1)
Change = Callable[[Fate], Fate]


@dataclass
class Expected:
    """One message that was sent, and what may have become of it."""

    key: bytes
    sections: bytes
    ttl_ms: int | None
    sent_at_ms: int
    scheduled_at_ms: int
    fates: set[Fate]
    batch: int
    expires_at_ms: int = 0
    """0: never. Known once the message was seen; a scheduled one's time counts from its activation."""
    coming: set[Fate] = field(default_factory=set)
    """What it becomes if the change under way is carried out."""

    def begin(self, change: Change) -> None:
        self.coming = {change(fate) for fate in self.fates}

    def succeeded(self) -> None:
        self.fates, self.coming = self.coming, set()

    def refused(self) -> None:
        self.coming = set()

    def is_in_doubt(self) -> None:
        """The change may or may not have been carried out."""
        self.fates |= self.coming
        self.coming = set()

    def possible(self) -> set[Fate]:
        return self.fates | self.coming

    def is_surely_waiting(self, lane: int) -> bool:
        return self.is_surely(lane, ACTIVE)

    def is_surely(self, lane: int, state: int) -> bool:
        return not self.coming and all(fate.lane == lane and fate.state == state for fate in self.fates)

    def is_past(self, now_ms: int) -> bool:
        """Whether its time to live may be over."""
        if self.expires_at_ms:
            return self.expires_at_ms <= now_ms
        return self.ttl_ms is not None and max(self.sent_at_ms, self.scheduled_at_ms) + self.ttl_ms <= now_ms


def drifted(message: Expected, latest_ms: int, dead_letter_expired: bool) -> set[Fate]:
    """What may have happened to it without anybody's asking, until the wall clock showed `latest_ms`."""
    fates = set(message.possible())
    if message.scheduled_at_ms <= latest_ms:
        fates |= {replace_state(fate, ACTIVE) for fate in fates if fate.state == SCHEDULED}
    if message.is_past(latest_ms):
        fates |= {expired(fate, dead_letter_expired) for fate in fates if fate.lane == MAIN and fate.state == ACTIVE}
    return fates


def replace_state(fate: Fate, state: int) -> Fate:
    return fate._replace(state=state)


def expired(fate: Fate, dead_letter_expired: bool, added: int = 0) -> Fate:
    if not dead_letter_expired:
        return GONE
    return Fate(DEAD_LETTER_LANE, ACTIVE, fate.delivery_count + added, fate.mark)


def settled(settlement: int, mark: int, is_past: bool, dead_letter_expired: bool) -> Change:
    """What a settlement makes of a message, by the rules of the service."""

    def change(fate: Fate) -> Fate:
        marked = fate._replace(mark=mark or fate.mark)
        if settlement == COMPLETE:
            return GONE
        if settlement == DEAD_LETTER:
            return Fate(DEAD_LETTER_LANE, ACTIVE, fate.delivery_count, fate.mark)
        if settlement == RELEASE:
            return fate
        assert settlement in (ABANDON, DEFER, LAPSE)
        state = DEFERRED if settlement == DEFER else fate.state
        if fate.lane != MAIN:
            return marked._replace(state=state)
        if is_past and state == ACTIVE:
            return expired(marked if dead_letter_expired else fate, dead_letter_expired, 1)
        if fate.delivery_count + 1 >= MAX_DELIVERY_COUNT:
            return Fate(DEAD_LETTER_LANE, ACTIVE, fate.delivery_count + 1, marked.mark)
        return marked._replace(delivery_count=fate.delivery_count + 1, state=state)

    return change


def gone(_fate: Fate) -> Fate:
    return GONE
