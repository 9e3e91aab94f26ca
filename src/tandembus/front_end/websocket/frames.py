"""WebSocket frames (RFC 6455) as a pure state machine: bytes of the peer in, the stream inside them out.

AMQP is a stream and cares for no message's bounds, so nothing is ever put together: what has come of a frame is passed
on at once, however large the frame says it will be. Only a control frame, of 125 bytes at most, waits to be complete.
"""

from __future__ import annotations

from typing import Final, final

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
TOO_LARGE: Final = 1009

MAX_CONTROL_BYTES: Final = 125
_FIN: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_CONTROL: Final = 0x8
_KEY_BYTES: Final = 4
_SHORT_LENGTH: Final = 126
_LONG_LENGTH: Final = 127
_LENGTH_BYTES: Final = {_SHORT_LENGTH: 2, _LONG_LENGTH: 8}
_MUCH_BYTES: Final = 4096
_MAX_REASON_BYTES: Final = MAX_CONTROL_BYTES - 2


@final
class Received:
    """What one read of the socket held, in this order."""

    __slots__ = ("close", "payload", "pings", "violation")

    def __init__(self) -> None:
        self.payload = b""
        self.pings: list[bytes] = []
        self.close: bytes | None = None
        """The peer's close frame, as it is to be answered; nothing behind it counts."""
        self.violation: tuple[int, str] | None = None
        """What the peer must not do, as the code and the reason to close with."""


class _Violation(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@final
class FrameReader:
    """Reads what a client sends. After a close frame or a violation it takes nothing more."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._unread = b""
        """The beginning of a frame whose head, or whose whole if it is a control frame, has not come yet."""
        self._left = 0
        """Bytes of the present data frame still to come."""
        self._key = b""
        self._is_in_message = False
        """Between the first frame of a message and its last."""
        self._message_bytes = 0
        self._is_over = False

    def receive(self, data: bytes) -> Received:
        received = Received()
        pieces: list[bytes] = []
        try:
            self._read(self._unread + data if self._unread else data, pieces, received)
        except _Violation as violation:
            self._is_over = True
            received.violation = (violation.code, violation.reason)
        received.payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return received

    def _read(self, data: bytes, pieces: list[bytes], received: Received) -> None:
        at = 0
        while at < len(data) and not self._is_over:
            if self._left:
                at = self._take_payload(data, at, pieces)
                continue
            behind = self._take_frame(data, at, received)
            if behind == at:
                break
            at = behind
        self._unread = b"" if self._is_over else data[at:]

    def _take_payload(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        piece = data[at : at + self._left]
        pieces.append(unmasked(piece, self._key))
        self._left -= len(piece)
        turned = len(piece) % _KEY_BYTES
        self._key = self._key[turned:] + self._key[:turned]
        return at + len(piece)

    def _take_frame(self, data: bytes, at: int, received: Received) -> int:
        """The position behind the head of a data frame, or behind a control frame; `at` if more must come first."""
        if len(data) < at + 2:
            return at
        first, second = data[at], data[at + 1]
        opcode, length = first & 0x0F, second & 0x7F
        self._check_head(first, second)
        behind = at + 2 + _LENGTH_BYTES.get(length, 0)
        if len(data) < behind + _KEY_BYTES:
            return at
        if length >= _SHORT_LENGTH:
            length = int.from_bytes(data[at + 2 : behind], "big")
        key = data[behind : behind + _KEY_BYTES]
        behind += _KEY_BYTES
        if opcode & _CONTROL:
            return self._take_control(opcode, data, behind, length, key, received) or at
        self._begin_data(first, length)
        self._key = key
        return behind

    def _check_head(self, first: int, second: int) -> None:
        opcode = first & 0x0F
        if not second & _MASKED:
            raise _Violation(PROTOCOL_ERROR, "A client's frames must be masked.")
        if first & _RESERVED:
            raise _Violation(PROTOCOL_ERROR, "No extension was agreed on, so no reserved bit can be set.")
        if opcode & _CONTROL:
            if opcode not in (CLOSE, PING, PONG):
                raise _Violation(PROTOCOL_ERROR, f"Control frames of kind {opcode:#x} are not known.")
            if not first & _FIN or second & 0x7F > MAX_CONTROL_BYTES:
                raise _Violation(PROTOCOL_ERROR, "A control frame is whole, and at most 125 bytes long.")
        elif opcode == TEXT:
            raise _Violation(UNSUPPORTED_DATA, "AMQP is carried in binary frames, not in text.")
        elif opcode not in (CONTINUATION, BINARY):
            raise _Violation(PROTOCOL_ERROR, f"Data frames of kind {opcode:#x} are not known.")
        elif (opcode == CONTINUATION) is not self._is_in_message:
            raise _Violation(PROTOCOL_ERROR, "A message begins before the previous one has ended, or not at all.")

    def _begin_data(self, first: int, length: int) -> None:
        """All that is asked for is known now, before any of it is taken."""
        before = self._message_bytes if self._is_in_message else 0
        if before + length > self._max_message_bytes:
            raise _Violation(TOO_LARGE, f"A message has at most {self._max_message_bytes} bytes here.")
        self._is_in_message = not first & _FIN
        self._message_bytes = before + length
        self._left = length

    def _take_control(self, opcode: int, data: bytes, at: int, length: int, key: bytes, received: Received) -> int:
        """The position behind the frame, or 0 while it is not complete."""
        if len(data) < at + length:
            return 0
        payload = unmasked(data[at : at + length], key)
        if opcode == PING:
            received.pings.append(payload)
        elif opcode == CLOSE:
            self._is_over = True
            received.close = _checked_close(payload)
        return at + length


def _checked_close(payload: bytes) -> bytes:
    """The code that came, without the reason; none if there was none."""
    if len(payload) == 1:
        raise _Violation(PROTOCOL_ERROR, "A close frame holds no code, or one of two bytes.")
    if payload and not 1000 <= int.from_bytes(payload[:2], "big") < 5000:
        raise _Violation(PROTOCOL_ERROR, "The code of the close frame is not one to be sent.")
    return payload[:2]


def unmasked(data: bytes, key: bytes) -> bytes:
    """A little as one number, much with a table for each of the key's bytes: in both the loop over bytes is C's."""
    if len(data) < _MUCH_BYTES:
        return _xor(data, (key * (len(data) // _KEY_BYTES + 1))[: len(data)])
    found = bytearray(len(data))
    for lane in range(_KEY_BYTES):
        found[lane::_KEY_BYTES] = data[lane::_KEY_BYTES].translate(_TABLES[key[lane]])
    return bytes(found)


def _xor(first: bytes, second: bytes) -> bytes:
    return (int.from_bytes(first, "little") ^ int.from_bytes(second, "little")).to_bytes(len(first), "little")


_TABLES: Final = [_xor(bytes(range(256)), bytes([value]) * 256) for value in range(256)]


def frame_head(opcode: int, size: int) -> bytes:
    """What stands before the payload of a server's frame, which is whole and not masked."""
    if size < _SHORT_LENGTH:
        return bytes((_FIN | opcode, size))
    if size < 1 << 16:
        return bytes((_FIN | opcode, _SHORT_LENGTH)) + size.to_bytes(2, "big")
    return bytes((_FIN | opcode, _LONG_LENGTH)) + size.to_bytes(8, "big")


def frame(opcode: int, payload: bytes) -> bytes:
    return frame_head(opcode, len(payload)) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    text = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()
    return frame(CLOSE, code.to_bytes(2, "big") + text)
