"""Reservations in a commit: carried out with everything else that is collected, answered and made available with it.

A reserved message is parked like a deferred one, so receivers, sweeps and deletions pass it by; whose it is stands in
the ledger. Nothing here waits or reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from tandembus.broker.changes import note_closing
from tandembus.broker.lane import Lane
from tandembus.broker.ledger import NO_REQUEST, Owner, check_request
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
from tandembus.broker.session_locks import lapse_sessions
from tandembus.broker.sessions import SessionIndex
from tandembus.errors import BusError
from tandembus.message import IS_SCHEDULED, Message
from tandembus.store.audit_trail import COMPLETED
from tandembus.store.messaging_store import ACTIVE, DEFERRED, MAIN, NUMBER_MASK, Changes, Damage, Place

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment

UNKNOWN: Final = -1
SPARE_NUMBERS: Final = 8
"""Looked up beyond what should fit: sizes differ."""
MAX_RANGES: Final = 4096
"""Of one answer. What is reserved beyond that many waits for the next request: an answer is remembered."""


def collect_ledger(fragment: Fragment, changes: Changes) -> None:
    operations = fragment.staged.ledger
    if not operations:
        return
    fragment.staged.ledger = []
    for operation in operations:
        try:
            _carry_out(fragment, operation, changes)
        except BusError as error:
            operation.error = error
    fragment.staged.committing_ledger = operations


def apply_ledger(fragment: Fragment) -> None:
    """The commit is durable."""
    for operation in fragment.staged.committing_ledger:
        is_ending = operation.kind == RELEASE or operation.kind == COMPLETE
        if is_ending and operation.error is None and operation.numbers:
            _end_reservations(fragment, operation)
        operation.answer(operation.error)


def _carry_out(fragment: Fragment, operation: LedgerOperation, changes: Changes) -> None:
    """Raises before anything has changed."""
    lane = fragment.lane(operation.lane)
    kind = operation.kind
    if kind == OPEN_OWNER:
        _open(fragment, lane, operation)
        return
    if operation.epoch == OPERATOR and operation.owner not in lane.ledger.owners:
        operation.numbers = []
        return  # nothing is left of it
    owner = lane.ledger.find(operation.owner, operation.epoch)
    if kind == RESERVE:
        _reserve(fragment, lane, owner, operation)
    elif kind == LOOK:
        operation.ranges = ranges_of(lane, lane.ledger.numbers(owner, 0, NUMBER_MASK, NUMBER_MASK))
        operation.count = owner.message_count
    elif kind == COMPLETE:
        _complete(lane, owner, operation, changes)
    elif kind == RELEASE:
        _release(fragment, lane, owner, operation)
    elif kind == GIVE_UP:
        _give_up(fragment, lane, owner, operation)


def _open(fragment: Fragment, lane: Lane, operation: LedgerOperation) -> None:
    owner = lane.ledger.open(operation.owner, operation.max_owners)
    if operation.epoch == OPERATOR:
        _begin_epoch(lane, owner, _next_epoch(fragment, owner))
    elif operation.epoch > owner.epoch:
        _begin_epoch(lane, owner, operation.epoch)
    operation.epoch = owner.epoch


def _next_epoch(fragment: Fragment, owner: Owner) -> i64:
    """Not before the time: an owner that is given up and opened again must not meet an epoch of its earlier life."""
    return max(owner.epoch + 1, i64(fragment.clock.now_ms()))


def _begin_epoch(lane: Lane, owner: Owner, epoch: i64) -> None:
    owner.epoch = epoch
    owner.request = NO_REQUEST
    owner.answer = []
    owner.is_open = False
    lane.ledger.change(owner)


def _reserve(fragment: Fragment, lane: Lane, owner: Owner, operation: LedgerOperation) -> None:
    """A request that somebody asks for once more, be it while it is carried out, is closed and keeps its answer."""
    check_request(owner, operation.request)
    is_known = operation.request == owner.request
    if is_known and not (operation.is_going_on and owner.is_open):
        owner.is_open = False
        operation.ranges = list(owner.answer)
        return
    sessions = fragment.sessions if lane.code == MAIN else None
    if sessions is not None:
        lapse_sessions(fragment)
    answer = list(owner.answer) if is_known else []
    taken = _take(lane, owner, operation, sessions, answer)
    operation.is_open = not operation.is_closing
    operation.ranges = answer
    if taken or operation.is_closing:
        owner.request = operation.request
        owner.answer = answer
        owner.is_open = operation.is_open
        lane.ledger.change(owner)


def _take(
    lane: Lane,
    owner: Owner,
    operation: LedgerOperation,
    sessions: SessionIndex | None,
    answer: list[tuple[int, int]],
) -> bool:
    """Adds to the answer. Reading took its time: what somebody else has by now is left to them, and so are the sessions
    they hold."""
    is_any = False
    for one in operation.numbers:
        number: i64 = one
        if not lane.is_waiting(number):
            continue
        hash_of_id = operation.hashes.get(one)
        if sessions is not None and hash_of_id is not None and not sessions.can_reserve(hash_of_id, owner.name):
            operation.passed.append(hash_of_id)
            continue
        if not _add_to(lane, answer, number):
            break
        is_any = True
        lane.park(number, True)
        lane.ledger.add(owner, number)
        if sessions is not None and hash_of_id is not None:
            sessions.reserved.add(one, hash_of_id, owner.name)
    if is_any and lane.ready:
        lane.is_thinned = True
    return is_any


def _complete(lane: Lane, owner: Owner, operation: LedgerOperation, changes: Changes) -> None:
    """Not what is held: it was found damaged, and is on its way out."""
    ledger = lane.ledger
    completed: list[int] = []
    for position in range(len(operation.numbers)):
        one = operation.numbers[position]
        number: i64 = one
        if not ledger.has(owner, number) or one in lane.held:
            continue
        ledger.remove(owner, number)
        lane.unpark(number, True)
        size: i64 = operation.sizes[position]
        lane.settle(number, size if size > 0 else lane.typical_size(number), changes)
        completed.append(int(number))
        delivery_count: i64 = 0
        if operation.overlaid and int(number) in operation.overlaid:
            delivery_count = operation.overlaid[int(number)]
            changes.dropped_overlays.append(Place(int(lane.fragment), int(lane.code), int(number)))
        if changes.audit is not None:
            note_closing(lane, COMPLETED, number, delivery_count, changes)
    operation.numbers = completed
    operation.count = len(completed)
    ledger.touch(owner)


def _release(fragment: Fragment, lane: Lane, owner: Owner, operation: LedgerOperation) -> None:
    ledger = lane.ledger
    if operation.is_fencing:
        _begin_epoch(lane, owner, _next_epoch(fragment, owner))
    released: list[int] = []
    block: i64 = -1
    now_ms: i64 = fragment.clock.now_ms()
    for one in operation.numbers:
        number: i64 = one
        if not ledger.has(owner, number) or one in lane.held:
            continue
        ledger.remove(owner, number)
        lane.unpark(number, True)
        released.append(one)
        if lane.code == MAIN and number // lane.block_size != block:
            # Their time to live counts again, and nobody has noted it meanwhile: a sweep looks at once.
            block = number // lane.block_size
            lane.expire_from(number, now_ms)
    operation.numbers = released
    operation.count = len(released)
    ledger.touch(owner)


def _give_up(fragment: Fragment, lane: Lane, owner: Owner, operation: LedgerOperation) -> None:
    """Forget the owner, or refuse whoever uses it: what it has got just now is handed back next."""
    operation.count = owner.message_count
    if owner.message_count == 0:
        lane.ledger.forget(owner)
    else:
        _begin_epoch(lane, owner, _next_epoch(fragment, owner))


def _end_reservations(fragment: Fragment, operation: LedgerOperation) -> None:
    lane, is_back = fragment.lane(operation.lane), operation.kind == RELEASE
    if lane.code == MAIN and fragment.sessions is not None:
        for number in operation.numbers:
            fragment.sessions.end_reservation(number, is_back)
    elif is_back and lane.reading:
        for number in operation.numbers:
            lane.give_back(number)
    elif is_back:
        lane.rewind(operation.numbers[0])


def ranges_of(lane: Lane, numbers: list[int]) -> list[tuple[int, int]]:
    """As ranges, over what is gone for good: between two numbers of a range there is nothing of anybody else."""
    ranges: list[tuple[int, int]] = []
    first: i64 = -1
    last: i64 = -1
    for one in numbers:
        number: i64 = one
        if first >= 0 and _follows(lane, last, number):
            last = number
            continue
        if first >= 0:
            ranges.append((int(first), int(last)))
        first = number
        last = number
    if first >= 0:
        ranges.append((int(first), int(last)))
    return ranges


def _add_to(lane: Lane, ranges: list[tuple[int, int]], number: i64) -> bool:
    """One more number. Returns False where there are too many ranges already."""
    if ranges:
        first, last = ranges[-1]
        if _follows(lane, last, number):
            ranges[-1] = (first, int(number))
            return True
    if len(ranges) >= MAX_RANGES:
        return False
    ranges.append((int(number), int(number)))
    return True


def _follows(lane: Lane, last: i64, number: i64) -> bool:
    """Whether no live number lies between."""
    if number == last + 1:
        return True
    found = lane.scan(last + 1, 1, False)
    return len(found) > 0 and found[0] == number


def numbers_to_show(lane: Lane, at: i64, last: i64, most: i64, max_bytes: i64) -> list[int]:
    """Live numbers of a range, as many as about fit into so many bytes: no more are looked up than are read."""
    found = lane.scan(at, 1, False)
    if not found or found[0] > last:
        return []
    typical = max(lane.typical_size(found[0]), i64(1))
    numbers = lane.scan(at, min(most, max_bytes // typical + SPARE_NUMBERS), False)
    while numbers[-1] > last:
        numbers.pop()
    return numbers


def size_of(records: list[Message | Damage]) -> int:
    size: i64 = 0
    for record in records:
        if isinstance(record, Message):
            size += len(record.sections)
    return int(size)


def shown(records: list[Message | Damage]) -> list[Message]:
    """What can be browsed of what was read."""
    messages: list[Message] = []
    for record in records:
        if isinstance(record, Message):
            if record.flags & IS_SCHEDULED:
                record.expires_at = 0  # it holds the time to live until the message is activated
            messages.append(record)
    return messages


def states_of(lane: Lane, messages: list[Message]) -> list[int]:
    """Active or, as it shows, deferred; `UNKNOWN` for what is parked and reserved by nobody."""
    states: list[int] = []
    for message in messages:
        number = message.number
        if not lane.is_parked(number):
            states.append(ACTIVE)
        else:
            states.append(DEFERRED if lane.is_reserved(number) else UNKNOWN)
    return states
