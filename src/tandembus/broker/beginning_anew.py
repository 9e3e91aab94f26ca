"""Fragments whose store was lost begin anew under the same key, but not with the same numbers.

A number is never given twice: clients remember them, and a fragment in another store that has taken what was forwarded
to it up to some number would take a new message for one that it has. How far the lost fragment had come nobody knows,
so its numbers go on from the time: no fragment gives out `NUMBERS_PER_S` of them in every second of its life.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tandembus.store.messaging_store import BITS_BYTES, BLOCK_SIZE, LANES, NEVER, BlockRecord, Changes, FragmentHead

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

NUMBERS_PER_S: Final = 1 << 16
FIRST_S: Final = 1_577_836_800
"""The beginning of 2020; counted from there, 48 bits last for 136 years."""


def first_number(now_ms: int) -> int:
    return max(now_ms // 1000 - FIRST_S, 0) * NUMBERS_PER_S


async def begin_anew(broker: MessageBroker, heads: Sequence[FragmentHead]) -> None:
    """Durably. A fragment of which only the head is gone keeps what it has."""
    changes = Changes()
    changes.heads.extend(heads)
    block = first_number(broker.clock.now_ms()) // BLOCK_SIZE
    for head in heads:
        if not any([await broker.store.blocks(head.fragment, lane) for lane in LANES]):
            changes.blocks += [_nothing_given(head.fragment, lane, block) for lane in LANES]
    await broker.commit_alone(changes)


def _nothing_given(fragment: int, lane: int, block: int) -> BlockRecord:
    bits = bytes(BITS_BYTES)
    return BlockRecord(fragment, lane, block, 0, bits, bits, 0, 0, 0, 0, NEVER)
