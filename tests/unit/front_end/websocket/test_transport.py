"""What AMQP sees of a WebSocket, and what the socket below it is told."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.front_end.websocket.frames import CLOSE, PING, TEXT
from tandembus.front_end.websocket.transport import WebSocketTransport
from tandembus.limits import Limits
from tests.covers import covers
from tests.unit.front_end.websocket.masking import masked


class Socket(asyncio.Transport):
    """A transport that only remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.told: list[str] = []
        self.limits: tuple[int | None, int | None] | None = None
        self.changed = asyncio.Event()

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self.changed.set()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.changed.set()

    def is_closing(self) -> bool:
        return "close" in self.told or "abort" in self.told

    def pause_reading(self) -> None:
        self._tell("pause")

    def resume_reading(self) -> None:
        self._tell("resume")

    def close(self) -> None:
        self._tell("close")

    def abort(self) -> None:
        self._tell("abort")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def take(self) -> bytes:
        written, self.written = self.written, b""
        return written


class Amqp(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.received = b""
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(f"lost {exc}")

    def expire(self) -> None:
        self.told.append("expired")


class Bridge:
    def __init__(self, limits: Limits | None = None, close_answer_s: float = 60.0) -> None:
        self.socket = Socket()
        self.amqp = Amqp()
        self.websocket = WebSocketTransport(self.socket, self.amqp, limits or Limits(), close_answer_s)


@pytest.fixture
async def bridge() -> Bridge:
    return Bridge()


@covers("B1")
async def test_bytes_pass_in_both_directions(bridge: Bridge) -> None:
    assert bridge.amqp.transport is bridge.websocket
    bridge.websocket.data_received(masked(b"to the ") + masked(b"broker"))
    bridge.websocket.write(b"to the client")
    assert bridge.amqp.received == b"to the broker"
    assert bridge.socket.take() == b"\x82\x0dto the client"


async def test_back_pressure_is_the_sockets_own_in_both_directions(bridge: Bridge) -> None:
    bridge.websocket.set_write_buffer_limits(high=1_000)
    bridge.websocket.pause_reading()
    bridge.websocket.resume_reading()
    assert bridge.socket.limits == (1_000, None)
    assert bridge.socket.told == ["pause", "resume"]
    bridge.websocket.pause_writing()
    bridge.websocket.resume_writing()
    assert bridge.amqp.told == ["pause", "resume"]


async def test_a_ping_is_answered_with_what_it_held(bridge: Bridge) -> None:
    bridge.websocket.data_received(masked(b"there?", PING))
    assert bridge.socket.take() == b"\x8a\x06there?"


async def test_a_quiet_connection_is_pinged_again_and_again() -> None:
    bridge = Bridge(Limits(websocket_ping_interval_s=0.01))
    for _ in range(2):
        bridge.socket.changed.clear()
        await asyncio.wait_for(bridge.socket.changed.wait(), 10.0)
        assert bridge.socket.take() == b"\x89\x00"
    bridge.websocket.connection_lost(None)
    other = Bridge(Limits(websocket_ping_interval_s=0.01))
    await asyncio.wait_for(other.socket.changed.wait(), 10.0)
    other.websocket.connection_lost(None)
    assert bridge.socket.take() == b"", "when another, begun later, is pinged"


async def test_the_peers_close_is_answered_and_ends_the_connection(bridge: Bridge) -> None:
    bridge.websocket.data_received(masked(b"last") + masked(b"\x03\xe9bye", CLOSE))
    assert bridge.amqp.received == b"last"
    assert bridge.socket.take() == b"\x88\x02\x03\xe9"
    assert bridge.socket.told == ["close"]
    assert bridge.amqp.told == ["lost None"]
    bridge.websocket.write(b"too late")
    assert bridge.socket.take() == b""


async def test_a_close_of_our_own_waits_for_the_peers_and_lets_nothing_else_in(bridge: Bridge) -> None:
    bridge.websocket.write(b"answer")
    bridge.websocket.close()
    bridge.websocket.close()
    assert bridge.socket.take() == b"\x82\x06answer" + b"\x88\x02\x03\xe8"
    assert bridge.websocket.is_closing()
    assert bridge.socket.told == ["resume"]
    bridge.websocket.data_received(masked(b"more") + masked(b"", PING))
    assert (bridge.amqp.received, bridge.socket.take()) == (b"", b"")
    bridge.websocket.data_received(masked(b"\x03\xe8", CLOSE))
    assert (bridge.socket.told, bridge.socket.take()) == (["resume", "close"], b"")


async def test_who_does_not_answer_a_close_is_cut_off() -> None:
    bridge = Bridge(close_answer_s=0.01)
    bridge.websocket.close()
    while "abort" not in bridge.socket.told:
        bridge.socket.changed.clear()
        await asyncio.wait_for(bridge.socket.changed.wait(), 10.0)
    bridge.websocket.connection_lost(None)
    assert bridge.websocket.lost.done()


async def test_a_violation_is_told_to_the_peer_and_is_the_end_for_amqp(bridge: Bridge) -> None:
    bridge.websocket.data_received(masked(b"hello", TEXT))
    assert bridge.socket.take() == b"\x88\x30\x03\xebAMQP is carried in binary frames, not in text."
    assert bridge.amqp.told == ["lost AMQP is carried in binary frames, not in text."]
    bridge.websocket.data_received(masked(b"more"))
    bridge.websocket.connection_lost(None)
    assert len(bridge.amqp.told) == 1
    assert bridge.amqp.received == b""


async def test_a_lost_socket_is_told_to_amqp_once(bridge: Bridge) -> None:
    bridge.websocket.connection_lost(ConnectionResetError("gone"))
    bridge.websocket.connection_lost(None)
    assert bridge.amqp.told == ["lost gone"]
    assert bridge.websocket.lost.done()
