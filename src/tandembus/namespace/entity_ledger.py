"""Reservations of an entity over all its fragments.

Fragments know nothing of each other. The first one gives out epochs, so no two are the same; a request to reserve is
shared out by what each has, and closed in all, so that asked again it gets the same answer. What must be known of every
fragment (a new epoch, what is reserved, where the ends are) fails when one is out of reach, with a word on which, and
can be asked of those in reach; to reserve goes on without it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, final

from tandembus.broker.reservations import BrowsedBlock, Prospect, Range
from tandembus.errors import BusError, FragmentUnavailable, InvalidArgument, StaleEpoch
from tandembus.interconnect.ledger import FragmentLedger
from tandembus.namespace.fragment_walks import is_out_of_reach

Ranges = dict[int, list[Range]]
"""By fragment."""

OPEN_TRIES: Final = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reservation:
    ranges: Ranges
    missing_fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    epoch: int
    missing_fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What one fragment may give."""

    messages: int
    size_bytes: int


@final
class EntityLedger:
    def __init__(self, fragments: Sequence[FragmentLedger | None], lane: int) -> None:
        """`fragments`: None for one that is known to be out."""
        self._fragments = fragments
        self._lane = lane

    def _fragment_exists(self, index: int) -> None:
        if not 0 <= index < len(self._fragments):
            raise InvalidArgument(f"There is no fragment {index}: the entity has {len(self._fragments)}.")

    def _fragment(self, index: int) -> FragmentLedger:
        self._fragment_exists(index)
        fragment = self._fragments[index]
        if fragment is None:
            raise _unavailable([index], None)
        return fragment

    async def _ask(
        self, indices: Sequence[int], ask: Callable[[int, FragmentLedger], Awaitable[T]]
    ) -> tuple[dict[int, T], dict[int, BusError | None]]:
        """The answers, and why there is none of the others. Raises what is not about reach, once all have answered."""
        asked = {index: fragment for index in indices if (fragment := self._fragments[index]) is not None}
        answers = await asyncio.gather(*[ask(*one) for one in asked.items()], return_exceptions=True)
        found: dict[int, T] = {}
        missing: dict[int, BusError | None] = {index: None for index in indices if index not in asked}
        refusal: BaseException | None = None
        for index, answer in zip(asked, answers, strict=True):
            if not isinstance(answer, BaseException):
                found[index] = answer
            elif isinstance(answer, BusError) and is_out_of_reach(answer):
                missing[index] = answer
            else:
                refusal = refusal or answer
        if refusal is not None:
            raise refusal
        return found, missing

    async def _ask_all(self, ask: Callable[[int, FragmentLedger], Awaitable[T]]) -> dict[int, T]:
        """Every fragment must answer."""
        found, missing = await self._ask(range(len(self._fragments)), ask)
        _require_none(missing)
        return found

    # Owners.

    async def open_owner(self, owner: str, max_owners: int) -> int:
        """A new epoch, durable in every fragment when this returns. Where one is known to be out nothing is begun, and
        whoever has the owner goes on."""
        _require_none({index: None for index, one in enumerate(self._fragments) if one is None})
        epoch, missing = await self._open(0, owner, max_owners)
        _require_none(missing)
        return epoch

    async def open_reachable(self, owner: str, max_owners: int) -> Opened:
        """Open a new epoch, durable in every fragment in reach. The others refuse it until `extend` is called."""
        failure: BusError | None = None
        for index in range(len(self._fragments)):
            try:
                epoch, missing = await self._open(index, owner, max_owners)
                return Opened(epoch, tuple(sorted(missing)))
            except BusError as error:
                if not is_out_of_reach(error):
                    raise
                failure = error
        raise _unavailable(range(len(self._fragments)), failure)

    async def _open(self, first: int, owner: str, max_owners: int) -> tuple[int, dict[int, BusError | None]]:
        """One fragment gives out the epoch and the others get it. Returns who could not be reached, too."""
        others = [index for index in range(len(self._fragments)) if index != first]
        for _ in range(OPEN_TRIES):
            epoch = await self._fragment(first).open_owner(self._lane, owner, None, max_owners)
            newest, missing = await self._tell_epoch(others, owner, epoch, max_owners)
            if newest == epoch:
                return epoch, missing
            # Others have come since; or this fragment has forgotten the owner, and the clock was put back.
            await self._fragment(first).open_owner(self._lane, owner, newest, max_owners)
        raise StaleEpoch(f"Others open the owner '{owner}' at the same time: only one query can use it.")

    async def extend(self, owner: str, epoch: int, indices: Sequence[int], max_owners: int) -> Opened:
        """Make an epoch known to fragments that were out when it was opened. Raises StaleEpoch where one of them has a
        newer one."""
        for index in indices:
            self._fragment_exists(index)
        newest, missing = await self._tell_epoch(indices, owner, epoch, max_owners)
        if newest != epoch:
            raise StaleEpoch(f"The epoch {epoch} of the owner '{owner}' is over: it was opened again since.")
        return Opened(epoch, tuple(sorted(missing)))

    async def _tell_epoch(
        self, indices: Sequence[int], owner: str, epoch: int, max_owners: int
    ) -> tuple[int, dict[int, BusError | None]]:
        """Returns the newest that one of these fragments has, and which could not be asked."""
        found, missing = await self._ask(indices, lambda _, one: one.open_owner(self._lane, owner, epoch, max_owners))
        return max(found.values(), default=epoch), missing

    async def owners(self) -> list[tuple[str, int, int]]:
        found = await self._ask_all(lambda _, one: one.owners(self._lane))
        known: dict[str, tuple[int, int]] = {}
        for owners in found.values():
            for name, epoch, count in owners:
                before = known.get(name, (0, 0))
                known[name] = max(before[0], epoch), before[1] + count
        return [(name, epoch, count) for name, (epoch, count) in sorted(known.items())]

    async def ends(self, indices: Sequence[int] = ()) -> dict[int, int]:
        """The last number given out in each of these fragments; empty: in all fragments."""
        every = range(len(self._fragments))
        found, missing = await self._ask(
            [index for index in every if not indices or index in indices], lambda _, one: one.end(self._lane)
        )
        _require_none(missing)
        return found

    # Reserving.

    async def reserve(
        self, owner: str, epoch: int, request: int, max_messages: int, max_bytes: int, up_to: Mapping[int, int]
    ) -> Reservation:
        for index in up_to:
            self._fragment_exists(index)
        lane, every = self._lane, range(len(self._fragments))
        if len(every) == 1:
            ranges = await self._fragment(0).reserve(lane, owner, epoch, request, max_messages, max_bytes, up_to.get(0))
            return Reservation({0: list(ranges)} if ranges else {}, ())
        prospects, out = await self._ask(
            every, lambda i, one: one.prospect(lane, owner, epoch, request, max_messages, up_to.get(i))
        )
        if not prospects:
            _require_none(out)
        is_repeated = any(one.answer for one in prospects.values())
        given: Ranges = {}
        open_ones = {} if is_repeated else dict(prospects)
        while not given and (chosen := shares_of(open_ones, max_messages, max_bytes, request)):
            answers, late = await self._ask(
                list(chosen), functools.partial(self._give, owner, epoch, request, chosen, up_to)
            )
            given = {index: list(ranges) for index, ranges in answers.items() if ranges}
            out |= late
            # What they had is somebody else's by now, or lies beyond `up_to`: others may have more.
            open_ones = {index: one for index, one in open_ones.items() if index not in chosen and index not in out}
        if given or is_repeated:
            others = [index for index in every if index not in given and index not in out]
            closed, late = await self._close(owner, epoch, request, others)
            given, out = given | closed, out | late
        return Reservation(dict(sorted(given.items())), tuple(sorted(out)))

    async def _close(
        self, owner: str, epoch: int, request: int, indices: Sequence[int]
    ) -> tuple[Ranges, dict[int, BusError | None]]:
        """Nobody adds to it from now on, neither an earlier try that is still under way nor a later one: all get the
        same answer. What a prospect tells need not be durable; this is."""
        answers, late = await self._ask(
            indices, lambda _, one: one.reserve(self._lane, owner, epoch, request, 0, 0, None)
        )
        return {index: list(ranges) for index, ranges in answers.items() if ranges}, late

    def _give(
        self,
        owner: str,
        epoch: int,
        request: int,
        shares: Mapping[int, Share],
        up_to: Mapping[int, int],
        index: int,
        fragment: FragmentLedger,
    ) -> Awaitable[Sequence[Range]]:
        share = shares[index]
        return fragment.reserve(self._lane, owner, epoch, request, share.messages, share.size_bytes, up_to.get(index))

    async def reserved(self, owner: str, epoch: int | None) -> Ranges:
        found = await self._ask_all(lambda _, one: one.reserved(self._lane, owner, epoch))
        return {index: list(ranges) for index, ranges in found.items() if ranges}

    async def reserved_in_reach(self, owner: str, epoch: int | None) -> Reservation:
        found, missing = await self._ask(
            range(len(self._fragments)), lambda _, one: one.reserved(self._lane, owner, epoch)
        )
        if not found:
            _require_none(missing)
        return Reservation({i: list(ranges) for i, ranges in found.items() if ranges}, tuple(sorted(missing)))

    async def browse(self, fragment: int, first: int, last: int, max_messages: int, max_bytes: int) -> BrowsedBlock:
        return await self._fragment(fragment).browse(self._lane, first, last, max_messages, max_bytes)

    # Settling. What could be done is done, whoever else is out of reach: it may be asked again.

    async def complete(self, owner: str, epoch: int, ranges: Ranges) -> int:
        for index in ranges:
            self._fragment_exists(index)
        done, missing = await self._ask(list(ranges), lambda i, one: one.complete(self._lane, owner, epoch, ranges[i]))
        _require_none(missing)
        return sum(done.values())

    async def release(self, owner: str, epoch: int | None, ranges: Ranges | None) -> int:
        for index in ranges or {}:
            self._fragment_exists(index)
        indices = list(range(len(self._fragments)) if ranges is None else ranges)
        done, missing = await self._ask(
            indices,
            lambda i, one: one.release(self._lane, owner, epoch, None if ranges is None else ranges[i]),
        )
        _require_none(missing)
        return sum(done.values())


