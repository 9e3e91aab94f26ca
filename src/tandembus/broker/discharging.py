"""Staging a transaction: every part is checked before any lock is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tandembus.broker.operations import SendOperation
from tandembus.broker.transactions import MAX_MOVED_BYTES, TransactionOperation, TransactionSettlement
from tandembus.errors import InvalidOperation, QuotaExceeded, anew
from tandembus.message_encoding import encode_changes

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def stage_transaction(fragment: Fragment, operation: TransactionOperation) -> None:
    """Stage all of a transaction, to be carried out in one commit. Raises when any part of it is refused: then
    nothing has happened, and every lock is as it was."""
    if fragment.failure is not None:
        raise anew(fragment.failure)
    _check_settlements(fragment, operation.settlements)
    if operation.sends:
        fragment.check_can_send(operation.size_bytes, False)
        for send in operation.sends:
            fragment.check_ids(send)
            fragment.check_messages(send)
        _check_can_publish(fragment, operation.sends)
    fragment.uncommitted_bytes += operation.size_bytes
    fragment.budget.uncommitted_bytes += operation.size_bytes
    for settlement in operation.settlements:
        if _decide_in_transaction(fragment, settlement):
            operation.needing_body.append(settlement.lock)
        else:
            operation.settled.append(settlement.lock)
    fragment.transactions.staged.append(operation)
    fragment.stir()


def _check_settlements(fragment: Fragment, settlements: list[TransactionSettlement]) -> None:
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
    if moving_count > 1 and moving_bytes > MAX_MOVED_BYTES:
        raise QuotaExceeded(f"A transaction can move or change at most {MAX_MOVED_BYTES} bytes of messages.")


def _check_can_publish(fragment: Fragment, sends: list[SendOperation]) -> None:
    fan_out = fragment.fan_out
    if fan_out is not None:
        for send in sends:
            for message in send.messages:
                if not send.is_via and not message.is_ping:
                    fan_out.distribute(message, fragment.clock.now_ms(), True)


def _decide_in_transaction(fragment: Fragment, settlement: TransactionSettlement) -> bool:
    lock = settlement.lock
    lock.reason = settlement.reason
    lock.description = settlement.description
    lock.is_quiet = settlement.is_quiet
    lock.encoded_changes = settlement.encoded_changes
    return fragment.decide(lock, settlement.settlement, settlement.reply)
