"""An AMQP client that has no manners of its own: it says what a test wants and shows every frame that comes.

Real clients hide the rules of the wire that keep them going; here they are looked at as bytes and fields.
"""

from __future__ import annotations

import socket
import ssl
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import cast

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.codec import decode
from tandembus.amqp.encoding.frames import AMQP_FRAME, AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    application_properties_section,
    data_section,
    decode_message,
    properties_section,
)
from tandembus.amqp.encoding.values import Described, Typed, symbol, symbol_map, ubyte, uint, ulong, ushort
from tandembus.clock import SystemClock
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.integration.serving import KEY

ANSWERS_WITHIN_S = 20.0
UNSETTLED, SETTLED = 0, 1
FIRST, SECOND = 0, 1
CREDIT = 100
PIECE_BYTES = 60_000
SENDER, RECEIVER = 1, 2
"""Handles of a test's two links, where it has no more."""
MESSAGE = data_section(b"hello")
BATCH_FORMAT = 0x80013700

PIPELINED_OPENING = SASL_HEADER + frame(SASL_FRAME, 0, codes.SASL_INIT, [symbol("ANONYMOUS"), b"", "localhost"])


@dataclass(frozen=True)
class Frame:
    """One frame: its performative with typed fields, and the bytes of all of it."""

    kind: int
    channel: int
    code: int
    fields: list[object]
    payload: bytes
    raw: bytes

    def __getitem__(self, index: int) -> object:
        return self.fields[index] if index < len(self.fields) else None

    def plain(self, index: int) -> object:
        return plain(self[index])

    def number(self, index: int) -> int:
        value = self.plain(index)
        assert isinstance(value, int), f"field {index} of {self}"
        return value

    def described(self, index: int) -> tuple[int, list[object]]:
        """Code and fields of a described list: a source, a target, a delivery state, an error."""
        value = self[index]
        assert isinstance(value, Described), f"field {index} of {self}"
        fields = value.value
        assert isinstance(fields, list)
        return int(cast(int, plain(value.descriptor))), fields

    def error(self, index: int) -> list[object]:
        code, fields = self.described(index)
        assert code == codes.ERROR
        return fields


def plain(value: object) -> object:
    return value.value if isinstance(value, Typed) else value


def parse_frame(raw: bytes) -> Frame:
    at = raw[4] * 4
    channel = int.from_bytes(raw[6:8], "big")
    if at == len(raw):
        return Frame(raw[5], channel, 0, [], b"", raw)
    value, end = decode(raw, at, typed=True)
    assert isinstance(value, Described), raw.hex()
    assert isinstance(value.value, list), raw.hex()
    return Frame(raw[5], channel, int(cast(int, plain(value.descriptor))), value.value, raw[end:], raw)


