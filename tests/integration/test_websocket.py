"""AMQP inside WebSockets on the wire: proper ones work like sockets, improper ones are refused and harm nobody."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import SASL_HEADER
from tandembus.amqp.encoding.sections import data_section
from tandembus.front_end.websocket.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.hostile import HealthyClient, anonymous_bytes
from tests.integration.raw_amqp import BATCH_FORMAT, PIPELINED_OPENING, RECEIVER, SENDER, SETTLED, state_of
from tests.integration.raw_websocket import AmqpInWebSocket, RawWebSocket, request
from tests.integration.serving import RunningNamespace, serving, start_namespace
from tests.unit.front_end.websocket.masking import masked

MEBIBYTE = 1024 * 1024
LIMITED = """
[limits]
pre_auth_timeout_s = 1.0
pre_auth_bytes = 4096
max_websocket_message_bytes = 2048
websocket_ping_interval_s = 0.05
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    """Its limits are within a test's reach."""
    folder = tmp_path_factory.mktemp("websockets")
    (folder / "config.toml").write_text(LIMITED)
    running = start_namespace(folder / "data", "--config", str(folder / "config.toml"))
    yield running
    running.stop_in_peace()


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[RunningNamespace]:
    """It has few places for connections that have shown no claim."""
    (tmp_path / "config.toml").write_text("[limits]\nmax_unauthenticated_connections = 4\n")
    with serving(tmp_path / "data", "--config", str(tmp_path / "config.toml")) as running:
        yield running


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, running_namespace: RunningNamespace) -> ssl.SSLContext | None:
    return client_context(running_namespace.ca_path) if request.param == "tls" else None


def client_context(ca_path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca_path))


@pytest.fixture
def websocket(bus: Bus) -> Iterator[RawWebSocket]:
    with RawWebSocket(bus.running.port) as websocket:
        websocket.begin()
        yield websocket


@covers("B1", "M2")
def test_messages_go_both_ways_in_frames_of_any_shape(bus: Bus, queue: str, tls: ssl.SSLContext | None) -> None:
    with AmqpInWebSocket(bus.running.port, tls) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        raw.attach_receiver(RECEIVER, queue)
        for number, size in enumerate((1, 500, 200_000)):
            body = bytes([number]) * size
            assert raw.send_message(SENDER, number, data_section(body)).described(4)[0] == codes.ACCEPTED
            raw.flow(RECEIVER, 1, delivery_count=number)
            transfer, message = raw.receive_message()
            assert message.body == body
            raw.dispose(transfer.number(1), state_of(codes.ACCEPTED))
            assert raw.expect(codes.DISPOSITION).described(4)[0] == codes.ACCEPTED
        raw.perform(codes.CLOSE, [])
        raw.expect(codes.CLOSE)
        raw.websocket.expect_close(1000)
    assert bus.comes_to(queue, Counts(0))


@covers("B1")
def test_frames_sent_along_with_the_request_are_not_lost(bus: Bus, tls: ssl.SSLContext | None) -> None:
    with RawWebSocket(bus.running.port, tls) as websocket:
        websocket.begin(behind=masked(PIPELINED_OPENING) + masked(b"there?", PING))
        assert websocket.recv(0).startswith(SASL_HEADER)


@covers("B1")
def test_a_connection_can_ask_in_http_first_and_become_a_websocket_then(bus: Bus) -> None:
    with RawWebSocket(bus.running.port) as websocket:
        for path, answer in (("/health", " 200 "), ("/queue", " 401 ")):
            websocket.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert answer in websocket.read_answer()[0]
        websocket.begin()
        websocket.send(masked(SASL_HEADER))
        assert websocket.recv(0).startswith(SASL_HEADER)


