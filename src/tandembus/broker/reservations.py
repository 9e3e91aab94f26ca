"""What the management node asks of a lane's ledger: open an owner, reserve, look, complete, release, browse.

These read the store, so they are asynchronous and stand beside the fragment, which decides in the commit. Each may be
asked again: an owner whose answer was lost gets it once more, and what is done already counts as nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tandembus.broker.browsing import state_of
from tandembus.broker.candidates import SLICE, Candidates, Wanted, sizes
from tandembus.broker.fragment import Fragment
from tandembus.broker.ledger import Ledger, Owner, check_request
from tandembus.broker.ledger_operations import (
    COMPLETE,
    GIVE_UP,
    LOOK,
    OPEN_OWNER,
    OPERATOR,
    RELEASE,
    RESERVE,
    LedgerOperation,
)
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.reading import read_messages, read_overlays
from tandembus.broker.reserving import MAX_RANGES, UNKNOWN, numbers_to_show, shown, size_of, states_of
from tandembus.errors import BusError, anew
from tandembus.message import Message
from tandembus.message_encoding import encode_deliveries
from tandembus.store.messaging_store import NUMBER_BITS, NUMBER_MASK

Range = tuple[int, int]

BROWSE_SLICE = 1024
EVERY: Sequence[Range] = [(0, NUMBER_MASK)]
RANGES_IN_A_ROW = 256
"""Looked up before others get their turn."""
TRIES = 3
"""How often messages are looked for, when receivers have taken all that were found."""
UNIT_BYTES = 65_536
"""Of one operation that is billed."""


@dataclass(frozen=True, slots=True)
class BrowsedBlock:
    """Encoded messages, each after its length (u32)."""

    data: bytes
    count: int
    units: int
    """Operations that they count as."""
    next_number: int | None
    """Where to go on; None: the range is done."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a fragment has for a request: an answer that it gave before, or about so much that waits."""

    answer: Sequence[Range] | None
    count: int
    size_bytes: int


async def open_owner(fragment: Fragment, code: int, owner: str, wanted: int | None, max_owners: int) -> int:
    """A new epoch, or the one wanted unless the owner has a newer one already; returns the one it has."""
    operation = LedgerOperation(OPEN_OWNER, code, owner, OPERATOR if wanted is None else wanted)
    operation.max_owners = max_owners
    await _carry_out(fragment, operation)
    return int(operation.epoch)


def ledger_of(fragment: Fragment, code: int) -> Ledger:
    """Raises while the store is out: what is in memory may be what never became durable."""
    if fragment.failure is not None:
        raise anew(fragment.failure)
    return fragment.lane(code).ledger


def prospect(
    fragment: Fragment, code: int, owner: str, epoch: int, request: int, max_messages: int, up_to: int | None
) -> Prospect:
    lane = fragment.lane(code)
    known = ledger_of(fragment, code).find(owner, epoch)
    check_request(known, request)
    count, size_bytes = lane.available(max_messages, NUMBER_MASK if up_to is None else up_to)
    return Prospect(known.answer if known.request == request else None, count, size_bytes)


async def reserve(
    broker: MessageBroker,
    fragment: Fragment,
    code: int,
    owner: str,
    epoch: int,
    request: int,
    max_messages: int,
    max_bytes: int,
    up_to: int | None,
) -> Sequence[Range]:
    """Reserve waiting messages in order, a slice in each commit. With `max_messages` 0 the request is closed: whatever
    it has got here by now is all that it gets."""
    if max_messages == 0:
        closing = LedgerOperation(RESERVE, code, owner, epoch)
        closing.request = request
        closing.is_closing = True
        await _carry_out(fragment, closing)
        return closing.ranges
    wanted = Wanted(max_messages, max_bytes, NUMBER_MASK if up_to is None else up_to)
    for _ in range(TRIES):
        candidates = Candidates(broker, fragment, code, owner, wanted)
        ranges: Sequence[Range] = []
        has_found = False
        is_more = True
        while is_more:
            known = ledger_of(fragment, code).find(owner, epoch)
            check_request(known, request)
            is_noted = known.request == request and not ranges
            numbers = [] if is_noted else await candidates.following()
            if not numbers and not is_noted:
                break
            has_found = True
            operation = LedgerOperation(RESERVE, code, owner, epoch)
            operation.request = request
            operation.numbers = numbers
            operation.hashes = candidates.hashes
            operation.is_going_on = len(ranges) > 0
            await _carry_out(fragment, operation)
            candidates.passed.update(operation.passed)
            ranges = operation.ranges
            is_more = operation.is_open and len(ranges) < MAX_RANGES
        if ranges or not has_found or not is_more:
            return ranges
    return []


async def reserved(fragment: Fragment, code: int, owner: str, epoch: int | None) -> Sequence[Range]:
    operation = LedgerOperation(LOOK, code, owner, OPERATOR if epoch is None else epoch)
    await _carry_out(fragment, operation)
    return operation.ranges


async def complete(
    broker: MessageBroker, fragment: Fragment, code: int, owner: str, epoch: int, ranges: Sequence[Range]
) -> int:
    """Settle what this owner has reserved of these ranges; returns how many messages it were. That there is nothing
    to do is answered after a commit, too: somebody may have done it just now."""
    count = 0
    async for numbers in _Slices(fragment, code, owner, epoch, ranges):
        lane = fragment.lane(code)
        operation = LedgerOperation(COMPLETE, code, owner, epoch)
        operation.numbers = numbers
        operation.sizes = list(await sizes(broker, lane, numbers))
        overlays = await read_overlays(broker, int(fragment.key), code, numbers)
        among = set(numbers)
        operation.overlaid = {one.number: one.delivery_count for one in overlays if one.number in among}
        await _carry_out(fragment, operation)
        count += int(operation.count)
    if count == 0:
        await _carry_out(fragment, LedgerOperation(COMPLETE, code, owner, epoch))
    return count


