"""How bytes between front ends, message brokers and the supervisor are cut into frames.

A frame is its length (u32, of all that follows), its type (u8), the epoch of the store that it is about (u32, 0 where
it is about none) and a body. Which types exist is said here and nowhere else; a type that nobody knows, or a length
over the limit, ends the connection, before anything is allocated for it.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import patch_u32, write_u32
from tandembus.errors import MalformedData

HEADER_BYTES: Final = 9
"""Length, type and epoch."""
TYPE_BYTES: Final = 5
"""What the length counts besides the body: type and epoch."""

# Before the two ends trust each other.
HELLO: Final = 1
WELCOME: Final = 2
PROOF: Final = 3
READY: Final = 4
REFUSED: Final = 5

# Calls and notices: values, not many a second.
CALL: Final = 16
RESULT: Final = 17
FAILURE: Final = 18
NOTICE: Final = 19

# Data channels, from the front end to the broker. A frame holds as many entries as there were in a turn.
RESUME: Final = 32
"""First of all: what is in doubt since an earlier connection."""
OPERATIONS: Final = 33
"""Of one table (`SENDS`, `SETTLES`): what changes something, numbered."""
CONTROL: Final = 34
"""Consumers and sessions: who may be given what."""
HANDED: Final = 35
"""Pushes that were really transferred to clients."""

# Data channels, from the broker to the front end.
RESUMED: Final = 64
ANSWERS: Final = 65
"""Operations of one table that were carried out, as ranges."""
ERRORS: Final = 66
"""Operations that were not, one by one."""
PUSHES: Final = 67
EVENTS: Final = 68
"""Drains that are over; locks that are void; sessions that are granted, refused, lost or free."""
NUMBERS: Final = 71
"""Of messages whose sender wants to know them; before the answers that they belong to."""
WINDOW: Final = 69
STORE: Final = 70

# The tables of numbered operations.
SENDS: Final = 0
SETTLES: Final = 1
TABLES: Final = 2

# Entries of OPERATIONS.
SEND: Final = 1
SETTLE: Final = 2
DISCHARGE: Final = 3
SCHEDULE: Final = 4
"""A send whose numbers are told with its answer."""

# Entries of CONTROL.
ADD_CONSUMER: Final = 1
CREDIT: Final = 2
DRAIN: Final = 3
REMOVE_CONSUMER: Final = 4
WISH: Final = 5
GIVE_UP: Final = 6
HOLD: Final = 7
LEAVE: Final = 8
WATCH: Final = 9

# Entries of EVENTS.
DRAINED: Final = 1
GRANTED: Final = 2
REFUSED_SESSION: Final = 3
LOST_SESSION: Final = 4
AVAILABLE: Final = 5
LOCKS_LOST: Final = 6
NONE_AVAILABLE: Final = 7

# What RESUMED says of each number.
NOT_DONE: Final = 0
DONE: Final = 1
UNDER_WAY: Final = 2
"""Its answer is still to come."""

# What STORE says.
UP: Final = 0
DOWN: Final = 1
HANGING: Final = 2

OTHER_LIFE: Final = "The messaging store was opened anew meanwhile; nothing was taken."
"""To whoever speaks to an earlier life of the store."""

FRAME_GOAL_BYTES: Final = 256 * 1024
"""A frame of operations or pushes ends at this size: the other end begins with it while the next one is on its way."""
PRE_AUTH_FRAME_BYTES: Final = 16 * 1024
"""The longest frame taken from somebody who has not shown that it has the key."""
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""The longest frame taken from anybody; whoever allows longer messages says so when it makes a connection."""


def begin_frame(out: BytesWriter, kind: i64, epoch: i64) -> i64:
    """Write a frame's header; its length is filled in by `end_frame`, which is told what this returns."""
    at: i64 = len(out)
    write_u32(out, 0)
    out.append(int(kind))
    write_u32(out, epoch & 0xFFFFFFFF)
    return at


def end_frame(out: BytesWriter, at: i64) -> None:
    patch_u32(out, at, i64(len(out)) - at - 4)


def frame(kind: i64, epoch: i64, body: bytes) -> bytes:
    """One whole frame."""
    out = BytesWriter()
    at = begin_frame(out, kind, epoch)
    out.write(body)
    end_frame(out, at)
    return out.getvalue()


def u32_at(data: bytes, at: i64) -> i64:
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF


@final
class FrameReader:
    """Cuts what a socket gives into frames. After `next` has said yes, `kind`, `epoch` and `data[at:end]` are the
    frame; nothing is copied for it, so a body must be used, or cut out, before more is fed."""

    __slots__ = (
        "_chunks",
        "_read_to",
        "_waiting_bytes",
        "_wanted_bytes",
        "at",
        "data",
        "end",
        "epoch",
        "kind",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: i64) -> None:
        self.max_frame_bytes: i64 = max_frame_bytes
        self.kind: i64 = 0
        self.epoch: i64 = 0
        self.data: bytes = b""
        self.at: i64 = 0
        self.end: i64 = 0
        self._read_to: i64 = 0
        self._chunks: list[bytes] = []
        self._waiting_bytes: i64 = 0
        self._wanted_bytes: i64 = 0

    def feed(self, received: bytes) -> None:
        """More bytes. A long frame is put together once, when all of it is there."""
        rest: i64 = i64(len(self.data)) - self._read_to
        if rest > 0:
            self._chunks.append(self.data[self._read_to :])
            self._waiting_bytes += rest
        self.data = b""
        self._read_to = 0
        self._chunks.append(received)
        self._waiting_bytes += len(received)
        if self._waiting_bytes >= self._wanted_bytes:
            self.data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks = []
            self._waiting_bytes = 0
            self._wanted_bytes = 0

    def next(self) -> bool:
        """Go on to the next frame, if all of it is there. Raises MalformedData for what cannot be one."""
        data, at = self.data, self._read_to
        there: i64 = i64(len(data)) - at
        if there < 4:
            if there == 0:
                self.data = b""  # a connection that is quiet now must not keep a large frame alive
                self._read_to = 0
            return False
        length = u32_at(data, at)
        if length < TYPE_BYTES or length > self.max_frame_bytes:
            raise MalformedData(f"a frame of {length} bytes; {self.max_frame_bytes} is the most that is taken")
        if there < length + 4:
            self._wanted_bytes = length + 4
            return False
        self.kind = data[at + 4]
        self.epoch = u32_at(data, at + 5)
        self.at = at + HEADER_BYTES
        self.end = at + 4 + length
        self._read_to = self.end
        return True

    def body(self) -> bytes:
        return self.data[self.at : self.end]
