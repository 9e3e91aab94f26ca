"""Frames as a client writes them, right or wrong."""

from __future__ import annotations

from tandembus.front_end.websocket.frames import BINARY, unmasked

KEY = bytes((0x37, 0xFA, 0x21, 0x3D))


def masked(
    payload: bytes = b"",
    opcode: int = BINARY,
    *,
    is_last: bool = True,
    reserved: int = 0,
    is_masked: bool = True,
    length: int | None = None,
    key: bytes = KEY,
) -> bytes:
    """`length`: what the head says instead of the truth."""
    size = len(payload) if length is None else length
    first = (0x80 if is_last else 0) | reserved << 4 | opcode
    mask_bit = 0x80 if is_masked else 0
    if size < 126:
        head = bytes((first, mask_bit | size))
    elif size < 1 << 16:
        head = bytes((first, mask_bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, mask_bit | 127)) + size.to_bytes(8, "big")
    return head + key + unmasked(payload, key) if is_masked else head + payload
