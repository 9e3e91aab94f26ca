"""What an action makes of a message, and the copy that comes of it."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import encode, skip_value
from tandembus.amqp.encoding.values import SHORT_SYMBOL, Typed, symbol
from tandembus.message import MAX_TTL_MS, Message, copy_of, replace_section
from tandembus.message_encoding import with_application_properties
from tandembus.message_sections import text
from tandembus.rules import system_properties as system
from tandembus.rules.message_view import folded_key
from tandembus.rules.values import TICKS_PER_MS, Duration
from tandembus.rules.wire_values import encodable

_NULL: Final = b"\x40"


@final
class ChangedMessage:
    """The differences between a message and its copy.

    `application_properties` is the whole section, empty when it stays as it is. `system` holds the new values of
    system properties under their names (text, None, or a Duration or Instant); empty when they stay.
    """

    __slots__ = ("application_properties", "system")

    def __init__(self, application_properties: bytes, system: dict[str, object]) -> None:
        self.application_properties: Final = application_properties
        self.system: Final = system


def copy_with(message: Message, changed: ChangedMessage) -> Message:
    """A copy of the message with these changes, as if it had been sent so."""
    section = changed.application_properties or message.application_properties
    copy = with_application_properties(message, section) if section else copy_of(message)
    copy.ttl_ms = message.ttl_ms
    copy.session_id = message.session_id
    copy.partition_key = message.partition_key
    if changed.system:
        _change_properties(copy, changed.system)
        _change_annotations(copy, changed.system)
        _change_time_to_live(copy, changed.system)
    copy.wire_size = len(copy.sections)
    return copy


def _change_properties(copy: Message, changes: dict[str, object]) -> None:
    start: i64 = copy.annotations_end
    fields = _raw_fields(copy.sections, start, copy.properties_end)
    has_changed = False
    for field in range(len(system.IN_FIELD)):
        index = system.IN_FIELD[field]
        if index == system.NO_PROPERTY or system.NAMES[index] not in changes:
            continue
        while len(fields) <= field:
            fields.append(_NULL)
        value = changes[system.NAMES[index]]
        is_symbol = index == system.CONTENT_TYPE and isinstance(value, str)
        fields[field] = encode(Typed(SHORT_SYMBOL, value) if is_symbol else value)
        if index == system.SESSION_ID:
            copy.session_id = value if isinstance(value, str) else None
        has_changed = True
    if has_changed:
        section = _compound_section(b"\x00\x53\x73\xd0", b"".join(fields), len(fields))
        moved: i64 = i64(len(section)) - (copy.properties_end - start)
        replace_section(copy, start, copy.properties_end, section)
        copy.properties_end += moved
        copy.application_end += moved


def _raw_fields(data: bytes, start: i64, end: i64) -> list[bytes]:
    """The fields of the properties section as the bytes that came: only what is changed is ever decoded."""
    fields: list[bytes] = []
    at: i64 = start + 3
    if end <= at or data[at] == 0x45:
        return fields
    position: i64 = at + (3 if data[at] == 0xC0 else 9)
    while position < end:
        behind = skip_value(data, position, end)
        fields.append(data[position:behind])
        position = behind
    return fields


def _change_annotations(copy: Message, changes: dict[str, object]) -> None:
    entries = BytesWriter()
    count: i64 = 0
    has_changed = False
    for offset in range(len(system.ANNOTATIONS)):
        name = system.NAMES[system.PARTITION_KEY + offset]
        if name not in changes:
            continue
        has_changed = True
        value = changes[name]
        if offset == 0:
            copy.partition_key = value if isinstance(value, str) else None
        if value is not None:
            entries.write(encode(symbol(system.ANNOTATIONS[offset].decode())))
            entries.write(encode(encodable(value)))
            count += 2
    if has_changed:
        count += _write_other_annotations(entries, copy, changes)
        section = _compound_section(b"\x00\x53\x72\xd1", entries.getvalue(), count) if count > 0 else b""
        moved: i64 = i64(len(section)) - copy.annotations_end
        replace_section(copy, 0, copy.annotations_end, section)
        copy.annotations_end += moved
        copy.properties_end += moved
        copy.application_end += moved


def _write_other_annotations(out: BytesWriter, copy: Message, changes: dict[str, object]) -> i64:
    """Those that do not change, as the bytes that came; returns how many keys and values these are."""
    end: i64 = copy.annotations_end
    if end == 0:
        return 0
    data = copy.sections
    position: i64 = 6 if data[3] == 0xC1 else 12
    count: i64 = 0
    while position < end:
        place = skip_value(data, position, end)
        behind = skip_value(data, place, end)
        key = text(data, position, place)
        is_changed = False
        for offset in range(len(system.ANNOTATIONS)):
            if key == system.ANNOTATIONS[offset] and system.NAMES[system.PARTITION_KEY + offset] in changes:
                is_changed = True
        if not is_changed:
            out.write(data[position:behind])
            count += 2
        position = behind
    return count


def _change_time_to_live(copy: Message, changes: dict[str, object]) -> None:
    duration = changes.get(system.NAMES[system.TIME_TO_LIVE])
    if isinstance(duration, Duration):
        copy.ttl_ms = min(duration.ticks // TICKS_PER_MS, MAX_TTL_MS)
        if copy.enqueued_at > 0:
            copy.expires_at = copy.enqueued_at + copy.ttl_ms if copy.ttl_ms < MAX_TTL_MS else 0


def section_with(section: bytes, changes: dict[str, tuple[bytes, bytes]]) -> bytes:
    """An application-properties section after changes, by folded name: the encoded name (for a new property) and the
    encoded value, which is empty to remove it. What is not changed stays the bytes that came."""
    out = BytesWriter()
    count: i64 = 0
    written: set[str] = set()
    end: i64 = len(section)
    position: i64 = end
    if end > 0:
        position = 6 if section[3] == 0xC1 else 12
    while position < end:
        place = skip_value(section, position, end)
        behind = skip_value(section, place, end)
        name = folded_key(section, position, place)
        change = None if name in written else changes.get(name)
        if change is None:
            out.write(section[position:behind])
            count += 2
        elif change[1]:
            out.write(section[position:place])
            out.write(change[1])
            written.add(name)
            count += 2
        position = behind
    for name, change in changes.items():
        if change[1] and name not in written:
            out.write(change[0])
            out.write(change[1])
            count += 2
    return _compound_section(b"\x00\x53\x74\xd1", out.getvalue(), count)


def _compound_section(start: bytes, content: bytes, count: i64) -> bytes:
    head = BytesWriter()
    head.write(start)
    size: i64 = len(content) + 4
    write_i64_be(head, (size << 32) | count)
    return head.getvalue() + content
