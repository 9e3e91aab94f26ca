"""Two properties that newer SDKs read and ask for: the size of batches on a link, and messages without their bodies."""

from __future__ import annotations

from typing import cast

from azure.servicebus import ServiceBusMessage

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import (
    MessageSections,
    data_section,
    decode_message,
    properties_section,
    section,
)
from tandembus.amqp.encoding.values import int_, symbol, ubyte
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, receive
from tests.integration.raw_amqp import Node, RawAmqp, plain, texts
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

MAX_BATCH_SIZE = "com.microsoft:max-message-batch-size"
PEEK = "com.microsoft:peek-message"


def peek(node: Node, **more: object) -> MessageSections:
    status, _, body = node.manage(PEEK, {"message-count": int_(10), "from-sequence-number": 1, **more})
    assert status == 200
    (one,) = cast("dict[str, list[dict[str, bytes]]]", body)["messages"]
    return decode_message(one["message"])


@covers("M4")
@with_sync_client
def test_a_peek_can_leave_out_bodies(sdk: PythonSdk, raw: RawAmqp, bus: Bus) -> None:
    queue = bus.make_queue()
    sender, receiver = sdk.pair(queue)
    sender.send_messages(
        ServiceBusMessage("x" * 1000, message_id="one", subject="kept", application_properties={"colour": "red"})
    )
    (message,) = receive(receiver, 1)
    receiver.abandon_message(message)
    node = raw.attach_node(f"{queue}/$management")
    whole, without = peek(node), peek(node, **{"omit-message-body": True})
    assert whole.body == b"x" * 1000
    assert without.body is None
    assert without.properties == whole.properties
    assert without.application_properties == whole.application_properties == {"colour": "red"}
    assert without.message_annotations == whole.message_annotations
    assert without.header == whole.header


@covers("M2", "M4")
def test_a_peek_without_bodies_keeps_every_other_section_but_the_footer(raw: RawAmqp, queue: str) -> None:
    hop: dict[object, object] = {symbol("x-hop"): "first"}
    head = section(codes.HEADER, [True, ubyte(7)]) + section(codes.DELIVERY_ANNOTATIONS, hop)
    foot = data_section(b"y" * 1000) + section(codes.FOOTER, {symbol("x-foot"): "note"})
    raw.attach_sender(1, queue)
    assert raw.send_message(1, 0, head + properties_section("one") + foot).described(4)[0] == codes.ACCEPTED
    node = raw.attach_node(f"{queue}/$management")
    whole, without = peek(node), peek(node, **{"omit-message-body": True})
    assert (whole.body, texts(whole.footer)) == (b"y" * 1000, {"x-foot": "note"})
    assert (without.body, without.footer) == (None, None)
    assert without.header == whole.header
    assert texts(without.delivery_annotations) == texts(whole.delivery_annotations) == {"x-hop": "first"}


@covers("M12")
def test_a_sender_learns_how_large_batches_may_be(raw: RawAmqp, bus: Bus) -> None:
    attached = raw.attach_sender(1, bus.make_queue())
    properties = cast("dict[object, object]", attached[13])
    assert [plain(value) for key, value in properties.items() if str(plain(key)) == MAX_BATCH_SIZE] == [262_144]
    assert attached.plain(10) == 262_144
