"""Sessions over a channel, at the broker's end: wishes are granted, holders are served, and all is free at once when
the front end is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.broker.sessions import SESSION_LOST
from tandembus.errors import BusError, MalformedData, SessionLockLost
from tandembus.interconnect.deferred import Deferred
from tandembus.interconnect.fields import Cursor, write_text
from tandembus.interconnect.frames import (
    AVAILABLE,
    GIVE_UP,
    GRANTED,
    HOLD,
    LEAVE,
    LOST_SESSION,
    NONE_AVAILABLE,
    REFUSED_SESSION,
    WATCH,
    WISH,
)
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish
from tandembus.interconnect.wire_errors import name_of, text_of
from tandembus.store.messaging_store import MAIN

if TYPE_CHECKING:
    from tandembus.interconnect.served_channel import ServedChannel
    from tandembus.interconnect.served_receivers import ChannelConsumer, ServedReceivers

MAX_WISHES: Final = 200_000


@final
class ServedWish(Deferred):
    """Somebody at the other end wants a session."""

    def __init__(self, sessions: ServedSessions, number: i64, session_id: str | None, is_patient: bool) -> None:
        self.number: i64 = number
        self._wish: SessionWish | None = SessionWish(session_id, is_patient, self.granted, self.refuse)
        """None when it is answered or given up; until then both refer to each other."""
        self.traffic: LocalTraffic | None = None
        self._sessions: Final = sessions

    def carry_out(self, traffic: LocalTraffic) -> None:
        wish = self._wish
        if wish is None:
            return  # given up before its fragment was open
        self.traffic = traffic
        try:
            traffic.wish_session(wish)
        except BusError as error:
            self.refuse(error)

    def granted(self, hold: SessionHold) -> None:
        traffic = self.traffic
        assert traffic is not None
        self._wish = None
        self._sessions.granted(self.number, hold, traffic)

    def refuse(self, error: BusError) -> None:
        self._wish = None
        self._sessions.refused(self.number, error)

    def give_up(self) -> None:
        wish = self._wish
        self._wish = None
        if wish is not None and self.traffic is not None:
            self.traffic.give_up_session(wish)


@final
class _ServedHold:
    __slots__ = ("consumer", "hold", "traffic")

    def __init__(self, hold: SessionHold, traffic: LocalTraffic) -> None:
        self.hold: Final = hold
        self.traffic: Final = traffic
        self.consumer: ChannelConsumer | None = None


def _is_live(held: _ServedHold) -> bool:
    """It may have lapsed before anybody held it, and be another's by now."""
    lock = held.hold.lock
    return lock is not None and lock.is_live(held.traffic.fragment.clock.monotonic())


@final
class _ServedWatch(Deferred):
    def __init__(self, sessions: ServedSessions, fragment_key: i64) -> None:
        self.fragment_key: i64 = fragment_key
        self.traffic: LocalTraffic | None = None
        """None before its fragment is open."""
        self._sessions: Final = sessions

    def carry_out(self, traffic: LocalTraffic) -> None:
        self._sessions.watch(self, traffic)

    def refuse(self, error: BusError) -> None:
        return

    def available(self, _index: int, enqueued_at: int) -> None:
        self._sessions.available(self, enqueued_at)

    def nothing(self, _index: int) -> None:
        self._sessions.nothing_available(self)


