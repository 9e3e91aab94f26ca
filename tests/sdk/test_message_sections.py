"""Which sections a delivery has, and what is in them: the sender's go as they came, the broker adds what is its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader
from azure.servicebus.management import SqlRuleAction, TrueRuleFilter

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.codec import decode
from tandembus.amqp.encoding.message_parts import split_message
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    decode_message,
    map_section,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.amqp.encoding.values import Array, Described, Typed, int_, symbol, timestamp, ubyte, uint
from tandembus.clock import SystemClock
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, body_of
from tests.integration.python_sdk import receive as from_sdk
from tests.integration.raw_amqp import (
    BATCH_FORMAT,
    FIRST,
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED,
    UNSETTLED,
    Frame,
    Node,
    RawAmqp,
    source_of,
    state_of,
    target_of,
    texts,
)
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import Shape, on_every_shape
from tests.integration.test_messages_as_json import DEAD, Api
from tests.integration.test_sdk_restarts import Restartable

pytestmark = on_every_shape

TOKEN = "x-opt-lock-token"
SHORT = 0x61
FORGED = (
    TOKEN,
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-enqueue-sequence-number",
    "x-opt-message-state",
    "x-opt-deadletter-source",
    "x-opt-partition-id",
)
HEADER = section(codes.HEADER, [True, ubyte(4), None, True])
HOP: dict[object, object] = {"x-hop": "first", "x-kind": uint(7), "x-deep": Described("t", [symbol("a")])}
DELIVERY_ANNOTATIONS = map_section(codes.DELIVERY_ANNOTATIONS, HOP)
PROPERTIES = properties_section("id", user_id=b"u", subject="s", content_type="text/plain", group_sequence=7)
APPLICATION_PROPERTIES = application_properties_section({"colour": "red", "at": timestamp(5)})
FOOTER = map_section(codes.FOOTER, {"x-foot": "note", "x-sum": uint(9)})
BODIES = {
    "none": b"",
    "several data sections": data_section(b"one") + data_section(b"") + b"\x00\x53\x75\xb0\x00\x00\x00\x03two",
    "sequences": section(codes.AMQP_SEQUENCE, [1, "a"]) + section(codes.AMQP_SEQUENCE, [b"b", None]),
    "value": amqp_value_section({"a": [uint(1), Array(0x71, [1, 2])]}),
}
BODY = BODIES["several data sections"]


def whole(body: bytes = BODY, annotations: bytes = b"") -> bytes:
    """A message with every section that there is."""
    return HEADER + DELIVERY_ANNOTATIONS + annotations + PROPERTIES + APPLICATION_PROPERTIES + body + FOOTER


class Delivery:
    """A message as it came, section by section."""

    def __init__(self, payload: bytes, frame: Frame | None = None) -> None:
        self.frame = frame
        parts = split_message(payload)
        self.codes = [part.code for part in parts]
        self._bytes = {part.code: payload[part.at : part.end] for part in parts if part.code < codes.DATA}
        self.rest = b"".join([payload[part.at : part.end] for part in parts if part.code >= codes.DATA])
        self.header = decode_message(payload, typed=True).header

    def bytes_of(self, code: int) -> bytes:
        return self._bytes.get(code, b"")

    def entries(self, code: int) -> dict[str, object]:
        """A map's, each of them once: a name that stands twice would be told from one that does not by its count."""
        if code not in self._bytes:
            return {}
        value, _ = decode(self._bytes[code], 3, True)
        found = texts(cast("dict[object, object]", value))
        assert len(found) == len(cast("dict[object, object]", value)) == count_of(self._bytes[code])
        return found

    @property
    def token(self) -> uuid.UUID:
        """The broker's, which is in the delivery tag as well."""
        assert self.frame is not None
        tag = self.frame.plain(2)
        assert isinstance(tag, bytes)
        return uuid.UUID(bytes_le=tag)


def count_of(encoded: bytes) -> int:
    at = 5 if encoded[3] == 0xC1 else 8
    return (encoded[at] if encoded[3] == 0xC1 else int.from_bytes(encoded[at : at + 4], "big")) // 2


