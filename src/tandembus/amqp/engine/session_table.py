"""The sessions of a connection, found by our channel and by the peer's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.performatives import Begin
from tandembus.amqp.engine.amqp_session import AmqpSession
from tandembus.amqp.engine.conditions import (
    FRAMING_ERROR,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    ProtocolViolation,
)
from tandembus.amqp.engine.events import Event, SessionBegun
from tandembus.amqp.engine.states import SessionState
from tandembus.errors import InvalidOperation

if TYPE_CHECKING:
    from tandembus.amqp.engine.connection import Connection

NO_CHANNEL: Final = -1


@final
class SessionTable:
    __slots__ = ("_by_peer_channel", "_last", "_last_peer_channel", "channel_max", "sessions")

    def __init__(self, channel_max: i64) -> None:
        self.sessions: Final[dict[int, AmqpSession]] = {}
        self.channel_max: i64 = channel_max
        self._by_peer_channel: Final[dict[int, AmqpSession]] = {}
        self._last_peer_channel: i64 = NO_CHANNEL
        self._last: AmqpSession | None = None

    def at(self, peer_channel: i64) -> AmqpSession:
        """Frames come in runs for one session, so the last one found is remembered."""
        last = self._last
        if last is not None and peer_channel == self._last_peer_channel:
            return last
        session = self._by_peer_channel.get(int(peer_channel))
        if session is None:
            raise ProtocolViolation(NOT_ALLOWED, f"No session has begun on channel {peer_channel}.")
        self._last_peer_channel = peer_channel
        self._last = session
        return session

    def begin(self, connection: Connection) -> AmqpSession:
        """A session of our own; what the peer answers arrives at `take_begin`."""
        channel = self._free_channel(NO_CHANNEL)
        if channel < 0:
            raise InvalidOperation("the peer allows no more sessions")
        session = AmqpSession(connection, channel, NO_CHANNEL)
        self.sessions[channel] = session
        session.write_begin()
        return session

    def take_begin(self, connection: Connection, begin: Begin, peer_channel: i64, events: list[Event]) -> None:
        if int(peer_channel) in self._by_peer_channel:
            raise ProtocolViolation(NOT_ALLOWED, f"A session has begun on channel {peer_channel} already.")
        if peer_channel > connection.settings.channel_max:
            raise ProtocolViolation(FRAMING_ERROR, "A channel above channel-max.")
        is_answer = begin.remote_channel >= 0
        session = self._answered(begin) if is_answer else self._accept(connection, peer_channel)
        session.peer_channel = peer_channel
        self._by_peer_channel[int(peer_channel)] = session
        if session.state is SessionState.REQUESTED:
            session.take_begin(begin)
            if not is_answer:
                session.write_begin()
            events.append(SessionBegun(session))

    def _answered(self, begin: Begin) -> AmqpSession:
        session = self.sessions.get(int(begin.remote_channel))
        if session is None or session.peer_channel >= 0:
            raise ProtocolViolation(NOT_ALLOWED, "A begin that answers none of ours.")
        return session

    def _accept(self, connection: Connection, peer_channel: i64) -> AmqpSession:
        if len(self.sessions) >= connection.settings.max_sessions:
            raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "Too many sessions on this connection.")
        channel = self._free_channel(int(peer_channel))
        if channel < 0:
            raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "All channels that the peer allows are in use.")
        session = AmqpSession(connection, channel, int(peer_channel))
        self.sessions[channel] = session
        return session

    def _free_channel(self, preferred: int) -> int:
        if preferred >= 0 and preferred not in self.sessions and preferred <= self.channel_max:
            return preferred
        channel = 0
        while channel in self.sessions:
            channel += 1
        return channel if channel <= self.channel_max else NO_CHANNEL

    def stop_all(self) -> None:
        for session in self.sessions.values():
            session.stop()

    def forget(self, session: AmqpSession) -> None:
        del self._by_peer_channel[int(session.peer_channel)]
        del self.sessions[int(session.channel)]
        self._last = None
        self._last_peer_channel = NO_CHANNEL

    def let_go(self) -> None:
        for session in self.sessions.values():
            session.let_go()
        self.sessions.clear()
        self._by_peer_channel.clear()
        self._last = None
        self._last_peer_channel = NO_CHANNEL
