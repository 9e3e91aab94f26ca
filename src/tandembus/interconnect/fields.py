"""Numbers, texts and bytes in the bodies of frames. Every read is compared with what is really there."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64, u8

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.errors import MalformedData
from tandembus.interconnect.frames import u32_at

MAX_TEXT_BYTES: Final = 64 * 1024
NO_TEXT: Final = 0xFFFFFFFF
"""Stands for None where the length of a text stands."""


@final
class Cursor:
    """A place in a frame's body."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: i64, end: i64) -> None:
        self.data: Final = data
        self.at: i64 = at
        self.end: i64 = end

    def has_more(self) -> bool:
        return self.at < self.end

    def skip(self, size: i64) -> i64:
        """Go on by so many bytes; returns where they begin. Raises MalformedData where they are not there."""
        at = self.at
        if size < 0 or size > self.end - at:
            raise MalformedData("a frame that ends within a field")
        self.at = at + size
        return at

    def byte(self) -> i64:
        at = self.skip(1)
        return i64(self.data[at])

    def u32(self) -> i64:
        return u32_at(self.data, self.skip(4))

    def long(self) -> i64:
        return read_i64_be(self.data, self.skip(8))

    def bytes_of(self, size: i64) -> bytes:
        at = self.skip(size)
        return self.data[at : at + size]

    def sized_bytes(self) -> bytes:
        return self.bytes_of(self.u32())

    def text(self) -> str:
        text = self.text_or_none()
        if text is None:
            raise MalformedData("a text is missing")
        return text

    def text_or_none(self) -> str | None:
        size = self.u32()
        if size == NO_TEXT:
            return None
        if size > MAX_TEXT_BYTES:
            raise MalformedData("a text that is too long")
        content = self.bytes_of(size)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise MalformedData("a text that is no UTF-8") from error


def write_u8(out: BytesWriter, number: i64) -> None:
    out.append(u8(number & 255))


def write_sized(out: BytesWriter, content: bytes) -> None:
    write_u32(out, len(content))
    out.write(content)


def write_text(out: BytesWriter, text: str | None) -> None:
    """Texts come from clients, and were bounded where they entered; what is longer all the same is cut."""
    if text is None:
        write_u32(out, NO_TEXT)
        return
    content = text.encode("utf-8", "replace")
    if len(content) > MAX_TEXT_BYTES:
        content = content[:MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()
    write_sized(out, content)
