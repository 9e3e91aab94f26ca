"""The broker's end of a channel, without its socket: operations are staged on fragments as they come, messages go out.

It outlives its connection for as long as it has operations under way: their answers go to whoever comes back with the
same channel. Everything else ends with the connection at once: consumers are gone, their messages that no client has
seen go back uncounted, sessions are free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.broker.channel_marks import ChannelMark
from tandembus.broker.locks import LOCK_LOST, MessageLock, SettleReply
from tandembus.broker.operations import SendOperation, SendReply, TransferSource
from tandembus.broker.transactions import TransactionCancel
from tandembus.errors import BusError, FragmentUnavailable, MalformedData, MessageLockLost, OperationTimeout
from tandembus.interconnect.channel_operations import HAS_NUMBERS, HAS_SOURCE, IS_VIA
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.deferred import Deferred
from tandembus.interconnect.fields import Cursor, write_text, write_u8
from tandembus.interconnect.frames import (
    CONTROL,
    DISCHARGE,
    DOWN,
    ERRORS,
    HANDED,
    HANGING,
    OPERATIONS,
    OTHER_LIFE,
    RESUME,
    RESUMED,
    SCHEDULE,
    SEND,
    SENDS,
    SETTLE,
    SETTLES,
    STORE,
    TABLES,
    UP,
    WINDOW,
    FrameReader,
    begin_frame,
    end_frame,
)
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.served_operations import ServedOperations
from tandembus.interconnect.served_parts import Discharge, DischargePart, Settlement, read_settlement, read_state
from tandembus.interconnect.served_receivers import ServedReceivers
from tandembus.interconnect.wire_messages import read_sent
from tandembus.message import Message
from tandembus.store.messaging_store import MARK_NUMBERS

MAX_MESSAGES: Final = 100_000
"""Messages in one operation; far more than the front end lets through."""

_HANGS: Final = "The messaging store does not answer."


@final
class ServedChannel:
    def __init__(
        self,
        sends: ChannelMark,
        settles: ChannelMark,
        settings: ChannelSettings,
        open_fragment: Callable[[ServedChannel, int], None],
        wake: Callable[[ServedChannel], None],
        feed_soon: Callable[[ServedChannel], None],
    ) -> None:
        """`open_fragment` is to call `opened` or `not_opened` later; `wake`: there is something to be written at the
        end of the turn; `feed_soon`: call `feed` in the next turn."""
        self.is_connected: bool = False
        self.is_store_open: bool = True
        self.is_hanging: bool = False
        """The store is open and does not answer, as all front ends were told."""
        self.epoch: i64 = 0
        self.sends: Final = ServedOperations(SENDS, sends)
        self.settles: Final = ServedOperations(SETTLES, settles)
        self.receivers: Final = ServedReceivers(self, settings)
        self._tables: Final = [self.sends, self.settles]
        self._window_bytes: i64 = settings.window_bytes
        self._window_count: i64 = settings.window_count
        self._open_fragment: Final = open_fragment
        self._wake: Final = wake
        self._feed_soon: Final = feed_soon
        self._is_woken: bool = False
        self._traffics: dict[int, LocalTraffic] = {}
        self._waiting: dict[int, list[Deferred]] = {}
        """By the fragment that is being opened."""
        self._out: BytesWriter = BytesWriter()
        self._sent: Final = _Sent(self)
        self._scheduled: Final = _Scheduled(self)
        self._settled: Final = _Settled(self)
        self._unanswered: Final = _Unanswered()

    def wake(self) -> None:
        if not self._is_woken and self.is_connected:
            self._is_woken = True
            self._wake(self)

    # Fragments.

    def traffic(self, fragment_key: i64) -> LocalTraffic | None:
        """None while it has to be opened first."""
        traffic = self._traffics.get(int(fragment_key))
        if traffic is None or traffic.fragment.is_closed:
            return None
        return traffic

    def defer(self, fragment_key: i64, deferred: Deferred) -> None:
        waiting = self._waiting.get(int(fragment_key))
        if waiting is not None:
            waiting.append(deferred)
        else:
            self._waiting[int(fragment_key)] = [deferred]
            self._open_fragment(self, int(fragment_key))

    def opened(self, fragment_key: int, traffic: LocalTraffic) -> None:
        """What waited goes first, in its order."""
        self._traffics[fragment_key] = traffic
        for deferred in self._waiting.pop(fragment_key, []):
            deferred.carry_out(traffic)
        self.receivers.feed_hungry()

    def not_opened(self, fragment_key: int, error: BusError) -> None:
        for deferred in self._waiting.pop(fragment_key, []):
            deferred.refuse(error)

    def forget_closed(self) -> None:
        """Fragments that have left the memory, or the world."""
        for fragment_key in list(self._traffics):
            fragment = self._traffics[fragment_key].fragment
            if fragment.is_closed or fragment.is_void:
                self._traffics.pop(fragment_key)

    # In.

    def take(self, reader: FrameReader) -> None:
        """A frame from the front end. Raises MalformedData for what cannot be one."""
        kind = reader.kind
        cursor = Cursor(reader.data, reader.at, reader.end)
        if kind == OPERATIONS:
            self._take_operations(cursor, reader.epoch == self.epoch and self.is_store_open)
        elif kind == HANDED:
            self.receivers.take_handed(cursor)
        elif kind == CONTROL:
            if reader.epoch == self.epoch and self.is_store_open:
                self.receivers.take_control(cursor)
        elif kind == RESUME:
            self._take_resume(cursor)
        else:
            raise MalformedData(f"a frame of type {kind} that nobody here knows")

    def _take_operations(self, cursor: Cursor, is_current: bool) -> None:
        code = cursor.byte()
        if code >= TABLES:
            raise MalformedData("operations of a kind that does not exist")
        table = self._tables[code]
        while cursor.has_more():
            kind = cursor.byte()
            number = cursor.long()
            fragment_key = cursor.u32()
            if (kind == SEND or kind == SCHEDULE) and code == SENDS:
                reply: SendReply = self._sent if kind == SEND else self._scheduled
                operation = self._read_send(cursor, reply, number)
                table.take(number)
                self._carry_send(fragment_key, operation, is_current)
            elif kind == SETTLE and code == SETTLES:
                part = read_settlement(cursor)
                table.take(number)
                self._carry_settlement(fragment_key, number, part, is_current)
            elif kind == DISCHARGE and code == SENDS:
                discharge = self._read_discharge(cursor, number, fragment_key)
                table.take(number)
                self._carry_discharge(fragment_key, discharge, is_current)
            else:
                raise MalformedData("an operation that nobody here knows")
        self.receivers.feed_hungry()

    def _read_send(self, cursor: Cursor, reply: SendReply, number: i64) -> SendOperation:
        facts = cursor.byte()
        size_bytes = cursor.u32()
        count = cursor.u32()
        if count == 0 or count > MAX_MESSAGES:
            raise MalformedData("an operation with no messages, or too many")
        messages: list[Message] = []
        while count > 0:
            messages.append(read_sent(cursor))
            count -= 1
        source = _read_source(cursor, len(messages)) if facts & HAS_SOURCE else None
        operation = SendOperation(messages, size_bytes, reply, number, facts & IS_VIA != 0, source)
        if facts & HAS_NUMBERS:
            operation.promised = [int(cursor.long()) for _ in messages]
        return operation

    # Sends.

    def _carry_send(self, fragment_key: i64, operation: SendOperation, is_current: bool) -> None:
        traffic = self.traffic(fragment_key)
        if not is_current:
            self.refuse(SENDS, operation.delivery_id, FragmentUnavailable(OTHER_LIFE))
        elif traffic is None:
            self.defer(fragment_key, _DeferredSend(self, operation))
        else:
            self.send(traffic, operation)

    def send(self, traffic: LocalTraffic, operation: SendOperation) -> None:
        try:
            traffic.send(operation)
        except OperationTimeout as error:
            # The store hangs. Nothing was taken, so whoever can may try elsewhere.
            self.refuse(SENDS, operation.delivery_id, FragmentUnavailable(str(error)))
        except BusError as error:
            self.answer(SENDS, operation.delivery_id, error)

    # Settlements.

    def _carry_settlement(self, fragment_key: i64, number: i64, part: Settlement, is_current: bool) -> None:
        traffic = self.traffic(fragment_key)
        if not is_current:
            self.refuse(SETTLES, number, MessageLockLost(LOCK_LOST))
        elif traffic is None:
            self.defer(fragment_key, _DeferredSettlement(self, number, part))
        else:
            self.settle(traffic, number, part)

    def settle(self, traffic: LocalTraffic, number: i64, part: Settlement) -> None:
        lock = traffic.fragment.locks.find(part.token)
        if lock is None:
            self.refuse(SETTLES, number, MessageLockLost(LOCK_LOST))
            return
        self.receivers.was_settled(lock)
        try:
            traffic.check_lock(lock)  # what is told with it must not change a settlement that is under way
            lock.delivery_id = number
            lock.reason = part.reason
            lock.description = part.description
            lock.changes = part.changes
            traffic.settle(lock, part.settlement, self._settled)
        except BusError as error:
            self.answer(SETTLES, number, error)

    # Transactions.

    def _read_discharge(self, cursor: Cursor, number: i64, fragment_key: i64) -> Discharge:
        discharge = Discharge(self, number)
        discharge.parts.append(self._read_part(cursor, fragment_key))
        count = _read_count(cursor)
        while count > 0:
            discharge.parts.append(self._read_part(cursor, cursor.u32()))
            count -= 1
        return discharge

    def _read_part(self, cursor: Cursor, fragment_key: i64) -> DischargePart:
        part = DischargePart(fragment_key)
        count = _read_count(cursor)
        while count > 0:
            part.sends.append(self._read_send(cursor, self._unanswered, 0))
            count -= 1
        count = _read_count(cursor)
        while count > 0:
            part.settlements.append(read_settlement(cursor))
            count -= 1
        count = _read_count(cursor)
        while count > 0:
            part.cancels.append(TransactionCancel(cursor.long(), cursor.long(), cursor.long()))
            count -= 1
        count = _read_count(cursor)
        while count > 0:
            part.states.append(read_state(cursor))
            count -= 1
        return part

    def _carry_discharge(self, fragment_key: i64, discharge: Discharge, is_current: bool) -> None:
        traffic = self.traffic(fragment_key)
        if not is_current:
            self.refuse(SENDS, discharge.number, FragmentUnavailable(OTHER_LIFE))
        elif traffic is None:
            self.defer(fragment_key, discharge)
        else:
            discharge.carry_out(traffic)

    def feed_soon(self) -> None:
        """The front end has read: whoever was held back for that is fed in the next turn."""
        self._feed_soon(self)

    # Answers.

    def collected(self, code: i64, number: i64) -> None:
        self._tables[code].numbers.collected(number)

    def answer(self, code: i64, number: i64, error: BusError | None) -> None:
        self._tables[code].answer(number, error)
        self.wake()

    def refuse(self, code: i64, number: i64, error: BusError) -> None:
        self._tables[code].refuse(number, error)
        self.wake()

    # Out.

    def collect(self) -> bytes:
        """Everything that is to be written now; pushes stand before the drains that end them."""
        self._is_woken = False
        out = self._out
        self._out = BytesWriter()
        errors = b""
        for table in self._tables:
            table.write_answers(out, self.epoch)
            errors += table.take_errors()
        if errors:
            at = begin_frame(out, ERRORS, self.epoch)
            out.write(errors)
            end_frame(out, at)
        return self.receivers.write_behind(out).getvalue()

    # Coming and going.

    def connected(self, epoch: i64, is_store_open: bool, is_hanging: bool) -> None:
        """On a new connection; the one before is closed, and nothing of it will be read any more."""
        self.is_connected = True
        self._is_woken = False
        self.epoch = epoch
        self.is_store_open = is_store_open
        self.is_hanging = is_hanging

    def disconnected(self) -> None:
        self.is_connected = False
        self._out = BytesWriter()
        for table in self._tables:
            table.forget_answers()
        self.receivers.end()

    def is_idle(self) -> bool:
        """Nobody is connected, and nothing is under way: all else is in the mark."""
        return not self.is_connected and self.sends.under_way == 0 and self.settles.under_way == 0

    def _take_resume(self, cursor: Cursor) -> None:
        self.receivers.go_on_from(cursor.long())
        out = self._out
        at = begin_frame(out, RESUMED, self.epoch)
        write_u8(out, UP if self.is_store_open else DOWN)
        for table in self._tables:
            count = cursor.u32()
            if count > MARK_NUMBERS:
                raise MalformedData("more operations in doubt than there can be")
            while count > 0:
                write_u8(out, table.fate(cursor.long()))
                count -= 1
        end_frame(out, at)
        self._write_window(out)
        if self.is_store_open and self.is_hanging:
            self._tell_store(HANGING, _HANGS)
        self.wake()

    def _write_window(self, out: BytesWriter) -> None:
        at = begin_frame(out, WINDOW, self.epoch)
        for _ in self._tables:
            _write_window_of(out, self._window_count, self._window_bytes)
        end_frame(out, at)

    def store_failed(self, error: BusError) -> None:
        """Its fragments are void, and everything on them. What the failed commit held is in doubt."""
        self.is_store_open = False
        self.receivers.end()
        self._tell_store(DOWN, str(error))

    def store_reopened(self, epoch: i64) -> None:
        self.epoch = epoch
        self.is_store_open = True
        for table in self._tables:
            table.resolve()
        self._tell_store(UP, "")

    def store_hangs(self, is_hanging: bool) -> None:
        self.is_hanging = is_hanging
        self._tell_store(HANGING if is_hanging else UP, _HANGS)

    def _tell_store(self, state: i64, text: str) -> None:
        if self.is_connected:
            at = begin_frame(self._out, STORE, self.epoch)
            write_u8(self._out, state)
            write_text(self._out, text)
            end_frame(self._out, at)
            self.wake()


def _read_count(cursor: Cursor) -> i64:
    count = cursor.u32()
    if count > MAX_MESSAGES:
        raise MalformedData("a transaction of too many parts")
    return count


def _read_source(cursor: Cursor, count: int) -> TransferSource:
    fragment_key = cursor.u32()
    lane = cursor.byte()
    return TransferSource(fragment_key, lane, [int(cursor.long()) for _ in range(count)])


def _write_window_of(out: BytesWriter, count: i64, size_bytes: i64) -> None:
    write_u32(out, count)
    write_i64_be(out, size_bytes)


@final
class _Sent(SendReply):
    def __init__(self, channel: ServedChannel) -> None:
        self._channel: Final = channel

    def collected(self, operation: SendOperation) -> None:
        self._channel.collected(SENDS, operation.delivery_id)

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        self._channel.answer(SENDS, operation.delivery_id, error)


@final
class _Scheduled(SendReply):
    """For a send whose sender wants to know the numbers."""

    def __init__(self, channel: ServedChannel) -> None:
        self._channel: Final = channel

    def collected(self, operation: SendOperation) -> None:
        self._channel.collected(SENDS, operation.delivery_id)

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        if error is None:
            self._channel.sends.tell_numbers(operation.delivery_id, operation.messages)
        self._channel.answer(SENDS, operation.delivery_id, error)


@final
class _Settled(SettleReply):
    def __init__(self, channel: ServedChannel) -> None:
        self._channel: Final = channel

    def collected(self, lock: MessageLock) -> None:
        self._channel.collected(SETTLES, lock.delivery_id)

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        self._channel.answer(SETTLES, lock.delivery_id, error)


@final
class _Unanswered(SendReply):
    """For sends of a transaction, which is answered as a whole."""

    def sent(self, operation: SendOperation, error: BusError | None) -> None:
        return


@final
class _DeferredSend(Deferred):
    def __init__(self, channel: ServedChannel, operation: SendOperation) -> None:
        self._channel: Final = channel
        self._operation: Final = operation

    def carry_out(self, traffic: LocalTraffic) -> None:
        self._channel.send(traffic, self._operation)

    def refuse(self, error: BusError) -> None:
        self._channel.answer(SENDS, self._operation.delivery_id, error)


@final
class _DeferredSettlement(Deferred):
    """A channel that has come back may not have used the fragment yet, and its clients may hold locks there."""

    def __init__(self, channel: ServedChannel, number: i64, part: Settlement) -> None:
        self._channel: Final = channel
        self._number: i64 = number
        self._part: Final = part

    def carry_out(self, traffic: LocalTraffic) -> None:
        self._channel.settle(traffic, self._number, self._part)

    def refuse(self, error: BusError) -> None:
        self._channel.answer(SETTLES, self._number, error)
