"""What a fragment has staged becomes changes: numbered, written down as plain data, nothing of it visible yet.

Sends come behind everything else of all fragments, and apart: when the store is full they are left out, and the last
numbers given are theirs to give back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tandembus.broker.changes import (
    expiry_of,
    note_duplicate,
    note_published,
    write_activation,
    write_arrival,
    write_cancelled,
    write_dead_letter,
    write_gone,
    write_leaving,
    write_promised,
    write_settlement,
    write_via,
)
from tandembus.broker.locks import (
    DEAD_LETTER,
    EXPIRE,
    RELEASE,
    MessageLock,
)
from tandembus.broker.operations import SendOperation, StateOperation
from tandembus.broker.reserving import collect_ledger
from tandembus.broker.staged import Activation
from tandembus.broker.subscriptions import MAX_EVALUATIONS, Distribution, FanOut, with_its_session
from tandembus.errors import BusError
from tandembus.message import Message
from tandembus.message_encoding import application_properties_with
from tandembus.store.audit_trail import DEAD_LETTERED, DISTRIBUTED
from tandembus.store.messaging_store import MAIN, TRANSFER_DEAD_LETTER, Changes, SessionState

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def collect_all(fragments: list[Fragment], changes: Changes, arrivals: Changes) -> list[Fragment]:
    """What these fragments have staged. Everything is numbered first and the block records are written then: what one
    fragment collects may change another. Returns all that have a part in the commit."""
    for fragment in fragments:
        _collect(fragment, changes)
    fragments = _with_partners(fragments)
    for fragment in fragments:
        _collect_arrivals(fragment, arrivals)
    return emit_all(fragments, changes)


def emit_all(fragments: list[Fragment], changes: Changes) -> list[Fragment]:
    """Write down what collecting has changed in the lanes of these fragments and of all that have a part in their
    commit, which are returned."""
    involved = _with_partners(fragments)
    for fragment in involved:
        for lane in fragment.lanes:
            lane.emit(changes)
    return involved


def _with_partners(fragments: list[Fragment]) -> list[Fragment]:
    """These and all that have a part in their commit, and in turn the partners of those: a message may be forwarded to
    a topic, and so reach its subscriptions."""
    involved = dict.fromkeys(fragments)
    unasked = list(involved)
    while unasked:
        for partner in _take_partners(unasked.pop(0)):
            if partner not in involved:
                involved[partner] = None
                unasked.append(partner)
    return list(involved)


def _collect(fragment: Fragment, changes: Changes) -> None:
    """Number what is staged, but for sends, and write it down. What exceeds a commit's bounds waits for the
    next."""
    now_ms = arrival_time(fragment)
    _collect_settled(fragment, changes)
    _collect_with_body(fragment, changes)
    _collect_removals(fragment, changes)
    _collect_orphans(fragment, changes)
    _collect_activations(fragment, changes, now_ms)
    _collect_session_states(fragment, changes, True, now_ms)
    _collect_promises(fragment, changes)
    collect_ledger(fragment, changes)
    _collect_moves(fragment, changes)
    if fragment.duplicates is not None:
        fragment.duplicates.write_trim(changes)


def _collect_promises(fragment: Fragment, changes: Changes) -> None:
    staged = fragment.staged
    staged.committing_promises = staged.promises
    staged.promises = []
    for promise in staged.committing_promises:
        for session_id in promise.session_ids:
            promise.numbers.append(int(fragment.main.promise(session_id, changes)))


def _collect_orphans(fragment: Fragment, changes: Changes) -> None:
    """Messages of a topic that no subscription has any more, because one was deleted."""
    if not fragment.has_orphans_to_look_for():
        return
    lane = fragment.main
    for number in lane.orphans(fragment.orphans_from, fragment.settings.commit_operations):
        lane.settle(number, lane.typical_size(number), changes)
    fragment.orphans_from = lane.scanned_to


def _collect_arrivals(fragment: Fragment, arrivals: Changes) -> None:
    """Behind everything else of all fragments, and written down apart: so they can be left out when the store is
    full, and the last numbers given are theirs to give back."""
    _collect_sends(fragment, arrivals, arrival_time(fragment))
    _collect_session_states(fragment, arrivals, False, fragment.main.newest_enqueued_at)
    fragment.high_waters.write(arrivals)
    if fragment.duplicates is not None:
        fragment.duplicates.write_sends(arrivals)


def collect_transactions(fragment: Fragment, changes: Changes) -> None:
    """Number and write down every part of every transaction that was taken."""
    now_ms = arrival_time(fragment)
    states: dict[str, SessionState] = {}
    for operation in fragment.transactions.begin_commit():
        for lock in operation.settled:
            write_settlement(fragment.lane(lock.lane), lock, changes)
        fragment.staged.committing_locks += operation.settled
        for lock, message in operation.bodies:
            _write_with_body(fragment, lock, message, changes)
        for send in operation.sends:
            _write_send(fragment, send, False, changes, now_ms)
        fragment.staged.committing_sends += operation.sends
        for cancel in operation.cancels:
            write_cancelled(fragment.main, cancel.number, cancel.due_ms, changes)
        for change in operation.states:
            session_id = fragment.settings.key_of(change.session_id)
            states[session_id] = SessionState(int(fragment.key), session_id, change.state, int(now_ms))
        operation.reply.collected(operation)
    changes.session_states += list(states.values())
    if fragment.duplicates is not None:
        fragment.duplicates.write(changes)


def _collect_moves(fragment: Fragment, changes: Changes) -> None:
    for move in fragment.moves.begin_commit():
        lock, destination = move.lock, move.destination
        fragment.staged.committing_locks.append(lock)
        if destination is None:
            lock.removal = DEAD_LETTERED
            write_gone(fragment.lane(lock.lane), lock, changes)
            refused = write_dead_letter(fragment.lanes[TRANSFER_DEAD_LETTER], lock, move.message, changes)
            fragment.moves.committing_refused.append(refused)
        elif destination.is_void or destination.is_closed:
            lock.settlement = RELEASE  # gone since it was found: it is looked for again
        else:
            write_gone(fragment.lane(lock.lane), lock, changes)
            take_in(destination, move.message, changes, destination is fragment or destination is fragment.topic)
            fragment.partners.append(destination)
    for partner in fragment.partners:
        if partner.duplicates is not None:
            partner.duplicates.write(changes)


def take_in(fragment: Fragment, message: Message, changes: Changes, is_back: bool) -> None:
    """A message arrives from another entity, in the commit that takes it from there. One that is back in the fragment
    that it came through is no duplicate of itself."""
    now_ms, fan_out = arrival_time(fragment), fragment.fan_out
    fragment.taken_in_count += 1
    if not is_back and fragment.is_duplicate(message):
        note_duplicate(fragment.main, message, changes)
        return
    if fan_out is None:
        write_arrival(fragment.main, message, now_ms, fragment.settings.default_ttl_ms, changes)
        fragment.staged.committing_arrivals.append(message)
    elif message.scheduled_at > now_ms:
        write_arrival(fragment.main, message, now_ms, fragment.settings.default_ttl_ms, changes)
        fan_out.note(fragment.main, message)
    else:
        distribution = fan_out.distribute(message, now_ms, False)
        fan_out.give(
            message, distribution, now_ms, expiry_of(message, now_ms, fragment.settings.default_ttl_ms), changes
        )
        note_published(fragment.main, message, distribution.copies(), changes)
    if fan_out is not None:
        fan_out.begin_sends()  # what has arrived so is not among what can be left out


def _take_partners(fragment: Fragment) -> list[Fragment]:
    """Other fragments that what was collected has changed, too: they belong to the same commit."""
    partners = fragment.partners
    fragment.partners = []
    if fragment.topic is not None:
        partners.append(fragment.topic)
    if fragment.fan_out is not None:
        partners += fragment.fan_out.touched()
    return partners


def _collect_settled(fragment: Fragment, changes: Changes) -> None:
    most = fragment.settings.commit_operations
    locks = fragment.staged.settled[:most]
    del fragment.staged.settled[:most]
    for lock in locks:
        write_settlement(fragment.lane(lock.lane), lock, changes)
        if lock.reply is not None:
            lock.reply.collected(lock)
    fragment.staged.committing_locks = locks


def _collect_with_body(fragment: Fragment, changes: Changes) -> None:
    for lock, message in fragment.staged.with_body:
        _write_with_body(fragment, lock, message, changes)
        if lock.reply is not None:
            lock.reply.collected(lock)
    fragment.staged.with_body = []


def _write_with_body(fragment: Fragment, lock: MessageLock, message: Message, changes: Changes) -> None:
    encoded_changes = lock.encoded_changes
    if encoded_changes is not None:
        _change_properties(fragment, lock, message, encoded_changes)
    if lock.settlement == DEAD_LETTER or lock.settlement == EXPIRE:
        lock.removal = DEAD_LETTERED
        write_gone(fragment.main, lock, changes)
        fragment.staged.committing_dead.append(write_dead_letter(fragment.dead_letter, lock, message, changes))
    else:
        write_settlement(fragment.lane(lock.lane), lock, changes)
    fragment.staged.committing_locks.append(lock)


def _change_properties(
    fragment: Fragment, lock: MessageLock, message: Message, encoded_changes: dict[bytes, bytes]
) -> None:
    """A message may not outgrow its limit change by change: then it is a dead letter, as it was before."""
    properties = application_properties_with(message, encoded_changes)
    if i64(len(properties)) <= fragment.settings.max_properties_bytes:
        lock.application_properties = properties
        message.application_properties = properties
    elif lock.lane == MAIN:
        lock.settlement = DEAD_LETTER
        lock.reason = "HeaderSizeExceeded"
        lock.description = f"The application properties would exceed {fragment.settings.max_properties_bytes} bytes."


def _collect_removals(fragment: Fragment, changes: Changes) -> None:
    removals = fragment.take_removals()
    for removal in removals:
        write_gone(fragment.lane(removal.lock.lane), removal.lock, changes)
    fragment.staged.committing_removals = removals


def _collect_activations(fragment: Fragment, changes: Changes, now_ms: i64) -> None:
    staged, fan_out = fragment.staged, fragment.fan_out
    count = 0
    for activation in staged.activations:
        if count > 0 and fan_out is not None and fan_out.evaluation_count >= MAX_EVALUATIONS:
            break
        count += 1
        staged.activating_bytes -= len(activation.message.sections)
        staged.committing_locks.append(activation.lock)
        if fan_out is not None:
            _publish_activated(fragment, fan_out, activation, now_ms, changes)
        else:
            arrived = write_activation(fragment.main, activation.message, activation.due_ms, now_ms, changes)
            staged.committing_arrivals.append(arrived)
    del staged.activations[:count]


def _publish_activated(
    fragment: Fragment, fan_out: FanOut, activation: Activation, now_ms: i64, changes: Changes
) -> None:
    """The rules of now decide, not those of when it was scheduled."""
    left = write_leaving(fragment.main, activation.message, activation.due_ms, now_ms, DISTRIBUTED, changes)
    message = with_its_session(left)
    distribution = fan_out.distribute(message, now_ms, False)
    fan_out.give(message, distribution, now_ms, message.expires_at, changes)


def _collect_sends(fragment: Fragment, changes: Changes, now_ms: i64) -> None:
    fan_out = fragment.fan_out
    if fan_out is not None:
        fan_out.begin_sends()
    count = 0
    size: i64 = 0
    for operation in fragment.staged.sends:
        if count > 0 and _is_enough(fragment, count, size + operation.size_bytes):
            break
        count += 1
        size += operation.size_bytes
        _write_send(fragment, operation, operation.source is None, changes, now_ms)
        if operation.error is None:
            fragment.high_waters.take(operation, now_ms)
            operation.reply.collected(operation)
    fragment.staged.committing_sends = fragment.staged.sends[:count]
    del fragment.staged.sends[:count]


def _collect_session_states(fragment: Fragment, changes: Changes, is_clearing: bool, now_ms: i64) -> None:
    """The latest of each session. One that is cleared frees room, and so is never left out."""
    if not fragment.staged.session_states:
        return
    latest: dict[str, StateOperation] = {}
    for operation in fragment.staged.session_states:
        latest[operation.session_id] = operation
    for session_id in latest:
        state = latest[session_id].state
        if (state is None) == is_clearing:
            changes.session_states.append(SessionState(int(fragment.key), session_id, state, int(now_ms)))
    if not is_clearing:
        fragment.staged.committing_states = fragment.staged.session_states
        fragment.staged.session_states = []


def _write_send(
    fragment: Fragment, operation: SendOperation, is_refusable: bool, changes: Changes, now_ms: i64
) -> None:
    fan_out = fragment.fan_out
    messages = fragment.high_waters.new_ones(operation)
    if operation.promised is not None:
        _write_promised(fragment, messages, operation.promised, now_ms, changes)
        return
    if fan_out is not None and not operation.is_via:
        _publish(fragment, fan_out, operation, messages, is_refusable, now_ms, changes)
        return
    for message in messages:
        if message.is_ping:
            continue
        if operation.is_via:
            write_via(fragment.transfer, message, now_ms, changes)
        elif fragment.is_duplicate(message):
            message.number = 0
            note_duplicate(fragment.main, message, changes)
        else:
            write_arrival(fragment.main, message, now_ms, fragment.settings.default_ttl_ms, changes)


def _write_promised(
    fragment: Fragment, messages: list[Message], numbers: list[int], now_ms: i64, changes: Changes
) -> None:
    for position in range(len(messages)):
        message = messages[position]
        if message.is_ping:
            continue
        if fragment.is_duplicate(message):
            message.number = 0
            note_duplicate(fragment.main, message, changes)
        else:
            ttl_ms = fragment.settings.default_ttl_ms
            write_promised(fragment.main, message, numbers[position], now_ms, ttl_ms, changes)


def _is_enough(fragment: Fragment, count: int, size: i64) -> bool:
    settings, fan_out = fragment.settings, fragment.fan_out
    if count >= settings.commit_operations or size > settings.commit_bytes:
        return True
    return fan_out is not None and fan_out.evaluation_count >= MAX_EVALUATIONS


def _publish(
    fragment: Fragment,
    fan_out: FanOut,
    operation: SendOperation,
    messages: list[Message],
    is_refusable: bool,
    now_ms: i64,
    changes: Changes,
) -> None:
    """A batch is refused or given as a whole, so all of it is evaluated before anything is written."""
    distributions: list[Distribution] = []
    try:
        for message in messages:
            if not message.is_ping and message.scheduled_at <= now_ms:
                distributions.append(fan_out.distribute(message, now_ms, is_refusable))
    except BusError as error:
        operation.error = error
        return
    position = 0
    for message in messages:
        if message.is_ping:
            continue
        is_scheduled = message.scheduled_at > now_ms
        if fragment.is_duplicate(message):
            position += 0 if is_scheduled else 1
            note_duplicate(fragment.main, message, changes)
        elif is_scheduled:
            write_arrival(fragment.main, message, now_ms, fragment.settings.default_ttl_ms, changes)
            fan_out.note(fragment.main, message)
        else:
            expires_at = expiry_of(message, now_ms, fragment.settings.default_ttl_ms)
            fan_out.give(message, distributions[position], now_ms, expires_at, changes)
            note_published(fragment.main, message, distributions[position].copies(), changes)
            position += 1


def arrival_time(fragment: Fragment) -> i64:
    """What arrives now has come at this time: never before what came earlier, whatever the clock says."""
    main = fragment.main
    main.newest_enqueued_at = max(main.newest_enqueued_at, i64(fragment.clock.now_ms()))
    if fragment.duplicates is not None:
        fragment.duplicates.begin(main.newest_enqueued_at, fragment.settings.duplicate_window_ms)
    return main.newest_enqueued_at