@covers("F12")
@pytest.mark.parametrize(
    ("data", "status", "told"),
    [
        (request(Sec_WebSocket_Protocol="mqtt"), 400, "AMQPWSB10"),
        (request(Sec_WebSocket_Protocol=None), 400, "AMQPWSB10"),
        (request(Sec_WebSocket_Key="short"), 400, "Sec-WebSocket-Key"),
        (request(Sec_WebSocket_Version="7"), 426, "must be 13"),
        (request(Upgrade=None), 426, "Only WebSocket"),
        (request(Connection="keep-alive"), 426, "Only WebSocket"),
        (request(Content_Length="5") + b"hello", 400, "no body"),
        (request().replace(b"GET", b"POST", 1), 405, "GET"),
        (request().replace(b"HTTP/1.1", b"HTTP/1.0", 1), 426, "Only WebSocket"),
        (request("/other"), 401, "Authorization"),
        (request("/$servicebus"), 401, "Authorization"),
    ],
    ids=[
        "another subprotocol",
        "no subprotocol",
        "a bad key",
        "an old version",
        "no upgrade",
        "no wish to upgrade",
        "a body",
        "another method",
        "HTTP 1.0",
        "another path",
        "half the path",
    ],
)
def test_a_request_that_is_not_as_it_must_be_is_refused_in_http(bus: Bus, data: bytes, status: int, told: str) -> None:
    with RawWebSocket(bus.running.port) as websocket:
        websocket.send(data)
        head, body = websocket.read_answer()
    assert head.split()[1] == str(status)
    assert told in body


@covers("B1")
@pytest.mark.parametrize("path", ["/$ServiceBus/WebSocket", "/$servicebus/websocket/", "/%24servicebus/websocket?x=1"])
def test_the_path_may_be_written_in_other_ways(bus: Bus, path: str) -> None:
    with RawWebSocket(bus.running.port) as websocket:
        websocket.send(request(path))
        assert websocket.read_head().startswith("HTTP/1.1 101 ")


@covers("F12")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked(SASL_HEADER, TEXT), 1003),
        (masked(SASL_HEADER, is_masked=False), 1002),
        (masked(SASL_HEADER, reserved=4), 1002),
        (masked(SASL_HEADER, CONTINUATION), 1002),
        (masked(SASL_HEADER[:4], is_last=False) + masked(SASL_HEADER[4:]), 1002),
        (masked(length=17 * MEBIBYTE), 1009),
        (masked(length=2**64 - 1), 1009),
        (masked(bytes(200), PING), 1002),
    ],
    ids=["text", "not masked", "compressed", "continues nothing", "nested", "huge", "largest", "long ping"],
)
def test_a_wrong_frame_ends_the_websocket_with_its_code(websocket: RawWebSocket, data: bytes, code: int) -> None:
    websocket.send(data)
    assert websocket.expect_close(code) != ""


@covers("F12")
def test_what_is_not_amqp_ends_the_websocket(websocket: RawWebSocket) -> None:
    websocket.send(masked(b"GET / HTTP/1.1\r\n\r\n"))
    websocket.expect_close(1000)


@covers("B1")
def test_pings_are_answered_between_the_parts_of_a_message(websocket: RawWebSocket) -> None:
    websocket.send(masked(SASL_HEADER[:3], is_last=False) + masked(b"there?", PING))
    pong = websocket.next_frame()
    assert (pong.opcode, pong.payload) == (PONG, b"there?")
    websocket.send(masked(SASL_HEADER[3:], CONTINUATION))
    assert websocket.recv(0).startswith(SASL_HEADER)


@covers("B1")
def test_a_close_frame_is_answered_and_ends_the_connection(websocket: RawWebSocket) -> None:
    websocket.send(masked(b"\x03\xe9going away", CLOSE))
    answer = websocket.next_frame()
    assert answer.close_code == 1001
    assert websocket.read_whatever() == b""


@covers("M15")
def test_a_websocket_without_a_claim_is_closed_in_time(limited: RunningNamespace) -> None:
    with RawWebSocket(limited.port) as websocket:
        websocket.begin()
        began = time.monotonic()
        websocket.expect_close(1000)
        assert time.monotonic() - began < 5.0


