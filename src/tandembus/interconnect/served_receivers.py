"""Who receives over a channel, at the broker's end: consumers with their credit, and what was pushed to them.

A push is a lock that is merely kept ready until the front end reports that a client has got the message. So when the
front end dies, everything that nobody has seen goes back at once and uncounted, and the rest stays locked: its clients
may settle it through another front end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.broker.locks import MessageLock
from tandembus.broker.operations import Consumer
from tandembus.errors import BusError, MalformedData
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.deferred import Deferred
from tandembus.interconnect.fields import Cursor, write_u8
from tandembus.interconnect.frames import (
    ADD_CONSUMER,
    CREDIT,
    DRAIN,
    DRAINED,
    EVENTS,
    FRAME_GOAL_BYTES,
    LOCKS_LOST,
    PUSHES,
    REMOVE_CONSUMER,
    begin_frame,
    end_frame,
)
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.number_ranges import read_range
from tandembus.interconnect.served_sessions import ServedSessions
from tandembus.interconnect.wire_messages import write_stored
from tandembus.message import Message
from tandembus.store.messaging_store import LANES

if TYPE_CHECKING:
    from tandembus.interconnect.served_channel import ServedChannel

MAX_CONSUMERS: Final = 200_000
MAX_REPORT: Final = 1 << 24


@final
class ChannelConsumer(Consumer):
    """A consumer of a front end in another process."""

    def __init__(self, receivers: ServedReceivers, number: i64, lane: i64, max_unreported_bytes: i64) -> None:
        super().__init__(False)
        self.keeps_ready = True
        self.number: i64 = number
        self.lane: i64 = lane
        self.hold_number: i64 = 0
        self.traffic: LocalTraffic | None = None
        """None before its fragment is open, and after it has left."""
        self.drain_number: i64 = 0
        self.is_draining: bool = False
        self.is_hungry: bool = False
        """It is to be fed before the turn is over."""
        self.is_held_back: bool = False
        """It is to be fed when the front end has read."""
        self.unreported_bytes: i64 = 0
        self.unreported_count: i64 = 0
        self._waits_for_room: bool = False
        self._max_unreported_bytes: i64 = max_unreported_bytes
        self._receivers: Final = receivers
        self._limit: i64 = 0
        self._pushed: i64 = 0

    def set_limit(self, limit: i64) -> None:
        self._limit = limit
        self.credit = max(limit - self._pushed, i64(0))

    def can_take(self) -> bool:
        """A front end that does not read, or does not hand over what it has, must not be filled."""
        if self._waits_for_room:
            return False
        return self.credit > 0 and self.unreported_bytes < self._max_unreported_bytes and self._receivers.has_room(self)

    def has_room_for(self, size_bytes: i64) -> bool:
        traffic = self.traffic
        if traffic is None:
            return False
        memory = traffic.fragment.budget.large
        if memory.can_give(size_bytes):
            return True
        self._waits_for_room = True
        memory.wait(self, self._room_came)
        return False

    def _room_came(self) -> None:
        self._waits_for_room = False
        self._receivers.feed_soon(self)

    def deliver(self, message: Message, lock: MessageLock) -> None:
        self._pushed += 1
        self.unreported_bytes += len(message.sections)
        self.unreported_count += 1
        self._receivers.push(self, message, lock)

    def reported(self, size_bytes: i64) -> bool:
        """Returns whether it can take more than before."""
        was_full = self.unreported_bytes >= self._max_unreported_bytes
        self.unreported_count -= 1
        self.unreported_bytes -= size_bytes
        return was_full and self.unreported_bytes < self._max_unreported_bytes

    def locks_lost(self) -> None:
        self._receivers.locks_lost(self)

    def session_lost(self, error: BusError) -> None:
        self._receivers.sessions.lost(self, error)

    def drained(self) -> None:
        self.credit = 0
        self._limit = self._pushed
        self.is_draining = False
        self._receivers.drained(self)

    def flush(self) -> None:
        self._receivers.wake()


@final
class _Pushed:
    """A message that was pushed and that nobody has reported yet."""

    __slots__ = ("consumer", "lock")

    def __init__(self, consumer: ChannelConsumer, lock: MessageLock) -> None:
        self.consumer: Final = consumer
        self.lock: Final = lock


@final
class _DeferredConsumer(Deferred):
    def __init__(self, receivers: ServedReceivers, consumer: ChannelConsumer) -> None:
        self._receivers: Final = receivers
        self._consumer: Final = consumer

    def carry_out(self, traffic: LocalTraffic) -> None:
        self._receivers.attach(self._consumer, traffic)

    def refuse(self, error: BusError) -> None:
        """It gets nothing; a drain must not wait for ever."""
        if self._consumer.is_draining:
            self._consumer.drained()


@final
class ServedReceivers:
    def __init__(self, channel: ServedChannel, settings: ChannelSettings) -> None:
        self.consumers: dict[int, ChannelConsumer] = {}
        self.sessions: Final = ServedSessions(channel, self)
        self._channel: Final = channel
        self._max_unsent_bytes: i64 = settings.unsent_bytes
        self._max_unreported_bytes: i64 = settings.unreported_bytes
        self._unreported: dict[int, _Pushed] = {}
        self._next_push: i64 = 1
        self._pushes: BytesWriter = BytesWriter()
        self._frame_at: i64 = -1
        """Where the frame begins that is being filled; -1: none is."""
        self._events: BytesWriter = BytesWriter()
        self._hungry: list[ChannelConsumer] = []
        self._held_back: list[ChannelConsumer] = []
        """Who could have taken something if the front end had read."""

    def wake(self) -> None:
        self._channel.wake()

    # Pushing.

    def has_room(self, consumer: ChannelConsumer) -> bool:
        if i64(len(self._pushes)) < self._max_unsent_bytes:
            return True
        if not consumer.is_held_back:
            consumer.is_held_back = True
            self._held_back.append(consumer)
        return False

    def push(self, consumer: ChannelConsumer, message: Message, lock: MessageLock) -> None:
        number = self._next_push
        self._next_push += 1
        lock.push_number = number
        self._unreported[int(number)] = _Pushed(consumer, lock)
        out = self._pushes
        if self._frame_at < 0:
            self._frame_at = begin_frame(out, PUSHES, self._channel.epoch)
            write_i64_be(out, number)
        write_u32(out, consumer.number)
        out.write(lock.token)
        write_u8(out, lock.lane)
        write_i64_be(out, lock.locked_until_ms)
        write_stored(out, message)
        if i64(len(out)) - self._frame_at >= FRAME_GOAL_BYTES:
            self._end_frame()

    def _end_frame(self) -> None:
        if self._frame_at >= 0:
            end_frame(self._pushes, self._frame_at)
            self._frame_at = -1

    def write_behind(self, out: BytesWriter) -> BytesWriter:
        """Returns what holds all of it. Pushes with nothing before them are not copied: they may be large."""
        if len(self._pushes) > 0:
            self._end_frame()
            pushes = self._pushes
            self._pushes = BytesWriter()
            if len(out) == 0:
                out = pushes
            else:
                out.write(pushes.getvalue())
        if len(self._events) > 0:
            at = begin_frame(out, EVENTS, self._channel.epoch)
            out.write(self._events.getvalue())
            end_frame(out, at)
            self._events = BytesWriter()
        for consumer in self._held_back:
            consumer.is_held_back = False
            self._make_hungry(consumer)
        self._held_back = []
        if self._hungry:
            self._channel.feed_soon()
        return out

    def event(self, kind: i64) -> BytesWriter:
        """Where an event is to be written that the front end is told of."""
        write_u8(self._events, kind)
        self._channel.wake()
        return self._events

    def go_on_from(self, number: i64) -> None:
        """Pushes are numbered on over the connections of a channel: no report of an earlier one can be taken for one of
        this."""
        self._next_push = max(self._next_push, number)

    # What was reported.

    def take_handed(self, cursor: Cursor) -> None:
        while cursor.has_more():
            first, end = read_range(cursor, MAX_REPORT)
            if end - first > i64(len(self._unreported)):
                # More than there are: what is void by now may be among them.
                for number in list(self._unreported):
                    if first <= number < end:
                        self._handed(number)
            else:
                while first < end:
                    self._handed(first)
                    first += 1
        self.feed_hungry()

    def _handed(self, number: i64) -> None:
        pushed = self._unreported.pop(int(number), None)
        if pushed is not None:
            pushed.lock.is_kept_ready = False
            pushed.lock.uncount()
            self._reported(pushed)

    def was_settled(self, lock: MessageLock) -> None:
        """Perhaps one that another channel has pushed: the numbers are each channel's own."""
        pushed = self._unreported.get(int(lock.push_number))
        if pushed is not None and pushed.lock is lock:
            self._unreported.pop(int(lock.push_number))
            self._reported(pushed)

    def _reported(self, pushed: _Pushed) -> None:
        if pushed.consumer.reported(pushed.lock.size_bytes):
            self._make_hungry(pushed.consumer)

    def locks_lost(self, consumer: ChannelConsumer) -> None:
        """What it was given is void, such as after a transaction that did not fit into the store."""
        self.forget(consumer)
        write_u32(self.event(LOCKS_LOST), consumer.number)

    def forget(self, consumer: ChannelConsumer) -> None:
        """Nobody will report what was pushed to it."""
        if consumer.unreported_count > 0:
            for number in list(self._unreported):
                if self._unreported[number].consumer is consumer:
                    self._unreported.pop(number)
        consumer.unreported_count = 0
        consumer.unreported_bytes = 0

    def unreported_count(self) -> int:
        """Messages of which nobody has said yet that a client has them."""
        return len(self._unreported)

    def forget_lapsed(self) -> None:
        """Pushes whose locks are over before anybody reported or settled them."""
        for number in list(self._unreported):
            pushed = self._unreported[number]
            if pushed.lock.settlement != 0:
                self._unreported.pop(number)
                self._reported(pushed)
        self.feed_hungry()

    # Consumers.

    def take_control(self, cursor: Cursor) -> None:
        while cursor.has_more():
            kind = cursor.byte()
            if kind == CREDIT:
                consumer = self.consumers.get(int(cursor.u32()))
                limit = cursor.long()
                if consumer is not None:
                    consumer.set_limit(limit)
                    self._make_hungry(consumer)
            elif kind == DRAIN:
                self._drain(cursor.u32(), cursor.long(), cursor.u32())
            elif kind == ADD_CONSUMER:
                self._add(cursor.u32(), cursor.u32(), cursor.byte())
            elif kind == REMOVE_CONSUMER:
                self._remove(cursor.u32())
                cursor.byte()  # reserved
            else:
                self.sessions.take_control(kind, cursor)
        self.feed_hungry()

    def new_consumer(self, number: i64, lane: i64) -> ChannelConsumer:
        if len(self.consumers) >= MAX_CONSUMERS or int(number) in self.consumers:
            raise MalformedData("a consumer too many, or one that is known already")
        consumer = ChannelConsumer(self, number, lane, self._max_unreported_bytes)
        self.consumers[int(number)] = consumer
        return consumer

    def _add(self, number: i64, fragment_key: i64, lane: i64) -> None:
        if lane >= i64(len(LANES)):
            raise MalformedData("a lane that does not exist")
        consumer = self.new_consumer(number, lane)
        traffic = self._channel.traffic(fragment_key)
        if traffic is None:
            self._channel.defer(fragment_key, _DeferredConsumer(self, consumer))
        else:
            self.attach(consumer, traffic)

    def attach(self, consumer: ChannelConsumer, traffic: LocalTraffic) -> None:
        if self.consumers.get(int(consumer.number)) is not consumer:
            return  # it left before its fragment was open
        consumer.traffic = traffic
        traffic.attach(consumer, consumer.lane)
        self._make_hungry(consumer)

    def _drain(self, number: i64, limit: i64, drain_number: i64) -> None:
        consumer = self.consumers.get(int(number))
        if consumer is not None:
            consumer.set_limit(limit)
            consumer.drain_number = drain_number
            consumer.is_draining = True
            self._make_hungry(consumer)

    def drained(self, consumer: ChannelConsumer) -> None:
        out = self.event(DRAINED)
        write_u32(out, consumer.number)
        write_u32(out, consumer.drain_number)

    def _remove(self, number: i64) -> None:
        consumer = self.consumers.pop(int(number), None)
        if consumer is not None:
            self.detach(consumer)

    def detach(self, consumer: ChannelConsumer) -> None:
        traffic = consumer.traffic
        consumer.traffic = None
        consumer.credit = 0
        if traffic is not None:
            traffic.detach(consumer, consumer.lane)
        self.forget(consumer)

    def feed_soon(self, consumer: ChannelConsumer) -> None:
        self._make_hungry(consumer)
        self._channel.feed_soon()

    def _make_hungry(self, consumer: ChannelConsumer) -> None:
        if not consumer.is_hungry:
            consumer.is_hungry = True
            self._hungry.append(consumer)

    def feed_hungry(self) -> None:
        """Once for all that a frame has said."""
        while self._hungry:
            hungry = self._hungry
            self._hungry = []
            for consumer in hungry:
                consumer.is_hungry = False
                traffic = consumer.traffic
                if traffic is not None:
                    traffic.feed(consumer, consumer.lane, consumer.is_draining)

    # The end.

    def end(self) -> None:
        """The connection is gone, or the store: nobody is left who could be given anything."""
        self.sessions.end()
        consumers = list(self.consumers.values())
        self.consumers = {}
        self._unreported = {}
        for consumer in consumers:
            self.detach(consumer)
        self._pushes = BytesWriter()
        self._frame_at = -1
        self._events = BytesWriter()
        self._hungry = []
        self._held_back = []
