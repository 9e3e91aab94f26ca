"""The raw AMQP client inside a WebSocket, and the WebSocket alone for those who break it."""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
from dataclasses import dataclass
from typing import cast

from tandembus.front_end.websocket.frames import BINARY, CLOSE
from tests.integration.raw_amqp import ANSWERS_WITHIN_S, RawAmqp
from tests.unit.front_end.websocket.masking import masked

PATH = "/$servicebus/websocket"
PROTOCOL = "AMQPWSB10"


def request(path: str = PATH, **changes: str | None) -> bytes:
    """An upgrade; a change of None leaves the header out."""
    headers: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": PROTOCOL,
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


@dataclass(frozen=True)
class ServerFrame:
    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int:
        assert self.opcode == CLOSE, self
        return int.from_bytes(self.payload[:2], "big")


class RawWebSocket:
    """A WebSocket that has begun; frames are written and read as they are."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, receive_buffer_bytes: int = 0) -> None:
        plain = socket.socket()
        if receive_buffer_bytes:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        plain.settimeout(ANSWERS_WITHIN_S)
        plain.connect(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self._received = b""

    def __enter__(self) -> RawWebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def begin(self, behind: bytes = b"") -> None:
        """`behind`: sent with the request, before the answer is there."""
        self.send(request() + behind)
        head = self.read_head()
        assert head.startswith("HTTP/1.1 101 "), head
        assert f"Sec-WebSocket-Protocol: {PROTOCOL}" in head
        assert "Sec-WebSocket-Extensions" not in head

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_head(self) -> str:
        while b"\r\n\r\n" not in self._received:
            self._fill()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        return head.decode()

    def read_answer(self) -> tuple[str, str]:
        """Head and body of an answer that is no WebSocket."""
        head = self.read_head()
        (length,) = re.findall(r"Content-Length: (\d+)", head)
        return head, self._read(int(length)).decode()

    def next_frame(self) -> ServerFrame:
        first, second = self._read(2)
        length = second & 0x7F
        assert first & 0xF0 == 0x80, "a server sends whole frames, without extensions"
        assert not second & 0x80, "a server does not mask"
        if length >= 126:
            length = int.from_bytes(self._read(2 if length == 126 else 8), "big")
        return ServerFrame(first & 0x0F, self._read(length))

    def expect_close(self, code: int) -> str:
        """The close frame after everything else, and the end of the connection; the reason is returned."""
        found = self.next_frame()
        while found.opcode != CLOSE:
            found = self.next_frame()
        assert found.close_code == code
        self.send_whatever(masked(found.payload[:2], CLOSE))
        assert self.read_whatever() == b""
        return found.payload[2:].decode()

    def send_whatever(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_for_ever(self, data: bytes) -> None:
        """Until the server has hung up."""
        while True:
            self.socket.sendall(data)

    def read_whatever(self) -> bytes:
        """Until the server hangs up."""
        try:
            while True:
                self._fill()
        except ConnectionError:
            return self._received

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            self._fill()
        data, self._received = self._received[:size], self._received[size:]
        return data

    def _fill(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed by the server")
        self._received += data

    # As a socket, for who speaks AMQP in it.

    def sendall(self, data: bytes) -> None:
        """In frames of odd sizes, some of them parts of a message: AMQP must not care."""
        sizes = (1, 7, 130, 70_000)
        at = count = 0
        while at < len(data):
            size = sizes[count % len(sizes)]
            is_last = at + size >= len(data)
            opcode = 0 if count else BINARY
            self.send(masked(data[at : at + size], opcode, is_last=is_last, key=os.urandom(4)))
            at += size
            count += 1

    def recv(self, _size: int) -> bytes:
        found = self.next_frame()
        while found.opcode not in (BINARY, CLOSE):
            found = self.next_frame()
        return found.payload if found.opcode == BINARY else b""

    def settimeout(self, seconds: float) -> None:
        self.socket.settimeout(seconds)

    def close(self) -> None:
        self.socket.close()


class AmqpInWebSocket(RawAmqp):
    """Says and expects what RawAmqp does, in frames."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, receive_buffer_bytes: int = 0) -> None:
        self._take(RawWebSocket(port, tls, receive_buffer_bytes))

    @classmethod
    def on(cls, websocket: RawWebSocket) -> AmqpInWebSocket:
        """Inside a WebSocket that has yet to begin."""
        made = cls.__new__(cls)
        made._take(websocket)
        return made

    def _take(self, websocket: RawWebSocket) -> None:
        self.websocket = websocket
        websocket.begin()
        self.use(cast(socket.socket, websocket))

    def __enter__(self) -> AmqpInWebSocket:
        return self