async def release(fragment: Fragment, code: int, owner: str, epoch: int | None, ranges: Sequence[Range] | None) -> int:
    """Make what this owner has reserved of these ranges, or at all, available again, in its old place. Without an epoch
    it is the operator's word; all of it, and the owner is given up: whoever still uses it is refused from then on."""
    if epoch is None and ranges is None:
        return await _give_up(fragment, code, owner)
    operator_or_epoch = OPERATOR if epoch is None else epoch
    return await _hand_back(fragment, code, owner, operator_or_epoch, EVERY if ranges is None else ranges, False)


async def _give_up(fragment: Fragment, code: int, owner: str) -> int:
    """Refuse whoever uses it first, then hand back what it has by then. Somebody may open it again meanwhile, and is
    refused, too. What is damaged stays until it is taken out."""
    count = 0
    is_going_on = True
    while True:
        giving_up = LedgerOperation(GIVE_UP, code, owner, OPERATOR)
        await _carry_out(fragment, giving_up)
        if giving_up.count == 0 or not is_going_on:
            return count
        released = await _hand_back(fragment, code, owner, OPERATOR, EVERY, True)
        count += released
        is_going_on = released > 0


async def _hand_back(
    fragment: Fragment, code: int, owner: str, epoch: int, ranges: Sequence[Range], is_fencing: bool
) -> int:
    count = 0
    async for numbers in _Slices(fragment, code, owner, epoch, ranges):
        operation = LedgerOperation(RELEASE, code, owner, epoch)
        operation.numbers = numbers
        operation.is_fencing = is_fencing
        await _carry_out(fragment, operation)
        count += int(operation.count)
    if count == 0:
        await _carry_out(fragment, LedgerOperation(RELEASE, code, owner, epoch))
    return count


class _Slices:
    """The numbers that an owner has reserved of some ranges, slice by slice, as they are when each slice begins."""

    def __init__(self, fragment: Fragment, code: int, owner: str, epoch: int, ranges: Sequence[Range]) -> None:
        self._fragment = fragment
        self._code = code
        self._owner = owner
        self._epoch = epoch
        self._ranges = sorted(ranges)
        self._position = 0
        self._at = 0

    def __aiter__(self) -> _Slices:
        return self

    async def __anext__(self) -> list[int]:
        """Raises StaleEpoch, also when there is nothing to do."""
        found: list[int] = []
        owner = self._known()
        while owner is not None and self._position < len(self._ranges) and len(found) < SLICE:
            first, last = self._ranges[self._position]
            part = ledger_of(self._fragment, self._code).numbers(owner, max(first, self._at), last, SLICE - len(found))
            found += part
            if part:
                self._at = part[-1] + 1  # ranges may overlap
            if len(found) < SLICE:
                self._position += 1
                if self._position % RANGES_IN_A_ROW == 0:
                    await asyncio.sleep(0)
                    owner = self._known()
        if not found:
            raise StopAsyncIteration
        return found

    def _known(self) -> Owner | None:
        """None where nothing is left of it that an operator could mean."""
        ledger = ledger_of(self._fragment, self._code)
        if self._epoch == OPERATOR and self._owner not in ledger.owners:
            return None
        return ledger.find(self._owner, self._epoch)


def owners(fragment: Fragment, code: int) -> list[tuple[str, int, int]]:
    """Name, epoch and how many messages it has reserved, of each."""
    known = ledger_of(fragment, code).owners.values()
    return [(one.name, int(one.epoch), int(one.message_count)) for one in known]


def end(fragment: Fragment, code: int) -> int:
    """The last number that was given out; 0: none."""
    if fragment.failure is not None:
        raise anew(fragment.failure)
    return int(fragment.lane(code).visible_end) - 1


async def browse(
    broker: MessageBroker, fragment: Fragment, code: int, first: int, last: int, max_messages: int, max_bytes: int
) -> BrowsedBlock:
    """Live messages of a range, whatever their state, encoded as a peek gives them; at least one, if there is one."""
    at = max(first, 1)
    messages: list[Message] = []
    lane = fragment.lane(code)
    while not messages:
        numbers = numbers_to_show(lane, at, last, min(max_messages, BROWSE_SLICE), max_bytes)
        if not numbers:
            return BrowsedBlock(b"", 0, 0, None)
        records = list(await read_messages(broker, fragment, lane, numbers, max_bytes))
        if len(records) > 1 and size_of(records) > max_bytes:
            records.pop()  # it may be a large one
        at = numbers[len(records) - 1] + 1
        messages = shown(records)
        lane = fragment.lane(code)
    states = states_of(lane, messages)
    if UNKNOWN in states:
        states = [await state_of(broker, fragment, lane, message) for message in messages]
    data, units = encode_deliveries(messages, states, int(fragment.index) << NUMBER_BITS, UNIT_BYTES)
    following = lane.next_live(at, 1) if at <= last else []
    return BrowsedBlock(data, len(messages), units, at if following and following[0] <= last else None)


async def _carry_out(fragment: Fragment, operation: LedgerOperation) -> None:
    """Stage it, and wait until it is durable. Raises what it was refused with."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(_operation: LedgerOperation, error: BusError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    operation.reply = answered
    fragment.ask_ledger(operation)
    await done
