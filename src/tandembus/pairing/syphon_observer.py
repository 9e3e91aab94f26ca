"""Who hears what a syphon does, and what it counts."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from tandembus.clock import Clock
from tandembus.prometheus import COUNTER, GAUGE, Exposition, Family, document

log: Final = logging.getLogger("tandembus.syphon")
TELL_AGAIN_S: Final = 60.0
"""Dead letters of one destination for one reason are told no more often."""
MAX_TOLD: Final = 1_000
"""Strangers decide how many destinations there are."""

_QUEUE: Final = ("queue",)
MOVED: Final = Family("tandembus_syphon_messages_moved_total", COUNTER, "Messages that are home.", _QUEUE)
MOVED_BYTES: Final = Family("tandembus_syphon_bytes_moved_total", COUNTER, "Their bytes.", _QUEUE)
DEFERRED: Final = Family(
    "tandembus_syphon_messages_deferred_total", COUNTER, "Messages put aside behind a dead destination.", _QUEUE
)
DEAD_LETTERED: Final = Family(
    "tandembus_syphon_messages_dead_lettered_total", COUNTER, "Messages that nobody will take.", ("queue", "reason")
)
RETRIES: Final = Family("tandembus_syphon_retries_total", COUNTER, "Sends to a dead destination in vain.", _QUEUE)
LOCKS_LOST: Final = Family(
    "tandembus_syphon_locks_lost_total", COUNTER, "Messages that were lost from hand, and come again.", _QUEUE
)
TROUBLES: Final = Family(
    "tandembus_syphon_queue_troubles_total", COUNTER, "Times that a backlog queue could not be used.", _QUEUE
)
DEAD_DESTINATIONS: Final = Family("tandembus_syphon_dead_destinations", GAUGE, "Destinations that take no messages.")
LAST_MOVED: Final = Family(
    "tandembus_syphon_last_moved_timestamp_seconds", GAUGE, "When a message came home last, since 1970 UTC."
)
FAMILIES: Final = (
    MOVED,
    MOVED_BYTES,
    DEFERRED,
    DEAD_LETTERED,
    RETRIES,
    LOCKS_LOST,
    TROUBLES,
    DEAD_DESTINATIONS,
    LAST_MOVED,
)


class SyphonObserver(Protocol):
    """Hears what a syphon does."""

    def received(self) -> None:
        """Messages have come."""

    def moved(self, queue: str, path: str, count: int, size_bytes: int) -> None: ...

    def dead_lettered(
        self, queue: str, path: str | None, numbers: Sequence[int | None], reason: str, description: str
    ) -> None:
        """Messages that were refused alike; without a path if they are malformed."""

    def deferred(self, queue: str, path: str, count: int) -> None: ...

    def stuck(self, queue: str, path: str, error: BaseException) -> None:
        """A destination does not take messages. Told once; then it is tried again and again."""

    def retried(self, queue: str, path: str, error: BaseException) -> None: ...

    def freed(self, queue: str, path: str) -> None: ...

    def lost(self, queue: str, count: int) -> None:
        """The locks of messages in hand: they come again, and those that are home already arrive twice."""

    def detached(self, queue: str, error: BaseException) -> None:
        """While nothing was going on; it will be attached again."""

    def troubled(self, queue: str, error: BaseException) -> None:
        """The backlog queue itself cannot be used; it will be tried again."""


class SyphonFigures:
    """Counts, logs, and tells both as Prometheus metrics. Of a trouble that lasts only its beginning is logged."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._moved: Final[Counter[str]] = Counter()
        self._moved_bytes: Final[Counter[str]] = Counter()
        self._dead_lettered: Final[Counter[tuple[str, str]]] = Counter()
        self._told: Final[dict[tuple[str, str | None, str], tuple[float, int]]] = {}
        """When dead letters were told last, and how many there were since."""
        self._deferred: Final[Counter[str]] = Counter()
        self._retried: Final[Counter[str]] = Counter()
        self._lost: Final[Counter[str]] = Counter()
        self._troubled: Final[Counter[str]] = Counter()
        self._stuck: Final[set[tuple[str, str]]] = set()
        self._last_troubles: Final[dict[str, str]] = {}
        self._first_received_at = 0.0
        self._last_moved_at = 0.0

    @property
    def moved_count(self) -> int:
        return sum(self._moved.values())

    @property
    def dead_lettered_count(self) -> int:
        return sum(self._dead_lettered.values())

    @property
    def lost_lock_count(self) -> int:
        return sum(self._lost.values())

    @property
    def stuck_paths(self) -> list[str]:
        return sorted({path for _, path in self._stuck})

    def record(self) -> dict[str, object]:
        return {
            "moved": self.moved_count,
            "moved_bytes": sum(self._moved_bytes.values()),
            "moving_s": round(max(0.0, self._last_moved_at - self._first_received_at), 3),
            "dead_lettered": self.dead_lettered_count,
            "deferred": sum(self._deferred.values()),
            "retries": sum(self._retried.values()),
            "locks_lost": self.lost_lock_count,
            "dead_destinations": self.stuck_paths,
        }

    def received(self) -> None:
        self._first_received_at = self._first_received_at or self._clock.now()

    def moved(self, queue: str, path: str, count: int, size_bytes: int) -> None:
        self._moved[queue] += count
        self._moved_bytes[queue] += size_bytes
        self._last_moved_at = self._clock.now()
        self._last_troubles.pop(queue, None)
        log.debug("%s: moved %d to %s", queue, count, path)

    def dead_lettered(
        self, queue: str, path: str | None, numbers: Sequence[int | None], reason: str, description: str
    ) -> None:
        self._dead_lettered[queue, reason] += len(numbers)
        which = "a message" if numbers[0] is None else f"message {numbers[0]}"
        if (count := self._count_to_tell((queue, path, reason), len(numbers))) == 0:
            return
        others = f" and {count - 1} more" if count > 1 else ""
        log.warning("%s: dead-lettered %s%s: %s: %s", queue, which, others, reason, description)

    def _count_to_tell(self, kind: tuple[str, str | None, str], count: int) -> int:
        """With those that were not told; none if it is too early for that."""
        now = self._clock.monotonic()
        told_at, untold = self._told.get(kind, (-math.inf, 0))
        if now < told_at + TELL_AGAIN_S:
            self._told[kind] = told_at, untold + count
            return 0
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told[kind] = now, 0
        return untold + count

    def deferred(self, queue: str, path: str, count: int) -> None:
        self._deferred[queue] += count
        log.debug("%s: deferred %d for %s", queue, count, path)

    def stuck(self, queue: str, path: str, error: BaseException) -> None:
        if (queue, path) not in self._stuck:
            self._stuck.add((queue, path))
            log.warning("%s: %s does not take messages, they wait: %s", queue, path, error)

    def retried(self, queue: str, path: str, error: BaseException) -> None:
        self._stuck.add((queue, path))
        self._retried[queue] += 1
        log.debug("%s: %s still does not take messages: %s", queue, path, error)

    def freed(self, queue: str, path: str) -> None:
        self._stuck.discard((queue, path))
        log.info("%s: %s takes messages again, and has all that waited for it", queue, path)

    def lost(self, queue: str, count: int) -> None:
        self._lost[queue] += count
        messages = "message, which comes" if count == 1 else "messages, which come"
        log.warning("%s: lost the locks of %d %s again", queue, count, messages)

    def detached(self, queue: str, error: BaseException) -> None:
        log.info("%s: was detached while it was idle: %s", queue, error)

    def troubled(self, queue: str, error: BaseException) -> None:
        self._troubled[queue] += 1
        self._stuck.difference_update([each for each in self._stuck if each[0] == queue])
        if self._last_troubles.get(queue) != str(error):
            self._last_troubles[queue] = str(error)
            log.warning("%s: cannot be used now: %s", queue, error)

    def metrics(self) -> str:
        """In the text format of Prometheus."""
        out = Exposition()
        for family, counts in (
            (MOVED, self._moved),
            (MOVED_BYTES, self._moved_bytes),
            (DEFERRED, self._deferred),
            (RETRIES, self._retried),
            (LOCKS_LOST, self._lost),
            (TROUBLES, self._troubled),
        ):
            for queue, count in sorted(counts.items()):
                out.add(family, count, queue)
        for (queue, reason), count in sorted(self._dead_lettered.items()):
            out.add(DEAD_LETTERED, count, queue, reason)
        out.add(DEAD_DESTINATIONS, len(self._stuck))
        if self._moved:
            out.add(LAST_MOVED, round(self._last_moved_at, 3))
        return document(FAMILIES, [out.blocks()])
