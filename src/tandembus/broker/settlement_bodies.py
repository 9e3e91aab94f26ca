"""Bodies that settlements need: what goes to the dead letters, or is changed, is written again from the message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tandembus.broker.locks import REMOVE, MessageLock
from tandembus.message import Message

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def take_needing_body(fragment: Fragment) -> list[MessageLock]:
    """Settlements that cannot be carried out without the message itself, up to one commit's worth."""
    taken: list[MessageLock] = []
    size: i64 = 0
    for lock in fragment.staged.needing_body:
        if taken and size + lock.size_bytes > fragment.settings.commit_bytes:
            break
        taken.append(lock)
        size += lock.size_bytes
    del fragment.staged.needing_body[: len(taken)]
    fragment.staged.awaiting_body = taken
    return taken


def bodies_arrived(fragment: Fragment, arrived: list[tuple[MessageLock, Message]], damaged: list[MessageLock]) -> None:
    """All that was asked for. What is damaged cannot be moved: the record is taken out, and the settlement counts
    as done."""
    fragment.staged.awaiting_body = []
    _join(arrived)
    fragment.staged.with_body += arrived
    for lock in damaged:
        lock.settlement = REMOVE
        fragment.staged.settled.append(lock)


def transaction_bodies_arrived(
    fragment: Fragment, arrived: list[tuple[MessageLock, Message]], damaged: list[MessageLock]
) -> None:
    _join(arrived)
    for lock in damaged:
        lock.settlement = REMOVE
    fragment.transactions.bodies_arrived(arrived)


def _join(arrived: list[tuple[MessageLock, Message]]) -> None:
    """What the messages have gained since their bodies were written is known to their locks."""
    for lock, message in arrived:
        message.delivery_count = lock.delivery_count
        message.application_properties = lock.application_properties
