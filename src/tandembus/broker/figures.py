"""What a fragment has done since the process began, and what it held when it left the memory: for whoever watches.

Counted when it is durable, in plain integers, once per commit where that is enough. Nothing here is ever read by the
broker itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from mypy_extensions import i64

from tandembus.broker.lane_blocks import LaneBlocks
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER, TRANSFER_DEAD_LETTER


@final
class FragmentFigures:
    """Outlives the fragment's memory: a fragment that nobody uses is let go of and opened anew, and what was counted
    goes on."""

    __slots__ = (
        "arrived",
        "body_fragment",
        "dead_lettered",
        "expired",
        "gone",
        "held",
        "is_other",
        "key",
        "oldest_enqueued_at",
        "oldest_number",
        "redelivered",
    )

    def __init__(self, key: i64) -> None:
        self.key: i64 = key
        self.arrived: i64 = 0
        self.gone: i64 = 0
        self.dead_lettered: i64 = 0
        self.expired: i64 = 0
        self.redelivered: i64 = 0
        """Deliveries that failed (abandoned, or the lock lapsed), so that the message comes again."""
        self.oldest_number: i64 = 0
        """Of the oldest message that can be received or is locked: it changes seldom where it matters. 0: none."""
        self.oldest_enqueued_at: i64 = 0
        """When that one came; 0: not known."""
        self.body_fragment: i64 = key
        """Where it is stored."""
        self.held: Holding | None = None
        """What it held when it left the memory; nobody can change that without opening it again."""
        self.is_other: bool = False
        """It was told as one of many, under no name of its own."""

    def note_oldest(self, number: i64) -> None:
        """When it came has to be found out, unless it is the one that was known."""
        if number != self.oldest_number:
            self.oldest_number = number
            self.oldest_enqueued_at = 0

    def include(self, other: FragmentFigures) -> None:
        self.arrived += other.arrived
        self.gone += other.gone
        self.dead_lettered += other.dead_lettered
        self.expired += other.expired
        self.redelivered += other.redelivered


@final
class Holding:
    """What a fragment holds, by the state of its messages."""

    __slots__ = (
        "active",
        "dead_letter",
        "deferred",
        "locked",
        "scheduled",
        "size_bytes",
        "transfer",
        "transfer_dead_letter",
    )

    def __init__(self) -> None:
        self.active: i64 = 0
        self.deferred: i64 = 0
        self.scheduled: i64 = 0
        self.dead_letter: i64 = 0
        self.transfer: i64 = 0
        self.transfer_dead_letter: i64 = 0
        self.size_bytes: i64 = 0
        self.locked: i64 = 0

    def include(self, other: Holding) -> None:
        self.active += other.active
        self.deferred += other.deferred
        self.scheduled += other.scheduled
        self.dead_letter += other.dead_letter
        self.transfer += other.transfer
        self.transfer_dead_letter += other.transfer_dead_letter
        self.size_bytes += other.size_bytes
        self.locked += other.locked


def holding_of(lanes: Sequence[LaneBlocks], is_topic: bool) -> Holding:
    """Of a fragment's lanes, by their codes. A topic has no active messages: those are its subscriptions'."""
    main, found = lanes[MAIN], Holding()
    found.active = 0 if is_topic else main.live_count - main.deferred_count - main.scheduled_count
    found.deferred = main.deferred_count
    found.scheduled = main.scheduled_count
    found.dead_letter = lanes[DEAD_LETTER].live_count
    found.transfer = lanes[TRANSFER].live_count
    found.transfer_dead_letter = lanes[TRANSFER_DEAD_LETTER].live_count
    for lane in lanes:
        found.size_bytes += lane.live_bytes
    return found
