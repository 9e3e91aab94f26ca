"""Messages set aside for one query, from before Spark plans to read them until it has written down that they are done.

The native way reserves them in the broker; `deferral.py` does it with what every Service Bus offers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from tandembus.errors import FragmentUnavailable, NotSupported
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import SourceOptions, require_owner
from tandembus.spark.source.ranges import Batch, FragmentRanges, count_of

log = logging.getLogger("tandembus.spark")


class Ledger(Protocol):
    """Every call may be repeated when its outcome is unknown."""

    async def open(self) -> None:
        """From now on this process decides for the query, and an earlier one does not any more."""

    async def settle(self, batch: Batch) -> None: ...

    async def left_over(self) -> Batch:
        """What is set aside already: an earlier process did not get to plan it, or lost its checkpoint."""

    async def plan(self, entity: str, max_messages: int, max_bytes: int) -> FragmentRanges:
        """Set aside up to so many messages of an entity."""

    async def remember_ends(self) -> None:
        """From now on nothing is planned that arrives later."""


class NativeLedger:
    """The reservations of a tandembus namespace."""

    def __init__(self, link: Link, options: SourceOptions) -> None:
        self._link: Final = link
        self._entities: Final = options.entities
        self._owner: Final = require_owner(options)
        self._epochs: Final[dict[str, int]] = {}
        self._requests: Final[dict[str, int]] = {}
        self._ends: dict[str, dict[int, int]] | None = None
        self._doubtful: Final[set[str]] = set()
        """Entities of which fragments were missing when they were last planned."""

    async def open(self) -> None:
        await self._open(self._entities)

    async def _open(self, entities: Iterable[str]) -> None:
        for entity in entities:
            if entity not in self._epochs:
                reservations = await self._link.reservations(entity)
                try:
                    self._epochs[entity] = await reservations.open_owner(self._owner)
                except NotSupported as error:
                    raise NotSupported(
                        f"{entity} has no reservations: another Service Bus than tandembus, or one that was started "
                        "with --no-reservations. Give the option backend=azure"
                    ) from error

    async def settle(self, batch: Batch) -> None:
        await self._open(batch)  # of entities that the query does not read any more, too
        for entity, ranges in batch.items():
            reservations = await self._link.reservations(entity)
            await reservations.complete_ranges(self._owner, self._epochs[entity], ranges)

    async def left_over(self) -> Batch:
        found: Batch = {}
        for entity in self._entities:
            reservations = await self._link.reservations(entity)
            ranges = await reservations.reserved(self._owner, self._epochs[entity])
            if count_of(ranges):
                found[entity] = ranges
        return found

    async def plan(self, entity: str, max_messages: int, max_bytes: int) -> FragmentRanges:
        """The request keeps its number until it is answered: then nothing is reserved twice when an answer is lost."""
        reservations = await self._link.reservations(entity)
        up_to = None if self._ends is None else self._ends[entity]
        request = self._requests.setdefault(entity, 1)
        answer = await reservations.reserve(self._owner, self._epochs[entity], request, max_messages, max_bytes, up_to)
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
            ranges = await reservations.reserved(self._owner, self._epochs[entity])
            self._doubtful.remove(entity)
        if count_of(answer.ranges):
            self._requests[entity] = request + 1  # else a try that is still under way would be left behind with it
        return ranges

    async def remember_ends(self) -> None:
        self._ends = {entity: await (await self._link.reservations(entity)).ends() for entity in self._entities}
