"""A message as filters see it: its properties by name, read once, and only those that somebody asks for."""

from __future__ import annotations

import uuid
from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import skip_value
from tandembus.message import MAX_TTL_MS, Message
from tandembus.message_sections import compound_count, text
from tandembus.rules import system_properties as system
from tandembus.rules.values import INT64_MAX, TICKS_PER_MS, Duration, Fault, Instant
from tandembus.rules.wire_values import value_at

MAX_STEPS: Final = 50_000
"""What one rule may cost for one message, in steps of some ten nanoseconds. Ordinary expressions take none: only work
that grows with the length of a property's value is counted."""

TOO_EXPENSIVE: Final = Fault("the expression costs too much for this message")
END_OF_TIME: Final = Instant(2_534_023_007_999_999_999)
NEVER: Final = Duration(INT64_MAX)

_NOT_READ: Final = Fault("not read yet")
_KEPT_KEYS: Final = 4_096
_KEPT_KEY_BYTES: Final = 64
_FOLDED: Final[dict[bytes, str]] = {}
"""Keys of properties and what they are compared as: message after message brings the same ones."""


@final
class MessageView:
    """One message for all rules of all subscriptions of its topic.

    Names of properties are compared without case. Where two of a message differ by case only, the first is seen.
    """

    __slots__ = (
        "_places",
        "_section",
        "_system",
        "_values",
        "enqueued_at_ms",
        "fault",
        "message",
        "sequence_number",
        "steps_left",
    )

    def __init__(self, message: Message, sequence_number: i64, enqueued_at_ms: i64) -> None:
        self.message: Final = message
        self.sequence_number: i64 = sequence_number
        self.enqueued_at_ms: i64 = enqueued_at_ms
        self.steps_left: i64 = MAX_STEPS
        self.fault: Fault | None = None
        self._section: bytes = b""
        self._places: dict[str, int] | None = None
        self._values: dict[str, object] = {}
        self._system: list[object] | None = None

    def charge(self, steps: i64) -> bool:
        """Whether the rule being evaluated may still do so much."""
        self.steps_left -= steps
        return self.steps_left >= 0

    def user(self, name: str) -> object:
        """The application property of this (folded) name: None when it is null or not there."""
        value = self._values.get(name, _NOT_READ)
        if value is not _NOT_READ:
            return value
        return self._read(name)

    def exists(self, name: str) -> bool:
        """Whether there is an application property of this name, if only with null."""
        return name in self.places()

    def _read(self, name: str) -> object:
        place = self.places().get(name)
        value = None if place is None else value_at(self._section, place, len(self._section))
        self._values[name] = value
        return value

    def places(self) -> dict[str, int]:
        """Where in the section the value of each property begins."""
        places = self._places
        if places is None:
            self._section = section_of(self.message)
            places = places_in(self._section)
            self._places = places
        return places

    def section(self) -> bytes:
        """The application properties of the message; empty when it has none."""
        self.places()
        return self._section

    def system(self, index: i64) -> object:
        """A property of the message itself; None when it has none."""
        known = self._system
        if known is None:
            known = [_NOT_READ] * system.COUNT
            self._system = known
        value = known[index]
        if value is _NOT_READ:
            value = self._read_system(index, known)
        return value

    def changing(self) -> MessageView:
        """A view of the same message that an action may change."""
        view = MessageView(self.message, self.sequence_number, self.enqueued_at_ms)
        view._places = self.places().copy()
        view._section = self._section
        view._values = self._values.copy()
        if self._system is not None:
            view._system = self._system.copy()
        view.steps_left = self.steps_left
        return view

    def set_user(self, name: str, value: object) -> None:
        self._values[name] = value
        places = self.places()
        if name not in places:
            places[name] = -1

    def remove_user(self, name: str) -> None:
        self._values[name] = None
        self.places().pop(name, -1)

    def set_system(self, index: i64, value: object) -> None:
        self.system(index)
        known = self._system
        assert known is not None
        known[index] = value

    def _read_system(self, index: i64, known: list[object]) -> object:
        if index <= system.REPLY_TO_SESSION_ID:
            self._read_fields(known)
        elif index <= system.DEAD_LETTER_SOURCE:
            self._read_annotations(known)
        else:
            known[index] = self._fact(index)
        return known[index]

    def _read_fields(self, known: list[object]) -> None:
        """All that stand in the properties section: walking over them is most of the work."""
        index: i64 = 0
        while index <= system.REPLY_TO_SESSION_ID:
            known[index] = None
            index += 1
        message = self.message
        data = message.sections
        end: i64 = message.properties_end
        at: i64 = message.annotations_end + 3
        if end <= at or data[at] == 0x45:
            return
        left = compound_count(data, at, 0xC0)
        position: i64 = at + (3 if data[at] == 0xC0 else 9)
        field: i64 = 0
        while left > 0:
            behind = skip_value(data, position, end)
            if data[position] != 0x40 and field < len(system.IN_FIELD):
                index = system.IN_FIELD[field]
                if index != system.NO_PROPERTY:
                    known[index] = _as_text(value_at(data, position, end))
            position = behind
            field += 1
            left -= 1

    def _read_annotations(self, known: list[object]) -> None:
        index: i64 = system.PARTITION_KEY
        while index <= system.DEAD_LETTER_SOURCE:
            known[index] = None
            index += 1
        end: i64 = self.message.annotations_end
        if end == 0:
            return
        data = self.message.sections
        position: i64 = 6 if data[3] == 0xC1 else 12
        while position < end:
            place = skip_value(data, position, end)
            behind = skip_value(data, place, end)
            key = text(data, position, place)
            for offset in range(len(system.ANNOTATIONS)):
                if key == system.ANNOTATIONS[offset]:
                    known[system.PARTITION_KEY + offset] = _annotation(offset, value_at(data, place, end))
            position = behind

    def _fact(self, index: i64) -> object:
        """What the broker knows of a message."""
        message = self.message
        if index == system.SEQUENCE_NUMBER:
            return int(self.sequence_number)
        if index == system.ENQUEUED_SEQUENCE_NUMBER:
            return int(message.original_number if message.original_number > 0 else self.sequence_number)
        if index == system.ENQUEUED_TIME:
            return Instant(int(self.enqueued_at_ms) * TICKS_PER_MS, True)
        if index == system.SIZE:
            return int(message.wire_size)
        if index == system.DELIVERY_COUNT:
            return int(message.delivery_count)
        if index == system.STATE:
            return 0
        if index == system.TIME_TO_LIVE:
            ttl_ms = self._ttl_ms()
            return NEVER if ttl_ms >= MAX_TTL_MS else Duration(int(ttl_ms) * TICKS_PER_MS)
        if index == system.EXPIRES_AT:
            expires_at = int(self.enqueued_at_ms + self._ttl_ms()) * TICKS_PER_MS
            return END_OF_TIME if expires_at > END_OF_TIME.ticks else Instant(expires_at, True)
        return None

    def _ttl_ms(self) -> i64:
        message = self.message
        if message.expires_at > 0:
            return message.expires_at - self.enqueued_at_ms
        return message.ttl_ms if 0 <= message.ttl_ms < MAX_TTL_MS else MAX_TTL_MS


