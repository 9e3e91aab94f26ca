"""Pings on the wire: checked and stored like a send, and never seen by anybody (requirement N10)."""

from __future__ import annotations

import uuid

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import int_, timestamp
from tandembus.clock import SystemClock
from tandembus.store.messaging_store import NUMBER_MASK
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import (
    BATCH_FORMAT,
    FIRST,
    MESSAGE,
    RECEIVER,
    SENDER,
    SETTLED,
    RawAmqp,
    plain,
    rejection,
    texts,
)
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
PING = header_section(ttl_ms=1000) + properties_section(content_type=CONTENT_TYPE, group_id=uuid.uuid4().hex)
KEYLESS_PING = header_section(ttl_ms=1000) + properties_section(content_type=CONTENT_TYPE)


@covers("N10")
@pytest.mark.parametrize(
    "payload",
    [
        PING,
        PING + data_section(b""),
        properties_section(content_type=CONTENT_TYPE),
        PING + amqp_value_section(None),
        application_properties_section({"kept": "not"}) + PING,
    ],
    ids=["no body", "empty body", "no ttl", "null body", "with properties"],
)
def test_a_ping_is_accepted_and_leaves_no_trace(raw: RawAmqp, bus: Bus, queue: str, payload: bytes) -> None:
    raw.attach_receiver(RECEIVER, queue, (SETTLED, FIRST))
    raw.flow(RECEIVER, 10)
    raw.attach_sender(SENDER, queue)
    assert raw.send_message(SENDER, 0, payload).described(4)[0] == codes.ACCEPTED
    assert bus.counts(queue) == Counts(0)
    node = raw.attach_node(f"{queue}/$management")
    assert node.manage("com.microsoft:peek-message", {"message-count": int_(9), "from-sequence-number": 1})[0] == 204
    raw.transfer(SENDER, 1, MESSAGE, settled=True)
    _, message = raw.receive_message()
    assert message.body == b"hello"
    number = texts(message.message_annotations)["x-opt-sequence-number"]
    assert isinstance(number, int)
    assert number & NUMBER_MASK == 1


@covers("N10")
def test_pings_in_a_batch_are_left_out_of_it(raw: RawAmqp, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    ping = PING if not bus.shape.is_partitioned else KEYLESS_PING  # one batch, one key (P27)
    for number, parts in enumerate(([ping, MESSAGE, ping], [MESSAGE, ping], [ping, ping])):
        payload = b"".join(data_section(part) for part in parts)
        assert raw.send_message(SENDER, number, payload, BATCH_FORMAT).described(4)[0] == codes.ACCEPTED
    assert bus.counts(queue) == Counts(2)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 2)
    assert [raw.receive_message()[1].body for _ in range(2)] == [b"hello", b"hello"]


@covers("N10")
def test_a_scheduled_ping_is_not_kept_either(raw: RawAmqp, bus: Bus, queue: str) -> None:
    later = timestamp(SystemClock().now_ms() + 3_600_000)
    ping = message_annotations_section({"x-opt-scheduled-enqueue-time": later}) + PING
    raw.attach_sender(SENDER, queue)
    assert raw.send_message(SENDER, 0, ping).described(4)[0] == codes.ACCEPTED
    node = raw.attach_node(f"{queue}/$management")
    assert node.manage("com.microsoft:schedule-message", {"messages": [{"message": ping}]})[0] == 200
    assert bus.counts(queue) == Counts(0)


@covers("N10", "M13")
def test_a_ping_is_refused_where_a_send_would_be(small_bus: Bus) -> None:
    queue = small_bus.make_queue(max_size_in_megabytes=1)
    with RawAmqp(small_bus.running.port) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        small = data_section(bytes(len(PING) - 5))
        assert len(small) == len(PING)
        number = 0
        for payload in (data_section(bytes(200_000)), data_section(bytes(5_000)), small):
            while raw.send_message(SENDER, number, payload).described(4)[0] == codes.ACCEPTED:
                number += 1
        answer = raw.send_message(SENDER, number + 1, PING)
        assert plain(rejection(answer)[0]) == "amqp:resource-limit-exceeded"
