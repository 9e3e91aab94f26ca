"""What a service has written on a message, read where it stands.

Everything else in a message is its sender's, who may write there what looks like the service's: so the way leads over
the sections to the message annotations and over their entries, and nothing that a stranger wrote is decoded.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode, skip_value
from tandembus.amqp.encoding.descriptors import FOOTER, HEADER, MESSAGE_ANNOTATIONS, code_of
from tandembus.amqp.encoding.time_to_live import LAST_MS
from tandembus.errors import MalformedData

_SEQUENCE_NUMBER: Final = b"x-opt-sequence-number"
_ENQUEUED_TIME: Final = b"x-opt-enqueued-time"
_PARTITION_KEY: Final = b"x-opt-partition-key"
_STATE: Final = b"x-opt-message-state"
_SCHEDULED_TIME: Final = b"x-opt-scheduled-enqueue-time"
_SHORTEST: Final = 19
_LONGEST: Final = 21
_LENGTH_OF_SCHEDULED_TIME: Final = 28
_SCHEDULED: Final = 2


@final
class Marks:
    """`number` 0 and times of -1: not there. The partition key is the value at `key_at`, if that is above 0."""

    __slots__ = ("enqueued_ms", "key_at", "key_end", "number", "scheduled_ms", "state")

    def __init__(self) -> None:
        self.number: i64 = 0
        self.enqueued_ms: i64 = -1
        self.state: i64 = 0
        self.key_at: i64 = 0
        self.key_end: i64 = 0
        self.scheduled_ms: i64 = 0

    def is_active(self) -> bool:
        """A message that was scheduled keeps that state when it becomes active, and is enqueued then."""
        return self.state == 0 or (self.state == _SCHEDULED and self.enqueued_ms >= self.scheduled_ms)


def sequence_number_of(payload: bytes) -> int:
    """0 if the service has given none."""
    return int(marks_of(payload).number)


def marks_of(payload: bytes) -> Marks:
    """Of any bytes: what is certain."""
    marks = Marks()
    try:
        end: i64 = len(payload)
        at: i64 = 0
        while at < end:
            code, value_at = section_at(payload, at, end)
            at = skip_value(payload, value_at, end)
            if code == MESSAGE_ANNOTATIONS:
                read_marks(marks, payload, value_at, at)
                break
    except MalformedData:
        pass
    return marks


def section_at(payload: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The code of the section that begins here, and where its value does."""
    if end - at > 3 and payload[at] == 0 and payload[at + 1] == 0x53:
        code: i64 = payload[at + 2]
        if HEADER <= code <= FOOTER:
            return code, at + 3
        raise MalformedData("an unknown message section")
    if payload[at] != 0:
        raise MalformedData("a message consists of described sections")
    descriptor, behind = decode(payload, int(at) + 1)
    code = code_of(descriptor)
    if code < HEADER or code > FOOTER:
        raise MalformedData("an unknown message section")
    return code, i64(behind)


def elements(data: bytes, at: i64, end: i64, small: i64) -> tuple[i64, i64]:
    """Where the elements of the list or map at data[at:end] begin, and how many there are; `small`: the constructor of
    its short form."""
    if data[at] == small and at + 3 <= end:
        return at + 3, i64(data[at + 2])
    if data[at] == small + 0x10 and at + 9 <= end:
        return at + 9, i64(read_i32_be(data, at + 5)) & 0xFFFFFFFF
    raise MalformedData("a section is not of its type")


def read_marks(marks: Marks, data: bytes, at: i64, end: i64) -> None:
    """Out of the annotations at data[at:end]. The service writes behind the sender: the last entry of a name counts."""
    position, count = elements(data, at, end, 0xC1)
    while count > 1:
        value_at = skip_value(data, position, end)
        behind = skip_value(data, value_at, end)
        code: i64 = data[position]
        start: i64 = position + 2 if code == 0xA3 or code == 0xA1 else position + 5
        size: i64 = value_at - start
        is_of_length = _SHORTEST <= size <= _LONGEST or size == _LENGTH_OF_SCHEDULED_TIME
        if is_of_length and (code == 0xA3 or code == 0xB3 or code == 0xA1 or code == 0xB1):
            _read_mark(marks, data, data[start:value_at], value_at, behind)
        position = behind
        count -= 2
    if count != 0 or position != end:
        raise MalformedData("a map's size and count disagree")


def _read_mark(marks: Marks, data: bytes, name: bytes, at: i64, end: i64) -> None:
    code: i64 = data[at]
    if name == _SEQUENCE_NUMBER:
        marks.number = integer_at(data, at, 0)
    elif name == _ENQUEUED_TIME and code == 0x83:
        enqueued_ms: i64 = read_i64_be(data, at + 1)
        marks.enqueued_ms = enqueued_ms if 0 <= enqueued_ms <= LAST_MS else -1
    elif name == _PARTITION_KEY:
        marks.key_at = at
        marks.key_end = end
    elif name == _STATE:
        marks.state = integer_at(data, at, 0)
    elif name == _SCHEDULED_TIME:
        marks.scheduled_ms = read_i64_be(data, at + 1) if code == 0x83 else integer_at(data, at, 0)


def integer_at(data: bytes, at: i64, default: i64) -> i64:
    """The value of an int, long, uint or ulong, whose bytes are known to be there; `default` for any other."""
    code: i64 = data[at]
    if code == 0x81 or code == 0x80:
        return read_i64_be(data, at + 1)
    if code == 0x55 or code == 0x54:
        small: i64 = data[at + 1]
        return small - 256 if small > 127 else small
    if code == 0x53 or code == 0x52:
        return i64(data[at + 1])
    if code == 0x71:
        return i64(read_i32_be(data, at + 1))
    if code == 0x70:
        return i64(read_i32_be(data, at + 1)) & 0xFFFFFFFF
    return 0 if code == 0x43 or code == 0x44 else default