def shares_of(prospects: Mapping[int, Prospect], max_messages: int, max_bytes: int, request: int) -> dict[int, Share]:
    """As evenly as what each has allows, of those that have anything. Where there is too little for all, those that get
    some differ from request to request: nobody starves."""
    waiting = [index for index, one in sorted(prospects.items()) if one.count > 0]
    if not waiting:
        return {}
    largest = max(prospects[index].size_bytes // prospects[index].count for index in waiting)
    most = max(min(len(waiting), max_messages, max_bytes // max(largest, 1)), 1)
    turn = request % len(waiting)
    chosen = (waiting[turn:] + waiting[:turn])[:most]
    messages = _shared_out({index: prospects[index].count for index in chosen}, max_messages)
    sizes = _shared_out({index: max(prospects[index].size_bytes, 1) for index in chosen}, max_bytes)
    spare = (max_bytes - sum(sizes.values())) // len(chosen)  # what is known of sizes is a mean
    return {index: Share(messages[index], max(sizes[index] + spare, 1)) for index in chosen}


def _shared_out(wanted: Mapping[int, int], total: int) -> dict[int, int]:
    """To each as much as it wants, or as the others get."""
    given: dict[int, int] = {}
    left = total
    for place, index in enumerate(sorted(wanted, key=lambda one: wanted[one])):
        fair = -(-left // (len(wanted) - place))
        given[index] = min(wanted[index], fair)
        left -= given[index]
    return given


def _require_none(missing: Mapping[int, BusError | None]) -> None:
    if missing:
        raise _unavailable(sorted(missing), next((one for one in missing.values() if one is not None), None))


def _unavailable(indices: Sequence[int], error: BusError | None) -> FragmentUnavailable:
    which = ", ".join(map(str, indices))
    reason = "" if error is None else f": {error}"
    return FragmentUnavailable(f"Fragment {which} of the entity is out of reach{reason}. Ask again later.")
