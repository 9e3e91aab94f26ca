"""What the audit notes of a commit: which messages were accepted, and what became of them, as compact bytes.

An entry names its message by its place (fragment, lane, number). What opens a place also says the message's id, session
and partition key; what closes it need not: whoever reads the records joins the two, and no settlement has to know more
than the number it settles. The entries of one commit are one page of the store, written in the same transaction.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, skip_value
from tandembus.errors import MalformedData
from tandembus.message import Message, session_id_of
from tandembus.message_sections import compound_count, first_element

# A message takes a place.
ACCEPTED: Final = 1
SCHEDULED: Final = 2
COPIED: Final = 3
"""To a subscription, from its topic."""
ARRIVED: Final = 4
"""Forwarded from another entity."""
ACTIVATED: Final = 5
"""Scheduled before; its time has come."""
DEAD_LETTER: Final = 6
"""Among the dead letters."""
# A message takes no place.
DUPLICATE: Final = 16
"""Accepted and dropped: its id was seen before."""
PUBLISHED: Final = 17
"""Accepted by a topic, and copied to as many subscriptions as `count` says."""
# A message leaves its place.
COMPLETED: Final = 32
REMOVED: Final = 33
"""By receive-and-delete, or deleted by its owner."""
DEAD_LETTERED: Final = 34
EXPIRED: Final = 35
FORWARDED: Final = 36
LEFT: Final = 37
"""A scheduled message takes another place: see ACTIVATED."""
DISTRIBUTED: Final = 38
"""A topic's scheduled message, to its subscriptions."""
CANCELLED: Final = 39
DAMAGED: Final = 40
# About a whole lane.
DROPPED: Final = 64
"""Its entity was deleted, with all that was there."""
BEGAN: Final = 65
"""Here the records begin: `number` is the next one, and `count` messages are there."""

FIRST_CLOSING: Final = COMPLETED
MAX_TEXT_BYTES: Final = 0x7FFF
PATH_PROPERTY: Final = "x-ms-path"
SESSION_PROPERTY: Final = "x-ms-sessionid"


@final
class AuditEntry:
    """One entry, read back."""

    __slots__ = ("count", "fragment", "kind", "lane", "message_id", "number", "partition_key", "path", "session_id")

    def __init__(self, kind: int, fragment: int, lane: int, number: int, count: int) -> None:
        self.kind: Final = kind
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.number: Final = number
        self.count: Final = count
        """Earlier deliveries; copies of what was published; what is there where the records begin."""
        self.message_id: str = ""
        self.session_id: str = ""
        self.partition_key: str = ""
        self.path: str = ""
        """In a backlog queue: the entity that the message is for."""


@final
class AuditName:
    """What a fragment's key stands for."""

    __slots__ = ("fragment", "index", "path")

    def __init__(self, fragment: int, index: int, path: str) -> None:
        self.fragment: Final = fragment
        self.index: Final = index
        self.path: Final = path


@final
class AuditTrail:
    """Gathers the entries of one commit, or of the part of it that may be left out."""

    __slots__ = ("_entries", "_last_named", "_names", "entry_count", "more")

    def __init__(self) -> None:
        self._entries: BytesWriter = BytesWriter()
        self._names: dict[int, AuditName] = {}
        self._last_named: i64 = -1
        self.entry_count: i64 = 0
        self.more: AuditTrail | None = None
        """What belongs to the same commit, unless it is left out."""

    def name(self, fragment: i64, index: i64, path: str) -> None:
        """Before the first entry about a fragment."""
        if fragment == self._last_named:
            return
        self._last_named = fragment
        key = int(fragment)
        if key not in self._names:
            self._names[key] = AuditName(key, int(index), path)

    def opens(
        self, kind: int, fragment: i64, lane: i64, number: i64, message: Message, count: i64, is_backlog: bool
    ) -> None:
        """A message is accepted; but for duplicates and what a topic has published, it takes this place."""
        self._head(kind, fragment, lane, number, count)
        out = self._entries
        _write_bytes(out, _encoded_id(message))
        session_id = session_id_of(message)
        path = ""
        if is_backlog:
            properties = _properties_of(message)
            path = _text_of(properties, PATH_PROPERTY)
            session_id = _text_of(properties, SESSION_PROPERTY) or session_id
        partition_key = message.partition_key
        if not session_id and not partition_key and not path:
            out.write(_NO_TEXTS)
            return
        _write_text(out, session_id)
        _write_text(out, partition_key)
        _write_text(out, path)

    def closes(self, kind: int, fragment: i64, lane: i64, number: i64, count: i64) -> None:
        """A message leaves its place; or something is said of the whole lane."""
        self._head(kind, fragment, lane, number, count)

    def _head(self, kind: int, fragment: i64, lane: i64, number: i64, count: i64) -> None:
        self.entry_count += 1
        out = self._entries
        out.append(kind)
        out.append(int(lane))
        write_i64_be(out, fragment)
        write_i64_be(out, number)
        write_i64_be(out, count)

    def names(self) -> list[AuditName]:
        return list(self._names.values())

    def entries(self) -> bytes:
        return self._entries.getvalue()


