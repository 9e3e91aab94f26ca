"""Decides what the next batch of a stream is, and settles the one before; it knows nothing of Spark.

The rules: what a batch holds is set aside before Spark writes it down; it is settled when Spark has written down that
it is done, which is certain as soon as Spark asks for what follows it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tandembus.errors import EntityNotFound, StaleEpoch, Unauthorized
from tandembus.spark.source.ledger import Ledger
from tandembus.spark.source.link import Link, is_transient
from tandembus.spark.source.offsets import (
    Offset,
    batch_ending_at,
    check_offset,
    done_at,
    initial_offset,
    offset_after,
)
from tandembus.spark.source.options import SourceOptions, require_owner
from tandembus.spark.source.ranges import Batch, count_of, union

log = logging.getLogger("tandembus.spark")

NO_LIMIT: Final = (1 << 31) - 1
NO_LIMIT_BYTES: Final = (1 << 62) - 1


class Stream:
    """One query in the process that plans it."""

    def __init__(self, options: SourceOptions, link: Link, ledger: Ledger) -> None:
        self._options: Final = options
        self._link: Final = link
        self._ledger: Final = ledger
        self._namespace: Final = options.namespace()
        self._owner: Final = require_owner(options)
        self._is_open = False
        self._has_looked_back = False
        self._settled: Offset | None = None
        self._planned: Offset | None = None
        self._ends_at_once = False
        self._refusal: Exception | None = None
        self._out: Final[set[str]] = set()
        """Entities that could not be planned the last time: they keep the others waiting once."""

    def initial(self) -> Offset:
        return initial_offset(self._namespace, self._owner)

    async def remember_ends(self) -> None:
        """The query is to end with what is there by now."""
        self._ends_at_once = True
        try:
            await self._link.patiently(self._open)
            await self._link.patiently(self._ledger.remember_ends)
        except (EntityNotFound, Unauthorized) as error:
            # Perhaps this is not the namespace of the checkpoint, which only Spark's next call tells.
            self._refusal = error

    async def latest(self, start: Offset, max_messages: int, max_bytes: int) -> Offset:
        """The end of the next batch; `start` itself if there is nothing, or if the service is out of reach for now."""
        return await self._latest(start, lambda: self._next(start, max_messages, max_bytes))

    async def latest_of_all(self, start: Offset) -> Offset:
        """The same, with all that is there by now in one batch, and the query ends behind it."""
        self._ends_at_once = True
        return await self._latest(start, self._all)

    async def _latest(self, start: Offset, plan: Callable[[], Awaitable[Batch]]) -> Offset:
        self._check(start)
        try:
            await self._link.patiently(self._open)
            await self._settle(start)
            batch = await plan()
        except StaleEpoch:
            raise self._fenced() from None
        except Exception as error:
            if self._ends_at_once or not is_transient(error):
                raise
            log.warning("nothing is planned for now: %s", error)
            return start
        if not batch:
            return start
        self._planned = offset_after(start, batch, self._owner, self._ledger.unsettled())
        return self._planned

    async def batch(self, start: Offset, end: Offset) -> Batch:
        """What to read for the batch between the two, which may be one that an earlier process has planned."""
        self._check(end)
        if start == end:
            return {}
        batch = batch_ending_at(end)
        try:
            await self._link.patiently(self._open)
            if end != self._planned:
                batch = await self._link.patiently(lambda: self._ledger.still_set_aside(batch))
        except StaleEpoch:
            raise self._fenced() from None
        return batch

    async def commit(self, end: Offset) -> None:
        check_offset(end, self._namespace, self._owner)
        try:
            await self._link.patiently(self._open)
            await self._settle(end)
        except StaleEpoch:
            raise self._fenced() from None
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("a batch is settled later: %s", error)

    def _check(self, offset: Offset) -> None:
        """That it is of this namespace and owner; then that nothing was refused when the ends were asked for."""
        check_offset(offset, self._namespace, self._owner)
        if self._refusal is not None:
            raise self._refusal

    async def _open(self) -> None:
        if not self._is_open:
            await self._ledger.open()
            self._is_open = True

    async def _settle(self, offset: Offset) -> None:
        """Also when it is settled already: of an earlier one something may be left."""
        batch = {} if offset == self._settled else done_at(offset)
        await self._link.patiently(lambda: self._ledger.settle(batch))
        self._settled = offset

    async def _look_back(self) -> Batch:
        """Once: whatever is set aside and not settled by now was planned by a process that is gone."""
        if self._has_looked_back:
            return {}
        found = await self._link.patiently(self._ledger.left_over)
        self._has_looked_back = True
        return found

    async def _next(self, start: Offset, max_messages: int, max_bytes: int) -> Batch:
        return await self._look_back() or await self._plan(start["e"], max_messages, max_bytes)

    async def _plan(self, turn: int, max_messages: int, max_bytes: int) -> Batch:
        """Each entity may give its share of bytes; of messages also what others leave. Each is first in turn."""
        entities = self._options.entities
        first = turn % len(entities)
        share_bytes = max(1, max_bytes // len(entities))
        batch: Batch = {}
        failure: Exception | None = None
        for place, entity in enumerate((*entities[first:], *entities[:first])):
            others = len(entities) - place
            if max_messages <= 0:
                break
            share = -(-max_messages // others)
            try:
                ranges = await self._link.patiently(
                    lambda entity=entity, share=share: self._ledger.plan(entity, share, share_bytes),  # type: ignore[misc]
                    is_brief=entity in self._out and not self._ends_at_once,
                )
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("%s is left for later: %s", entity, error)
                failure = error
                self._out.add(entity)
                continue
            self._out.discard(entity)
            if count_of(ranges):
                batch[entity] = ranges
                max_messages -= count_of(ranges)
        if failure is not None and not batch:
            raise failure
        return batch

    async def _all(self) -> Batch:
        """The service bounds what it sets aside at once: so it is asked until there is nothing more."""
        await self._link.patiently(self._ledger.remember_ends)
        batch = await self._look_back()
        for entity in self._options.entities:
            while True:
                more = await self._link.patiently(
                    lambda entity=entity: self._ledger.plan(entity, NO_LIMIT, NO_LIMIT_BYTES)  # type: ignore[misc]
                )
                if not count_of(more):
                    break
                batch[entity] = union((batch.get(entity, {}), more))
        return batch

    def _fenced(self) -> StaleEpoch:
        return StaleEpoch(
            f"another query has started with the owner {self._owner!r}, or an operator has released what it had "
            "reserved, so this one ends; nothing is lost: the other query goes on with its messages, released ones are "
            "back in the queue. Give every query an owner of its own, and start this one again if it was released"
        )
