"""Staging a transaction: every part is checked before any lock is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tandembus.broker.locks import REMOVE
from tandembus.broker.operations import SendOperation
from tandembus.broker.sessions import SESSION_LOST
from tandembus.broker.transactions import (
    MAX_MOVED_BYTES,
    PartReply,
    TransactionCancel,
    TransactionOperation,
    TransactionPart,
    TransactionSettlement,
    TransactionState,
)
from tandembus.errors import InvalidOperation, MessageNotFound, QuotaExceeded, SessionLockLost, StoreFull, anew
from tandembus.message_encoding import encode_changes
from tandembus.store.messaging_store import MAIN, NEVER

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def stage_transaction(fragment: Fragment, operation: TransactionOperation) -> None:
    """Stage all of a transaction, to be carried out in one commit. Raises when any part of it is refused: then
    nothing has happened, and every lock is as it was."""
    if operation.others:
        _stage_together(fragment, operation)
        return
    _check_moves([_check(fragment, operation)])
    _take(fragment, operation)
    fragment.transactions.staged.append(operation)
    fragment.stir()


def _stage_together(fragment: Fragment, operation: TransactionOperation) -> None:
    """Of several members of a topic's family. The topic's fragment has it, since none of the others outlives that."""
    head = fragment.topic or fragment
    own = TransactionPart(None, TransactionOperation(operation.sends, operation.settlements, PartReply()))
    own.fragment = fragment
    own.operation.cancels = operation.cancels
    own.operation.states = operation.states
    parts = [own, *operation.others]
    moved: list[tuple[int, int]] = []
    for part in parts:
        member = part.fragment
        if member is None or (member.topic or member) is not head:
            raise InvalidOperation("A transaction can be about one entity, or a topic and its subscriptions, only.")
        moved.append(_check(member, part.operation))
    _check_moves(moved)
    for part in parts:
        member = part.fragment
        assert member is not None
        _take(member, part.operation)
    head.transactions.staged.append(TransactionOperation([], [], operation.reply, parts))
    head.stir()


def _check(fragment: Fragment, operation: TransactionOperation) -> tuple[int, int]:
    """Raises when any part of it is refused. Returns how many messages it moves or changes, and their bytes."""
    if fragment.failure is not None:
        raise anew(fragment.failure)
    moved = _check_settlements(fragment, operation.settlements)
    _check_cancels(fragment, operation.cancels)
    _check_states(fragment, operation.states)
    if operation.sends:
        fragment.check_can_send(operation.size_bytes, False)
        for send in operation.sends:
            fragment.check_ids(send)
            fragment.check_messages(send)
            _check_promise(fragment, send.promised)
        _check_can_publish(fragment, operation.sends)
    return moved


def _check_moves(moved: list[tuple[int, int]]) -> None:
    count = size_bytes = 0
    for part_count, part_bytes in moved:
        count += part_count
        size_bytes += part_bytes
    if count > 1 and size_bytes > MAX_MOVED_BYTES:
        raise QuotaExceeded(f"A transaction can move or change at most {MAX_MOVED_BYTES} bytes of messages.")


def _take(fragment: Fragment, operation: TransactionOperation) -> None:
    """From here on its locks are taken."""
    for send in operation.sends:
        fragment.count_uncommitted(send.size_bytes, 1)
    for settlement in operation.settlements:
        if _decide_in_transaction(fragment, settlement):
            operation.needing_body.append(settlement.lock)
        else:
            operation.settled.append(settlement.lock)
    for cancel in operation.cancels:
        lock = fragment.lock_number(MAIN, cancel.number, cancel.size_bytes, NEVER)
        lock.is_scheduled = True
        fragment.decide(lock, REMOVE, None)
        operation.settled.append(lock)


def _check_cancels(fragment: Fragment, cancels: list[TransactionCancel]) -> None:
    numbers: set[int] = set()
    for cancel in cancels:
        is_again = int(cancel.number) in numbers
        numbers.add(int(cancel.number))
        if is_again or not fragment.main.is_resting(cancel.number):
            number = fragment.main.sequence_base | cancel.number
            raise MessageNotFound(f"There is no scheduled message with sequence number {number} any more.")


def _check_states(fragment: Fragment, states: list[TransactionState]) -> None:
    for change in states:
        lock = change.lock
        if lock is None or not lock.is_live(fragment.clock.monotonic()):
            raise SessionLockLost(SESSION_LOST)
        if change.state is not None and fragment.is_short_of_room:
            raise StoreFull(fragment.shortage)


def _check_promise(fragment: Fragment, numbers: list[int] | None) -> None:
    if numbers is None:
        return
    for number in numbers:
        if not fragment.main.is_promised(number):
            raise InvalidOperation("A scheduled message of the transaction has a number that is not its own.")


def _check_settlements(fragment: Fragment, settlements: list[TransactionSettlement]) -> tuple[int, int]:
    tokens: set[bytes] = set()
    moving_count: i64 = 0
    moving_bytes: i64 = 0
    for settlement in settlements:
        lock = settlement.lock
        fragment.check_can_settle(lock, settlement.settlement)
        settlement.encoded_changes = encode_changes(settlement.changes) if settlement.changes else None
        tokens.add(lock.token)
        if settlement.encoded_changes is not None or fragment.is_move(lock, settlement.settlement):
            moving_count += 1
            moving_bytes += lock.size_bytes
    if len(tokens) != len(settlements):
        raise InvalidOperation("A message is settled twice in the transaction.")
    return int(moving_count), int(moving_bytes)


def _check_can_publish(fragment: Fragment, sends: list[SendOperation]) -> None:
    fan_out = fragment.fan_out
    if fan_out is not None:
        for send in sends:
            for message in send.messages:
                if not send.is_via and not message.is_ping and send.promised is None:
                    fan_out.distribute(message, fragment.clock.now_ms(), True)


def _decide_in_transaction(fragment: Fragment, settlement: TransactionSettlement) -> bool:
    lock = settlement.lock
    lock.reason = settlement.reason
    lock.description = settlement.description
    lock.is_quiet = settlement.is_quiet
    lock.encoded_changes = settlement.encoded_changes
    return fragment.decide(lock, settlement.settlement, settlement.reply)