_HEAD_BYTES: Final = 26
_NO_TEXTS: Final = bytes(6)
"""Session, partition key and path of a message that has none of them."""
_SHORT_TEXT: Final = 0xA1
"""The constructor of an AMQP string of up to 255 bytes, behind which its length stands."""


def page_of(trails: list[AuditTrail]) -> bytes:
    """All of a commit: the names of its fragments, then the entries. Empty where there is nothing to note."""
    names: dict[int, AuditName] = {}
    count: i64 = 0
    for trail in trails:
        count += trail.entry_count
        for one in trail.names():
            names[one.fragment] = one
    if count == 0:
        return b""
    out = BytesWriter()
    write_i32_be(out, len(names))
    for name in names.values():
        write_i64_be(out, name.fragment)
        write_i32_be(out, name.index)
        _write_text(out, name.path)
    for trail in trails:
        out.write(trail.entries())
    return out.getvalue()


def names_in(page: bytes) -> tuple[list[AuditName], int]:
    """The names, and where the entries begin."""
    if not page:
        return [], 0
    names: list[AuditName] = []
    at = 4
    for _ in range(int(read_i32_be(page, 0))):
        fragment, index = int(read_i64_be(page, at)), int(read_i32_be(page, at + 8))
        path, at = _read_bytes(page, at + 12)
        names.append(AuditName(fragment, index, path.decode()))
    return names, at


def entries_in(page: bytes) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    _, at = names_in(page)
    while at < len(page):
        kind, lane = page[at], page[at + 1]
        fragment, number = int(read_i64_be(page, at + 2)), int(read_i64_be(page, at + 10))
        entry = AuditEntry(kind, fragment, lane, number, int(read_i64_be(page, at + 18)))
        at += _HEAD_BYTES
        if kind < FIRST_CLOSING:
            encoded_id, at = _read_bytes(page, at)
            entry.message_id = _id_text(encoded_id)
            if page[at : at + len(_NO_TEXTS)] == _NO_TEXTS:
                at += len(_NO_TEXTS)
            else:
                session_id, at = _read_bytes(page, at)
                partition_key, at = _read_bytes(page, at)
                path, at = _read_bytes(page, at)
                entry.session_id = session_id.decode()
                entry.partition_key = partition_key.decode()
                entry.path = path.decode()
        entries.append(entry)
    return entries


def _encoded_id(message: Message) -> bytes:
    """The message's id as the bytes that came: decoded when somebody reads the records, not while it is sent."""
    data = message.sections
    at = message.annotations_end + 3
    end = message.properties_end
    if end <= at or data[at] == 0x45 or compound_count(data, at, 0xC0) == 0:
        return b""
    first = first_element(data, at, end, 0xC0, 0xD0, "properties")
    return data[first : skip_value(data, first, end)]


def _id_text(encoded: bytes) -> str:
    """Clients may send anything: an id that is no value stands as its bytes."""
    if not encoded:
        return ""
    try:
        if encoded[0] == _SHORT_TEXT:
            return encoded[2:].decode()
        value, _ = decode(encoded, 0)
    except (MalformedData, UnicodeDecodeError):
        value = encoded
    return value.hex() if isinstance(value, bytes) else str(value)


def _properties_of(message: Message) -> dict[object, object]:
    data, at = message.sections, message.properties_end
    if message.application_properties:
        data, at = message.application_properties, 0
    elif message.application_end <= at:
        return {}
    try:
        value, _ = decode(data, int(at) + 3)
    except MalformedData:
        return {}  # a text or a key in it is none: no reason to refuse the message
    return value if isinstance(value, dict) else {}


def _text_of(properties: dict[object, object], name: str) -> str:
    value = properties.get(name)
    return value if isinstance(value, str) else ""


def _write_text(out: BytesWriter, text: str | None) -> None:
    _write_bytes(out, text.encode() if text else b"")


def _write_bytes(out: BytesWriter, data: bytes) -> None:
    if len(data) > MAX_TEXT_BYTES:
        data = b""  # no client can make one so long: keys and ids are far shorter
    write_i16_be(out, len(data))
    out.write(data)


def _read_bytes(page: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int(read_i16_be(page, at))
    return page[at + 2 : end], end
