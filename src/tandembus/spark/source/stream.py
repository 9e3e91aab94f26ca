"""Decides what the next batch of a stream is, and settles the one before; it knows nothing of Spark.

The messages of a batch are set aside before Spark logs the batch. They are settled once Spark has logged that the batch
is done, which is certain as soon as Spark asks for the next one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from tandembus.clock import Clock
from tandembus.errors import EntityNotFound, InvalidArgument, StaleEpoch, Unauthorized
from tandembus.spark.source.deferral import DeferralLedger
from tandembus.spark.source.ledger import Ledger, NativeLedger
from tandembus.spark.source.link import Link, is_transient
from tandembus.spark.source.options import NATIVE, SourceOptions, require_owner
from tandembus.spark.source.ranges import Batch, count_of, union, without

log = logging.getLogger("tandembus.spark")

VERSION: Final = 1
NONE_YET: Final = -1
OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
"""In a checkpoint: Spark's logs of the batches that it has planned, and of those that are done."""
Offset = dict[str, Any]
"""What Spark writes into its log: not a position, but the messages of the last batch.

`{"v": 1, "n": namespace, "o": owner, "e": batch counter, "b": {entity: {fragment: [[first, last], ...]}}}`, and in the
same form as `"u"` messages of earlier batches that could not be settled when this one was planned, if there are any.
"""
NO_LIMIT: Final = (1 << 31) - 1
NO_LIMIT_BYTES: Final = (1 << 62) - 1


def ledger_for(link: Link, clock: Clock) -> Ledger:
    if link.options.backend == NATIVE:
        return NativeLedger(link, link.options)
    return DeferralLedger(link, link.options, clock)


class Stream:
    """One query, in the process that plans it."""

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
        """Entities that could not be planned the last time: they are tried only once, so that the others need not
        wait."""

    def initial(self) -> Offset:
        return initial_offset(self._namespace, self._owner)

    async def remember_ends(self) -> None:
        """Make the query end with the messages that are there now."""
        self._ends_at_once = True
        try:
            await self._link.patiently(self._open)
            await self._link.patiently(self._ledger.remember_ends)
        except (EntityNotFound, Unauthorized) as error:
            # This may not be the namespace of the checkpoint, which only Spark's next call shows.
            self._refusal = error

    async def latest(self, start: Offset, max_messages: int, max_bytes: int) -> Offset:
        """The end of the next batch; `start` itself if there is nothing, or if the service cannot be reached for
        now."""
        return await self._latest(start, lambda: self._next(start, max_messages, max_bytes))

    async def latest_of_all(self, start: Offset) -> Offset:
        """Like `latest`, with all messages that are there now in one batch, after which the query ends."""
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
        """The messages of the batch between the two offsets, which may have been planned by an earlier process."""
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
        """Raises if the offset is of another namespace or owner, or if `remember_ends` was refused."""
        check_offset(offset, self._namespace, self._owner)
        if self._refusal is not None:
            raise self._refusal

    async def _open(self) -> None:
        if not self._is_open:
            await self._ledger.open()
            self._is_open = True

    async def _settle(self, offset: Offset) -> None:
        """Settles this batch, and what is left of earlier ones."""
        batch = {} if offset == self._settled else done_at(offset)
        await self._link.patiently(lambda: self._ledger.settle(batch))
        self._settled = offset

    async def _look_back(self) -> Batch:
        """Returns, once, the messages that a process that is gone has set aside and not settled."""
        if self._has_looked_back:
            return {}
        found = await self._link.patiently(self._ledger.left_over)
        self._has_looked_back = True
        return found

    async def _next(self, start: Offset, max_messages: int, max_bytes: int) -> Batch:
        return await self._look_back() or await self._plan(start["e"], max_messages, max_bytes)

    async def _plan(self, turn: int, max_messages: int, max_bytes: int) -> Batch:
        """Every entity gets its share of bytes, and of messages also what others leave. They take turns to be first."""
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
        """Asks until nothing is left, because the service bounds how much it sets aside at once."""
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


# Offsets.


def initial_offset(namespace: str, owner: str) -> Offset:
    return {"v": VERSION, "n": namespace, "o": owner, "e": 0, "b": {}}


def offset_after(start: Offset, batch: Batch, owner: str, unsettled: Batch | None = None) -> Offset:
    """The offset at the end of a batch that follows `start`."""
    offset = {"v": VERSION, "n": start["n"], "o": owner, "e": start["e"] + 1, "b": _written(batch)}
    return {**offset, "u": _written(unsettled)} if unsettled else offset


def batch_ending_at(offset: Offset) -> Batch:
    return _read(offset["b"])


def done_at(offset: Offset, *, is_done: bool = True) -> Batch:
    """Returns the messages to settle: the batch that ends here, if it is done, and the rest of earlier ones."""
    batch = batch_ending_at(offset)
    done = batch if is_done else {}
    for entity, ranges in _read(offset.get("u", {})).items():
        spelled = next((each for each in batch if each.lower() == entity.lower()), entity)
        # A message that is in the batch again was released in between.
        left = without(ranges, batch.get(spelled, {}))
        if left:
            done = {**done, spelled: union((done.get(spelled, {}), left))}
    return done


def _written(batch: Batch) -> dict[str, dict[str, list[list[int]]]]:
    return {
        entity: {str(fragment): [list(one) for one in ranges] for fragment, ranges in sorted(fragments.items())}
        for entity, fragments in sorted(batch.items())
    }


def _read(content: dict[str, Any]) -> Batch:
    return {
        entity: {int(fragment): [(first, last) for first, last in ranges] for fragment, ranges in fragments.items()}
        for entity, fragments in content.items()
    }


def check_offset(offset: Offset, namespace: str, owner: str) -> None:
    """Raises InvalidArgument for an offset of another version, namespace or owner. Offsets of the first version may
    lack the owner."""
    if not isinstance(offset, dict) or not {"v", "n", "e", "b"} <= offset.keys():
        raise InvalidArgument(
            "the checkpoint has no offsets of servicebus: it is that of a query with another source. Give this one a "
            "checkpoint of its own"
        )
    if offset["v"] != VERSION:
        raise InvalidArgument(
            f"the checkpoint has offsets of version {offset['v']!r}, and this is version {VERSION}: use the "
            "tandembus that wrote it, or a new checkpoint"
        )
    if offset["n"] != namespace:
        raise InvalidArgument(
            f"the checkpoint belongs to the namespace {offset['n']!r}, and this is {namespace!r}: use a checkpoint of "
            f"its own for each namespace; if it is the same one at a new address, give the option "
            f"namespaceId={offset['n']}"
        )
    if offset.get("o", owner) != owner:
        raise InvalidArgument(
            f"the checkpoint belongs to the owner {offset['o']!r}, and this is {owner!r}, which could not settle the "
            f"last batch of the other: give the option owner={offset['o']}, or a new checkpoint"
        )


def newest(names: Iterable[str]) -> int:
    """The number of the last batch in one of Spark's logs, which has a file for each batch and compacts them at
    times."""
    numbers = [name.removesuffix(".compact") for name in names]
    return max([int(number) for number in numbers if number.isdecimal()], default=NONE_YET)


def offsets_in(text: str, owner: str) -> list[Offset]:
    """Returns the offsets of an owner's queries in a file of Spark's log, which has a line for each source."""
    found: list[Offset] = []
    for line in text.splitlines():
        try:
            offset = json.loads(line)
        except ValueError:
            continue  # the version of the file
        if isinstance(offset, dict) and {"v", "n", "e", "b"} <= offset.keys() and offset.get("o", owner) == owner:
            found.append(offset)
    return found