def check_is_whole(found: Delivery, body: bytes = BODY, token: uuid.UUID | None = None) -> None:
    """All that the sender has written is there."""
    assert (found.header or [])[:4] == [True, ubyte(4), None, True]
    own = {str(name): value for name, value in HOP.items()}
    if found.frame is not None and found.frame.plain(4) is not True:
        token = found.token
    if token is not None:
        own[TOKEN] = token
    assert found.entries(codes.DELIVERY_ANNOTATIONS) == own
    assert found.bytes_of(codes.PROPERTIES) == PROPERTIES
    assert found.bytes_of(codes.APPLICATION_PROPERTIES) == APPLICATION_PROPERTIES
    assert found.rest == body + FOOTER


def send(raw: RawAmqp, entity: str, payload: bytes, message_format: int = 0) -> None:
    raw.attach_sender(SENDER, entity)
    answer = raw.send_message(SENDER, 0, payload, message_format)
    assert answer.described(4)[0] == codes.ACCEPTED


def receive(raw: RawAmqp, entity: str, is_destructive: bool = False, handle: int = RECEIVER) -> Delivery:
    raw.attach_receiver(handle, entity, (SETTLED, FIRST) if is_destructive else (UNSETTLED, SECOND))
    raw.flow(handle, 1)
    frame, payload = raw.receive_payload()
    return Delivery(payload, frame)


def settle(raw: RawAmqp, found: Delivery, state: Described) -> None:
    assert found.frame is not None
    raw.dispose(found.frame.number(1), state)
    raw.expect(codes.DISPOSITION)


def node_of(raw: RawAmqp, entity: str) -> Node:
    return raw.attach_node(f"{entity}/$management")


def peek(node: Node) -> Delivery:
    status, _, body = node.manage("com.microsoft:peek-message", {"message-count": int_(1), "from-sequence-number": 1})
    assert status == 200
    (one,) = cast("dict[str, list[dict[str, bytes]]]", body)["messages"]
    return Delivery(one["message"])


# What the sender has written.


@covers("M1", "M2")
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_every_section_arrives_as_it_was_sent(raw: RawAmqp, queue: str, body: bytes) -> None:
    send(raw, queue, whole(body))
    check_is_whole(peek(node_of(raw, queue)), body)
    found = receive(raw, queue)
    check_is_whole(found, body)
    settle(raw, found, state_of(codes.MODIFIED, True))
    raw.flow(RECEIVER, 1, delivery_count=1)
    frame, payload = raw.receive_payload()
    again = Delivery(payload, frame)
    check_is_whole(again, body)
    assert (again.header or [])[4] == uint(1)
    assert again.token != found.token
    settle(raw, again, state_of(codes.RELEASED))
    check_is_whole(receive(raw, queue, is_destructive=True, handle=7), body)


@covers("M2", "B1")
@with_sync_client
def test_the_sdk_reads_the_header_and_annotations_that_it_sent(sdk: PythonSdk, bus: Bus) -> None:
    sender, receiver = sdk.pair(bus.make_queue())
    header = AmqpMessageHeader(durable=True, priority=7, first_acquirer=True)
    annotations: dict[str, object] = {"x-hop": "first"}
    sender.send_messages(AmqpAnnotatedMessage(data_body=b"a", header=header, delivery_annotations=annotations))
    sender.send_messages(ServiceBusMessage("b"))
    for one in from_sdk(receiver, 2):
        message = one.raw_amqp_message
        found = message.header
        assert found is not None
        is_own = body_of(one) == b"a"
        assert (found.durable, found.priority, found.first_acquirer) == ((True, 7, True) if is_own else (None,) * 3)
        own = {b"x-hop": b"first"} if is_own else {}
        assert message.delivery_annotations == {**own, TOKEN.encode(): one.lock_token}
        assert (message.footer, message.application_properties) == (None, None)


@covers("P26")
def test_deliveries_of_partitioned_entities_name_the_partition(raw: RawAmqp, queue: str, shape: Shape) -> None:
    send(raw, queue, whole())
    found = receive(raw, queue)
    settle(raw, found, state_of(codes.MODIFIED, True, True))
    for one in (found, peek(node_of(raw, queue))):
        said = one.entries(codes.MESSAGE_ANNOTATIONS)
        fragment = cast(int, said["x-opt-sequence-number"]) >> 48
        assert said.get("x-opt-partition-id") == (Typed(SHORT, fragment) if shape.is_partitioned else None)