@covers("M15", "F12")
@pytest.mark.parametrize("opcode", [BINARY, PONG, PING], ids=["data", "pongs", "pings"])
def test_too_many_bytes_before_a_claim_end_a_websocket(limited: RunningNamespace, opcode: int) -> None:
    with RawWebSocket(limited.port) as websocket:
        websocket.begin()
        sent = masked(SASL_HEADER if opcode == BINARY else bytes(100), opcode)
        with pytest.raises(ConnectionError):
            websocket.send_for_ever(sent)


@covers("M15", "F12")
def test_strangers_in_websockets_have_the_same_budget_as_others(crowded: RunningNamespace) -> None:
    strangers = [RawWebSocket(crowded.port) for _ in range(4)]
    try:
        for stranger in strangers[:3]:
            stranger.begin()
        known = AmqpInWebSocket.on(strangers[3])
        known.log_in()
        newcomers = [RawWebSocket(crowded.port) for _ in range(2)]
        for newcomer in newcomers:
            newcomer.begin()
        # The oldest stranger has made room for the second one, and nobody else.
        assert strangers[0].read_whatever() == b""
        for present in (*strangers[1:3], *newcomers):
            present.send(masked(SASL_HEADER))
            assert present.recv(0).startswith(SASL_HEADER)
            present.close()
    finally:
        for stranger in strangers:
            stranger.close()


@covers("B1")
def test_a_quiet_websocket_is_pinged(limited: RunningNamespace) -> None:
    with AmqpInWebSocket(limited.port) as raw:
        raw.log_in()
        pinged = [raw.websocket.next_frame() for _ in range(3)]
        assert {frame.opcode for frame in pinged} == {PING}


@covers("F12")
def test_a_message_larger_than_the_limit_is_refused_in_parts_too(limited: RunningNamespace) -> None:
    with RawWebSocket(limited.port) as websocket:
        websocket.begin()
        websocket.send(masked(SASL_HEADER, is_last=False) + masked(length=2041, opcode=CONTINUATION))
        assert "2048" in websocket.expect_close(1009)


@covers("F12")
def test_a_receiver_that_does_not_read_costs_no_memory_and_loses_nothing(bus: Bus, tls: ssl.SSLContext | None) -> None:
    """Receive-and-delete: what leaves the queue is what the broker has written out."""
    queue, count, size = bus.make_queue(), 3_000, 8_000
    with AmqpInWebSocket(bus.running.port, tls, receive_buffer_bytes=65536) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        batch = data_section(data_section(bytes(size))) * 25
        for number in range(count // 25):
            assert raw.send_message(SENDER, number, batch, BATCH_FORMAT).described(4)[0] == codes.ACCEPTED
        before = anonymous_bytes(bus.running)
        raw.attach_receiver(RECEIVER, queue, modes=(SETTLED, 0))
        raw.flow(RECEIVER, count)
        waiting = comes_to_rest(bus, queue, count)
        assert 0 < waiting < count
        assert anonymous_bytes(bus.running) - before < 40 * MEBIBYTE
        arrived = 0
        while arrived < count * size:
            arrived += len(raw.websocket.recv(0))
    assert bus.comes_to(queue, Counts(0))


def comes_to_rest(bus: Bus, queue: str, before: int) -> int:
    """The count of messages once it has changed, and then not for many looks."""
    same, active = 0, -1
    while same < 40:
        found = bus.counts(queue).active
        same = same + 1 if found == active and found < before else 0
        active = found
    return active


@covers("F12")
def test_strangers_who_break_websockets_disturb_nobody(bus: Bus) -> None:
    healthy = HealthyClient(bus)
    try:
        for number in range(40):
            with RawWebSocket(bus.running.port) as websocket:
                websocket.begin()
                websocket.send_whatever(masked(bytes(number)) + bytes([number] * 50))
        healthy.go_round_once_more()
    finally:
        healthy.stop()


@covers("B1")
def test_a_stop_closes_websockets_in_order(tmp_path: Path) -> None:
    running = start_namespace(tmp_path / "data")
    with AmqpInWebSocket(running.port) as raw:
        raw.log_in()
        running.process.terminate()
        closed = raw.expect(codes.CLOSE)
        assert "amqp:connection:forced" in str(closed.error(0)[0])
        raw.websocket.expect_close(1000)
    running.stop_in_peace()