def section_of(message: Message) -> bytes:
    """The application properties that hold now: those a message came with, or those that replaced them."""
    if message.application_properties:
        return message.application_properties
    return message.sections[message.properties_end : message.application_end]


def places_in(section: bytes) -> dict[str, int]:
    places: dict[str, int] = {}
    end: i64 = len(section)
    if end == 0:
        return places
    position: i64 = 6 if section[3] == 0xC1 else 12
    while position < end:
        place = skip_value(section, position, end)
        name = folded_key(section, position, place)
        if name and name not in places:
            places[name] = int(place)
        position = skip_value(section, place, end)
    return places


def folded_key(section: bytes, at: i64, behind: i64) -> str:
    """A property's name as names are compared; empty for a key that is no text."""
    key = text(section, at, behind)
    name = _FOLDED.get(key)
    return _folded(key) if name is None else name


def _folded(key: bytes) -> str:
    try:
        name = key.decode().lower()
    except UnicodeDecodeError:
        return ""
    if len(key) <= _KEPT_KEY_BYTES:
        if len(_FOLDED) >= _KEPT_KEYS:
            _FOLDED.clear()
        _FOLDED[key] = name
    return name


def _annotation(offset: int, value: object) -> object:
    """Some clients write the time of a schedule as a number."""
    if system.PARTITION_KEY + offset == system.SCHEDULED_ENQUEUE_TIME and isinstance(value, int):
        return Instant(value * TICKS_PER_MS, True)
    return value


def _as_text(value: object) -> object:
    """Ids may be of other types; filters see all of them as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) or isinstance(value, uuid.UUID):  # noqa: SIM101
        return str(value)
    return value
