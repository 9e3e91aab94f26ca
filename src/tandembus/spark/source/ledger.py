"""Messages set aside for one query, from before Spark plans to read them until it has written down that they are done.

The native way reserves them in the broker; `deferral.py` does it with what every Service Bus offers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

from tandembus.client.reservations import Reservations
from tandembus.errors import (
    EntityNotFound,
    FragmentUnavailable,
    NotSupported,
    OperationTimeout,
    StaleEpoch,
    StoreUnavailable,
)
from tandembus.spark.source.link import Link, is_transient
from tandembus.spark.source.marks import marks_of
from tandembus.spark.source.options import SourceOptions, require_owner
from tandembus.spark.source.pages import share_of
from tandembus.spark.source.ranges import Batch, FragmentRanges, count_of, intersection, union, without

log = logging.getLogger("tandembus.spark")

T = TypeVar("T")
LOOKED_AT_TOGETHER: Final = 250


class Ledger(Protocol):
    """Every call may be repeated when its outcome is unknown."""

    async def open(self) -> None:
        """From now on this process decides for the query, and an earlier one does not any more."""

    async def settle(self, batch: Batch) -> None:
        """Of entities that the query does not read any more, too; one that is gone by now has nothing to settle. What
        cannot be settled yet is tried again with every call."""

    def unsettled(self) -> Batch:
        """What is done and could not be settled yet: to be written down with the next batch."""

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


async def settle_stopped(reservations: Reservations, owner: str, ranges: FragmentRanges) -> int:
    """Settle what a query that has stopped has done, and return how many messages it were. It keeps the epoch that the
    owner has, so that a query that was started meanwhile goes on."""
    epochs = [one.epoch for one in await reservations.owners() if one.owner == owner]
    return await reservations.complete_ranges(owner, epochs[0], ranges) if epochs else 0


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
        """Entities of which fragments were missing when they were last planned, or looked through."""
        self._unreached: Final[dict[str, tuple[int, ...]]] = {}
        """By the name in lower case, the fragments that have not heard of the epoch."""
        self._unsettled: Final[dict[str, FragmentRanges]] = {}
        """Likewise, what is done in fragments that are out of reach."""

    async def open(self) -> None:
        """Entities that are out of reach are opened when they are planned."""
        await self._each_in_reach(self._epoch)

    async def _each_in_reach(self, work: Callable[[str], Awaitable[object]]) -> None:
        """Do it with every entity; those that are out of reach are looked through later. Raises when all are."""
        failures: list[Exception] = []
        for entity in self._entities:
            try:
                await work(entity)
            except Exception as error:
                if not is_transient(error):
                    raise
                failures.append(error)
                self._doubtful.add(entity)
        if len(failures) == len(self._entities):
            raise failures[0]

    async def _epoch(self, entity: str) -> int:
        epoch = self._epochs.get(entity.lower())
        if epoch is None:
            reservations = await self._link.reservations(entity)
            try:
                opened = await reservations.open_reachable(self._owner)
            except NotSupported as error:
                raise NotSupported(
                    f"{entity} has no reservations: another Service Bus than tandembus, or one that was started "
                    "with --no-reservations. Give the option backend=azure"
                ) from error
            epoch = self._epochs[entity.lower()] = opened.epoch
            self._unreached[entity.lower()] = opened.missing_fragments
        return epoch

    async def _ask(self, entity: str, work: Callable[[Reservations, int], Awaitable[T]]) -> T:
        """A fragment that has come back since the owner was opened refuses the epoch until it gets it."""
        while True:
            epoch = await self._epoch(entity)
            try:
                return await work(await self._link.reservations(entity), epoch)
            except StaleEpoch:
                if not await self._reach(entity, epoch):
                    raise

    async def _reach(self, entity: str, epoch: int) -> bool:
        """Whether a fragment has heard of the epoch only now."""
        out = self._unreached.get(entity.lower(), ())
        if not out:
            return False
        opened = await (await self._link.reservations(entity)).extend(self._owner, epoch, out)
        self._unreached[entity.lower()] = opened.missing_fragments
        return len(opened.missing_fragments) < len(out)

    def unsettled(self) -> Batch:
        return dict(self._unsettled)

    async def settle(self, batch: Batch) -> None:
        for entity, ranges in batch.items():
            self._unsettled[entity.lower()] = union((self._unsettled.get(entity.lower(), {}), ranges))
        for name, ranges in [*self._unsettled.items()]:
            entity = next((each for each in self._entities if each.lower() == name), name)
            try:
                left = await self._settle(entity, ranges)
            except EntityNotFound as error:
                raise_unless_retired(error, entity, self._entities)
                left = {}
            if left:
                self._unsettled[name] = left
            else:
                del self._unsettled[name]

    async def _settle(self, entity: str, ranges: FragmentRanges) -> FragmentRanges:
        """Returns what lies in fragments that are out of reach: others are not kept waiting for it."""
        left: FragmentRanges = {}
        for part in [ranges] if len(ranges) == 1 else [ranges, *[{one: some} for one, some in ranges.items()]]:
            try:
                await self._ask(
                    entity,
                    lambda one, epoch, part=part: one.complete_ranges(self._owner, epoch, part),  # type: ignore[misc]
                )
            except (StoreUnavailable, OperationTimeout) as error:
                if self._ends is not None:
                    raise
                if len(part) == 1:
                    left |= part
                    log.warning("%s: what is done in fragment %d is settled later: %s", entity, *part, error)
            else:
                if part is ranges:
                    return {}
        return left

    async def still_set_aside(self, batch: Batch) -> Batch:
        """Not what an operator has released meanwhile: others may have it, and it is planned again when nobody has."""
        found: Batch = {}
        for entity, ranges in batch.items():
            try:
                reserved = await self._ask(entity, lambda one, epoch: one.reserved_in_reach(self._owner, epoch))
            except EntityNotFound as error:
                raise_unless_retired(error, entity, self._entities)
                continue
            out = sorted({*ranges}.intersection(reserved.missing_fragments))
            if out:
                raise FragmentUnavailable(
                    f"{entity}: the batch that was under way has messages of fragments {', '.join(map(str, out))}, "
                    "which are out of reach: start the query again when they are back"
                )
            found[entity] = intersection(ranges, reserved.ranges)
        return found

    async def left_over(self) -> Batch:
        found: Batch = {}

        async def look(entity: str) -> None:
            reserved = await self._ask(entity, lambda one, epoch: one.reserved_in_reach(self._owner, epoch))
            if reserved.missing_fragments:
                self._doubtful.add(entity)
            ranges = without(reserved.ranges, self._unsettled.get(entity.lower(), {}))
            if count_of(ranges):
                found[entity] = ranges

        await self._each_in_reach(look)
        return found

    async def plan(self, entity: str, max_messages: int, max_bytes: int) -> FragmentRanges:
        """The request keeps its number until it is answered: then nothing is reserved twice when an answer is lost."""
        up_to = None if self._ends is None else self._ends[entity]
        request = self._requests.setdefault(entity, 1)
        answer = await self._ask(
            entity, lambda one, epoch: one.reserve(self._owner, epoch, request, max_messages, max_bytes, up_to)
        )
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
            # One that went out of reach may have reserved messages and not said so. Whatever is reserved and not done
            # is to be planned.
            reserved = await self._ask(entity, lambda one, epoch: one.reserved(self._owner, epoch))
            ranges = without(reserved, self._unsettled.get(entity.lower(), {}))
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
                if any(marks_of(payload).is_active() for payload in page.messages):
                    log.warning(
                        "%s: messages are left that a receiver holds, or another owner; start the query again for them",
                        entity,
                    )
                    return
                at = page.next

    async def remember_ends(self) -> None:
        self._ends = {entity: await (await self._link.reservations(entity)).ends() for entity in self._entities}