@final
class ServedSessions:
    def __init__(self, channel: ServedChannel, receivers: ServedReceivers) -> None:
        self._channel: Final = channel
        self._receivers: Final = receivers
        self._wishes: dict[int, ServedWish] = {}
        self._holds: dict[int, _ServedHold] = {}
        self._watches: dict[int, _ServedWatch] = {}
        """By fragment."""

    def hold_of(self, number: int) -> SessionHold | None:
        """For requests of the holder."""
        held = self._holds.get(number)
        return None if held is None else held.hold

    def take_control(self, kind: i64, cursor: Cursor) -> None:
        if kind == WISH:
            self._wish(cursor.long(), cursor.u32(), cursor.byte() != 0, cursor.text_or_none())
        elif kind == GIVE_UP:
            self._give_up(cursor.long())
        elif kind == HOLD:
            self._hold(cursor.long(), cursor.u32())
        elif kind == LEAVE:
            self._leave(cursor.long())
        elif kind == WATCH:
            self._watch(cursor.u32())
        else:
            raise MalformedData("a wish that nobody here knows")

    # Wishes.

    def _wish(self, number: i64, fragment_key: i64, is_patient: bool, session_id: str | None) -> None:
        if len(self._wishes) >= MAX_WISHES or int(number) in self._wishes or int(number) in self._holds:
            raise MalformedData("a wish too many, or one that is known already")
        wish = ServedWish(self, number, session_id, is_patient)
        self._wishes[int(number)] = wish
        traffic = self._channel.traffic(fragment_key)
        if traffic is None:
            self._channel.defer(fragment_key, wish)
        else:
            wish.carry_out(traffic)

    def granted(self, number: i64, hold: SessionHold, traffic: LocalTraffic) -> None:
        if self._wishes.pop(int(number), None) is None:
            traffic.leave_session(hold)  # whoever wished for it is gone
            return
        self._holds[int(number)] = _ServedHold(hold, traffic)
        out = self._receivers.event(GRANTED)
        write_i64_be(out, number)
        write_text(out, hold.session_id)
        write_i64_be(out, hold.locked_until_ms)

    def refused(self, number: i64, error: BusError) -> None:
        if self._wishes.pop(int(number), None) is not None:
            self._tell(REFUSED_SESSION, number, error)

    def _tell(self, kind: i64, number: i64, error: BusError) -> None:
        out = self._receivers.event(kind)
        write_i64_be(out, number)
        write_text(out, name_of(error))
        write_text(out, text_of(error))

    def _give_up(self, number: i64) -> None:
        """One that was granted meanwhile is left by a word of its own."""
        wish = self._wishes.pop(int(number), None)
        if wish is not None:
            wish.give_up()

    # Holding.

    def _hold(self, number: i64, consumer_number: i64) -> None:
        consumer = self._receivers.new_consumer(consumer_number, MAIN)
        held = self._holds.get(int(number))
        if held is None or not _is_live(held):
            self._holds.pop(int(number), None)
            self._receivers.consumers.pop(int(consumer_number), None)
            self._tell(LOST_SESSION, number, SessionLockLost(SESSION_LOST))
            return
        consumer.hold_number = number
        consumer.traffic = held.traffic
        held.consumer = consumer
        held.traffic.hold_session(held.hold, consumer)

    def _leave(self, number: i64) -> None:
        held = self._holds.pop(int(number), None)
        if held is not None:
            self._end_hold(held)

    def _end_hold(self, held: _ServedHold) -> None:
        consumer = held.consumer
        held.traffic.leave_session(held.hold)
        if consumer is not None:
            self._forget_consumer(consumer)

    def _forget_consumer(self, consumer: ChannelConsumer) -> None:
        consumer.traffic = None
        consumer.credit = 0
        self._receivers.consumers.pop(int(consumer.number), None)
        self._receivers.forget(consumer)

    def lost(self, consumer: ChannelConsumer, error: BusError) -> None:
        """Its lock has lapsed, or the store has failed."""
        if self._holds.pop(int(consumer.hold_number), None) is not None:
            self._forget_consumer(consumer)
            self._tell(LOST_SESSION, consumer.hold_number, error)

    # Looking out.

    def _watch(self, fragment_key: i64) -> None:
        watch = _ServedWatch(self, fragment_key)
        self._watches[int(fragment_key)] = watch
        traffic = self._channel.traffic(fragment_key)
        if traffic is None:
            self._channel.defer(fragment_key, watch)
        else:
            watch.carry_out(traffic)

    def watch(self, watch: _ServedWatch, traffic: LocalTraffic) -> None:
        if self._watches.get(int(watch.fragment_key)) is not watch:
            return  # whoever looked out was gone before the fragment was open
        try:
            traffic.watch_sessions(SessionWatch(watch.available, watch.nothing))
        except BusError:
            return  # the entity has no sessions any more; nobody is told of any
        watch.traffic = traffic

    def available(self, watch: _ServedWatch, enqueued_at: i64) -> None:
        if self._watches.get(int(watch.fragment_key)) is watch:
            self._watches.pop(int(watch.fragment_key))
            out = self._receivers.event(AVAILABLE)
            write_u32(out, watch.fragment_key)
            write_i64_be(out, enqueued_at)

    def nothing_available(self, watch: _ServedWatch) -> None:
        if self._watches.get(int(watch.fragment_key)) is watch:
            write_u32(self._receivers.event(NONE_AVAILABLE), watch.fragment_key)

    # The end.

    def end(self) -> None:
        """Sessions are free at once."""
        wishes, holds, watches = self._wishes, self._holds, self._watches
        self._wishes = {}
        self._holds = {}
        self._watches = {}
        for wish in wishes.values():
            wish.give_up()
        for held in holds.values():
            self._end_hold(held)
        for watch in watches.values():
            traffic = watch.traffic
            if traffic is not None:
                traffic.unwatch_sessions()
