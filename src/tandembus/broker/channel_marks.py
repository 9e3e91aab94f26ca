"""Marks: which operations of a channel were carried out.

A channel numbers its operations 1, 2, 3 ... and has at most `MARK_NUMBERS` of them open. Every commit stores, with what
it carries out, the mark of each channel that it did something for. When the channel broke, or the store failed, before
the answers came, whoever is in doubt asks here: what is done is done for good, and what is not never will be.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from tandembus.store.messaging_store import MARK_BYTES, MARK_NUMBERS, Mark

_NOTHING_DONE: Final = bytes(MARK_BYTES)
KEPT_MS: Final = 3_600_000
"""How long the mark of a channel that is gone is kept: nobody is in doubt for an hour."""


@final
class ChannelMark:
    """The mark of one channel. In memory it is ahead of the store by what the commit under way carries out."""

    __slots__ = ("_changed", "_done", "_is_changed", "at_ms", "channel", "highest", "is_open")

    def __init__(self, channel: bytes, changed: list[ChannelMark]) -> None:
        self.channel: Final = channel
        self.highest: i64 = 0
        """The highest number that was ever carried out."""
        self.is_open: bool = False
        """Somebody is connected."""
        self.at_ms: i64 = 0
        """When it was last in use: wall time."""
        self._done: BytesWriter = _bits(_NOTHING_DONE)
        self._changed: Final = changed
        self._is_changed: bool = False

    def done(self, number: i64) -> None:
        """It goes into the coming commit. To be called when the operation is collected, not before."""
        if number > self.highest:
            self._advance(number)
        self._set(number, True)
        self._note_change()

    def undo(self, number: i64) -> None:
        """It was not carried out after all: refused, or rolled back."""
        if self.is_done(number):
            self._set(number, False)
            self._note_change()

    def is_done(self, number: i64) -> bool:
        """To be asked of numbers that were open lately; of all others nothing is known here."""
        if number > self.highest or number <= self.highest - MARK_NUMBERS:
            return False
        offset = number % MARK_NUMBERS
        return (i64(self._done[offset >> 3]) >> (offset & 7)) & 1 != 0

    def _advance(self, number: i64) -> None:
        """Numbers take the place of those that came `MARK_NUMBERS` before them."""
        if number - self.highest >= MARK_NUMBERS:
            self._done = _bits(_NOTHING_DONE)
            self.highest = number
        while self.highest < number:
            self.highest += 1
            self._set(self.highest, False)

    def _set(self, number: i64, is_done: bool) -> None:
        offset = number % MARK_NUMBERS
        at = offset >> 3
        bit = i64(1) << (offset & 7)
        if is_done:
            self._done[at] = u8((i64(self._done[at]) | bit) & 255)
        else:
            self._done[at] = u8(i64(self._done[at]) & (255 - bit))

    def _note_change(self) -> None:
        if not self._is_changed:
            self._is_changed = True
            self._changed.append(self)

    def record(self, now_ms: i64) -> Mark:
        self.at_ms = now_ms
        return Mark(self.channel, int(self.highest), self._done.getvalue(), int(now_ms))

    def written(self) -> None:
        self._is_changed = False

    def load(self, mark: Mark) -> None:
        """What the store says is true."""
        self.highest = mark.highest
        self.at_ms = max(self.at_ms, i64(mark.at_ms))
        self._done = _bits(mark.done)
        self._is_changed = False

    def forget(self) -> None:
        """The store knows nothing of it."""
        self.highest = 0
        self._done = _bits(_NOTHING_DONE)
        self._is_changed = False


@final
class ChannelMarks:
    """The marks of all channels to one store."""

    def __init__(self) -> None:
        self._by_channel: dict[bytes, ChannelMark] = {}
        self._changed: list[ChannelMark] = []
        self._committing: list[ChannelMark] = []

    def open(self, channel: bytes, now_ms: i64) -> ChannelMark:
        """A channel has connected, for the first time or again."""
        mark = self._by_channel.get(channel)
        if mark is None:
            mark = ChannelMark(channel, self._changed)
            self._by_channel[channel] = mark
        mark.is_open = True
        mark.at_ms = max(mark.at_ms, now_ms)
        return mark

    def closed(self, mark: ChannelMark, now_ms: i64) -> None:
        """Nobody is connected any more. It may come back and ask."""
        mark.is_open = False
        mark.at_ms = max(mark.at_ms, now_ms)

    def find(self, channel: bytes) -> ChannelMark | None:
        return self._by_channel.get(channel)

    def records(self, now_ms: i64) -> list[Mark]:
        """Of the channels that the coming commit does something for. Asked again for the same commit, after some of it
        was refused, they say what is left."""
        for mark in self._changed:
            if mark not in self._committing:
                self._committing.append(mark)
            mark.written()
        self._changed.clear()
        return [mark.record(now_ms) for mark in self._committing]

    def committed(self) -> None:
        self._committing = []

    def load(self, marks: list[Mark]) -> None:
        """The store was opened. Who is connected keeps its mark, with what the store says."""
        self._changed.clear()
        self._committing = []
        stored: set[bytes] = set()
        for record in marks:
            stored.add(record.channel)
            mark = self._by_channel.get(record.channel)
            if mark is None:
                mark = ChannelMark(record.channel, self._changed)
                self._by_channel[record.channel] = mark
            mark.load(record)
        for channel in list(self._by_channel):
            if channel not in stored:
                self._by_channel[channel].forget()

    def take_outdated(self, now_ms: i64) -> list[bytes]:
        """Channels that are gone for good; their marks are to be removed from the store."""
        outdated: list[bytes] = []
        for mark in self._by_channel.values():
            if not mark.is_open and mark.at_ms + KEPT_MS < now_ms:
                outdated.append(mark.channel)
        for channel in outdated:
            del self._by_channel[channel]
        return outdated


def _bits(start: bytes) -> BytesWriter:
    bits = BytesWriter()
    bits.write(start)
    return bits
