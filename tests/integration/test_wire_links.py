"""What the contract says about links beside the rules that break clients: payloads, credit, refusals."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import AMQP_HEADER
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    data_section,
    header_section,
    map_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import (
    SHORT,
    ULONG,
    Array,
    Described,
    Typed,
    int_,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
)
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import (
    BATCH_FORMAT,
    FIRST,
    MESSAGE,
    PIPELINED_OPENING,
    RECEIVER,
    SENDER,
    SETTLED,
    RawAmqp,
    assert_has_three_fields,
    source_of,
    target_of,
    texts,
)
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


def test_a_client_may_say_everything_before_it_hears_anything(bus: Bus, queue: str) -> None:
    with RawAmqp(bus.running.port) as raw:
        begin = [None, uint(0), uint(65536), uint(65536), uint(255)]
        attach = ["cbs", uint(1), False, ubyte(0), ubyte(0), source_of("$cbs"), target_of("$cbs"), None, None, uint(0)]
        raw.send(PIPELINED_OPENING + AMQP_HEADER)
        raw.open()
        raw.perform(codes.BEGIN, list(begin), channel=1)
        raw.perform(codes.ATTACH, list(attach), channel=1)
        assert raw.read(8)[4] == 3
        assert [raw.next_frame().code for _ in range(2)] == [codes.SASL_MECHANISMS, codes.SASL_OUTCOME]
        assert raw.read(8) == AMQP_HEADER
        raw.expect(codes.OPEN)
        assert raw.expect(codes.BEGIN).plain(0) == 1
        assert raw.expect(codes.ATTACH)[0] == "cbs"


def test_sections_come_in_any_order_and_a_body_may_be_missing(raw: RawAmqp, queue: str) -> None:
    late = map_section(codes.DELIVERY_ANNOTATIONS, {"x-late": 1})
    payloads = [
        properties_section(message_id="no body"),
        data_section(b"early") + properties_section(message_id="early") + header_section(ttl_ms=60_000) + late,
        amqp_value_section(None) + properties_section(message_id="null"),
    ]
    raw.attach_sender(SENDER, queue)
    for number, payload in enumerate(payloads):
        assert raw.send_message(SENDER, number, payload).described(4)[0] == codes.ACCEPTED
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 3)
    messages = [raw.receive_message()[1] for _ in range(3)]
    by_id = {str(message.property_at(0)): message for message in messages}
    assert by_id.keys() == {"no body", "early", "null"}
    assert by_id["early"].body == b"early"
    assert by_id["early"].header is not None
    assert by_id["early"].header[2] == uint(60_000)


def test_a_settled_send_is_stored_and_not_answered(raw: RawAmqp, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    raw.transfer(SENDER, 0, MESSAGE, settled=True)
    assert raw.send_message(SENDER, 1, MESSAGE).plain(1) == 1
    assert bus.counts(queue) == Counts(2)


def test_an_aborted_delivery_leaves_nothing(raw: RawAmqp, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    fields: list[object] = [uint(SENDER), uint(0), b"tag", uint(0), False]
    raw.perform(codes.TRANSFER, [*fields, True], MESSAGE)
    raw.perform(codes.TRANSFER, [*fields, False, None, None, False, True])
    raw.send_message(SENDER, 1, MESSAGE)
    assert bus.counts(queue) == Counts(1)


@covers("M12")
def test_a_batch_is_stored_as_a_whole_or_not_at_all(raw: RawAmqp, bus: Bus, queue: str) -> None:
    envelope = message_annotations_section({"x-opt-partition-key": "first"}) + properties_section(message_id="first")
    good = envelope + b"".join(data_section(properties_section(message_id=str(n)) + MESSAGE) for n in range(3))
    raw.attach_sender(SENDER, queue)
    assert raw.send_message(SENDER, 0, good + data_section(b"bad"), BATCH_FORMAT).described(4)[0] == codes.REJECTED
    assert bus.counts(queue) == Counts(0)
    assert raw.send_message(SENDER, 1, good, BATCH_FORMAT).described(4)[0] == codes.ACCEPTED
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 3)
    messages = [raw.receive_message()[1] for _ in range(3)]
    assert [message.property_at(0) for message in messages] == ["0", "1", "2"]
    assert not any("x-opt-partition-key" in texts(message.message_annotations) for message in messages)


@covers("M12")
def test_credit_is_replaced_by_each_flow_and_nothing_comes_without_it(raw: RawAmqp, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    raw.attach_receiver(RECEIVER, queue)
    for number in range(6):
        raw.send_message(SENDER, number, MESSAGE)
    raw.flow(RECEIVER, 3)
    for _ in range(3):
        raw.receive_message()
    raw.flow(RECEIVER, 3, delivery_count=1)  # what it says it has not seen yet is on its way: one more
    raw.receive_message()
    raw.flow(RECEIVER, 0, delivery_count=4, echo=True)
    flow = raw.expect(codes.FLOW)
    assert (flow.plain(5), flow.plain(6)) == (4, 0)


@covers("M12")
@pytest.mark.parametrize("waiting", [0, 2, 5])
def test_a_drain_brings_what_is_there_and_uses_up_the_credit(raw: RawAmqp, queue: str, waiting: int) -> None:
    raw.attach_sender(SENDER, queue)
    for number in range(waiting):
        raw.send_message(SENDER, number, MESSAGE)
    attach = raw.attach_receiver(RECEIVER, queue, (SETTLED, FIRST))
    raw.flow(RECEIVER, 5, drain=True)
    for _ in range(waiting):
        raw.expect(codes.TRANSFER)
    flow = raw.expect(codes.FLOW)
    assert flow.plain(4) == attach.plain(1)
    assert (flow.plain(5), flow.plain(6), flow[8]) == (5, 0, True)


@covers("M12")
def test_a_drain_that_met_a_full_window_is_answered_when_there_is_room(raw: RawAmqp, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    for number in range(6):
        raw.send_message(SENDER, number, MESSAGE)
    raw.attach_receiver(RECEIVER, queue, (SETTLED, FIRST))
    raw.flow(RECEIVER, 10, drain=True, window=2)
    for _ in range(2):
        raw.expect(codes.TRANSFER)
    raw.widen()
    for _ in range(4):
        raw.expect(codes.TRANSFER)
    flow = raw.expect(codes.FLOW)
    assert (flow.plain(5), flow.plain(6), flow[8]) == (10, 0, True)


@covers("M12")
def test_a_drain_that_a_slow_reader_asked_for_is_answered(raw: RawAmqp, bus: Bus, queue: str) -> None:
    count, body = 100, data_section(bytes(100_000))
    raw.attach_sender(SENDER, queue)
    for number in range(count):
        raw.send_message(SENDER, number, body)
    with RawAmqp(bus.running.port, receive_buffer=65_536) as reader:
        reader.log_in()
        reader.attach_receiver(RECEIVER, queue, (SETTLED, FIRST))
        reader.flow(RECEIVER, 2 * count, drain=True)
        flow = reader.next_frame()
        while flow.code != codes.FLOW:  # far more than fits into all buffers between the two, so the server waits
            flow = reader.next_frame()
    assert (flow.plain(5), flow.plain(6), flow[8]) == (2 * count, 0, True)


@covers("M12")
def test_credit_that_is_taken_back_is_not_used(raw: RawAmqp, queue: str) -> None:
    raw.attach_receiver(RECEIVER, queue, (SETTLED, FIRST))
    raw.flow(RECEIVER, 5)
    raw.attach_sender(SENDER, queue)
    raw.flow(RECEIVER, 0)
    raw.send_message(SENDER, 0, MESSAGE)  # nobody wants it: the answer to the send is all that comes
    raw.flow(RECEIVER, 1)
    raw.receive_message()


@covers("M11")
def test_a_coordinator_is_attached_and_says_what_it_can(raw: RawAmqp) -> None:
    coordinator = Described(ulong(codes.COORDINATOR), [Array(0xA3, ["amqp:local-transactions"])])
    raw.attach(SENDER, False, source_of("mine"), coordinator)
    code, fields = raw.expect(codes.ATTACH).described(6)
    assert code == codes.COORDINATOR
    (capabilities,) = fields
    assert isinstance(capabilities, Array)
    assert "amqp:local-transactions" in capabilities.items


def test_a_session_receiver_is_refused_by_a_queue_without_sessions(raw: RawAmqp, queue: str) -> None:
    session_filter = {symbol("com.microsoft:session-filter"): "session"}
    source = source_of(queue, uint(0), None, uint(0), False, None, None, session_filter)
    raw.attach(RECEIVER, True, source, target_of("mine"))
    raw.expect(codes.ATTACH)
    assert_has_three_fields(raw.expect(codes.DETACH).error(2), "amqp:not-allowed")


def test_nobody_sends_to_a_dead_letter_queue(raw: RawAmqp, queue: str) -> None:
    raw.attach(SENDER, False, source_of("mine"), target_of(f"{queue}/$DeadLetterQueue"))
    raw.expect(codes.ATTACH)
    assert_has_three_fields(raw.expect(codes.DETACH).error(2), "amqp:not-allowed")


@covers("M2")
def test_what_the_broker_adds_to_a_message_has_the_types_that_clients_read(raw: RawAmqp, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, message_annotations_section({"x-mine": ulong(7)}) + MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    _, message = raw.receive_message()
    annotations = texts(message.message_annotations)
    kinds = {name: value.code if isinstance(value, Typed) else type(value) for name, value in annotations.items()}
    assert kinds.pop("x-opt-partition-id", SHORT) == SHORT  # of a partitioned entity
    assert kinds == {
        "x-opt-sequence-number": int,
        "x-opt-enqueue-sequence-number": int,
        "x-opt-enqueued-time": 0x83,
        "x-opt-locked-until": 0x83,
        "x-mine": ULONG,
    }
    assert message.header is not None
    assert message.header[4] == uint(0)


LEAST_TIME, LARGEST_TIME = -(2**63), 2**63 - 1


@covers("M5", "M6")
@pytest.mark.parametrize(
    "payload",
    [
        message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(LARGEST_TIME)}) + MESSAGE,
        message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(LEAST_TIME)}) + MESSAGE,
        message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(-1)}) + MESSAGE,
        properties_section(absolute_expiry_time=LARGEST_TIME, creation_time=LEAST_TIME) + MESSAGE,
        properties_section(absolute_expiry_time=LEAST_TIME, creation_time=LARGEST_TIME) + MESSAGE,
        header_section(ttl_ms=2**32 - 1) + properties_section(absolute_expiry_time=LARGEST_TIME, creation_time=0),
        header_section(ttl_ms=2**32 - 1) + properties_section(absolute_expiry_time=0, creation_time=LARGEST_TIME),
        header_section(ttl_ms=0) + MESSAGE,
        header_section(delivery_count=2**32 - 1) + MESSAGE,
        message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(LARGEST_TIME)})
        + header_section(ttl_ms=2**32 - 1)
        + MESSAGE,
    ],
    ids=[
        "scheduled for the end of time",
        "scheduled for its beginning",
        "scheduled before 1970",
        "the longest life",
        "a life backwards",
        "beyond the largest ttl",
        "beyond it backwards",
        "no life at all",
        "delivered often",
        "scheduled and mortal",
    ],
)
def test_extreme_times_are_answered_and_harm_nobody(raw: RawAmqp, bus: Bus, payload: bytes) -> None:
    queue = bus.make_queue(default_message_time_to_live="P10000D")
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, payload)
    raw.send_message(SENDER, 1, properties_section(message_id="after") + MESSAGE)
    node = raw.attach_node(f"{queue}/$management")
    body = {"message-count": int_(10), "from-sequence-number": 1}
    assert node.manage("com.microsoft:peek-message", body)[0] == 200
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    while raw.receive_message()[1].property_at(0) != "after":
        raw.flow(RECEIVER, 1, delivery_count=1)
    assert bus.counts(queue).active in (1, 2)