@covers("M1")
def test_sections_that_were_not_sent_do_not_arrive(raw: RawAmqp, queue: str) -> None:
    """The broker has something to say in the header, in the message's annotations and, as a lock, in the delivery's."""
    send(raw, queue, properties_section("id") + BODY)
    bodies = [codes.DATA] * 3
    peeked = peek(node_of(raw, queue))
    assert peeked.codes == [codes.HEADER, codes.MESSAGE_ANNOTATIONS, codes.PROPERTIES, *bodies]
    found = receive(raw, queue)
    assert found.codes == [
        *(codes.HEADER, codes.DELIVERY_ANNOTATIONS, codes.MESSAGE_ANNOTATIONS, codes.PROPERTIES),
        *bodies,
    ]
    assert found.entries(codes.DELIVERY_ANNOTATIONS) == {TOKEN: found.token}
    assert found.header == peeked.header == [None, None, None, None, uint(0)]
    settle(raw, found, state_of(codes.RELEASED))
    taken = receive(raw, queue, is_destructive=True, handle=7)
    assert taken.codes == peeked.codes
    assert taken.bytes_of(codes.PROPERTIES) == properties_section("id")


@covers("M6")
def test_a_message_that_expires_says_when_and_keeps_the_rest(raw: RawAmqp, queue: str) -> None:
    send(raw, queue, section(codes.HEADER, [False, None, uint(600_000), False]) + DELIVERY_ANNOTATIONS + BODY + FOOTER)
    found = receive(raw, queue)
    assert found.header == [False, None, uint(600_000), False, uint(0)]
    assert found.entries(codes.DELIVERY_ANNOTATIONS).keys() == {"x-hop", "x-kind", "x-deep", TOKEN}
    assert found.rest == BODY + FOOTER


@covers("M12")
def test_each_message_of_a_batch_has_its_own(raw: RawAmqp, queue: str, shape: Shape) -> None:
    annotations = message_annotations_section({"x-opt-partition-key": "k"})
    bare = annotations + properties_section("bare") + BODY
    envelope = map_section(codes.DELIVERY_ANNOTATIONS, {"x-envelope": 1}) + annotations
    send(raw, queue, envelope + data_section(whole(annotations=annotations)) + data_section(bare), BATCH_FORMAT)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 2)
    first, second = (Delivery(payload, frame) for frame, payload in (raw.receive_payload(), raw.receive_payload()))
    check_is_whole(first)
    assert second.entries(codes.DELIVERY_ANNOTATIONS) == {TOKEN: second.token}
    assert second.rest == BODY


# What only the broker may say.


@covers("M2")
@pytest.mark.parametrize("keys", ["symbols", "binary"])
def test_nobody_forges_what_the_broker_says(raw: RawAmqp, queue: str, keys: str) -> None:
    """Clients read a name in binary like any other."""
    for_client: Callable[[str], object] = symbol if keys == "symbols" else str.encode
    forged: dict[object, object] = {for_client(name): uuid.uuid4() for name in FORGED}
    mine: dict[object, object] = {**forged, symbol("x-hop"): "first"}
    both = section(codes.DELIVERY_ANNOTATIONS, mine) + section(codes.MESSAGE_ANNOTATIONS, forged)
    send(raw, queue, both + properties_section("id") + BODY)
    peeked = peek(node_of(raw, queue))
    assert peeked.entries(codes.DELIVERY_ANNOTATIONS) == {"x-hop": "first"}
    found = receive(raw, queue)
    assert found.entries(codes.DELIVERY_ANNOTATIONS) == {"x-hop": "first", TOKEN: found.token}
    for one in (peeked, found):
        said = one.entries(codes.MESSAGE_ANNOTATIONS)
        assert said.keys() <= {*FORGED[1:5], FORGED[-1]}
        assert not any(isinstance(value, uuid.UUID) for value in said.values())
    settle(raw, found, state_of(codes.ACCEPTED))


