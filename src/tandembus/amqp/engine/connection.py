"""One AMQP connection as a pure state machine: bytes in, events out. Both roles, no socket, no clock.

    NEW -> SASL -> HEADER -> OPENING -> OPEN -> CLOSE_SENT -> CLOSED

Whatever a peer sends, `receive_data` does not raise: what breaks the protocol closes the connection with the error that
the specification has for it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, final

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from tandembus.amqp.encoding.delivery_states import AmqpError
from tandembus.amqp.encoding.descriptors import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TRANSFER,
)
from tandembus.amqp.encoding.fields import Fields
from tandembus.amqp.encoding.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_HEADER_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    write_close,
    write_open,
)
from tandembus.amqp.encoding.performatives import (
    MIN_MAX_FRAME_SIZE,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    Transfer,
    read_error,
)
from tandembus.amqp.engine.amqp_session import AmqpSession, SessionState
from tandembus.amqp.engine.conditions import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    ProtocolViolation,
)
from tandembus.amqp.engine.events import (
    ConnectionClosed,
    Event,
    Opened,
    SaslInit,
    SaslOutcome,
    SessionBegun,
)
from tandembus.amqp.engine.sasl import read_mechanisms, write_init, write_mechanisms, write_outcome
from tandembus.amqp.engine.settings import MAX_PIPELINED_BYTES, MAX_SASL_FRAME_SIZE, EngineSettings
from tandembus.errors import InvalidOperation, MalformedData

RETAINED_BUFFER_BYTES: Final = 65_536
IDLE_GRACE: Final = 1.5
"""A peer counts as gone after this many of the idle time-outs it was told."""


class State(Enum):
    NEW = 1
    """Nothing but a protocol header may come."""
    SASL = 2
    SASL_DECIDING = 3
    """Server: the application decides about the credentials; bytes wait."""
    HEADER = 4
    """Authenticated; the AMQP header comes next."""
    OPENING = 5
    OPEN = 6
    CLOSE_SENT = 7
    """Only the peer's close is still listened to."""
    CLOSED = 8


