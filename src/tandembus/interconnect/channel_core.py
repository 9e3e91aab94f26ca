"""The front end's end of a channel to one store, without its socket: what is said, what is heard, what is in doubt.

Nothing here waits and nothing here reads a socket: `channel.py` connects, feeds frames in and writes what `collect`
gives. While the broker or its store is away, new operations are refused on the spot (`FragmentUnavailable`: nothing was
taken), and those under way are in doubt. They wait a little for the return, since then the store's mark tells what
became of them; if it does not come in time, nobody knows (`OutcomeUnknown`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.broker.locks import LOCK_LOST, OPEN, TOKEN_BYTES, MessageLock, SettleReply, is_of_epoch
from tandembus.broker.operations import Consumer, SendOperation
from tandembus.broker.transactions import TransactionOperation
from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    MalformedData,
    MessageLockLost,
    OperationTimeout,
    ServerBusy,
)
from tandembus.interconnect.channel_operations import OpenDischarge, OpenSend, OpenSettle
from tandembus.interconnect.channel_sessions import ChannelSessions
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.control_frame import ControlFrame
from tandembus.interconnect.fields import Cursor, write_u8
from tandembus.interconnect.frames import (
    ADD_CONSUMER,
    ANSWERS,
    CREDIT,
    DONE,
    DOWN,
    DRAIN,
    DRAINED,
    ERRORS,
    EVENTS,
    FRAME_GOAL_BYTES,
    HANDED,
    HANGING,
    LOCKS_LOST,
    NOT_DONE,
    NUMBERS,
    OPERATIONS,
    PUSHES,
    REMOVE_CONSUMER,
    RESUME,
    RESUMED,
    SENDS,
    SETTLES,
    STORE,
    TABLES,
    UP,
    WINDOW,
    FrameReader,
    begin_frame,
    end_frame,
)
from tandembus.interconnect.number_ranges import NumberRanges, read_range
from tandembus.interconnect.open_operations import OpenOperation, OpenOperations, named, outcome_unknown, unavailable
from tandembus.interconnect.remote_consumer import RemoteConsumer, pushed_lock
from tandembus.interconnect.wire_errors import error_of
from tandembus.interconnect.wire_messages import read_stored
from tandembus.large_messages import counted, patience_s
from tandembus.store.messaging_store import MARK_NUMBERS

_AWAY: Final = "The message broker cannot be reached."
_NOT_DONE: Final = "The message broker was away."
_TAKES_NOTHING: Final = "The message broker does not take what is sent to it."
_WHO: Final = "message broker"


@final
class ChannelCore:
    def __init__(self, clock: Clock, settings: ChannelSettings, wake: Callable[[], None]) -> None:
        """`wake`: something is to be written at the end of the turn."""
        self.epoch: i64 = 0
        self.is_up: bool = False
        """Connected, and the store is open."""
        self.sessions: Final = ChannelSessions(self)
        self.consumers: Final[dict[int, RemoteConsumer]] = {}
        self._clock: Final = clock
        self._wake: Final = wake
        self._in_doubt_wait_s: float = settings.in_doubt_wait_s
        self._fragment_timeout_s: float = settings.fragment_timeout_s
        self._outage_s: float = settings.commit_outage_s
        self._max_waiting_bytes: i64 = settings.waiting_bytes
        self._failure: BusError | None = FragmentUnavailable(_AWAY)
        self._is_silent: bool = False
        """Something was not answered in time, and nothing was answered since."""
        self._sends: Final = OpenOperations(settings.window_count, settings.window_bytes)
        self._settles: Final = OpenOperations(settings.window_count, settings.window_bytes)
        self._tables: Final = [self._sends, self._settles]
        self._asked: list[list[int]] = []
        """The numbers that the broker was asked for when it came back."""
        self._is_woken: bool = False
        self._control: Final = ControlFrame()
        self._untold: list[RemoteConsumer] = []
        self._handed: Final = NumberRanges()
        self._next_consumer: i64 = 1
        self._next_push: i64 = 1
        self._last_answer_at: float = 0.0

    # State.

    def failure(self) -> BusError | None:
        if self._failure is None and self._is_silent:
            return OperationTimeout("The message broker does not answer.")
        return self._failure

    def is_out(self) -> bool:
        return self._failure is not None or self._is_silent

    def refusal(self) -> BusError:
        """What is refused while the broker is away was not taken, whatever keeps it away."""
        return FragmentUnavailable(self._why())

    def _why(self) -> str:
        failure = self.failure()
        return str(failure) if failure is not None else _AWAY

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    # Operations.

    def send(self, fragment_key: i64, index: i64, operation: SendOperation) -> None:
        self.check_can_take(index, operation.size_bytes)
        self._sends.add(OpenSend(fragment_key, index, operation, self._deadline(operation.size_bytes)))
        self.wake()

    def schedule(self, fragment_key: i64, index: i64, operation: SendOperation) -> OpenSend:
        """A send whose sender wants to know the numbers: they are in what is returned, when the reply is called."""
        self.check_can_take(index, operation.size_bytes)
        schedule = OpenSend(fragment_key, index, operation, self._deadline(operation.size_bytes), True)
        self._sends.add(schedule)
        self.wake()
        return schedule

    def discharge(self, fragment_key: i64, index: i64, operation: TransactionOperation) -> None:
        size_bytes = operation.size_bytes
        for settlement in operation.settlements:
            self.check_lock(settlement.lock)
        for part in operation.others:
            size_bytes += part.operation.size_bytes
            for settlement in part.operation.settlements:
                self.check_lock(settlement.lock)
        self.check_can_take(index, size_bytes)
        self._sends.add(OpenDischarge(fragment_key, index, operation, self._deadline(size_bytes)))
        self.wake()

    def check_can_take(self, index: i64, size_bytes: i64) -> None:
        """Raises where the broker cannot take a send of this size. One that is silent, or whose store hangs, gets
        nothing new: the answers to earlier operations show when it is back."""
        if not self.is_up or self.is_out():
            raise unavailable(index, self._why())
        waiting = self._sends.waiting_bytes
        if waiting > 0 and waiting + counted(size_bytes) > self._max_waiting_bytes:
            if self._clock.monotonic() - self._last_answer_at < self._outage_s:
                raise ServerBusy("The message broker has more to do than it can: too much is waiting for it.")
            raise unavailable(index, _TAKES_NOTHING)

    def _deadline(self, size_bytes: i64) -> float:
        """Later where large messages go first."""
        wait_s = self._fragment_timeout_s + patience_s(self._sends.open_bytes + size_bytes)
        return self._clock.monotonic() + wait_s

    def check_lock(self, lock: MessageLock) -> None:
        """As far as that is known here: the broker has the last word."""
        if lock.settlement != OPEN or (self.is_up and not is_of_epoch(lock.token, int(self.epoch))):
            raise MessageLockLost(LOCK_LOST)

    def settle(self, fragment_key: i64, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> OpenSettle:
        self.check_lock(lock)
        if not self.is_up:
            raise unavailable(lock.index, self._why())
        operation = OpenSettle(fragment_key, lock, settlement, reply, self._deadline(0))
        lock.settlement = settlement
        lock.asked = settlement
        self._settles.add(operation)
        self.wake()
        return operation

    def handed_over(self, lock: MessageLock) -> None:
        if lock.push_number > 0:
            self._handed.add(lock.push_number)
            self.wake()

    # Consumers.

    def add_consumer(self, fragment_key: i64, consumer: Consumer, lane: i64) -> RemoteConsumer:
        receiver = RemoteConsumer(self, self._next_consumer, fragment_key, consumer, lane)
        self._next_consumer += 1
        self.consumers[int(receiver.number)] = receiver
        return receiver

    def introduce(self, receiver: RemoteConsumer) -> None:
        """Tell the broker of it; also once more, after the broker has forgotten it."""
        if not self.is_up:
            return
        out = self.begin_control(ADD_CONSUMER)
        write_u32(out, receiver.number)
        write_u32(out, receiver.fragment_key)
        write_u8(out, receiver.lane)
        self.end_control()
        if receiver.limit() > 0:
            self.tell(receiver)

    def remove_consumer(self, receiver: RemoteConsumer) -> None:
        receiver.left()
        if self.consumers.pop(int(receiver.number), None) is None or not self.is_up:
            return
        out = self.begin_control(REMOVE_CONSUMER)
        write_u32(out, receiver.number)
        write_u8(out, 0)  # reserved
        self.end_control()

    def tell(self, receiver: RemoteConsumer) -> None:
        """Its limit has changed, or it drains: the broker is told at the end of the turn."""
        if self.is_up and not receiver.is_unwritten:
            receiver.is_unwritten = True
            self._untold.append(receiver)
            self.wake()

    def _write_credit(self, receiver: RemoteConsumer) -> None:
        receiver.is_unwritten = False
        if int(receiver.number) not in self.consumers:
            return
        limit = receiver.limit()
        out = self.begin_control(DRAIN if receiver.is_draining else CREDIT)
        write_u32(out, receiver.number)
        write_i64_be(out, limit)
        if receiver.is_draining:
            write_u32(out, receiver.drain_number)
        self.end_control()
        receiver.granted = limit

    def begin_control(self, kind: i64) -> BytesWriter:
        """Where it is to be written."""
        return self._control.begin(kind)

    def end_control(self) -> None:
        self.wake()

    # Out.

    def collect(self) -> bytes:
        """Everything that is to be written now. What was handed over and what was settled stand first: a consumer that
        leaves gives back what its client has not got, and a session what is not settled."""
        self._is_woken = False
        if not self.is_up:
            return b""
        out = BytesWriter()
        if not self._handed.is_empty():
            at = begin_frame(out, HANDED, self.epoch)
            self._handed.take_into(out)
            end_frame(out, at)
        self._write_operations(out, SETTLES)
        for receiver in self._untold:
            self._write_credit(receiver)
        self._untold = []
        self._control.write(out, self.epoch, self._settles.has_waiting())
        self._write_operations(out, SENDS)
        return out.getvalue()

    def _write_operations(self, out: BytesWriter, code: i64) -> None:
        table = self._tables[code]
        while table.can_open():
            at = begin_frame(out, OPERATIONS, self.epoch)
            write_u8(out, code)
            while table.can_open() and i64(len(out)) - at < FRAME_GOAL_BYTES:
                operation = table.open_next()
                operation.epoch = self.epoch
                operation.write(out)
            end_frame(out, at)

    # In.

    def take(self, reader: FrameReader) -> None:
        """A frame from the broker. Raises MalformedData for what cannot be one."""
        kind = reader.kind
        cursor = Cursor(reader.data, reader.at, reader.end)
        if kind == ANSWERS:
            self._take_answers(cursor)
        elif kind == PUSHES:
            self._take_pushes(cursor, reader.epoch == self.epoch and self.is_up)
        elif kind == ERRORS:
            self._take_errors(cursor)
        elif kind == NUMBERS:
            self._take_numbers(cursor)
        elif kind == EVENTS:
            self._take_events(cursor)
        elif kind == STORE:
            self._take_store(cursor, reader.epoch)
        elif kind == WINDOW:
            self._take_window(cursor)
        elif kind == RESUMED:
            self._take_resumed(cursor, reader.epoch)
        else:
            raise MalformedData(f"a frame of type {kind} that nobody here knows")

    def _table(self, cursor: Cursor) -> OpenOperations:
        code = cursor.byte()
        if code >= TABLES:
            raise MalformedData("an answer to a kind of operation that does not exist")
        return self._tables[code]

    def _take_answers(self, cursor: Cursor) -> None:
        table = self._table(cursor)
        while cursor.has_more():
            number, end = read_range(cursor, MARK_NUMBERS)
            while number < end:
                operation = table.take(number)
                if operation is not None:
                    operation.answered(None)
                number += 1
        self._heard_of(table)

    def _heard_of(self, table: OpenOperations) -> None:
        self._is_silent = False
        self._last_answer_at = self._clock.monotonic()
        if table.has_waiting():
            self.wake()

    def _take_errors(self, cursor: Cursor) -> None:
        while cursor.has_more():
            table = self._table(cursor)
            operation = table.take(cursor.long())
            name, text = cursor.text(), cursor.text()
            if operation is not None:
                operation.answered(named(operation.index, error_of(name, text)))
            self._heard_of(table)

    def _take_numbers(self, cursor: Cursor) -> None:
        while cursor.has_more():
            operation = self._sends.find(cursor.long())
            numbers = [int(cursor.long()) for _ in range(cursor.u32())]
            if isinstance(operation, OpenSend):
                operation.numbers = numbers

    def _take_pushes(self, cursor: Cursor, is_valid: bool) -> None:
        now, now_ms = self._clock.monotonic(), i64(self._clock.now_ms())
        number = cursor.long()
        last: RemoteConsumer | None = None
        while cursor.has_more():
            receiver = self.consumers.get(int(cursor.u32()))
            token = cursor.bytes_of(TOKEN_BYTES)
            lane = cursor.byte()
            until_ms = cursor.long()
            message = read_stored(cursor)
            number += 1
            self._next_push = number
            if receiver is None or not is_valid:
                continue  # it left, and the broker has heard so by now
            locked_until = now + float(until_ms - now_ms) / 1000.0
            receiver.pushed(message, pushed_lock(token, lane, message, locked_until, until_ms, number - 1))
            if last is not None and last is not receiver:
                last.consumer.flush()
            last = receiver
        if last is not None:
            last.consumer.flush()

    def _take_events(self, cursor: Cursor) -> None:
        while cursor.has_more():
            kind = cursor.byte()
            if kind == DRAINED:
                receiver = self.consumers.get(int(cursor.u32()))
                number = cursor.u32()
                if receiver is not None:
                    receiver.drained(number)
            elif kind == LOCKS_LOST:
                receiver = self.consumers.get(int(cursor.u32()))
                if receiver is not None:
                    receiver.locks_lost()
            else:
                self.sessions.take_event(kind, cursor)

    def _take_window(self, cursor: Cursor) -> None:
        for table in self._tables:
            table.max_count = min(cursor.u32(), i64(MARK_NUMBERS))
            table.max_bytes = cursor.long()
        self.wake()

    # Coming and going.

    def resume(self) -> bytes:
        """What is said first on a new connection: which operations are in doubt, and how many pushes there were."""
        out = BytesWriter()
        at = begin_frame(out, RESUME, self.epoch)
        write_i64_be(out, self._next_push)
        self._asked = [table.numbers() for table in self._tables]
        for numbers in self._asked:
            write_u32(out, len(numbers))
            for number in numbers:
                write_i64_be(out, number)
        end_frame(out, at)
        return out.getvalue()

    def _take_resumed(self, cursor: Cursor, epoch: i64) -> None:
        state = cursor.byte()
        for code in range(len(self._asked)):
            for number in self._asked[code]:
                self._resolve(self._tables[code], number, cursor.byte(), epoch)
        self._asked = []
        if state == UP:
            self._come_up(epoch)

    def _resolve(self, table: OpenOperations, number: i64, fate: i64, epoch: i64) -> None:
        if fate != DONE and fate != NOT_DONE:
            return  # its answer is still to come
        operation = table.take(number)
        if operation is None:
            return  # it was given up meanwhile
        if fate == DONE:
            operation.answered(None)
        elif not operation.can_be_repeated():
            operation.answered(unavailable(operation.index, _NOT_DONE))
        elif operation.epoch == epoch:
            self._repeat(table, operation)
        else:
            operation.answered(MessageLockLost(LOCK_LOST))

    def _repeat(self, table: OpenOperations, operation: OpenOperation) -> None:
        """It is known not to have been carried out, and never will be under its old number."""
        operation.number = 0
        operation.deadline = self._deadline(operation.size_bytes)
        table.add(operation)

    def _take_store(self, cursor: Cursor, epoch: i64) -> None:
        state = cursor.byte()
        if state == UP:
            self._come_up(epoch)
            return
        text = cursor.text()
        if state == DOWN:
            self.go_down(FragmentUnavailable(text))
        elif state == HANGING and self.is_up:
            self._failure = OperationTimeout(text)

    def _come_up(self, epoch: i64) -> None:
        if self.is_up and self.epoch == epoch:
            self._failure = None  # it hung, and does not any more
            self._is_silent = False
            return
        self.epoch = epoch
        self.is_up = True
        self._failure = None
        self._is_silent = False
        self._last_answer_at = self._clock.monotonic()
        for receiver in list(self.consumers.values()):
            self.introduce(receiver)
        self.sessions.came_up()
        self.wake()

    def go_down(self, error: BusError) -> None:
        """The connection is gone, or the store has failed. What was never carried to the broker can go elsewhere at
        once; what was is in doubt."""
        self._failure = error
        self._is_woken = False
        was_up = self.is_up
        self.is_up = False
        self._control.clear()
        self._untold = []
        self._handed.clear()
        if not was_up:
            return
        for table in self._tables:
            table.bring_forward(self._clock.monotonic() + self._in_doubt_wait_s)
            for operation in table.take_waiting():
                operation.answered(unavailable(operation.index, self._why()))
        self.sessions.went_down(error)
        for receiver in list(self.consumers.values()):
            receiver.went_down()

    def tick(self, now: float) -> None:
        """Called a few times a second: nobody waits for ever."""
        for table in self._tables:
            for operation in table.take_overdue(now):
                self._is_silent = self.is_up
                operation.answered(outcome_unknown(operation.index, _WHO))
            for operation in table.take_overdue_waiting(now):
                operation.answered(unavailable(operation.index, _TAKES_NOTHING))

    def close(self) -> None:
        """This front end ends: nobody will learn what became of what is open."""
        self.go_down(FragmentUnavailable(_AWAY))
        for table in self._tables:
            for number in table.numbers():
                operation = table.take(number)
                if operation is not None:
                    operation.answered(outcome_unknown(operation.index, _WHO))

    def is_idle(self) -> bool:
        """Nothing is in doubt or under way, and nothing waits to be."""
        for table in self._tables:
            if table.open_count > 0 or table.has_waiting():
                return False
        return True

    def open_counts(self) -> tuple[int, int]:
        """Sends and settlements that are in doubt or under way."""
        return int(self._sends.open_count), int(self._settles.open_count)
