"""What happens to whole connections: TLS, silence, strangers, and a namespace that stops."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import EMPTY_FRAME
from tandembus.amqp.encoding.sections import data_section
from tandembus.front_end.listener import RESERVED_FILES
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.pair_views import until
from tests.integration.raw_amqp import (
    MESSAGE,
    RECEIVER,
    SENDER,
    RawAmqp,
    assert_has_three_fields,
    transfer_frames,
)
from tests.integration.raw_websocket import request
from tests.integration.serving import KEY, RunningNamespace, serving, start_namespace

HASTY = """
[limits]
max_message_size_bytes = 8000000
idle_timeout_s = 1.0
pre_auth_timeout_s = 1.0
"""
ENDS_WITHIN_S = 15.0


@pytest.fixture
def hasty_bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """A namespace that loses its patience within a second."""
    folder = tmp_path_factory.mktemp("hasty")
    (folder / "config.toml").write_text(HASTY)
    running = start_namespace(folder / "data", "--config", str(folder / "config.toml"))
    bus = Bus(running)
    yield bus
    bus.close()
    running.stop_in_peace()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    """A namespace with few places for connections that have shown no claim, and much patience with them."""
    folder = tmp_path_factory.mktemp("crowded")
    (folder / "config.toml").write_text("[limits]\nmax_unauthenticated_connections = 4\npre_auth_timeout_s = 600.0\n")
    with serving(folder / "data", "--config", str(folder / "config.toml")) as running:
        yield running


@covers("M15")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_same_port_speaks_amqp_in_tls(bus: Bus, queue: str, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(bus.running.ca_path))
    context.minimum_version = context.maximum_version = version
    body = bytes(range(256)) * 800
    with RawAmqp(bus.running.port, tls=context) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        raw.send_message(SENDER, 0, data_section(body))
        raw.attach_receiver(RECEIVER, queue)
        raw.flow(RECEIVER, 1)
        assert raw.receive_message()[1].body == body


@covers("M15")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_of_tls_are_refused(bus: Bus) -> None:
    context = ssl.create_default_context(cafile=str(bus.running.ca_path))
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        RawAmqp(bus.running.port, tls=context)


def test_silence_is_kept_alive_by_us_and_ended_when_it_is_the_peer_s(hasty_bus: Bus) -> None:
    with RawAmqp(hasty_bus.running.port) as raw:
        raw.open_timeout_ms = 1000
        raw.log_in()
        heartbeat = raw.read(8)
        assert heartbeat == EMPTY_FRAME
        close = raw.expect_end()[-1]
        assert close.code == codes.CLOSE
        assert_has_three_fields(close.error(0), "amqp:connection:forced")


@covers("M15")
def test_who_shows_no_claim_in_time_has_to_go(hasty_bus: Bus) -> None:
    with RawAmqp(hasty_bus.running.port) as mute, RawAmqp(hasty_bus.running.port) as raw:
        raw.start()
        raw.begin()
        close = raw.expect_end()[-1]
        assert close.code == codes.CLOSE
        assert_has_three_fields(close.error(0), "amqp:unauthorized-access")
        assert mute.read_whatever(ENDS_WITHIN_S) == b""


@covers("F18")
def test_who_only_asks_for_health_without_a_claim_has_to_go_in_time_too(hasty_bus: Bus) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("localhost", hasty_bus.running.port), 0.2) as stranger:
        give_up_at = time.monotonic() + ENDS_WITHIN_S
        answer = b"-"
        with suppress(ConnectionError):
            while answer and time.monotonic() < give_up_at:
                with suppress(TimeoutError):
                    answer = stranger.recv(65536)
                    continue
                stranger.sendall(request)
        assert time.monotonic() < give_up_at


def half_open(port: int, kind: str) -> socket.socket:
    """A connection that stops at some step before it shows a claim."""
    peer = socket.create_connection(("localhost", port), ENDS_WITHIN_S)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if kind == "unfinished TLS handshake":
        hello = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
        peer.sendall(hello.read())
        peer.recv(1)
        return peer
    if kind.startswith("TLS"):
        peer = context.wrap_socket(peer, server_hostname="localhost")
    if kind.endswith("AMQP header"):
        peer.sendall(b"AMQP\0\1\0\0")
        assert peer.recv(8) == b"AMQP\0\1\0\0"
    elif kind == "unfinished HTTP head":
        peer.sendall(b"GET /health HTTP/1.1\r\nHost: ")
    elif kind.endswith("WebSocket"):
        peer.sendall(request())
        assert peer.recv(65536).startswith(b"HTTP/1.1 101 ")
    return peer


HALF_OPEN = [
    "silence",
    "unfinished TLS handshake",
    "TLS and silence",
    "AMQP header",
    "TLS and AMQP header",
    "unfinished HTTP head",
    "WebSocket",
    "TLS and WebSocket",
]


def ends(peer: socket.socket) -> bool:
    """Whether the namespace ends it, whatever it says before."""
    try:
        while peer.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@covers("F18", "M15")
@pytest.mark.parametrize("kind", HALF_OPEN)
def test_half_open_connections_of_every_kind_end_in_time(hasty_bus: Bus, kind: str) -> None:
    with half_open(hasty_bus.running.port, kind) as peer:
        assert ends(peer)


@covers("F18")
@pytest.mark.parametrize("kind", HALF_OPEN)
def test_health_is_answered_while_half_open_connections_hold_all_places(crowded: RunningNamespace, kind: str) -> None:
    strangers = [half_open(crowded.port, kind) for _ in range(4)]
    with socket.create_connection(("localhost", crowded.port), ENDS_WITHIN_S) as probe:
        probe.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert probe.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert ends(strangers[0])
    for stranger in strangers:
        stranger.close()


@covers("F13", "M15")
@pytest.mark.parametrize("is_sent_with_its_head", [True, False])
def test_a_large_body_with_a_valid_token_is_taken_on_a_new_connection(
    hasty_bus: Bus, is_sent_with_its_head: bool
) -> None:
    queue = hasty_bus.make_queue()
    token = make_token("sb://localhost/", ROOT_POLICY, KEY, time.time() + 600)
    entry = b"<entry xmlns='http://www.w3.org/2005/Atom'>" + b" " * 900_000 + b"</entry>"
    for method, path, body, status in (
        ("POST", f"/{queue}/messages", bytes(500_000), b"201"),
        ("POST", f"/{queue}/messages", bytes(5_000_000), b"201"),
        ("PUT", "/another", entry, b"400"),
    ):
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {token}"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
        with socket.create_connection(("localhost", hasty_bus.running.port), ENDS_WITHIN_S) as sender:
            if is_sent_with_its_head:
                sender.sendall(head + body)
            else:
                sender.sendall(head)
                sender.sendall(body)
            assert sender.recv(65536).split(b" ")[1] == status


@covers("F18")
def test_without_file_descriptors_those_who_are_there_are_served_and_others_wait(tmp_path: Path) -> None:
    def told() -> list[str]:
        return [line for line in running.log if "file descriptors" in line or "open files" in line]

    with serving(tmp_path / "data") as running, RawAmqp(running.port) as raw:
        bus = Bus(running)
        queue = bus.make_queue()
        bus.close()
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        pid = running.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        most = max(int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()) + 1 + RESERVED_FILES + 5
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
        peers = [socket.create_connection(("localhost", running.port), ENDS_WITHIN_S) for _ in range(10)]
        until(told, bool)
        for number in range(50):
            assert raw.send_message(SENDER, number, data_section(b"x")).described(4)[0] == codes.ACCEPTED
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) <= most - RESERVED_FILES // 2
        assert peers[-1].recv(1) == b"", "one is refused after each pause, and the last of them"
        for peer in peers:
            peer.close()
        with socket.create_connection(("localhost", running.port), ENDS_WITHIN_S) as patient:
            patient.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert patient.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert len(told()) == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@covers("M1")
def test_a_namespace_that_stops_says_so_and_has_stored_what_it_accepted(hasty_bus: Bus) -> None:
    queue = hasty_bus.make_queue()
    running = hasty_bus.running
    with RawAmqp(running.port) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        raw.send(b"".join(transfer_frames(SENDER, number, MESSAGE) for number in range(500)))
        running.stop_in_peace()
        found = raw.expect_end()
    assert_has_three_fields(found[-1].error(0), "amqp:connection:forced")
    accepted = sum(
        answer.number(2) - answer.number(1) + 1 if answer.plain(2) is not None else 1
        for answer in found
        if answer.code == codes.DISPOSITION
    )
    again = start_namespace(running.data, port=running.port)
    try:
        bus = Bus(again)
        assert accepted <= bus.counts(queue).active <= 500
        bus.close()
    finally:
        again.stop_in_peace()