@final
class Connection:
    """One connection. After `receive_data`, and after every call that writes, send `data_to_send()`."""

    __slots__ = (
        "_by_peer_channel",
        "_channel_max",
        "_disposition",
        "_fields",
        "_flow",
        "_has_heard",
        "_has_sent",
        "_initial_response",
        "_is_open_sent",
        "_last_heard",
        "_last_peer_channel",
        "_last_sent",
        "_last_session",
        "_max_receive_size",
        "_mechanism",
        "_needed",
        "_peer_idle_timeout_s",
        "_received",
        "_started",
        "_transfer",
        "_unfinished_bytes",
        "is_closed",
        "out",
        "peer_container_id",
        "peer_hostname",
        "peer_max_frame_size",
        "sessions",
        "settings",
        "state",
    )

    def __init__(self, settings: EngineSettings, now: float) -> None:
        self.settings: Final = settings
        self.out: BytesWriter = BytesWriter()
        self.state: State = State.NEW
        self.is_closed: bool = False
        self.sessions: Final[dict[int, AmqpSession]] = {}
        self.peer_container_id: str = ""
        self.peer_hostname: str | None = None
        self.peer_max_frame_size: i64 = MIN_MAX_FRAME_SIZE
        self._channel_max: i64 = settings.channel_max
        self._by_peer_channel: Final[dict[int, AmqpSession]] = {}
        self._last_peer_channel: i64 = -1
        self._last_session: AmqpSession | None = None
        self._received: BytesWriter = BytesWriter()
        self._needed: i64 = 0
        self._max_receive_size: i64 = MAX_SASL_FRAME_SIZE
        self._unfinished_bytes: i64 = 0
        self._mechanism: str | None = None
        self._initial_response: bytes = b""
        self._is_open_sent: bool = False
        self._fields: Final = Fields()
        self._transfer: Final = Transfer()
        self._disposition: Final = Disposition()
        self._flow: Final = Flow()
        self._has_heard: bool = False
        self._has_sent: bool = False
        self._started: float = now
        self._last_heard: float = now
        self._last_sent: float = now
        self._peer_idle_timeout_s: float = 0.0

    # What the driver calls

    def receive_data(self, data: bytes) -> list[Event]:
        """Feed bytes from the peer; returns what they meant."""
        events: list[Event] = []
        if self.state is State.CLOSED:
            return events
        self._has_heard = True
        try:
            self._consume(data, events)
        except MalformedData as error:
            self._fail(AmqpError(DECODE_ERROR, str(error)), events)
        except ProtocolViolation as violation:
            self._fail(violation.error, events)
        return events

    def data_to_send(self) -> bytes:
        """Everything written since the last call."""
        out = self.out
        size: i64 = len(out)
        if size == 0:
            return b""
        data = out.getvalue()
        if size > RETAINED_BUFFER_BYTES:
            self.out = BytesWriter()
        else:
            out.truncate(0)
        self._has_sent = True
        return data

    def pending_bytes(self) -> int:
        return len(self.out)

    def tick(self, now: float) -> list[Event]:
        """Time passes: keep the connection alive, and notice when the peer does not. Call it about once a second."""
        events: list[Event] = []
        if self.state is State.CLOSED:
            return events
        if self._has_heard:
            self._has_heard = False
            self._last_heard = now
        if self._has_sent:
            self._has_sent = False
            self._last_sent = now
        self._check_silence(now, events)
        if not self.is_closed and self._heartbeat_is_due(now):
            self.out.write(EMPTY_FRAME)
        return events

    def _check_silence(self, now: float, events: list[Event]) -> None:
        settings = self.settings
        if self.state is State.OPEN or self.state is State.CLOSE_SENT:
            patience = float(settings.idle_timeout_ms) / 1000.0 * IDLE_GRACE
            if patience > 0.0 and now - self._last_heard > patience:
                self._fail(
                    AmqpError(CONNECTION_FORCED, "The peer was silent beyond the idle time-out."), events
                )
        elif now - self._started > settings.open_timeout_s:
            self._fail(AmqpError(CONNECTION_FORCED, "The connection was not opened in time."), events)

    def _heartbeat_is_due(self, now: float) -> bool:
        timeout = self._peer_idle_timeout_s
        return self.state is State.OPEN and timeout > 0.0 and now - self._last_sent >= timeout / 2.0

    # What the application calls

    def sasl_outcome(self, ok: bool) -> None:
        """Server: the answer to `SaslInit`. The peer may have sent more meanwhile: call `receive_data(b"")` next."""
        if self.state is not State.SASL_DECIDING:
            return
        write_outcome(self.out, ok)
        if ok:
            self.state = State.HEADER
        else:
            self.state = State.CLOSED
            self.is_closed = True

    def start(self, sasl_mechanism: str | None = "ANONYMOUS", initial_response: bytes = b"") -> None:
        """Client: begin to speak. Without a mechanism there is no SASL layer."""
        self._mechanism = sasl_mechanism
        self._initial_response = initial_response
        if sasl_mechanism is None:
            self.out.write(AMQP_HEADER)
            self.state = State.HEADER
            self._send_open()
        else:
            self.out.write(SASL_HEADER)

    def begin(self) -> AmqpSession:
        """Client: a new session; `SessionBegun` follows, but links may be attached at once."""
        if not self._is_open_sent or self.is_closed:
            raise InvalidOperation("the connection is not open")
        session = AmqpSession(self, self._free_channel(-1), -1)
        self.sessions[int(session.channel)] = session
        session.write_begin()
        return session

    def close(self, error: AmqpError | None = None) -> None:
        """Close. Nothing more can be written; `ConnectionClosed` comes when the peer has answered."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._is_open_sent:
            write_close(self.out, error)
            self.state = State.CLOSE_SENT
        else:
            self.state = State.CLOSED

    # Bytes to frames

    def _consume(self, data: bytes, events: list[Event]) -> None:
        received = self._received
        if len(received) > 0:
            received.write(data)
            if i64(len(received)) < self._needed:
                return
            data = received.getvalue()
            self._received = BytesWriter()
        self._needed = FRAME_HEADER_SIZE
        at: i64 = self._consume_frames(data, events)
        rest: i64 = i64(len(data)) - at
        if rest > 0 and self.state is not State.CLOSED:
            self._received.write(data[at:])
            if self.state is State.SASL_DECIDING and rest > MAX_PIPELINED_BYTES:
                raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "Too much was sent before the SASL outcome.")

    def _consume_frames(self, data: bytes, events: list[Event]) -> i64:
        """Handle every whole frame; returns where the rest begins."""
        at: i64 = 0
        size: i64 = len(data)
        while size - at >= FRAME_HEADER_SIZE:
            state = self.state
            if state is State.OPEN:
                pass
            elif state is State.NEW or state is State.HEADER:
                self._take_header(data[at : at + 8], events)
                at += 8
                continue
            elif state is State.SASL_DECIDING:
                self._needed = 0
                return at
            elif state is State.CLOSED:
                return size
            frame_size: i64 = i64(read_i32_be(data, at)) & 0xFFFFFFFF
            if frame_size < FRAME_HEADER_SIZE or frame_size > self._max_receive_size:
                raise ProtocolViolation(FRAMING_ERROR, f"A frame of {frame_size} bytes is not allowed.")
            if size - at < frame_size:
                self._needed = frame_size
                return at
            self._take_frame(data, at, at + frame_size, events)
            at += frame_size
        return at

    def _take_header(self, header: bytes, events: list[Event]) -> None:
        is_client = not self.settings.is_server
        if header == SASL_HEADER and self.state is State.NEW and self._mechanism_fits(is_client):
            self.state = State.SASL
            if not is_client:
                self.out.write(SASL_HEADER)
                write_mechanisms(self.out, self.settings.sasl_mechanisms)
        elif header == AMQP_HEADER and self._may_skip_sasl(is_client):
            self.state = State.OPENING
            self._max_receive_size = self.settings.max_frame_size
            if not is_client:
                self.out.write(AMQP_HEADER)
        else:
            self._refuse_header(header, events)

    def _mechanism_fits(self, is_client: bool) -> bool:
        return self._mechanism is not None if is_client else len(self.settings.sasl_mechanisms) > 0

    def _may_skip_sasl(self, is_client: bool) -> bool:
        if self.state is State.HEADER:
            return True
        return not is_client and not self.settings.require_sasl

    def _refuse_header(self, header: bytes, events: list[Event]) -> None:
        """The specification's way to disagree: answer with the header that would have been right, then hang up."""
        if self.settings.is_server:
            offers_sasl = self.state is State.NEW and len(self.settings.sasl_mechanisms) > 0
            self.out.write(SASL_HEADER if offers_sasl else AMQP_HEADER)
        self.state = State.CLOSED
        self.is_closed = True
        error = AmqpError(FRAMING_ERROR, f"The protocol header {header!r} is not the one expected here.")
        events.append(ConnectionClosed(error, False))

    def _take_frame(self, data: bytes, at: i64, end: i64, events: list[Event]) -> None:
        body: i64 = at + i64(data[at + 4]) * 4
        if body < at + FRAME_HEADER_SIZE or body > end:
            raise ProtocolViolation(FRAMING_ERROR, "A frame whose data offset is outside it.")
        frame_type: i64 = data[at + 5]
        if frame_type == AMQP_FRAME and self.state is not State.SASL:
            if body == end:
                return
            channel: i64 = (i64(data[at + 6]) << 8) | i64(data[at + 7])
            code: i64 = self._fields.open(data, body, end)
            if self.state is State.OPEN:
                self._take_performative(code, channel, data, end, events)
            else:
                self._take_outside_open(code, events)
        elif frame_type == SASL_FRAME and self.state is State.SASL:
            self._take_sasl(self._fields.open(data, body, end), events)
        else:
            raise ProtocolViolation(FRAMING_ERROR, f"A frame of type {frame_type} does not belong here.")

    # SASL

    def _take_sasl(self, code: i64, events: list[Event]) -> None:
        fields = self._fields
        if code == SASL_INIT and self.settings.is_server:
            mechanism = fields.text()
            response = fields.binary()
            hostname = fields.text()
            if mechanism is None or mechanism not in self.settings.sasl_mechanisms:
                self._refuse_credentials(events)
                return
            self.state = State.SASL_DECIDING
            events.append(SaslInit(mechanism, response or b"", hostname or ""))
        elif code == SASL_MECHANISMS and not self.settings.is_server:
            self._choose_mechanism(read_mechanisms(fields), events)
        elif code == SASL_OUTCOME and not self.settings.is_server:
            self._take_outcome(fields.number(1) == 0, events)
        else:
            raise ProtocolViolation(NOT_ALLOWED, "An unexpected SASL frame.")

    def _refuse_credentials(self, events: list[Event]) -> None:
        write_outcome(self.out, False)
        self._fail(AmqpError(NOT_ALLOWED, "This SASL mechanism is not offered."), events)

    def _choose_mechanism(self, offered: list[str], events: list[Event]) -> None:
        mechanism = self._mechanism
        if mechanism is None or mechanism not in offered:
            self._fail(AmqpError(NOT_ALLOWED, f"The server does not offer {mechanism}."), events)
            return
        write_init(self.out, mechanism, self._initial_response, self.settings.hostname)

    def _take_outcome(self, ok: bool, events: list[Event]) -> None:
        events.append(SaslOutcome(ok))
        if not ok:
            self._fail(AmqpError("amqp:unauthorized-access", "The server refused the credentials."), events)
            return
        self.out.write(AMQP_HEADER)
        self.state = State.HEADER
        self._send_open()

    # The connection's own performatives

    def _send_open(self) -> None:
        if self._is_open_sent:
            return
        self._is_open_sent = True
        settings = self.settings
        write_open(
            self.out,
            settings.container_id,
            settings.hostname,
            settings.max_frame_size,
            settings.channel_max,
            settings.idle_timeout_ms,
            settings.properties,
        )

    def _take_outside_open(self, code: i64, events: list[Event]) -> None:
        if self.state is State.CLOSE_SENT:
            if code == CLOSE:
                self.state = State.CLOSED
                events.append(ConnectionClosed(read_error(self._fields), False))
        elif code == OPEN:
            self._take_open(events)
        elif code == CLOSE:
            self._take_close(events)
        else:
            raise ProtocolViolation(ILLEGAL_STATE, "The first performative must be open.")

    def _take_open(self, events: list[Event]) -> None:
        open_ = Open(self._fields)
        self.peer_container_id = open_.container_id
        self.peer_hostname = open_.hostname
        self.peer_max_frame_size = open_.max_frame_size
        self._channel_max = min(open_.channel_max, i64(self.settings.channel_max))
        self._peer_idle_timeout_s = float(int(open_.idle_timeout_ms)) / 1000.0
        self.state = State.OPEN
        self._send_open()
        events.append(Opened(open_.container_id, open_.hostname, open_.properties))

    def _take_close(self, events: list[Event]) -> None:
        error = read_error(self._fields)
        self._send_open()
        write_close(self.out, None)
        self.state = State.CLOSED
        self.is_closed = True
        events.append(ConnectionClosed(error, True))

    def _fail(self, error: AmqpError, events: list[Event]) -> None:
        """Close because of `error`, as far as the connection has got; what the peer still sends is not read."""
        if self.state is State.OPENING and self.settings.is_server:
            self._send_open()
        if self._is_open_sent and not self.is_closed:
            write_close(self.out, error)
        self.is_closed = True
        self.state = State.CLOSED
        self._received = BytesWriter()
        events.append(ConnectionClosed(error, False))

    # Sessions

    def _take_performative(self, code: i64, channel: i64, data: bytes, end: i64, events: list[Event]) -> None:
        if code == TRANSFER:
            self._transfer.read(self._fields)
            session = self._session_at(channel)
            if session.state is SessionState.MAPPED:
                session.take_transfer(self._transfer, data, end, events)
        elif code == DISPOSITION:
            self._disposition.read(self._fields)
            session = self._session_at(channel)
            if session.state is SessionState.MAPPED:
                session.take_disposition(self._disposition, events)
        elif code == FLOW:
            self._flow.read(self._fields)
            session = self._session_at(channel)
            if session.state is SessionState.MAPPED:
                session.take_flow(self._flow, events)
        else:
            self._take_rare(code, channel, events)

    def _take_rare(self, code: i64, channel: i64, events: list[Event]) -> None:
        if code == BEGIN:
            self._take_begin(Begin(self._fields), channel, events)
        elif code == ATTACH:
            attach = Attach(self._fields)
            session = self._session_at(channel)
            if session.state is SessionState.MAPPED:
                session.take_attach(attach, events)
        elif code == DETACH:
            detach = Detach(self._fields)
            session = self._session_at(channel)
            if session.state is SessionState.MAPPED:
                session.take_detach(detach, events)
        elif code == END:
            self._take_end(channel, events)
        elif code == CLOSE:
            self._take_close(events)
        else:
            raise ProtocolViolation(
                ILLEGAL_STATE if code == OPEN else NOT_ALLOWED, "An unexpected performative."
            )

    def _session_at(self, peer_channel: i64) -> AmqpSession:
        """Frames come in runs for one session, so the last one found is remembered."""
        last = self._last_session
        if last is not None and peer_channel == self._last_peer_channel:
            return last
        session = self._by_peer_channel.get(int(peer_channel))
        if session is None:
            raise ProtocolViolation(NOT_ALLOWED, f"No session has begun on channel {peer_channel}.")
        self._last_peer_channel = peer_channel
        self._last_session = session
        return session

    def _take_begin(self, begin: Begin, channel: i64, events: list[Event]) -> None:
        if int(channel) in self._by_peer_channel:
            raise ProtocolViolation(NOT_ALLOWED, f"A session has begun on channel {channel} already.")
        if channel > self.settings.channel_max:
            raise ProtocolViolation(FRAMING_ERROR, "A channel above channel-max.")
        session = self._answered(begin) if begin.remote_channel >= 0 else self._accept_session(channel)
        session.peer_channel = channel
        self._by_peer_channel[int(channel)] = session
        is_ours = begin.remote_channel >= 0
        if session.state is SessionState.REQUESTED:
            session.take_begin(begin)
            if not is_ours:
                session.write_begin()
            events.append(SessionBegun(session))

    def _answered(self, begin: Begin) -> AmqpSession:
        session = self.sessions.get(int(begin.remote_channel))
        if session is None or session.peer_channel >= 0:
            raise ProtocolViolation(NOT_ALLOWED, "A begin that answers none of ours.")
        return session

    def _accept_session(self, channel: i64) -> AmqpSession:
        if len(self.sessions) >= self.settings.max_sessions:
            raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "Too many sessions on this connection.")
        session = AmqpSession(self, self._free_channel(int(channel)), int(channel))
        self.sessions[int(session.channel)] = session
        return session

    def _free_channel(self, preferred: int) -> int:
        if preferred >= 0 and preferred not in self.sessions and preferred <= self._channel_max:
            return preferred
        channel = 0
        while channel in self.sessions:
            channel += 1
        if channel > self._channel_max:
            raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "The peer allows no more sessions.")
        return channel

    def _take_end(self, channel: i64, events: list[Event]) -> None:
        error = read_error(self._fields)
        session = self._session_at(channel)
        session.take_end(error, events)
        del self._by_peer_channel[int(channel)]
        self.sessions.pop(int(session.channel), None)
        self._last_session = None
        self._last_peer_channel = -1

    def has_too_many_links(self) -> bool:
        count = 0
        for session in self.sessions.values():
            count += len(session.links)
        if count > 2 * self.settings.max_links:
            raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "Too many refused links on this connection.")
        return count > self.settings.max_links

    def hold_unfinished(self, size: i64) -> bool:
        """Account for bytes of deliveries that are not complete; False when it becomes too much."""
        self._unfinished_bytes += size
        return self._unfinished_bytes <= self.settings.max_unfinished_bytes