@covers("M2")
@pytest.mark.parametrize("code", [codes.DELIVERY_ANNOTATIONS, codes.FOOTER])
def test_a_section_that_no_receiver_could_read_is_refused(raw: RawAmqp, bus: Bus, queue: str, code: int) -> None:
    raw.attach_sender(SENDER, queue)
    answer = raw.send_message(SENDER, 0, properties_section("id") + BODY + section(code, ["no", "map"]))
    assert answer.described(4)[0] == codes.REJECTED
    assert bus.counts(queue).active == 0


# Where a message may go in between.


@covers("M3")
def test_a_dead_letter_is_the_message_it_was_with_a_reason(raw: RawAmqp, queue: str) -> None:
    send(raw, queue, whole())
    reason: dict[object, object] = {symbol("DeadLetterReason"): "r"}
    error = Described("amqp:error:list", [symbol("com.microsoft:dead-letter"), None, reason])
    settle(raw, receive(raw, queue), state_of(codes.REJECTED, error))
    found = receive(raw, f"{queue}/$DeadLetterQueue", handle=7)
    assert found.entries(codes.APPLICATION_PROPERTIES) == {"colour": "red", "at": timestamp(5), "DeadLetterReason": "r"}
    assert found.entries(codes.DELIVERY_ANNOTATIONS) == {**texts(HOP), TOKEN: found.token}
    assert found.header == [True, ubyte(4), None, True, uint(0)]
    assert found.bytes_of(codes.PROPERTIES) == PROPERTIES
    assert found.rest == BODY + FOOTER


@covers("B4")
def test_an_operator_who_resubmits_it_sends_the_message_it_was(raw: RawAmqp, bus: Bus, queue: str) -> None:
    send(raw, queue, whole())
    settle(raw, receive(raw, queue), state_of(codes.REJECTED))
    api = Api(bus.running)
    assert api.act(queue, DEAD, action="resubmit")["done"] == 1
    (exported,) = api.lines("GET", "messages/export", path=queue)
    copies = bus.make_queue()
    assert api.told("POST", "messages", exported, path=copies)["sequence_number"]
    raw.flow(RECEIVER, 1, delivery_count=1)
    frame, payload = raw.receive_payload()
    check_is_whole(Delivery(payload, frame))
    copy = receive(raw, copies, handle=7)
    assert copy.entries(codes.DELIVERY_ANNOTATIONS) == {**texts(HOP), TOKEN: copy.token}
    assert copy.rest == BODY + FOOTER


@covers("M4")
def test_a_deferred_message_has_its_token_in_the_answer_and_among_its_annotations(raw: RawAmqp, queue: str) -> None:
    send(raw, queue, whole())
    found = receive(raw, queue)
    number = found.entries(codes.MESSAGE_ANNOTATIONS)["x-opt-sequence-number"]
    settle(raw, found, state_of(codes.MODIFIED, True, True))
    request = {"sequence-numbers": Array(0x81, [number]), "receiver-settle-mode": uint(1)}
    status, _, body = node_of(raw, queue).manage("com.microsoft:receive-by-sequence-number", request)
    assert status == 200
    (one,) = cast("dict[str, list[dict[str, object]]]", body)["messages"]
    token = one["lock-token"]
    assert isinstance(token, uuid.UUID)
    check_is_whole(Delivery(cast(bytes, one["message"])), token=token)


@covers("M5")
def test_a_scheduled_message_keeps_its_sections(raw: RawAmqp, queue: str) -> None:
    due_ms = int(SystemClock().now() * 1000) + 500
    annotations = message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(due_ms)})
    send(raw, queue, whole(annotations=annotations))
    check_is_whole(receive(raw, queue))


@covers("M10")
def test_a_forwarded_message_keeps_its_sections(raw: RawAmqp, bus: Bus) -> None:
    last = bus.make_queue()
    first = bus.make_queue(forward_to=bus.make_queue(forward_to=last))
    send(raw, first, whole())
    check_is_whole(receive(raw, last))


