"""Backlog queues among the entities of a namespace: which there are, what is in them, and who fetches it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tandembus.errors import BusError, EntityNotFound
from tandembus.pair_view.backlog_paths import primary_of
from tandembus.pair_view.view import MAX_QUEUES, BacklogCounts, BacklogQueue, Seen, seen_by
from tandembus.store.messaging_store import MAIN

if TYPE_CHECKING:
    from tandembus.namespace.namespace import Namespace

ANSWERS_WITHIN_S: Final = 1.0
"""A queue that is out of reach must not keep the others from being told."""
AT_ONCE: Final = 10


class Backlogs:
    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._version = -1
        self._queues: Sequence[tuple[str, str]] = ()

    def queues(self) -> Sequence[tuple[str, str]]:
        """Path and primary of each, by path. Looked for anew only when the catalog has changed."""
        catalog = self._namespace.catalog
        if catalog.version != self._version:
            paths = [entry.description.path for entry in catalog.queues()]
            found = [(path, primary_of(path)) for path in paths]
            self._queues = [(path, primary) for path, primary in found if primary is not None]
            self._version = catalog.version
        return self._queues

    def seen(self) -> Seen:
        """What this process has seen of a pair, and who receives through it from backlog queues."""
        receivers = {path.lower(): self._namespace.receiver_count(path) for path, _ in self.queues()[:MAX_QUEUES]}
        return seen_by(self._namespace.sightings, {path: count for path, count in receivers.items() if count})

    async def look(self, receivers: Mapping[str, int]) -> tuple[list[BacklogQueue], bool]:
        """What is in them now; and whether that is all. The oldest message is looked at, and nothing is taken: in a
        partitioned queue it is the oldest of the first fragment that has any."""
        queues = self.queues()
        found: list[BacklogQueue | None] = []
        for first in range(0, min(len(queues), MAX_QUEUES), AT_ONCE):
            some = queues[first : min(first + AT_ONCE, MAX_QUEUES)]
            found += await asyncio.gather(
                *[self._look_at(*queue, receivers.get(queue[0].lower(), 0)) for queue in some]
            )
        there = [queue for queue in found if queue is not None]
        return there, len(there) == len(queues) and not any(queue.is_limited for queue in there)

    async def _look_at(self, path: str, primary: str, receivers: int) -> BacklogQueue | None:
        try:
            return await asyncio.wait_for(self._count(path, primary, receivers), ANSWERS_WITHIN_S)
        except EntityNotFound:
            return None  # deleted meanwhile
        except (TimeoutError, BusError):
            return BacklogQueue(path, primary, None, None, receivers, is_limited=True)

    async def _count(self, path: str, primary: str, receivers: int) -> BacklogQueue:
        entity = await self._namespace.entity(path)
        with entity.in_use():
            counts = await entity.requests.counts()
            oldest = await entity.requests.peek(MAIN, 1, 1, 1) if counts.active else ()
        oldest_at = oldest[0].message.enqueued_at / 1000 if oldest else None
        return BacklogQueue(
            path,
            primary,
            BacklogCounts(counts.active, counts.dead_letter, counts.scheduled, counts.size_bytes),
            oldest_at,
            receivers,
            is_limited=counts.missing_fragments > 0,
        )
