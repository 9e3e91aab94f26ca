"""How many messages there are in the whole namespace: counted while somebody looks, a few entities at a time.

Counting everything at once would open every entity there is, and of 10,000 nearly all are idle. So what clients use is
counted at every look, and of the rest the next few: the sum becomes whole little by little, and stays nearly right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tandembus.clock import Clock
from tandembus.descriptions import EntityKind
from tandembus.interconnect.requests import Counts
from tandembus.namespace.entries import Entry
from tandembus.namespace.fragment_counts import total_of
from tandembus.namespace.namespace import Namespace

LOOK_EVERY_S: Final = 0.9
"""A little less than pages take between two looks."""
IN_USE_PER_LOOK: Final = 200
OTHERS_PER_LOOK: Final = 25
"""Each stays open for a while after it was counted, so this also bounds how many that are."""
FIRST_ANSWER_S: Final = 0.3
"""So long a look is waited for; it goes on behind."""

CountEntity = Callable[[Entry], Awaitable[list[Counts | None]]]


@dataclass(frozen=True, slots=True)
class Census:
    known_entities: int = 0
    """Number of entities of which the sums hold at least one fragment."""
    counted_entities: int = 0
    """Number of entities of which the sums hold all fragments."""
    active: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    size_bytes: int = 0

    def changed(self, kind: EntityKind, counts: Counts, sign: int) -> Census:
        # A subscription's messages lie in its topic, whose size they are.
        size_bytes = 0 if kind is EntityKind.SUBSCRIPTION else counts.size_bytes
        return Census(
            self.known_entities + sign,
            self.counted_entities + (sign if counts.missing_fragments == 0 else 0),
            self.active + sign * counts.active,
            self.scheduled + sign * counts.scheduled,
            self.dead_letter + sign * counts.dead_letter,
            self.size_bytes + sign * size_bytes,
        )


class CensusTaker:
    def __init__(self, namespace: Namespace, count: CountEntity, clock: Clock) -> None:
        self._namespace = namespace
        self._count = count
        self._clock = clock
        self._census = Census()
        self._known: dict[str, tuple[Entry, Counts]] = {}
        self._version = -1
        self._to_do: list[str] = []
        """Keys of the round that is under way, the next one last."""
        self._looking: asyncio.Task[None] | None = None
        self._looked_at: float | None = None

    async def look(self) -> Census:
        """What is known by now."""
        now = self._clock.monotonic()
        is_due = self._looked_at is None or now - self._looked_at >= LOOK_EVERY_S
        if is_due and (self._looking is None or self._looking.done()):
            self._looked_at = now
            self._looking = asyncio.create_task(self._look())
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=FIRST_ANSWER_S)
        self._forget_ended()
        return self._census

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        used = self._namespace.in_use(IN_USE_PER_LOOK)
        keys = {entry.key for entry in used}
        entries = [*used, *[entry for entry in self._others() if entry.key not in keys]]
        await asyncio.gather(*[self._take(entry) for entry in entries])

    async def _take(self, entry: Entry) -> None:
        """Counts an entity again. One that is out of reach leaves the sums: its earlier count may be wrong now."""
        counts = total_of(await self._count(entry))
        if counts is None:
            self._remove(entry.key)
        else:
            self._put(entry, counts)

    def _others(self) -> list[Entry]:
        catalog = self._namespace.catalog
        if not self._to_do:
            self._to_do = [key for kind in EntityKind for key in catalog.keys(kind)]
            self._to_do.reverse()
        found = [catalog.find(self._to_do.pop()) for _ in range(min(OTHERS_PER_LOOK, len(self._to_do)))]
        return [entry for entry in found if entry is not None]

    def _put(self, entry: Entry, counts: Counts) -> None:
        self._remove(entry.key)
        self._known[entry.key] = (entry, counts)
        self._census = self._census.changed(entry.kind, counts, 1)

    def _remove(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._census = self._census.changed(known[0].kind, known[1], -1)

    def _forget_ended(self) -> None:
        catalog = self._namespace.catalog
        if catalog.version == self._version:
            return
        self._version = catalog.version
        for key, (entry, _) in list(self._known.items()):
            current = catalog.find(key)
            if current is None or current.incarnation != entry.incarnation:
                self._remove(key)
