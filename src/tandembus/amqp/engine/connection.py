"""One AMQP connection as a pure state machine: bytes in, events out. Both roles, no socket, no clock.

    NEW -> SASL -> HEADER -> OPENING -> OPEN -> CLOSE_SENT -> CLOSED

Whatever a peer sends, `receive_data` does not raise: what breaks the protocol closes the connection with the
error that the specification has for it.
"""

from __future__ import annotations

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
from tandembus.amqp.engine.amqp_session import AmqpSession
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
)
from tandembus.amqp.engine.idle import IdleWatch
from tandembus.amqp.engine.sasl import read_mechanisms, write_init, write_mechanisms, write_outcome
from tandembus.amqp.engine.session_table import SessionTable
from tandembus.amqp.engine.settings import MAX_PIPELINED_BYTES, MAX_SASL_FRAME_SIZE, EngineSettings
from tandembus.amqp.engine.states import ConnectionState, SessionState
from tandembus.errors import InvalidOperation, MalformedData
from tandembus.large_messages import LargeMemory

RETAINED_BUFFER_BYTES: Final = 8_192
"""What an idle connection may keep of its write buffer: there may be thousands of them."""


@final
class Connection:
    """One connection. After `receive_data`, and after every call that writes, send `data_to_send()`."""

    __slots__ = (
        "_disposition",
        "_fields",
        "_flow",
        "_idle",
        "_initial_response",
        "_is_open_sent",
        "_max_receive_size",
        "_mechanism",
        "_needed",
        "_received",
        "_sessions",
        "_taken_bytes",
        "_transfer",
        "_unfinished_bytes",
        "held_bytes",
        "is_closed",
        "large_count",
        "large_heard",
        "large_memory",
        "link_count",
        "out",
        "peer_container_id",
        "peer_hostname",
        "peer_max_frame_size",
        "settings",
        "state",
        "wanted_bytes",
    )

    def __init__(self, settings: EngineSettings, now: float) -> None:
        self.settings: Final = settings
        self.out: BytesWriter = BytesWriter()
        self.state: ConnectionState = ConnectionState.NEW
        self.is_closed: bool = False
        self.link_count: i64 = 0
        self.held_bytes: i64 = 0
        self.peer_container_id: str = ""
        self.peer_hostname: str | None = None
        self.peer_max_frame_size: i64 = MIN_MAX_FRAME_SIZE
        self._sessions: Final = SessionTable(settings.channel_max)
        self._received: BytesWriter = BytesWriter()
        self._needed: i64 = 0
        self._max_receive_size: i64 = MAX_SASL_FRAME_SIZE
        self._unfinished_bytes: i64 = 0
        self.large_memory: LargeMemory | None = None
        """Where deliveries of more than 1 MiB have their room; None: nobody bounds them."""
        self.large_count: i64 = 0
        """Deliveries of more than 1 MiB under way."""
        self.large_heard: i64 = 0
        """Bytes of such deliveries, in all."""
        self.wanted_bytes: i64 = 0
        """Room that the first of them waits for. Until `room_came` the connection is not to be read."""
        self._taken_bytes: i64 = 0
        self._mechanism: str | None = None
        self._initial_response: bytes = b""
        self._is_open_sent: bool = False
        self._fields: Final = Fields()
        self._transfer: Final = Transfer()
        self._disposition: Final = Disposition()
        self._flow: Final = Flow()
        self._idle: Final = IdleWatch(now)

    @property
    def sessions(self) -> dict[int, AmqpSession]:
        """By our channels."""
        return self._sessions.sessions

    # What the driver calls

    def receive_data(self, data: bytes) -> list[Event]:
        """Feed bytes from the peer; returns what they meant."""
        events: list[Event] = []
        if self.state is ConnectionState.CLOSED:
            return events
        if data:
            self._idle.has_heard = True
        try:
            self._consume(data, events)
        except MalformedData as error:
            self._fail(AmqpError(DECODE_ERROR, str(error)), events)
        except ProtocolViolation as violation:
            self._fail(violation.error, events)
        self._fields.data = b""  # an idle connection must not keep the last read's bytes alive
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
        self._idle.has_sent = True
        return data

    def pending_bytes(self) -> int:
        """What is written and not taken yet, and what waits for the peer's session windows."""
        return int(i64(len(self.out)) + self.held_bytes)

    def tick(self, now: float) -> list[Event]:
        """Time passes: keep the connection alive, and notice when the peer does not. To be called every second."""
        events: list[Event] = []
        if self.state is ConnectionState.CLOSED:
            return events
        self._idle.tick(now)
        self._check_silence(now, events)
        if self.state is ConnectionState.OPEN and self._idle.heartbeat_is_due(now):
            self.out.write(EMPTY_FRAME)
        return events

    def _check_silence(self, now: float, events: list[Event]) -> None:
        if self.state is ConnectionState.OPEN or self.state is ConnectionState.CLOSE_SENT:
            if self._idle.is_silent(now, self.settings.idle_timeout_ms):
                self._fail(AmqpError(CONNECTION_FORCED, "The peer was silent beyond the idle time-out."), events)
        elif self._idle.is_late(now, self.settings.open_timeout_s):
            self._fail(AmqpError(CONNECTION_FORCED, "The connection was not opened in time."), events)

    # What the application calls

    def sasl_outcome(self, ok: bool) -> None:
        """Server: the answer to `SaslInit`. Then call `receive_data(b"")`: the peer may have sent more meanwhile."""
        if self.state is not ConnectionState.SASL_DECIDING:
            return
        write_outcome(self.out, ok)
        if ok:
            self.state = ConnectionState.HEADER
        else:
            self._stop(ConnectionState.CLOSED)

    def start(self, sasl_mechanism: str | None = "ANONYMOUS", initial_response: bytes = b"") -> None:
        """Client: begin to speak. Without a mechanism there is no SASL layer."""
        self._mechanism = sasl_mechanism
        self._initial_response = initial_response
        if sasl_mechanism is None:
            self.out.write(AMQP_HEADER)
            self.state = ConnectionState.HEADER
            self._send_open()
        else:
            self.out.write(SASL_HEADER)

    def begin(self) -> AmqpSession:
        """Client: a new session; `SessionBegun` follows, but links may be attached at once."""
        if not self._is_open_sent or self.is_closed:
            raise InvalidOperation("the connection is not open")
        return self._sessions.begin(self)

    def close(self, error: AmqpError | None = None) -> None:
        """Close. Nothing more can be written; `ConnectionClosed` comes when the peer has answered."""
        if self.is_closed:
            return
        if self._is_open_sent:
            write_close(self.out, error)
            self._stop(ConnectionState.CLOSE_SENT)
        else:
            self._stop(ConnectionState.CLOSED)

    def _stop(self, state: ConnectionState) -> None:
        """From now on nobody writes."""
        self.is_closed = True
        self.state = state
        self._sessions.stop_all()
        if state is ConnectionState.CLOSED:
            self._received = BytesWriter()

    def let_go(self) -> None:
        """The application is done with it and feeds it no more bytes. Sessions and links refer to each other: they are
        taken apart, so that their memory is free without a search for cycles."""
        self._sessions.let_go()
        memory = self.large_memory
        if memory is not None:
            memory.end_taking(self._taken_bytes)
            self.large_memory = None

    def room_came(self) -> bool:
        """There may be room for what waits; returns whether nothing waits any more."""
        memory, wanted = self.large_memory, self.wanted_bytes
        if memory is None or wanted == 0:
            return True
        if not memory.can_take(wanted):
            return False
        memory.take(wanted)
        self._taken_bytes += wanted
        self.wanted_bytes = 0
        return True

    def excuse_silence(self) -> None:
        """The peer is not read at present, so it cannot be heard."""
        self._idle.has_heard = True

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
        if rest > 0 and self.state is not ConnectionState.CLOSED:
            self._received.write(data[at:])
            if self.state is ConnectionState.SASL_DECIDING and rest > MAX_PIPELINED_BYTES:
                raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "Too much was sent before the SASL outcome.")

    def _consume_frames(self, data: bytes, events: list[Event]) -> i64:
        """Handle every whole frame; returns where the rest begins."""
        at: i64 = 0
        size: i64 = len(data)
        while size - at >= FRAME_HEADER_SIZE:
            state = self.state
            if state is ConnectionState.OPEN:
                pass
            elif state is ConnectionState.NEW or state is ConnectionState.HEADER:
                self._take_header(data[at : at + 8], events)
                at += 8
                continue
            elif state is ConnectionState.SASL_DECIDING:
                self._needed = 0
                return at
            elif state is ConnectionState.CLOSED:
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
        if header == SASL_HEADER and self.state is ConnectionState.NEW and self._mechanism_fits(is_client):
            self.state = ConnectionState.SASL
            if not is_client:
                self.out.write(SASL_HEADER)
                write_mechanisms(self.out, self.settings.sasl_mechanisms)
        elif header == AMQP_HEADER and self._may_skip_sasl(is_client):
            self.state = ConnectionState.OPENING
            self._max_receive_size = self.settings.max_frame_size
            if not is_client:
                self.out.write(AMQP_HEADER)
        else:
            self._refuse_header(header, events)

    def _mechanism_fits(self, is_client: bool) -> bool:
        return self._mechanism is not None if is_client else len(self.settings.sasl_mechanisms) > 0

    def _may_skip_sasl(self, is_client: bool) -> bool:
        if self.state is ConnectionState.HEADER:
            return True
        return not is_client and not self.settings.require_sasl

    def _refuse_header(self, header: bytes, events: list[Event]) -> None:
        """The specification's way to disagree: answer with the header that would have been right, then hang up."""
        if self.settings.is_server:
            offers_sasl = self.state is ConnectionState.NEW and len(self.settings.sasl_mechanisms) > 0
            self.out.write(SASL_HEADER if offers_sasl else AMQP_HEADER)
        self._stop(ConnectionState.CLOSED)
        error = AmqpError(FRAMING_ERROR, f"The protocol header {header!r} is not the one expected here.")
        events.append(ConnectionClosed(error, False))

    def _take_frame(self, data: bytes, at: i64, end: i64, events: list[Event]) -> None:
        body: i64 = at + i64(data[at + 4]) * 4
        if body < at + FRAME_HEADER_SIZE or body > end:
            raise ProtocolViolation(FRAMING_ERROR, "A frame whose data offset is outside it.")
        frame_type: i64 = data[at + 5]
        if frame_type == AMQP_FRAME and self.state is not ConnectionState.SASL:
            if body == end:
                return
            channel: i64 = (i64(data[at + 6]) << 8) | i64(data[at + 7])
            code: i64 = self._fields.open(data, body, end)
            if self.state is ConnectionState.OPEN:
                self._take_performative(code, channel, data, end, events)
            else:
                self._take_outside_open(code, events)
        elif frame_type == SASL_FRAME and self.state is ConnectionState.SASL:
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
            self.state = ConnectionState.SASL_DECIDING
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
        self._initial_response = b""

    def _take_outcome(self, ok: bool, events: list[Event]) -> None:
        events.append(SaslOutcome(ok))
        if not ok:
            self._fail(AmqpError("amqp:unauthorized-access", "The server refused the credentials."), events)
            return
        self.out.write(AMQP_HEADER)
        self.state = ConnectionState.HEADER
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
        if self.state is ConnectionState.CLOSE_SENT:
            if code == CLOSE:
                self.state = ConnectionState.CLOSED
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
        self._sessions.channel_max = min(open_.channel_max, i64(self.settings.channel_max))
        self._idle.set_peer_timeout(int(open_.idle_timeout_ms))
        self.state = ConnectionState.OPEN
        self._send_open()
        events.append(Opened(open_.container_id, open_.hostname, open_.properties))

    def _take_close(self, events: list[Event]) -> None:
        error = read_error(self._fields)
        self._send_open()
        write_close(self.out, None)
        self._stop(ConnectionState.CLOSED)
        events.append(ConnectionClosed(error, True))

    def _fail(self, error: AmqpError, events: list[Event]) -> None:
        """Close because of `error`, as far as the connection has got; what the peer still sends is not read."""
        if self.state is ConnectionState.OPENING and self.settings.is_server:
            self._send_open()
        if self._is_open_sent and not self.is_closed:
            write_close(self.out, error)
        self._stop(ConnectionState.CLOSED)
        events.append(ConnectionClosed(error, False))

    # Sessions

    def _take_performative(self, code: i64, channel: i64, data: bytes, end: i64, events: list[Event]) -> None:
        if code == TRANSFER:
            self._transfer.read(self._fields)
            session = self._sessions.at(channel)
            if session.state is SessionState.MAPPED:
                session.take_transfer(self._transfer, data, end, events)
        elif code == DISPOSITION:
            self._disposition.read(self._fields)
            session = self._sessions.at(channel)
            if session.state is SessionState.MAPPED:
                session.take_disposition(self._disposition, events)
        elif code == FLOW:
            self._flow.read(self._fields)
            session = self._sessions.at(channel)
            if session.state is SessionState.MAPPED:
                session.take_flow(self._flow, events)
        else:
            self._take_rare(code, channel, events)

    def _take_rare(self, code: i64, channel: i64, events: list[Event]) -> None:
        if code == BEGIN:
            self._sessions.take_begin(self, Begin(self._fields), channel, events)
        elif code == ATTACH:
            attach = Attach(self._fields)
            session = self._sessions.at(channel)
            if session.state is SessionState.MAPPED:
                session.take_attach(attach, events)
        elif code == DETACH:
            detach = Detach(self._fields)
            session = self._sessions.at(channel)
            if session.state is SessionState.MAPPED:
                session.take_detach(detach, events)
        elif code == END:
            self._take_end(channel, events)
        elif code == CLOSE:
            self._take_close(events)
        else:
            raise ProtocolViolation(ILLEGAL_STATE if code == OPEN else NOT_ALLOWED, "An unexpected performative.")

    def _take_end(self, channel: i64, events: list[Event]) -> None:
        error = read_error(self._fields)
        session = self._sessions.at(channel)
        session.take_end(error, events)
        self._sessions.forget(session)

    def has_too_many_links(self) -> bool:
        """Refused links count too until the peer has detached them; one that never does so loses its connection."""
        if self.link_count > 2 * self.settings.max_links:
            raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "Too many refused links on this connection.")
        return self.link_count > self.settings.max_links

    def hold_unfinished(self, size: i64) -> bool:
        """Account for bytes of deliveries that are not complete; False when it becomes too much."""
        self._unfinished_bytes += size
        return self._unfinished_bytes <= self.settings.max_unfinished_bytes

    def begin_large(self, size: i64) -> bool:
        """A delivery has become larger than 1 MiB, and may come to `size`. Without room for it the connection waits,
        unless another one is under way on it, which could not end then: returns False for the later one."""
        memory = self.large_memory
        if memory is not None:
            if self.wanted_bytes == 0 and memory.can_take(size):
                memory.take(size)
                self._taken_bytes += size
            elif self.large_count == 0:
                self.wanted_bytes = size
            else:
                return False
        self.large_count += 1
        self._unfinished_bytes -= size
        return True

    def end_large(self, size: i64) -> None:
        """It is complete, or dropped: from here on its room is the application's affair."""
        self.large_count -= 1
        self._unfinished_bytes += size
        memory = self.large_memory
        if self.wanted_bytes > 0:
            self.wanted_bytes = 0
        elif memory is not None:
            memory.end_taking(size)
            self._taken_bytes -= size
