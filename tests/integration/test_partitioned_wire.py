"""Partitioned queues as they stand on the wire: ids, numbers of other fragments, drains."""

from __future__ import annotations

import re
import time
import uuid

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tandembus.amqp.encoding.values import Array, int_, uint, ulong
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import BATCH_FORMAT, MESSAGE, RECEIVER, SENDER, RawAmqp, plain
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, on_shapes

pytestmark = on_shapes(PARTITIONED, PARTITIONED_ON_BROKERS)

FRAGMENTS = 16
NUMBER_BITS = 48
NOT_FOUND = (404, "com.microsoft:message-not-found")
NOWHERE = [FRAGMENTS << NUMBER_BITS | 1, 0x7FFF << NUMBER_BITS | 1, 5 << NUMBER_BITS, 2**63 - 1]
LONG = 0x81


@pytest.fixture
def queue(bus: Bus) -> str:
    return bus.make_queue()


@covers("P12", "P10")
@pytest.mark.parametrize("detects", [False, True], ids=["plain", "duplicates are looked for"])
def test_a_message_without_an_id_gets_one_and_is_nobodys_duplicate(raw: RawAmqp, bus: Bus, detects: bool) -> None:
    queue = bus.make_queue(requires_duplicate_detection=detects)
    raw.attach_sender(SENDER, queue)
    for number, payload in enumerate((MESSAGE, properties_section(subject="s") + MESSAGE)):
        assert raw.send_message(SENDER, number, payload).described(4)[0] == codes.ACCEPTED
    batch = data_section(MESSAGE) + data_section(MESSAGE)
    assert raw.send_message(SENDER, 2, batch, BATCH_FORMAT).described(4)[0] == codes.ACCEPTED
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 4)
    ids = [raw.receive_message()[1].property_at(0) for _ in range(4)]
    assert len(set(map(str, ids))) == 4
    assert all(isinstance(one, str) and re.fullmatch("[0-9a-f]{32}", one) for one in ids)


@covers("P26")
def test_the_number_of_a_message_names_its_fragment(raw: RawAmqp, queue: str) -> None:
    """Of the key "a" that is the third."""
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, message_annotations_section({"x-opt-partition-key": "a"}) + MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    _, message = raw.receive_message()
    annotations = {str(plain(key)): plain(value) for key, value in (message.message_annotations or {}).items()}
    assert annotations["x-opt-sequence-number"] == 3 << NUMBER_BITS | 1
    assert annotations["x-opt-enqueue-sequence-number"] in (annotations["x-opt-sequence-number"], 0)
    assert annotations["x-opt-partition-key"] == "a"


@covers("P24", "P26")
@pytest.mark.parametrize("number", NOWHERE)
@pytest.mark.parametrize(
    ("operation", "more"),
    [("receive-by-sequence-number", {"receiver-settle-mode": uint(1)}), ("cancel-scheduled-message", {})],
)
def test_a_number_of_no_fragment_is_not_found(
    raw: RawAmqp, queue: str, number: int, operation: str, more: dict[str, object]
) -> None:
    node = raw.attach_node(f"{queue}/$management")
    body = {"sequence-numbers": Array(LONG, [number]), **more}
    assert node.manage(f"com.microsoft:{operation}", body)[:2] == NOT_FOUND


@covers("P24", "P26")
def test_a_number_beyond_all_numbers_is_not_found(raw: RawAmqp, queue: str) -> None:
    node = raw.attach_node(f"{queue}/$management")
    for number in (ulong(2**64 - 1), ulong(2**63)):
        body = {"sequence-numbers": [number], "receiver-settle-mode": uint(1)}
        assert node.manage("com.microsoft:receive-by-sequence-number", body)[:2] == NOT_FOUND


@covers("P24")
def test_a_lock_token_of_no_fragment_is_lost(raw: RawAmqp, queue: str) -> None:
    node = raw.attach_node(f"{queue}/$management")
    tokens = Array(0x98, [uuid_of(index) for index in (0, 3, 16, 0xFFFF)])
    answer = node.manage("com.microsoft:renew-lock", {"lock-tokens": tokens})
    assert answer[:2] == (410, "com.microsoft:message-lock-lost")


def uuid_of(index: int) -> uuid.UUID:
    return uuid.UUID(bytes_le=index.to_bytes(2, "big") + bytes(14))


@covers("P6", "M12")
@pytest.mark.parametrize("count", [0, 1, FRAGMENTS], ids=["nothing", "one", "one in each"])
def test_a_drain_brings_what_is_there_and_ends_soon(raw: RawAmqp, bus: Bus, queue: str, count: int) -> None:
    raw.attach_sender(SENDER, queue)
    for number in range(count):
        raw.send_message(SENDER, number, MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    began_at = time.monotonic()
    raw.flow(RECEIVER, 50, drain=True)
    for _ in range(count):
        raw.receive_message()
    flow = raw.expect(codes.FLOW)
    while flow.plain(4) != RECEIVER or flow.plain(6) != 0:
        flow = raw.expect(codes.FLOW)
    assert time.monotonic() - began_at < 5.0
    assert flow.number(5) == 50
    assert bus.counts(queue) == Counts(count)


@covers("P6")
def test_no_more_than_the_credit_is_transferred(raw: RawAmqp, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    for number in range(FRAGMENTS):
        raw.send_message(SENDER, number, MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 3)
    for _ in range(3):
        raw.receive_message()
    node = raw.attach_node(f"{queue}/$management")
    status, _, body = node.manage("com.microsoft:peek-message", {"message-count": int_(50), "from-sequence-number": 1})
    assert (status, isinstance(body, dict) and len(body["messages"])) == (200, FRAGMENTS)
    transfers = [found for found in raw.frames if found.code == codes.TRANSFER]
    assert len(transfers) == 3 + 1  # and the answer to the peek
