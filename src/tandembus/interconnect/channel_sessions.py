"""Sessions over a channel: who wishes for one, who holds one, who looks out for free ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import write_i64_be
from mypy_extensions import i64

from tandembus.amqp.encoding.encoder import write_u32
from tandembus.broker.operations import Consumer
from tandembus.broker.sessions import SESSION_LOST
from tandembus.errors import BusError, MalformedData, SessionLockLost
from tandembus.interconnect.fields import Cursor, write_text, write_u8
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
from tandembus.interconnect.open_operations import named
from tandembus.interconnect.remote_consumer import RemoteConsumer
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish
from tandembus.interconnect.wire_errors import error_of
from tandembus.store.messaging_store import MAIN

if TYPE_CHECKING:
    from tandembus.interconnect.channel_core import ChannelCore


@final
class _Wished:
    """A wish that the broker was told of."""

    __slots__ = ("fragment_key", "index", "wish")

    def __init__(self, wish: SessionWish, fragment_key: i64, index: i64) -> None:
        self.wish: Final = wish
        self.fragment_key: i64 = fragment_key
        self.index: i64 = index


@final
class _Watched:
    __slots__ = ("index", "watch")

    def __init__(self, watch: SessionWatch, index: i64) -> None:
        self.watch: Final = watch
        self.index: i64 = index


@final
class _Held:
    __slots__ = ("fragment_key", "hold", "receiver")

    def __init__(self, hold: SessionHold, fragment_key: i64) -> None:
        self.hold: Final = hold
        self.fragment_key: i64 = fragment_key
        self.receiver: RemoteConsumer | None = None


@final
class ChannelSessions:
    def __init__(self, core: ChannelCore) -> None:
        self._core: Final = core
        self._next: i64 = 1
        self._wished: dict[int, _Wished] = {}
        self._held: dict[int, _Held] = {}
        self._watched: dict[int, _Watched] = {}
        """By fragment."""

    def wish(self, wish: SessionWish, fragment_key: i64, index: i64) -> None:
        core = self._core
        if not core.is_up:
            wish.is_over = True
            wish.refused(named(index, core.refusal()))
            return
        number = self._next
        self._next += 1
        self._wished[int(number)] = _Wished(wish, fragment_key, index)
        wish.tag = int(number)
        out = core.begin_control(WISH)
        write_i64_be(out, number)
        write_u32(out, fragment_key)
        write_u8(out, 1 if wish.is_patient else 0)
        write_text(out, wish.session_id)
        core.end_control()

    def give_up(self, wish: SessionWish) -> None:
        wish.is_over = True
        number = wish.tag
        if isinstance(number, int) and self._wished.pop(number, None) is not None:
            self._tell(GIVE_UP, number)

    def _tell(self, kind: i64, number: i64) -> None:
        if self._core.is_up:
            write_i64_be(self._core.begin_control(kind), number)
            self._core.end_control()

    def hold(self, hold: SessionHold, consumer: Consumer) -> RemoteConsumer | None:
        """None where it was lost before anybody held it."""
        held = self._held.get(int(hold.number))
        if held is None or hold.is_over:
            consumer.session_lost(SessionLockLost(SESSION_LOST))
            return None
        core = self._core
        receiver = core.add_consumer(held.fragment_key, consumer, MAIN)
        receiver.hold = hold
        held.receiver = receiver
        out = core.begin_control(HOLD)
        write_i64_be(out, hold.number)
        write_u32(out, receiver.number)
        core.end_control()
        if receiver.limit() > 0:
            core.tell(receiver)
        return receiver

    def leave(self, hold: SessionHold) -> None:
        hold.is_over = True
        held = self._held.pop(int(hold.number), None)
        if held is not None:
            self._forget(held)
            self._tell(LEAVE, hold.number)

    def _forget(self, held: _Held) -> None:
        """The broker forgets the consumer along with the session."""
        receiver = held.receiver
        if receiver is not None:
            receiver.left()
            self._core.consumers.pop(int(receiver.number), None)

    def watch(self, watch: SessionWatch, fragment_key: i64, index: i64) -> None:
        self._watched[int(fragment_key)] = _Watched(watch, index)
        self._write_watch(fragment_key)

    def _write_watch(self, fragment_key: i64) -> None:
        if self._core.is_up:
            write_u32(self._core.begin_control(WATCH), fragment_key)
            self._core.end_control()

    # What the broker says.

    def take_event(self, kind: i64, cursor: Cursor) -> None:
        if kind == GRANTED:
            self._granted(cursor.long(), cursor.text(), cursor.long())
        elif kind == REFUSED_SESSION:
            number = cursor.long()
            self._refused(number, error_of(cursor.text(), cursor.text()))
        elif kind == LOST_SESSION:
            number = cursor.long()
            self._lost(number, error_of(cursor.text(), cursor.text()))
        elif kind == AVAILABLE:
            watched = self._watched.pop(int(cursor.u32()), None)
            enqueued_at = cursor.long()
            if watched is not None:
                watched.watch.available(int(watched.index), int(enqueued_at))
        elif kind == NONE_AVAILABLE:
            watched = self._watched.get(int(cursor.u32()))
            if watched is not None:
                watched.watch.nothing(int(watched.index))
        else:
            raise MalformedData("an event that nobody here knows")

    def _granted(self, number: i64, session_id: str, locked_until_ms: i64) -> None:
        wished = self._wished.pop(int(number), None)
        if wished is None:
            self._tell(LEAVE, number)  # given up before the broker knew
            return
        hold = SessionHold(session_id, locked_until_ms, wished.index)
        hold.number = number
        self._held[int(number)] = _Held(hold, wished.fragment_key)
        wished.wish.is_over = True
        wished.wish.granted(hold)

    def _refused(self, number: i64, error: BusError) -> None:
        wished = self._wished.pop(int(number), None)
        if wished is not None:
            wished.wish.is_over = True
            wished.wish.refused(error)

    def _lost(self, number: i64, error: BusError) -> None:
        held = self._held.pop(int(number), None)
        if held is None:
            return
        held.hold.is_over = True
        self._forget(held)
        if held.receiver is not None:
            held.receiver.consumer.session_lost(error)

    # Coming and going.

    def came_up(self) -> None:
        for fragment_key in self._watched:
            self._write_watch(fragment_key)

    def went_down(self, error: BusError) -> None:
        """A broker that is gone has freed every session; one that is back knows nobody who waits."""
        held, wished = self._held, self._wished
        self._held = {}
        self._wished = {}
        for one in held.values():
            one.hold.is_over = True
            self._forget(one)
            if one.receiver is not None:
                one.receiver.consumer.session_lost(SessionLockLost(SESSION_LOST))
        for waiting in wished.values():
            waiting.wish.is_over = True
            waiting.wish.refused(named(waiting.index, error))
