"""Records to store, and their content as plain tuples, so that two of them can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tandembus.message import Message, stored_message
from tandembus.store.messaging_store import (
    BITS_BYTES,
    NEVER,
    BlockRecord,
    Changes,
    Damage,
    Due,
    FragmentHead,
    HighWater,
    HistoryRecord,
    Mark,
    Overlay,
    PutBody,
    SessionState,
)
from tandembus.store.owner_records import OwnerRecord, ReservedRecord

NOW_MS = 1_700_000_000_000
FRAGMENT = 7


def message(number: int, size_bytes: int = 100, expires_at: int = NEVER) -> Message:
    """Each number has its own content, so that a mix-up shows."""
    sections = (number.to_bytes(8, "big") * (size_bytes // 8 + 1))[:size_bytes]
    ends = (size_bytes // 4, size_bytes // 2, size_bytes // 2)
    return stored_message(number, NOW_MS + number, expires_at, number, 1, 2, 4, *ends, sections)


def sends(
    numbers: Iterable[int],
    fragment: int = FRAGMENT,
    lane: int = 0,
    size_bytes: int = 100,
    expires_at: int = NEVER,
) -> Changes:
    changes = Changes()
    changes.bodies = [PutBody(fragment, lane, message(number, size_bytes, expires_at)) for number in numbers]
    return changes


def block(number: int, fragment: int = FRAGMENT, lane: int = 0, given: int = 500) -> BlockRecord:
    settled = bytes(i % 7 for i in range(BITS_BYTES))
    parked = bytes(i % 5 for i in range(BITS_BYTES))
    return BlockRecord(fragment, lane, number, given, settled, parked, 300, 20, 10, 1 << 33, NOW_MS + 5)


def body_content(body: Message | Damage) -> tuple[object, ...]:
    if isinstance(body, Damage):
        return ("damage", body.number, body.is_missing)
    return (
        body.number,
        body.enqueued_at,
        body.expires_at,
        body.original_number,
        body.hops,
        body.flags,
        body.priority,
        body.annotations_end,
        body.properties_end,
        body.application_end,
        body.sections,
    )


def block_content(record: BlockRecord) -> tuple[object, ...]:
    return (
        record.fragment,
        record.lane,
        record.block,
        record.given,
        record.settled,
        record.parked,
        record.live_count,
        record.deferred_count,
        record.scheduled_count,
        record.live_bytes,
        record.earliest_expiry,
    )


def overlay_content(overlay: Overlay) -> tuple[object, ...]:
    place = (overlay.fragment, overlay.lane, overlay.number)
    return (*place, overlay.state, overlay.delivery_count, overlay.application_properties)


def head_content(head: FragmentHead) -> tuple[object, ...]:
    return (head.fragment, head.incarnation, head.index, head.is_dropping)


def state_content(state: SessionState | None) -> tuple[object, ...] | None:
    return None if state is None else (state.fragment, state.session_id, state.state, state.changed_at)


def history_content(records: Sequence[HistoryRecord]) -> list[tuple[int, int, int, bytes]]:
    return [(record.fragment, record.at_ms, record.number, record.hashes) for record in records]


def mark_content(marks: Sequence[Mark]) -> list[tuple[bytes, int, bytes, int]]:
    return [(mark.channel, mark.highest, mark.done, mark.at_ms) for mark in marks]


def high_water_content(high_waters: Sequence[HighWater]) -> list[tuple[int, int, int, int, int]]:
    return [(one.fragment, one.source, one.lane, one.number, one.at_ms) for one in high_waters]


def due_content(dues: Sequence[Due]) -> list[tuple[int, int, int, int]]:
    return [(due.at_ms, due.fragment, due.lane, due.number) for due in dues]


def numbers_of(bodies: Sequence[Message | Damage]) -> list[int]:
    return [int(body.number) for body in bodies if isinstance(body, Message)]


def owner_content(owners: Sequence[OwnerRecord]) -> list[tuple[int, int, int, str, int, int, list[tuple[int, int]]]]:
    return [(one.fragment, one.lane, one.slot, one.name, one.epoch, one.request, list(one.answer)) for one in owners]


def reserved_content(reserved: Sequence[ReservedRecord]) -> list[tuple[int, int, int, int, bytes]]:
    return [(one.fragment, one.lane, one.slot, one.block, one.bits) for one in reserved]