class RawAmqp:
    """One connection. Methods with the name of a performative send it; `expect` waits for one."""

    def __init__(
        self, port: int, host: str = "localhost", tls: ssl.SSLContext | None = None, receive_buffer: int | None = None
    ) -> None:
        """With a small receive buffer, it reads as slowly as it asks for frames."""
        plain = socket.create_connection((host, port), ANSWERS_WITHIN_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.use(plain if tls is None else tls.wrap_socket(plain, server_hostname=host))

    def use(self, connected: socket.socket) -> None:
        self.socket = connected
        self.open_timeout_ms: int | None = None
        """The idle time-out that `open` tells."""
        self._received = b""
        self.frames: list[Frame] = []
        """Everything that came, in order."""

    def __enter__(self) -> RawAmqp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    # Bytes and frames.

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        """Exactly so many bytes; raises ConnectionError when the peer has gone."""
        while len(self._received) < size:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError(f"closed by the server; left over: {self._received!r}")
            self._received += data
        data, self._received = self._received[:size], self._received[size:]
        return data

    def next_frame(self) -> Frame:
        """The next frame that is not a mere heartbeat."""
        while True:
            size = self.read(4)
            found = parse_frame(size + self.read(int.from_bytes(size, "big") - 4))
            if found.code:
                self.frames.append(found)
                return found

    def expect(self, code: int) -> Frame:
        """The next frame must be this one, credit for senders apart."""
        found = self.next_frame()
        while found.code == codes.FLOW and code != codes.FLOW:
            found = self.next_frame()
        assert found.code == code, f"expected {code:#x}, got {found}"
        return found

    def expect_end(self) -> list[Frame]:
        """What comes until the server closes the socket."""
        found: list[Frame] = []
        try:
            while True:
                found.append(self.next_frame())
        except ConnectionError:
            return found

    def send_whatever(self, data: bytes) -> None:
        """As much of it as the server takes before it hangs up."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read_whatever(self, within_s: float) -> bytes:
        """Everything until the server hangs up; raises TimeoutError when it does not."""
        self.socket.settimeout(within_s)
        answer = self._received
        try:
            while part := self.socket.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer

    def perform(self, code: int, fields: list[object], payload: bytes = b"", channel: int = 0) -> None:
        self.send(frame(AMQP_FRAME, channel, code, fields, payload))

    # Opening.

    def start(self, mechanism: str = "ANONYMOUS", response: bytes = b"") -> None:
        """Protocol headers, SASL and open: what a client says first, each step awaited."""
        self.send(SASL_HEADER)
        assert self.read(8) == SASL_HEADER
        assert self.next_frame().code == codes.SASL_MECHANISMS
        self.send(frame(SASL_FRAME, 0, codes.SASL_INIT, [symbol(mechanism), response, "localhost"]))
        outcome = self.next_frame()
        assert outcome.code == codes.SASL_OUTCOME
        if outcome.plain(0) != 0:
            raise PermissionError("the credentials were refused")
        self.send(AMQP_HEADER)
        assert self.read(8) == AMQP_HEADER
        self.open()
        self.expect(codes.OPEN)

    def open(self, max_frame_size: int = 65536, channel_max: int = 255) -> None:
        timeout = None if self.open_timeout_ms is None else uint(self.open_timeout_ms)
        self.perform(codes.OPEN, ["raw", "localhost", uint(max_frame_size), ushort(channel_max), timeout])

    def log_in(self, policy: str = ROOT_POLICY, key: str = KEY) -> None:
        """With name and key, and one session on channel 0."""
        self.start("PLAIN", f"\0{policy}\0{key}".encode())
        self.begin()

    def begin(self, channel: int = 0, window: int = 65536) -> Frame:
        self.perform(codes.BEGIN, [None, uint(0), uint(window), uint(window), uint(1000)], channel=channel)
        return self.expect(codes.BEGIN)

    # Links.

    def attach(
        self,
        handle: int,
        is_receiver: bool,
        source: object,
        target: object,
        modes: tuple[int, int] = (UNSETTLED, SECOND),
        channel: int = 0,
        name: str | None = None,
        properties: dict[str, object] | None = None,
    ) -> None:
        fields: list[object] = [name or uuid.uuid4().hex, uint(handle), is_receiver, ubyte(modes[0]), ubyte(modes[1])]
        fields += [source, target, None, None, None if is_receiver else uint(0)]
        if properties is not None:
            fields += [None, None, None, symbol_map(properties)]
        self.perform(codes.ATTACH, fields, channel=channel)

    def attach_sender(self, handle: int, address: str, channel: int = 0) -> Frame:
        self.attach(handle, False, source_of("client"), target_of(address), channel=channel)
        return self.expect(codes.ATTACH)

    def attach_receiver(
        self, handle: int, address: str, modes: tuple[int, int] = (UNSETTLED, SECOND), channel: int = 0
    ) -> Frame:
        self.attach(handle, True, source_of(address), target_of("client"), modes, channel)
        return self.expect(codes.ATTACH)

    def flow(
        self,
        handle: int,
        credit: int,
        delivery_count: int = 0,
        drain: bool = False,
        echo: bool = False,
        channel: int = 0,
        window: int = 65536,
    ) -> None:
        fields: list[object] = [uint(0), uint(window), uint(0), uint(65536), uint(handle), uint(delivery_count)]
        self.perform(codes.FLOW, [*fields, uint(credit), None, drain, echo], channel=channel)

    def widen(self, window: int = 65536) -> None:
        """The session takes so many frames from its beginning; of links nothing is said."""
        self.perform(codes.FLOW, [uint(0), uint(window), uint(0), uint(65536)])

    def transfer(
        self,
        handle: int,
        delivery_id: int,
        payload: bytes,
        settled: bool = False,
        message_format: int = 0,
        channel: int = 0,
    ) -> None:
        self.send(transfer_frames(handle, delivery_id, payload, settled, message_format, channel))

    def dispose(self, first: int, state: object, settled: bool = False, last: int | None = None) -> None:
        """As receiver, of what the server sent."""
        self.perform(codes.DISPOSITION, [True, uint(first), None if last is None else uint(last), settled, state])

    def send_message(self, handle: int, delivery_id: int, payload: bytes, message_format: int = 0) -> Frame:
        """Returns the disposition."""
        self.transfer(handle, delivery_id, payload, message_format=message_format)
        return self.expect(codes.DISPOSITION)

    def receive_message(self) -> tuple[Frame, MessageSections]:
        first, payload = self.receive_payload()
        return first, decode_message(payload, typed=True)

    def receive_payload(self) -> tuple[Frame, bytes]:
        """One delivery, its frames joined; the first of them is returned."""
        first = found = self.expect(codes.TRANSFER)
        pieces = [found.payload]
        while found.plain(5) is True:
            found = self.expect(codes.TRANSFER)
            pieces.append(found.payload)
        return first, b"".join(pieces)

    # Request and response.

    def attach_node(self, address: str, handle: int = 50, channel: int = 0, reply_to: str = "client") -> Node:
        """Both links of a request/response node: the request's on `handle`, the reply's on the next."""
        self.attach_sender(handle, address, channel)
        self.attach(handle + 1, True, source_of(address), target_of(reply_to), (SETTLED, FIRST), channel)
        self.expect(codes.ATTACH)
        self.flow(handle + 1, CREDIT, channel=channel)
        return Node(self, handle, channel, reply_to)

    def put_token(self, audience: str, token: str | None = None, node: Node | None = None) -> MessageSections:
        if token is None:
            token = make_token(audience, ROOT_POLICY, KEY, SystemClock().now() + 60.0)
        properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
        return (node or self.attach_node("$cbs")).ask(properties, token)


class Node:
    """A client's side of `$cbs` or of a management node."""

    def __init__(self, client: RawAmqp, handle: int, channel: int, reply_to: str = "client") -> None:
        self._client = client
        self._handle = handle
        self._channel = channel
        self._reply_to = reply_to
        self.replied_on = -1
        """The handle of the link that the last reply came on."""
        self._count = 0

    def ask(self, properties: Mapping[str, object], body: object, message_id: object = None) -> MessageSections:
        payload = properties_section(message_id=message_id or uuid.uuid4(), reply_to=self._reply_to)
        payload += application_properties_section(dict(properties)) + amqp_value_section(body)
        return self.ask_encoded(payload)

    def ask_encoded(self, payload: bytes) -> MessageSections:
        answer = self.post(payload)
        assert answer[0] is True
        assert answer.described(4)[0] == codes.ACCEPTED
        frame, reply = self._client.receive_message()
        assert (frame.channel, frame.plain(4)) == (answer.channel, True)
        self.replied_on = frame.number(0)
        return reply

    def post(self, payload: bytes) -> Frame:
        """Returns how the request itself was settled."""
        self._client.transfer(self._handle, self._count, payload, channel=self._channel)
        self._count += 1
        return self._client.expect(codes.DISPOSITION)

    def manage(self, operation: str, body: object, **properties: object) -> tuple[int, str | None, object]:
        """Status, error condition and body of a management operation's reply."""
        reply = self.ask({"operation": operation, **properties}, body)
        found = texts(reply.application_properties)
        status, condition = found["statusCode"], found.get("errorCondition")
        assert isinstance(status, Typed)
        return cast(int, status.value), cast("str | None", plain(condition)), reply.body


def source_of(address: str | None, *more: object) -> Described:
    return Described(ulong(codes.SOURCE), [address, *more])


def target_of(address: str | None, *more: object) -> Described:
    return Described(ulong(codes.TARGET), [address, *more])


def state_of(code: int, *fields: object) -> Described:
    return Described(ulong(code), list(fields))


def transfer_frames(
    handle: int, delivery_id: int, payload: bytes, settled: bool = False, message_format: int = 0, channel: int = 0
) -> bytes:
    """One delivery, in as many frames as it needs."""
    return b"".join(frames_of_transfer(handle, delivery_id, payload, settled, message_format, channel))


def frames_of_transfer(
    handle: int, delivery_id: int, payload: bytes, settled: bool = False, message_format: int = 0, channel: int = 0
) -> Iterator[bytes]:
    """The same frame by frame."""
    fields: list[object] = [uint(handle), uint(delivery_id), delivery_id.to_bytes(4, "big"), uint(message_format)]
    for at in range(0, len(payload) or 1, PIECE_BYTES):
        end = at + PIECE_BYTES
        yield frame(AMQP_FRAME, channel, codes.TRANSFER, [*fields, settled, end < len(payload)], payload[at:end])


def texts(entries: dict[object, object] | None) -> dict[str, object]:
    """A map's entries by their keys as plain text, the values as they are."""
    return {str(plain(key)): value for key, value in (entries or {}).items()}


def rejection(answer: Frame) -> list[object]:
    """The error of a rejected delivery's disposition."""
    code, fields = answer.described(4)
    assert (code, len(fields)) == (codes.REJECTED, 1)
    assert isinstance(fields[0], Described)
    assert isinstance(fields[0].value, list)
    return fields[0].value


def assert_has_three_fields(error: list[object], condition: str) -> None:
    """Condition as a symbol, description, info: the SDK indexes all of them without looking at the length."""
    assert len(error) == 3
    assert error[0] == symbol(condition)
    assert isinstance(error[1], str)
    assert error[1]
