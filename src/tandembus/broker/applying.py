"""The end of a commit: what it held is answered and made available; or its sends are refused, as the store is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandembus.broker.locks import (
    ABANDON,
    COMPLETE,
    EXPIRE,
    LAPSE,
    MessageLock,
    gives_back,
)
from tandembus.broker.operations import Consumer, PromiseOperation, SendOperation
from tandembus.broker.reserving import apply_ledger
from tandembus.errors import BusError
from tandembus.message import IS_SCHEDULED, Message
from tandembus.store.messaging_store import MAIN, TRANSFER_DEAD_LETTER, Changes

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def apply_all(fragments: list[Fragment]) -> None:
    """The commit is durable: what it numbered may be seen, in all of its fragments before any of them answers."""
    for fragment in fragments:
        _show(fragment)
    for fragment in fragments:
        _applied(fragment)


def _show(fragment: Fragment) -> None:
    for lane in fragment.lanes:
        lane.show()
    _count(fragment)
    topic = fragment.topic
    if topic is not None:
        size = fragment.live_bytes() - fragment.main.live_bytes
        topic.subscription_bytes += size - fragment.counted_bytes
        fragment.counted_bytes = size


def _count(fragment: Fragment) -> None:
    figures, main, dead_letter = fragment.figures, fragment.main, fragment.dead_letter
    figures.arrived += main.given_count
    figures.gone += main.settled_count
    figures.dead_lettered += dead_letter.given_count
    main.given_count = 0
    main.settled_count = 0
    dead_letter.given_count = 0


def _applied(fragment: Fragment) -> None:
    """Answer, make available."""
    settings = fragment.settings
    for promise in fragment.staged.committing_promises:
        _promised(fragment, promise)
    for lock in fragment.staged.committing_locks:
        _finish(fragment, lock)
    for removal in fragment.staged.committing_removals:
        lane = fragment.lane(removal.lock.lane)
        lane.held.pop(int(removal.lock.number), None)
        fragment.locks.forget(removal.lock)
        if fragment.sessions is not None:
            fragment.sessions.ended(removal.lock, False)
        removal.consumer.removing_count -= 1
        removal.consumer.deliver(removal.message, removal.lock)
    for arrived in fragment.staged.committing_arrivals:
        _enter_arrived(fragment, arrived)
    for refused in fragment.moves.committing_refused:
        fragment.lanes[TRANSFER_DEAD_LETTER].enter(refused, settings.window_messages, settings.window_bytes)
    for dead in fragment.staged.committing_dead:
        if not settings.forward_dead_letters_to:
            fragment.dead_letter.enter(dead, settings.window_messages, settings.window_bytes)
    if fragment.fan_out is not None:
        fragment.fan_out.applied()
    for operation in fragment.staged.committing_sends:
        _committed(fragment, operation)
        _enter_sent(fragment, operation)
        operation.reply.sent(operation, operation.error)
    for state in fragment.staged.committing_states:
        state.reply(None)
    apply_ledger(fragment)
    _flush_removals(fragment)
    forget_commit(fragment)
    for transaction in fragment.transactions.end_commit():
        transaction.reply.discharged(transaction, None)


def _promised(fragment: Fragment, promise: PromiseOperation) -> None:
    for number in promise.numbers:
        if fragment.main.window_end == number:
            fragment.main.window_end += 1
    promise.reply(None)


def _enter_sent(fragment: Fragment, operation: SendOperation) -> None:
    """Pings and duplicates were never stored. What was sent via this entity is received elsewhere, and what was sent to
    a topic its subscriptions have."""
    if operation.is_via or fragment.fan_out is not None:
        return
    for message in operation.messages:
        if message.number != 0:
            _enter_arrived(fragment, message)


def _enter_arrived(fragment: Fragment, message: Message) -> None:
    if message.flags & IS_SCHEDULED == 0:
        fragment.enter(message)
    elif fragment.main.window_end == message.number:
        fragment.main.window_end += 1


def _committed(fragment: Fragment, operation: SendOperation) -> None:
    fragment.count_uncommitted(operation.size_bytes, -1)


def _flush_removals(fragment: Fragment) -> None:
    last: Consumer | None = None
    for removal in fragment.staged.committing_removals:
        if removal.consumer is not last:
            last = removal.consumer
            last.flush()


def _finish(fragment: Fragment, lock: MessageLock) -> None:
    lane = fragment.lane(lock.lane)
    lane.held.pop(int(lock.number), None)
    fragment.locks.forget(lock)
    is_back = gives_back(lock)
    if fragment.sessions is not None and lock.lane == MAIN:
        fragment.sessions.ended(lock, is_back)
        if lock.is_damaged:
            fragment.sessions.end_reservation(lock.number, False)
    elif is_back:
        lane.give_back(lock.number)
    if lock.settlement != COMPLETE:
        _count_failure(fragment, lock)
    reply = lock.reply
    if reply is not None:
        reply.settled(lock, None)


def _count_failure(fragment: Fragment, lock: MessageLock) -> None:
    if lock.settlement == EXPIRE:
        fragment.figures.expired += 1
    elif lock.settlement == ABANDON or lock.settlement == LAPSE:
        fragment.figures.redelivered += 1


def forget_commit(fragment: Fragment) -> None:
    fragment.staged.forget_commit()
    fragment.moves.committing_refused = []
    fragment.taken_in_count = 0
    fragment.high_waters.committed()
    if fragment.duplicates is not None:
        fragment.duplicates.committed()


def refuse_sends(fragment: Fragment, changes: Changes, error: BusError) -> None:
    """The store is full: the same commit again without what grows. Nobody has seen the sends' numbers."""
    _take_back_sends(fragment, changes)
    fragment.high_waters.take_back()
    if fragment.duplicates is not None:
        fragment.duplicates.refuse_sends()
    refused = fragment.staged.committing_sends
    fragment.staged.committing_sends = []
    for operation in refused:
        _committed(fragment, operation)
        operation.reply.sent(operation, error)
    _refuse_states(fragment, error)


def _refuse_states(fragment: Fragment, error: BusError) -> None:
    """Only the last state of each session is written: if that one is refused, so are all before it."""
    cleared: dict[str, bool] = {}
    for state in fragment.staged.committing_states:
        cleared[state.session_id] = state.state is None
    states = fragment.staged.committing_states
    fragment.staged.committing_states = []
    for state in states:
        if cleared[state.session_id]:
            fragment.staged.committing_states.append(state)
        else:
            state.reply(error)


def _take_back_sends(fragment: Fragment, changes: Changes) -> None:
    if fragment.fan_out is not None:
        fragment.fan_out.take_back_sends(changes)
    for operation in reversed(fragment.staged.committing_sends):
        if fragment.fan_out is not None and not operation.is_via:
            continue
        lane = fragment.transfer if operation.is_via else fragment.main
        for message in reversed(operation.messages):
            if message.number != 0:
                lane.take_back_number(message.number, len(message.sections))
    fragment.main.emit_again(changes)
    fragment.transfer.emit_again(changes)
