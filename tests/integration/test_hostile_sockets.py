"""Peers that break the protocol on a real socket, while a healthy client on the same namespace notices nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import AMQP_FRAME, AMQP_HEADER, SASL_HEADER, frame
from tandembus.amqp.encoding.sections import (
    application_properties_section,
)
from tandembus.amqp.encoding.values import Described, symbol, ubyte, uint, ulong
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.hostile import (
    BEGIN,
    ENDS_WITHIN_S,
    INIT,
    OPEN,
    HealthyClient,
    anonymous_bytes,
    conversation,
    frames_in,
    mutated,
    performative,
    say_and_listen,
)
from tests.integration.raw_amqp import (
    MESSAGE,
    RECEIVER,
    SENDER,
    RawAmqp,
    plain,
    rejection,
    source_of,
    state_of,
    target_of,
    texts,
    transfer_frames,
)
from tests.integration.serving import start_namespace
from tests.scale import scaled

MEBIBYTE = 1024 * 1024
MAX_GROWTH_BYTES = 64 * MEBIBYTE
MAX_ROUND_TRIP_S = 3.0
"""Far above what a healthy client sees; far below a hang."""
WORKERS = 8
MUTATED_INPUTS = scaled(ci=6_000, nightly=1_000_000, release=5_000_000)


@pytest.fixture(scope="module")
def attacked_bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """A namespace of its own: its memory is watched."""
    running = start_namespace(tmp_path_factory.mktemp("attacked") / "data")
    bus = Bus(running)
    yield bus
    bus.close()
    running.stop_in_peace()


@pytest.fixture(scope="module")
def healthy(attacked_bus: Bus) -> Iterator[HealthyClient]:
    healthy = HealthyClient(attacked_bus)
    yield healthy
    healthy.stop()


@pytest.fixture(autouse=True)
def unharmed(attacked_bus: Bus, healthy: HealthyClient) -> Iterator[None]:
    """Whatever a test does, others go on being served and the process does not grow."""
    before = anonymous_bytes(attacked_bus.running)
    healthy.longest_s = 0.0
    yield
    healthy.go_round_once_more()
    assert healthy.longest_s < MAX_ROUND_TRIP_S
    assert anonymous_bytes(attacked_bus.running) - before < MAX_GROWTH_BYTES


@pytest.fixture
def raw(attacked_bus: Bus) -> Iterator[RawAmqp]:
    with RawAmqp(attacked_bus.running.port) as raw:
        yield raw


@pytest.fixture
def target(attacked_bus: Bus) -> str:
    return attacked_bus.make_queue()


# Each step of the handshake, reached properly: what is wrong comes behind it.

STEPS = {
    "nothing": b"",
    "SASL header": SASL_HEADER,
    "SASL": SASL_HEADER + INIT,
    "AMQP header": SASL_HEADER + INIT + AMQP_HEADER,
    "open": SASL_HEADER + INIT + AMQP_HEADER + OPEN,
    "begin": SASL_HEADER + INIT + AMQP_HEADER + OPEN + BEGIN,
}
IS_OPEN = ("open", "begin")


def with_header(size: int, offset: int = 2, kind: int = 0, body: bytes = b"") -> bytes:
    return size.to_bytes(4, "big") + bytes((offset, kind, 0, 0)) + body


GARBAGE = {
    "random bytes": random.Random(1).randbytes(400),
    "zeros": bytes(400),
    "text": b"A quick brown fox jumps over the lazy dog\r\n\r\n" * 4,
    "a frame of 4 GB": with_header(2**32 - 1),
    "a frame of 70 KB": with_header(70_000, body=bytes(70_000)),
    "a frame smaller than its header": with_header(7, body=bytes(20)),
    "an offset of nothing": with_header(16, offset=0, body=bytes(8)),
    "an offset behind the frame": with_header(16, offset=255, body=bytes(8)),
    "an unknown frame type": with_header(16, kind=9, body=bytes(8)),
    "a list of 4 G entries": with_header(20, body=b"\x00\x53\x10\xd0" + b"\xff" * 8),
    "an array of nothings": with_header(24, body=b"\x00\x53\x10\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40\x00\x00\x00"),
    "lists within lists": performative(codes.OPEN, [])[:-1] + b"\xc0\xff\x01" * 4000,
    "no performative": with_header(12, body=b"\x40\x40\x40\x40"),
    "an unknown performative": performative(0x77, [1, 2, 3]),
    "wrong types": performative(codes.OPEN, [1, 2, 3, 4, 5]),
    "another open": OPEN + OPEN,
    "another header": SASL_HEADER + SASL_HEADER + AMQP_HEADER + AMQP_HEADER,
}
CONDITIONS = {
    "amqp:connection:framing-error",
    "amqp:decode-error",
    "amqp:illegal-state",
    "amqp:invalid-field",
    "amqp:not-allowed",
    "amqp:not-found",
}


@covers("F12", "F13")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_behind_any_step_ends_the_connection_and_no_other(raw: RawAmqp, step: str, garbage: str) -> None:
    """Until it is open a connection is just cut; afterwards it is told why."""
    raw.send_whatever(STEPS[step] + GARBAGE[garbage])
    raw.send_whatever(GARBAGE[garbage])
    answer = raw.read_whatever(ENDS_WITHIN_S)
    if step not in IS_OPEN:
        return
    last = frames_in(answer)[-1]
    assert last.code == codes.CLOSE
    assert plain(last.error(0)[0]) in CONDITIONS


@covers("F12")
@pytest.mark.parametrize(
    "first",
    [b"\x16\x03\x01\x02\x00" + bytes(100), b"GET / HTTP/1.1\r\n\r\n", b"\x80\x00", b"\xff"],
    ids=["TLS", "HTTP", "SSL 2", "other"],
)
def test_what_is_neither_amqp_nor_tls_nor_http_is_turned_away(raw: RawAmqp, first: bytes) -> None:
    raw.send_whatever(first + b"\r\n\r\n" + bytes(1000))
    raw.read_whatever(ENDS_WITHIN_S)


# A peer that has logged in, and then misbehaves.


@pytest.fixture
def peer(raw: RawAmqp) -> RawAmqp:
    raw.log_in()
    return raw


def end_condition(raw: RawAmqp) -> str:
    return str(plain(raw.expect(codes.END).error(0)[0]))


@covers("F12")
@pytest.mark.parametrize(
    "stray",
    [
        lambda raw: raw.transfer(77, 0, MESSAGE),
        lambda raw: raw.flow(77, 100),
        lambda raw: raw.flow(2**32 - 1, 100),
    ],
    ids=["transfer", "flow", "flow on the largest"],
)
def test_an_unknown_handle_ends_the_session_and_another_can_begin(
    peer: RawAmqp, target: str, stray: Callable[[RawAmqp], None]
) -> None:
    stray(peer)
    assert end_condition(peer) == "amqp:session:unattached-handle"
    peer.perform(codes.END, [])
    peer.begin(channel=1)
    peer.attach_sender(SENDER, target, channel=1)


@covers("F12")
def test_a_handle_in_use_cannot_be_attached_again(peer: RawAmqp, target: str) -> None:
    peer.attach_sender(SENDER, target)
    peer.attach(SENDER, False, source_of("x"), target_of(target))
    assert end_condition(peer) == "amqp:session:handle-in-use"


@covers("F12")
def test_a_transfer_to_who_receives_is_an_error_of_the_session(peer: RawAmqp, target: str) -> None:
    peer.attach_receiver(RECEIVER, target)
    peer.transfer(RECEIVER, 0, MESSAGE)
    assert end_condition(peer) == "amqp:session:errant-link"


@covers("F12")
@pytest.mark.parametrize(
    ("first", "last"), [(0, 2**32 - 1), (5, 3), (2**32 - 1, 2**32 - 1), (0, 0), (2**31, 2**31 + 10**9)], ids=str
)
def test_a_disposition_of_what_was_never_sent_changes_nothing(
    peer: RawAmqp, target: str, first: int, last: int
) -> None:
    peer.dispose(first, state_of(codes.ACCEPTED), last=last)
    peer.perform(codes.DISPOSITION, [False, uint(first), uint(last), True, state_of(codes.ACCEPTED)])
    peer.attach_sender(SENDER, target)
    assert peer.send_message(SENDER, 0, MESSAGE).described(4)[0] == codes.ACCEPTED


@covers("F12")
@pytest.mark.parametrize(
    "state",
    [
        state_of(codes.RECEIVED, uint(0), ulong(0)),
        state_of(codes.TRANSACTIONAL_STATE, b"transaction", state_of(codes.ACCEPTED)),
        state_of(codes.REJECTED, "no error"),
        state_of(0x99),
        Described(symbol("amqp:accepted:list"), []),
        Described(ulong(codes.MODIFIED), [True, False, {symbol("deep"): [[[[]]]]}]),
    ],
    ids=["received", "transactional", "wrong type", "unknown", "by name", "deep"],
)
def test_an_odd_outcome_is_answered_or_closes_the_connection(peer: RawAmqp, target: str, state: Described) -> None:
    peer.attach_sender(SENDER, target)
    peer.send_message(SENDER, 0, MESSAGE)
    peer.attach_receiver(RECEIVER, target)
    peer.flow(RECEIVER, 1)
    transfer, _ = peer.receive_message()
    peer.dispose(transfer.number(1), state)
    peer.perform(codes.CLOSE, [])
    found = [answer.code for answer in peer.expect_end()]
    assert found[-1] == codes.CLOSE
    assert set(found) <= {codes.DISPOSITION, codes.TRANSFER, codes.FLOW, codes.CLOSE}


@covers("F12", "M12")
def test_a_flood_without_credit_is_stored_or_stopped_and_never_half_answered(
    peer: RawAmqp, attacked_bus: Bus, target: str
) -> None:
    peer.attach_sender(SENDER, target)
    flood = b"".join(transfer_frames(SENDER, number, MESSAGE) for number in range(30_000))
    sending = threading.Thread(target=peer.send_whatever, args=(flood,))
    sending.start()
    accepted = 0
    while accepted < 30_000:
        answer = peer.next_frame()
        if answer.code == codes.DETACH:
            assert plain(answer.error(2)[0]) == "amqp:link:transfer-limit-exceeded"
            break
        if answer.code == codes.DISPOSITION:
            assert answer.described(4)[0] == codes.ACCEPTED
            accepted = int(str(answer.plain(2) or answer.plain(1))) + 1
    sending.join()
    assert attacked_bus.counts(target).active >= accepted


@covers("F13", "M13")
def test_an_endless_delivery_is_not_kept(peer: RawAmqp, attacked_bus: Bus, target: str) -> None:
    peer.attach_sender(SENDER, target)
    before = anonymous_bytes(attacked_bus.running)
    part = frame(AMQP_FRAME, 0, codes.TRANSFER, [uint(SENDER), uint(0), b"tag", uint(0), False, True], bytes(60_000))
    for _ in range(1000):
        peer.send(part)
    assert anonymous_bytes(attacked_bus.running) - before < 16 * MEBIBYTE
    peer.perform(codes.TRANSFER, [uint(SENDER), uint(0), b"tag", uint(0), False, False])
    answer = peer.expect(codes.DISPOSITION)
    assert plain(rejection(answer)[0]) == "amqp:link:message-size-exceeded"
    assert peer.send_message(SENDER, 1, MESSAGE).described(4)[0] == codes.ACCEPTED
    assert attacked_bus.counts(target) == Counts(1)


@covers("F13")
def test_unfinished_deliveries_on_many_links_are_bounded(peer: RawAmqp, attacked_bus: Bus, target: str) -> None:
    """180 MB in 900 deliveries, none of which ever ends."""
    before = anonymous_bytes(attacked_bus.running)
    piece = bytes(50_000)
    most = 0
    for handle in range(900):
        fields: list[object] = [f"link {handle}", uint(handle), False, ubyte(0), ubyte(0), source_of("x")]
        peer.send_whatever(performative(codes.ATTACH, [*fields, target_of(target), None, None, uint(0)]))
        fields = [uint(handle), uint(handle), b"tag", uint(0), False, True]
        peer.send_whatever(frame(AMQP_FRAME, 0, codes.TRANSFER, fields, piece) * 4)
        most = max(most, anonymous_bytes(attacked_bus.running) - before)
    last = peer.expect_end()[-1]
    assert (last.code, plain(last.error(0)[0])) == (codes.CLOSE, "amqp:resource-limit-exceeded")
    assert most < MAX_GROWTH_BYTES


@covers("F13")
def test_links_and_sessions_are_limited(peer: RawAmqp, target: str) -> None:
    for handle in range(1001):
        fields: list[object] = [
            f"link {handle}",
            uint(handle),
            True,
            ubyte(0),
            ubyte(0),
            source_of(target),
            target_of("x"),
        ]
        peer.perform(codes.ATTACH, fields)
    conditions = set()
    for _ in range(1001):
        found = peer.expect(codes.ATTACH)
        if found[5] is None:
            conditions.add(plain(peer.expect(codes.DETACH).error(2)[0]))
    assert conditions == {"amqp:resource-limit-exceeded"}
    for channel in range(1, 300):
        peer.perform(codes.BEGIN, [None, uint(0), uint(10), uint(10)], channel=channel)
    last = peer.expect_end()[-1]
    assert (last.code, plain(last.error(0)[0])) in {
        (codes.CLOSE, "amqp:resource-limit-exceeded"),
        (codes.CLOSE, "amqp:not-allowed"),
    }


@covers("F13", "M15")
def test_a_stranger_s_bytes_are_limited(raw: RawAmqp) -> None:
    raw.start()
    raw.begin()
    raw.attach_sender(SENDER, "$cbs")
    raw.send_whatever(b"".join(transfer_frames(SENDER, number, bytes(50_000)) for number in range(100)))
    last = raw.expect_end()[-1]
    assert (last.code, plain(last.error(0)[0])) == (codes.CLOSE, "amqp:unauthorized-access")


def nested_lists(depth: int) -> bytes:
    nested = b"\x40"
    for _ in range(depth):
        nested = b"\xd0" + (len(nested) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + nested
    return nested


def nested_descriptors(depth: int) -> bytes:
    return b"\x00" * depth + b"\x40" * (depth + 1)


@covers("F13")
@pytest.mark.parametrize("nest", [nested_lists, nested_descriptors])
@pytest.mark.parametrize("depth", [10, 100, 1_000, 5_000])
def test_what_is_decoded_has_a_depth_limit(
    peer: RawAmqp, target: str, nest: Callable[[int], bytes], depth: int
) -> None:
    """A message's body is nobody's business but its receiver's; a request's is ours."""
    peer.attach_sender(SENDER, target)
    body = b"\x00\x53\x77" + nest(depth)
    peer.send_message(SENDER, 0, body)
    node = peer.attach_node(f"{target}/$management")
    reply = node.ask_encoded(application_properties_section({"operation": "com.microsoft:peek-message"}) + body)
    condition = plain(texts(reply.application_properties)["errorCondition"])
    assert condition == ("com.microsoft:argument-error" if depth == 10 else "amqp:decode-error")
    fields = [b"\xa1\x01x", b"\x40" * 8, nest(depth)]
    content = bytes((10,)) + b"".join(fields)
    attach = b"\x00\x53\x10\xd0" + (len(content) + 3).to_bytes(4, "big") + b"\x00\x00\x00" + content
    peer.send_whatever(with_header(len(attach) + 8, body=attach))
    assert peer.expect_end()[-1].code == codes.CLOSE


@covers("F12", "F13")
@pytest.mark.chaos
def test_mutations_of_a_conversation_are_answered_or_closed(attacked_bus: Bus, target: str) -> None:
    """Each input gets its own connection, which must come to an end once we have said everything."""
    frames = conversation(target)
    port = attacked_bus.running.port
    assert frames_in(say_and_listen(port, b"".join(frames)))[-1][0] is None, "unchanged, it ends in peace"

    def hanging_of(worker: int) -> list[int]:
        return [number for number in range(worker, MUTATED_INPUTS, WORKERS) if not ends(port, frames, number)]

    with ThreadPoolExecutor(WORKERS) as threads:
        hanging = [number for numbers in threads.map(hanging_of, range(WORKERS)) for number in numbers]
    assert hanging == []


def ends(port: int, frames: list[bytes], number: int) -> bool:
    try:
        say_and_listen(port, mutated(frames, random.Random(f"mutation {number}")))
    except TimeoutError:
        return False
    return True
