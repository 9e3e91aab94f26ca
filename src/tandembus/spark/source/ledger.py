"""Messages set aside for one query, from before Spark plans to read them until it has written down that they are done.

The native way reserves them in the broker; `deferral.py` does it with what every Service Bus offers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from tandembus.errors import EntityNotFound, FragmentUnavailable, NotSupported
from tandembus.spark.source.link import Link
from tandembus.spark.source.marks import marks_of
from tandembus.spark.source.options import SourceOptions, require_owner
from tandembus.spark.source.pages import share_of
from tandembus.spark.source.ranges import Batch, FragmentRanges, count_of, intersection

log = logging.getLogger("tandembus.spark")

ACTIVE: Final = 0
LOOKED_AT_TOGETHER: Final = 250


class Ledger(Protocol):
    """Every call may be repeated when its outcome is unknown."""

    async def open(self) -> None:
        """From now on this process decides for the query, and an earlier one does not any more."""

    async def settle(self, batch: Batch) -> None:
        """Of entities that the query does not read any more, too; one that is gone by now has nothing to settle."""

    async def still_set_aside(self, batch: Batch) -> Batch:
        """What of a batch that an earlier process has planned is to be read."""

    async def left_over(self) -> Batch:
        """What is set aside already: an earlier process did not get to plan it, or lost its checkpoint."""

    async def plan(self, entity: str, max_messages: int, max_bytes: int) -> FragmentRanges:
        """Set aside up to so many messages of an entity."""

    async def remember_ends(self) -> None:
        """From now on nothing is planned that arrives later."""


def raise_unless_retired(error: EntityNotFound, entity: str, entities: Iterable[str]) -> None:
    """An entity that only the checkpoint names may have been deleted, and its messages with it."""
    if entity.lower() in {each.lower() for each in entities}:
        raise error
    log.warning("%s is in the checkpoint, and there no more: nothing is left to do for its messages", entity)


class NativeLedger:
    """The reservations of a tandembus namespace."""

    def __init__(self, link: Link, options: SourceOptions) -> None:
        self._link: Final = link
        self._entities: Final = options.entities
        self._owner: Final = require_owner(options)
        self._epochs: Final[dict[str, int]] = {}
        """By the name in lower case: a checkpoint may have another spelling, and it is one owner all the same."""
        self._requests: Final[dict[str, int]] = {}
        self._ends: dict[str, dict[int, int]] | None = None
        self._looked_at: Final[set[str]] = set()
        """Entities in which it was looked for messages that the query ends without."""
        self._doubtful: Final[set[str]] = set()
        """Entities of which fragments were missing when they were last planned."""

    async def open(self) -> None:
        for entity in self._entities:
            await self._epoch(entity)

    async def _epoch(self, entity: str) -> int:
        epoch = self._epochs.get(entity.lower())
        if epoch is None:
            reservations = await self._link.reservations(entity)
            try:
                epoch = self._epochs[entity.lower()] = await reservations.open_owner(self._owner)
            except NotSupported as error:
                raise NotSupported(
                    f"{entity} has no reservations: another Service Bus than tandembus, or one that was started "
                    "with --no-reservations. Give the option backend=azure"
                ) from error
        return epoch

    async def settle(self, batch: Batch) -> None:
        for entity, ranges in batch.items():
            try:
                epoch = await self._epoch(entity)
                await (await self._link.reservations(entity)).complete_ranges(self._owner, epoch, ranges)
            except EntityNotFound as error:
                raise_unless_retired(error, entity, self._entities)

    async def still_set_aside(self, batch: Batch) -> Batch:
        """Not what an operator has released meanwhile: others may have it, and it is planned again when nobody has."""
        found: Batch = {}
        for entity, ranges in batch.items():
            try:
                epoch = await self._epoch(entity)
                reserved = await (await self._link.reservations(entity)).reserved(self._owner, epoch)
            except EntityNotFound as error:
                raise_unless_retired(error, entity, self._entities)
            else:
                found[entity] = intersection(ranges, reserved)
        return found

    async def left_over(self) -> Batch:
        found: Batch = {}
        for entity in self._entities:
            reservations = await self._link.reservations(entity)
            ranges = await reservations.reserved(self._owner, await self._epoch(entity))
            if count_of(ranges):
                found[entity] = ranges
        return found

    async def plan(self, entity: str, max_messages: int, max_bytes: int) -> FragmentRanges:
        """The request keeps its number until it is answered: then nothing is reserved twice when an answer is lost."""
        reservations = await self._link.reservations(entity)
        up_to = None if self._ends is None else self._ends[entity]
        request = self._requests.setdefault(entity, 1)
        epoch = await self._epoch(entity)
        answer = await reservations.reserve(self._owner, epoch, request, max_messages, max_bytes, up_to)
        ranges = answer.ranges
        if answer.missing_fragments and self._ends is not None:
            raise FragmentUnavailable(
                f"{entity}: fragments {', '.join(map(str, answer.missing_fragments))} are out of reach: the query "
                "would end with messages left. Start it again when they are back; what it has reserved comes first."
            )
        if answer.missing_fragments:
            log.warning("%s: fragments %s are out of reach, and left for later", entity, answer.missing_fragments)
            self._doubtful.add(entity)
        elif entity in self._doubtful:
            # One that went out of reach may have reserved messages and not said so. The batch before is settled, so
            # whatever is reserved is to be planned.
            ranges = await reservations.reserved(self._owner, epoch)
            self._doubtful.remove(entity)
        if count_of(answer.ranges):
            self._requests[entity] = request + 1  # else a try that is still under way would be left behind with it
        elif self._ends is not None and entity not in self._looked_at:
            await self._tell_what_is_left(entity, self._ends[entity])
            self._looked_at.add(entity)
        return ranges

    async def _tell_what_is_left(self, entity: str, ends: dict[int, int]) -> None:
        """Looks no further than what was there at the start: whoever sends meanwhile may be faster than this."""
        page_bytes = share_of(self._link.options)
        for fragment, last in ends.items():
            at: int | None = 1
            while at is not None:
                reservations = await self._link.reservations(entity)
                page = await reservations.browse(fragment, at, last, LOOKED_AT_TOGETHER, page_bytes)
                if any(marks_of(payload).state == ACTIVE for payload in page.messages):
                    log.warning(
                        "%s: messages are left that a receiver holds, or another owner; start the query again for them",
                        entity,
                    )
                    return
                at = page.next

    async def remember_ends(self) -> None:
        self._ends = {entity: await (await self._link.reservations(entity)).ends() for entity in self._entities}
