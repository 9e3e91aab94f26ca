"""A channel's numbered operations at the broker's end: which were taken, which are under way, what was answered.

Each number is answered once, in ranges where it was carried out and one by one where it was not.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64, u8

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.broker.channel_marks import ChannelMark
from tandembus.errors import BusError, FragmentUnavailable, MalformedData
from tandembus.interconnect.fields import write_text, write_u8
from tandembus.interconnect.frames import (
    ANSWERS,
    DONE,
    NOT_DONE,
    NUMBERS,
    UNDER_WAY,
    begin_frame,
    end_frame,
)
from tandembus.interconnect.marked_numbers import NOT_CARRIED_OUT, MarkedNumbers, refusal_of
from tandembus.interconnect.number_ranges import NumberRanges
from tandembus.interconnect.open_operations import SLOT_MASK
from tandembus.interconnect.wire_errors import name_of, text_of
from tandembus.message import Message
from tandembus.store.messaging_store import MARK_NUMBERS


@final
class ServedOperations:
    def __init__(self, code: i64, mark: ChannelMark) -> None:
        self.code: i64 = code
        self.numbers: Final = MarkedNumbers(mark)
        self.under_way: i64 = 0
        self._is_under_way: BytesWriter = BytesWriter()
        self._is_under_way.write(bytes(MARK_NUMBERS))
        self._done: Final = NumberRanges()
        self._numbered: BytesWriter = BytesWriter()
        self._errors: BytesWriter = BytesWriter()

    # Taking.

    def take(self, number: i64) -> None:
        """It has come. Numbers only go up; whoever says otherwise has lost count, and no answer of ours would be of any
        worth to it."""
        if number <= self.numbers.last:
            raise MalformedData(f"operation {number} has come before")
        self.numbers.last = number
        self.under_way += 1
        self._is_under_way[number & SLOT_MASK] = u8(1)

    def fate(self, number: i64) -> i64:
        """What became of a number that somebody is in doubt of. One that has not come yet never will: the connection it
        might have come on is closed."""
        last = self.numbers.last
        if last - MARK_NUMBERS < number <= last and self._is_under_way[number & SLOT_MASK]:
            return UNDER_WAY
        return DONE if self.numbers.mark.is_done(number) else NOT_DONE

    # Answering.

    def answer(self, number: i64, error: BusError | None) -> None:
        if error is None:
            self._end(number)
            self._done.add(number)
        elif not self.numbers.is_doubtful(number, error):
            self.refuse(number, refusal_of(error))

    def tell_numbers(self, number: i64, messages: list[Message]) -> None:
        """Of a send that has been carried out, to a sender that wants to know."""
        out = self._numbered
        write_i64_be(out, number)
        write_u32(out, len(messages))
        for message in messages:
            write_i64_be(out, message.number)

    def refuse(self, number: i64, error: BusError) -> None:
        self._end(number)
        out = self._errors
        write_u8(out, self.code)
        write_i64_be(out, number)
        write_text(out, name_of(error))
        write_text(out, text_of(error))

    def _end(self, number: i64) -> None:
        self.under_way -= 1
        if number > self.numbers.last - MARK_NUMBERS:
            self._is_under_way[number & SLOT_MASK] = u8(0)

    def resolve(self) -> None:
        """The store is open again, and the mark is what it says."""
        for number in self.numbers.take_in_doubt():
            if self.numbers.is_done(number):
                self.answer(number, None)
            else:
                self.refuse(number, FragmentUnavailable(NOT_CARRIED_OUT))

    # Out.

    def write_answers(self, out: BytesWriter, epoch: i64) -> None:
        """Numbers stand before the answers that they belong to."""
        if len(self._numbered) > 0:
            at = begin_frame(out, NUMBERS, epoch)
            out.write(self._numbered.getvalue())
            end_frame(out, at)
            self._numbered = BytesWriter()
        if not self._done.is_empty():
            at = begin_frame(out, ANSWERS, epoch)
            write_u8(out, self.code)
            self._done.take_into(out)
            end_frame(out, at)

    def take_errors(self) -> bytes:
        errors = self._errors.getvalue()
        if errors:
            self._errors = BytesWriter()
        return errors

    def forget_answers(self) -> None:
        """The connection is gone; whoever comes back asks."""
        self._done.clear()
        self._numbered = BytesWriter()
        self._errors = BytesWriter()
