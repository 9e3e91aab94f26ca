"""A channel to a store of this process: no socket, but the same doubt.

When the store fails in the middle of a commit, its sends are neither refused nor accepted. They wait for the store to
be opened again, and its mark tells what became of them. Without numbers and marks a send to another fragment would have
to accept that the message may exist twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from tandembus.broker.channel_marks import ChannelMark
from tandembus.broker.fragment import Fragment
from tandembus.broker.operations import SendOperation, SendReply
from tandembus.broker.transactions import TransactionOperation, TransactionReply
from tandembus.clock import Clock
from tandembus.errors import BusError, FragmentUnavailable, OperationTimeout
from tandembus.interconnect.channel_operations import tell_discharged
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.marked_numbers import NOT_CARRIED_OUT, MarkedNumbers, refusal_of
from tandembus.interconnect.open_operations import OpenOperation, OpenOperations, named, outcome_unknown, unavailable
from tandembus.large_messages import patience_s
from tandembus.message import IS_SCHEDULED, Message

_WHO: Final = "messaging store"


class LocalOperation(OpenOperation):
    """An operation on a fragment of this process."""

    def carry_out(self) -> None:
        """Under the number that it has got. Raises."""
        raise AssertionError("an operation must be implemented")

    def write(self, out: BytesWriter) -> None:
        """It goes nowhere."""


@final
class LocalSend(LocalOperation):
    def __init__(self, channel: LocalChannel, fragment: Fragment, operation: SendOperation, deadline: float) -> None:
        super().__init__(operation.size_bytes, deadline, fragment.index)
        self._channel: Final = channel
        self._fragment: Final = fragment
        self._operation: Final = operation

    def carry_out(self) -> None:
        asked = self._operation
        messages = list(asked.messages)
        self._fragment.send(
            SendOperation(messages, asked.size_bytes, self._channel.send_reply, self.number, asked.is_via, asked.source)
        )

    def answered(self, error: BusError | None) -> None:
        """What was not stored, or perhaps not, may be sent to another fragment, while this one may still be busy with
        it: the messages that it has numbered stay its own."""
        operation = self._operation
        if error is not None:
            messages = operation.messages
            for position in range(len(messages)):
                messages[position] = unsent_copy(messages[position], operation.source is None)
        operation.reply.sent(operation, error)


@final
class LocalDischarge(LocalOperation):
    def __init__(
        self, channel: LocalChannel, fragment: Fragment, operation: TransactionOperation, deadline: float
    ) -> None:
        super().__init__(operation.size_bytes, deadline, fragment.index)
        self.was_in_doubt: bool = False
        self._channel: Final = channel
        self._fragment: Final = fragment
        self._operation: Final = operation

    def carry_out(self) -> None:
        asked = self._operation
        reply = _Discharged(self._channel, self)
        operation = TransactionOperation(asked.sends, asked.settlements, reply, asked.others)
        operation.cancels = asked.cancels
        operation.states = asked.states
        self._fragment.discharge(operation)

    def answered(self, error: BusError | None) -> None:
        """Its parts were told by the fragment itself, unless it took a while to learn that it was carried out."""
        if self.was_in_doubt:
            tell_discharged(self._operation, error)
        else:
            self._operation.reply.discharged(self._operation, error)


@final
class LocalChannel:
    def __init__(self, mark: ChannelMark, clock: Clock, settings: ChannelSettings, watch: Callable[[], None]) -> None:
        """`watch`: call `tick` a few times a second from now on, for as long as it says so."""
        self.send_reply: Final = _Sent(self)
        self._numbers: Final = MarkedNumbers(mark)
        self._clock: Final = clock
        self._watch: Final = watch
        self._is_watched: bool = False
        self._in_doubt_wait_s: float = settings.in_doubt_wait_s
        self._fragment_timeout_s: float = settings.fragment_timeout_s
        self._open: Final = OpenOperations(settings.window_count, settings.waiting_bytes)

    def send(self, fragment: Fragment, operation: SendOperation) -> None:
        self._begin(LocalSend(self, fragment, operation, self._deadline(fragment, operation.size_bytes)))

    def discharge(self, fragment: Fragment, operation: TransactionOperation) -> None:
        self._begin(LocalDischarge(self, fragment, operation, self._deadline(fragment, operation.size_bytes)))

    def _deadline(self, fragment: Fragment, size_bytes: i64) -> float:
        failure = fragment.failure
        if failure is not None:
            raise unavailable(fragment.index, str(failure))
        return self._clock.monotonic() + self._fragment_timeout_s + patience_s(self._open.open_bytes + size_bytes)

    def _begin(self, operation: LocalOperation) -> None:
        is_first = not self._open.has_waiting()
        self._open.add(operation)
        if is_first and self._open.can_open():
            self._carry_out_next()
        if not self._is_watched:
            self._is_watched = True
            self._watch()

    def _carry_out_next(self) -> None:
        """Raises what the fragment says on the spot."""
        operation = self._open.open_next()
        self._numbers.last = operation.number
        assert isinstance(operation, LocalOperation)
        try:
            operation.carry_out()
        except BusError as error:
            self._open.take(operation.number)
            refusal = refused_on_the_spot(error)
            if refusal is error:
                raise
            raise refusal from error

    def _go_on(self) -> None:
        while self._open.can_open():
            waiting = self._open.first_waiting()
            try:
                self._carry_out_next()
            except BusError as error:
                waiting.answered(error)

    # What the fragments say.

    def collected(self, number: i64) -> None:
        self._numbers.collected(number)

    def answer(self, number: i64, error: BusError | None) -> None:
        if error is None:
            self._tell(number, None)
        elif self._numbers.is_doubtful(number, error):
            self._open.shorten(number, self._clock.monotonic() + self._in_doubt_wait_s)
        else:
            self._tell(number, refusal_of(error))

    def _tell(self, number: i64, error: BusError | None) -> None:
        operation = self._open.take(number)
        if operation is not None:
            operation.answered(named(operation.index, error) if error is not None else None)
        if self._open.has_waiting():
            self._go_on()

    def reopened(self) -> None:
        """The store is open again, and the mark is what it says."""
        for number in self._numbers.take_in_doubt():
            self._tell(number, None if self._numbers.is_done(number) else FragmentUnavailable(NOT_CARRIED_OUT))

    def tick(self, now: float) -> bool:
        """Nobody waits for ever. Returns whether anybody waits at all."""
        for operation in self._open.take_overdue(now):
            operation.answered(outcome_unknown(operation.index, _WHO))
        for operation in self._open.take_overdue_waiting(now):
            operation.answered(unavailable(operation.index, "The messaging store does not answer."))
        if self._open.has_waiting():
            self._go_on()
        self._is_watched = self._open.open_count > 0 or self._open.has_waiting()
        return self._is_watched

    def open_count(self) -> int:
        return int(self._open.open_count)


def refused_on_the_spot(error: BusError) -> BusError:
    """A store that hangs has not taken it either."""
    return FragmentUnavailable(str(error)) if isinstance(error, OperationTimeout) else refusal_of(error)


def unsent_copy(message: Message, is_first_entity: bool) -> Message:
    """The message as it was before a fragment took it in. One that was forwarded keeps the number that it had at the
    first entity."""
    copy = Message(message.sections)
    copy.annotations_end = message.annotations_end
    copy.properties_end = message.properties_end
    copy.application_end = message.application_end
    copy.priority = message.priority
    copy.flags = message.flags & ~IS_SCHEDULED
    copy.ttl_ms = message.ttl_ms
    copy.scheduled_at = message.scheduled_at
    copy.session_id = message.session_id
    copy.partition_key = message.partition_key
    copy.is_ping = message.is_ping
    copy.wire_size = message.wire_size
    copy.original_number = 0 if is_first_entity else message.original_number
    copy.hops = message.hops
    copy.application_properties = message.application_properties
    return copy


@final
class _Sent(SendReply):
    def __init__(self, channel: LocalChannel) -> None:
        self._channel: Final = channel

    def collected(self, operation: SendOperation) -> None:
        self._channel.collected(operation.delivery_id)

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        self._channel.answer(operation.delivery_id, error)


@final
class _Discharged(TransactionReply):
    def __init__(self, channel: LocalChannel, operation: LocalDischarge) -> None:
        self._channel: Final = channel
        self._operation: Final = operation

    def collected(self, operation: TransactionOperation) -> None:
        self._channel.collected(self._operation.number)

    def discharged(self, operation: TransactionOperation, error: BusError | None) -> None:
        self._operation.was_in_doubt = error is not None
        self._channel.answer(self._operation.number, error)
