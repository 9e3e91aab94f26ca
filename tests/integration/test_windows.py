"""Clients that open narrow windows, do not read, or say several things at once: nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import AMQP_FRAME, frame
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    properties_section,
)
from tandembus.amqp.encoding.values import int_, ubyte, uint
from tests.chaos.processes import anonymous_memory_bytes
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.hostile import HealthyClient
from tests.integration.raw_amqp import (
    FIRST,
    MESSAGE,
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED,
    UNSETTLED,
    RawAmqp,
    plain,
    source_of,
    target_of,
    transfer_frames,
)
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

MEBIBYTE = 1024 * 1024
LARGE = data_section(bytes(240_000))
MAX_GROWTH_BYTES = 160 * MEBIBYTE
"""Answers under way between processes and to the client. All of them would be three times as much."""
ROUND_TRIPS = 10
ALL_CREDIT = 0x7FFFFFFF


@pytest.fixture
def healthy(bus: Bus) -> Iterator[HealthyClient]:
    client = HealthyClient(bus)
    yield client
    client.stop()


def fill(raw: RawAmqp, queue: str, payload: bytes, count: int) -> None:
    raw.attach_sender(SENDER, queue)
    for number in range(count):
        answer = raw.send_message(SENDER, number, payload)
        assert answer.described(4)[0] == codes.ACCEPTED


def attach_frame(handle: int, queue: str) -> bytes:
    """A receiver, without waiting for the answer."""
    modes = [ubyte(UNSETTLED), ubyte(SECOND)]
    fields: list[object] = [f"link {handle}", uint(handle), True, *modes, source_of(queue), target_of("client")]
    return frame(AMQP_FRAME, 0, codes.ATTACH, fields)


def flow_frame(handle: int, credit: int, window: int = 65536, channel: int = 0) -> bytes:
    fields: list[object] = [uint(0), uint(window), uint(0), uint(65536), uint(handle), uint(0), uint(credit)]
    return frame(AMQP_FRAME, channel, codes.FLOW, fields)


def peek_request(message_id: str) -> bytes:
    request = properties_section(message_id=message_id)
    request += application_properties_section({"operation": "com.microsoft:peek-message"})
    return request + amqp_value_section({"from-sequence-number": 1, "message-count": int_(1)})


@covers("F10")
def test_sessions_with_tiny_windows_do_not_keep_the_broker_busy(
    bus: Bus, queue: str, raw: RawAmqp, healthy: HealthyClient
) -> None:
    fill(raw, queue, LARGE, 12)
    channels = range(1, 5)
    for channel in channels:
        raw.begin(channel, window=1)
        raw.attach_receiver(RECEIVER, queue, channel=channel)
    raw.send(b"".join(flow_frame(RECEIVER, 100, window=1, channel=channel) for channel in channels))
    raw.expect(codes.TRANSFER)
    for _ in range(ROUND_TRIPS):
        healthy.go_round_once_more()


@covers("F10")
def test_what_waits_for_a_tiny_window_comes_when_it_opens(queue: str, raw: RawAmqp) -> None:
    fill(raw, queue, LARGE, 12)
    raw.begin(1, window=1)
    raw.attach_receiver(RECEIVER, queue, channel=1)
    raw.send(flow_frame(RECEIVER, 100, window=1, channel=1))
    first = raw.expect(codes.TRANSFER)
    assert first.plain(5) is True
    raw.send(flow_frame(RECEIVER, 100, channel=1))
    last_ones = 0
    while last_ones < 12:
        last_ones += raw.expect(codes.TRANSFER).plain(5) is not True


@covers("M12")
def test_credit_that_comes_along_with_the_attach_counts(queue: str, raw: RawAmqp) -> None:
    fill(raw, queue, MESSAGE, 1)
    raw.send(attach_frame(RECEIVER, queue) + flow_frame(RECEIVER, 10))
    raw.expect(codes.ATTACH)
    _, received = raw.receive_message()
    assert received.body == b"hello"


@covers("M12", "M2")
def test_a_receiver_that_comes_and_goes_at_once_takes_no_message(bus: Bus, queue: str, raw: RawAmqp) -> None:
    for handle in range(10, 30):
        detach = frame(AMQP_FRAME, 0, codes.DETACH, [uint(handle), True])
        raw.send(attach_frame(handle, queue) + flow_frame(handle, 10) + detach)
    detached = 0
    while detached < 20:
        detached += raw.next_frame().code == codes.DETACH
    with RawAmqp(bus.running.port) as other:
        other.log_in()
        fill(other, queue, MESSAGE, 1)
        other.attach_receiver(RECEIVER, queue)
        other.flow(RECEIVER, 1)
        _, received = other.receive_message()
        assert received.header is not None
        assert plain(received.header[4]) == 0


@covers("M12", "F10")
def test_a_request_link_keeps_its_credit_when_requests_are_refused(queue: str, raw: RawAmqp) -> None:
    handles, each = (50, 52, 54), 100
    requests = b""
    for position, handle in enumerate(handles):
        raw.attach_node(f"{queue}/$management", handle)
        for number in range(each):
            requests += transfer_frames(handle, position * each + number, peek_request(str(number)))
    raw.send(requests)
    settled = 0
    while settled < each * len(handles):
        found = raw.next_frame()
        if found.code == codes.DISPOSITION:
            last = found.plain(2)
            settled += (last if isinstance(last, int) else found.number(1)) - found.number(1) + 1
    flows = [one for one in raw.frames if one.code == codes.FLOW]
    for handle in handles:
        last_flow = [one for one in flows if one.plain(4) == handle][-1]
        assert last_flow.number(5) + last_flow.number(6) > each


@covers("F10")
def test_a_client_that_asks_and_never_reads_does_not_grow_the_process(
    bus: Bus, queue: str, raw: RawAmqp, healthy: HealthyClient
) -> None:
    fill(raw, queue, LARGE, 1)
    raw.attach_sender(50, f"{queue}/$management")
    raw.attach_receiver(51, f"{queue}/$management", (SETTLED, FIRST))
    raw.flow(51, ALL_CREDIT)
    healthy.go_round_once_more()
    before = anonymous_memory_bytes(bus.running.process.pid)
    raw.socket.settimeout(1.0)
    try:
        for number in range(40):
            requests = [transfer_frames(50, number * 50 + at, peek_request(str(at)), settled=True) for at in range(50)]
            raw.send(b"".join(requests))
            healthy.go_round_once_more()
    except TimeoutError:
        pass  # it is not read any more, as it should be
    for _ in range(ROUND_TRIPS):
        healthy.go_round_once_more()
    assert anonymous_memory_bytes(bus.running.process.pid) - before < MAX_GROWTH_BYTES