@covers("M11")
def test_a_message_sent_via_another_entity_keeps_its_sections(raw: RawAmqp, bus: Bus, queue: str) -> None:
    destination = bus.make_queue()
    properties: dict[str, object] = {"com.microsoft:transfer-destination-address": destination}
    raw.attach(SENDER, False, source_of("mine"), target_of(queue), properties=properties)
    raw.expect(codes.ATTACH)
    assert raw.send_message(SENDER, 0, whole()).described(4)[0] == codes.ACCEPTED
    check_is_whole(receive(raw, destination))


@covers("M9")
def test_every_subscription_gets_all_sections_whatever_an_action_changes(raw: RawAmqp, bus: Bus) -> None:
    topic = bus.make_topic("plain", "too", "changed")
    bus.admin.delete_rule(topic, "changed", "$Default")
    action = SqlRuleAction("SET colour = 'blue'; SET sys.Label = 'new'; SET sys.PartitionKey = 'k'")
    bus.admin.create_rule(topic, "changed", "rule", filter=TrueRuleFilter(), action=action)
    send(raw, topic, whole())
    check_is_whole(receive(raw, f"{topic}/Subscriptions/plain"))
    check_is_whole(receive(raw, f"{topic}/Subscriptions/too", handle=7))
    found = receive(raw, f"{topic}/Subscriptions/changed", handle=8)
    assert found.entries(codes.APPLICATION_PROPERTIES)["colour"] == "blue"
    assert found.entries(codes.DELIVERY_ANNOTATIONS) == {**texts(HOP), TOKEN: found.token}
    assert found.header == [True, ubyte(4), None, True, uint(0)]
    assert found.rest == BODY + FOOTER


@covers("M7")
def test_a_receiver_of_a_session_gets_them_too(raw: RawAmqp, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    own = properties_section("id", group_id="s")
    send(raw, queue, HEADER + DELIVERY_ANNOTATIONS + own + BODY + FOOTER)
    session_filter = {symbol("com.microsoft:session-filter"): "s"}
    raw.attach(RECEIVER, True, source_of(queue, *[None] * 6, session_filter), target_of("client"))
    raw.expect(codes.ATTACH)
    raw.flow(RECEIVER, 1)
    frame, payload = raw.receive_payload()
    found = Delivery(payload, frame)
    assert found.entries(codes.DELIVERY_ANNOTATIONS) == {**texts(HOP), TOKEN: found.token}
    assert (found.bytes_of(codes.PROPERTIES), found.rest) == (own, BODY + FOOTER)


@covers("M1")
def test_they_survive_a_crash(tmp_path: Path, shape: Shape) -> None:
    namespace = Restartable(tmp_path / "data", shape)
    queue = namespace.bus.make_queue()
    with RawAmqp(namespace.running.port) as raw:
        raw.log_in()
        send(raw, queue, whole())
    namespace.restart(RunningNamespace.kill)
    with RawAmqp(namespace.running.port) as raw:
        raw.log_in()
        check_is_whole(receive(raw, queue))
    namespace.close()


@covers("M13")
def test_delivery_annotations_count_as_part_of_the_header(raw: RawAmqp, bus: Bus, queue: str) -> None:
    """A peek hands them out even where it leaves out the body."""
    raw.attach_sender(SENDER, queue)
    for number, size in enumerate((60_000, 70_000)):
        payload = map_section(codes.DELIVERY_ANNOTATIONS, {"x-hop": "x" * size}) + BODY
        outcome = raw.send_message(SENDER, number, payload).described(4)[0]
        assert outcome == (codes.REJECTED if size > 65_536 else codes.ACCEPTED)
    assert bus.counts(queue).active == 1


@covers("M12")
def test_sections_as_large_as_a_message_may_be_arrive(raw: RawAmqp, queue: str) -> None:
    """A map with more entries and bytes than the short form can hold."""
    large: dict[object, object] = {f"x-hop-{number}": os.urandom(500).hex() for number in range(40)}
    send(raw, queue, map_section(codes.DELIVERY_ANNOTATIONS, large) + properties_section("id") + BODY)
    found = receive(raw, queue)
    assert found.entries(codes.DELIVERY_ANNOTATIONS) == {**texts(large), TOKEN: found.token}
    assert found.rest == BODY
