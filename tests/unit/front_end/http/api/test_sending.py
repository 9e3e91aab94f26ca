"""Sending as JSON: every field and type, what is refused, and that what was shown can be sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    application_properties_section,
    data_section,
    decode_message,
    encode_message,
    map_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import timestamp
from tandembus.clock import ManualClock
from tandembus.descriptions import (
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.front_end.http.api.message_json import WHOLE, message_json
from tandembus.front_end.http.api.sending import AROUND_BYTES, JSON_PER_BYTE
from tandembus.front_end.http.api.sent_json import encode_document
from tandembus.limits import Limits
from tandembus.message import parse_message
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.any_message import messages
from tests.unit.front_end.http.api.asking import JSON, ask, browse, entity_of, error, put_in, told, url
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.front_end.http.hostile_texts import HOSTILE

LIMITS = Limits(max_message_size_bytes=4096, max_header_size_bytes=2048, max_properties_size_bytes=2048)


@pytest.fixture
async def orders(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, clock=ManualClock(), limits=LIMITS) as running:
        namespace = running.namespace
        await namespace.create_queue(QueueDescription("orders"))
        await namespace.create_queue(QueueDescription("once", requires_duplicate_detection=True))
        await namespace.create_topic(TopicDescription("events"))
        yield running


async def send(running: RunningFrontEnd, document: object, path: str = "orders") -> str | None:
    number: str | None = told(await ask(running, "POST", "messages", document, path=path), 201)["sequence_number"]
    return number


async def sections_of(running: RunningFrontEnd, number: str | None, path: str = "orders") -> MessageSections:
    assert number is not None
    (browsed,) = await (await entity_of(running, path)).requests.peek(MAIN, int(number), 1, 1)
    return decode_message(browsed.message.sections, typed=True)


ALL_FIELDS: dict[str, Any] = {
    "body": {"text": "Grüße"},
    "message_id": "m",
    "session_id": "k",
    "partition_key": "k",
    "subject": "s",
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "correlation_id": "c",
    "to": "t",
    "reply_to": "r",
    "reply_to_session_id": "g",
    "user_id": "/w==",
    "time_to_live_s": 60.5,
    "properties": [{"name": "a", "type": "int", "value": 5}, {"name": "b", "value": "x"}],
    "annotations": [{"name": "own", "type": "bool", "value": True}],
}


@covers("M1", "B4")
async def test_a_message_has_every_field_that_was_sent(orders: RunningFrontEnd) -> None:
    number = await send(orders, ALL_FIELDS)
    one = told(await ask(orders, "GET", "message", path="orders", sequence_number=number))
    assert one["body"]["text"] == "Grüße"
    for key in ALL_FIELDS.keys() - {"body", "properties", "annotations"}:
        assert one[key] == ALL_FIELDS[key], key
    assert one["properties"] == [
        {"name": "a", "type": "int", "value": 5},
        {"name": "b", "type": "string", "value": "x"},
    ]
    assert {"name": "own", "type": "bool", "value": True} in one["annotations"]


async def test_a_message_is_scheduled_and_a_long_time_to_live_is_kept(orders: RunningFrontEnd) -> None:
    number = await send(orders, {"body": {"text": "x"}, "scheduled_for": "2096-10-02T07:06:40Z"})
    one = told(await ask(orders, "GET", "message", path="orders", sequence_number=number))
    assert (one["state"], one["scheduled_for"]) == ("scheduled", "2096-10-02T07:06:40Z")
    number = await send(orders, {"body": {"text": "x"}, "time_to_live_s": 90 * 86_400})
    one = told(await ask(orders, "GET", "message", path="orders", sequence_number=number))
    assert one["time_to_live_s"] == 90 * 86_400


async def test_a_message_that_is_dropped_has_no_number(orders: RunningFrontEnd) -> None:
    assert await send(orders, {"message_id": "a"}, "once") is not None
    assert await send(orders, {"message_id": "a"}, "once") is None
    rule = RuleDescription("none", SqlFilter("a = 1"))
    await orders.namespace.create_subscription(SubscriptionDescription("events", "few"), rule)
    assert await send(orders, {"body": {"text": "x"}}, "events") is None
    number = await send(orders, {"properties": [{"name": "a", "type": "long", "value": "1"}]}, "events")
    assert number is not None


@covers("B4")
@pytest.mark.parametrize(
    "payload",
    [
        data_section(b"text") + b"",
        properties_section(message_id="id", subject="s") + data_section(b"\x00\xff"),
        application_properties_section({"map": {"a": [1, None]}, "wide": "x" * 300}) + amqp_value_section({"a": 1}),
        amqp_value_section("a string"),
        message_annotations_section({"x-opt-partition-key": "k", "x-opt-scheduled-enqueue-time": timestamp(5), "o": 1})
        + data_section(b"x")
        + map_section(0x78, {"crc": 5}),
    ],
    ids=["text", "bytes", "compound values", "a string value", "annotations and footer"],
)
async def test_what_is_shown_can_be_sent_again_and_is_the_same(orders: RunningFrontEnd, payload: bytes) -> None:
    (number,) = await put_in(orders, "orders", payload)
    shown = told(await ask(orders, "GET", "message", path="orders", sequence_number=number))
    again = await send(orders, shown)
    first, second = await sections_of(orders, str(number)), await sections_of(orders, again)
    assert second.message_annotations == first.message_annotations
    assert second.properties == first.properties
    assert second.application_properties == first.application_properties
    assert (second.body_kind, second.bodies, second.footer) == (first.body_kind, first.bodies, first.footer)


def joined(parts: list[object]) -> bytes:
    return b"".join([part for part in parts if isinstance(part, bytes)])


@given(messages())
@settings(max_examples=200)
def test_any_body_that_is_shown_whole_is_sent_again_the_same(sent: MessageSections) -> None:
    message = parse_message(encode_message(sent))
    document = {"body": message_json(message, 1, 0, WHOLE)["body"]}
    again = parse_message(encode_document(document, 0))
    first, second = decode_message(message.sections, True), decode_message(again.sections, True)
    assert second.footer == first.footer
    if first.body_kind == 0x75:
        assert joined(second.bodies) == joined(first.bodies)
    elif first.bodies:
        assert (second.body_kind, second.bodies) == (first.body_kind, first.bodies)


@covers("B4")
@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_texts_come_out_as_they_went_in(orders: RunningFrontEnd, text: str) -> None:
    document = {
        "body": {"text": text},
        "message_id": text[:128],
        "subject": text,
        "to": text,
        "session_id": text[:128],
        "properties": [{"name": text, "type": "string", "value": text}],
    }
    reply = await ask(orders, "GET", "message", path="orders", sequence_number=await send(orders, document))
    one = told(reply)
    assert reply.headers["Content-Type"].startswith("application/json")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert {key: one[key] for key in ("message_id", "subject", "to", "session_id")} == {
        key: document[key] for key in ("message_id", "subject", "to", "session_id")
    }
    assert one["properties"] == document["properties"]
    (listed,) = await browse(orders, "orders", session=text[:128])
    body = listed["body"]
    assert (body["text"] is None) == (body["base64"] is not None)
    assert body["text"] in (None, text)


async def test_sending_is_metered_as_every_send(orders: RunningFrontEnd) -> None:
    await send(orders, {"body": {"text": "x"}})
    rows = [row for row in orders.meter.totals().since_start if row.operation == "send"]
    assert [(row.entity, row.reason, row.count.messages, row.count.operations) for row in rows] == [
        ("orders", "normal", 1, 1)
    ]


# Refused.


@pytest.mark.parametrize(
    ("document", "status", "part"),
    [
        ({"body": {"text": "x" * 5000}}, 403, "exceeds the limit"),
        ({"properties": [{"name": "a", "value": "x" * 3000}]}, 400, "application properties exceed"),
        ({"message_id": "x" * 129}, 400, "128"),
        ({"session_id": "a", "partition_key": "b"}, 400, "differ"),
        ({"boby": {"text": "x"}}, 400, "no 'boby'"),
        ({"body": "x"}, 400, "body must be an object"),
        ({"body": {"text": "x", "base64": "eA=="}}, 400, "either"),
        ({"body": {}}, 400, "either"),
        ({"body": {"base64": "?"}}, 400, "not base64"),
        ({"body": {"text": "\ud800"}}, 400, "surrogate"),
        ({"body": {"text": "x", "is_truncated": True}}, 400, "was cut"),
        ({"body": {"text": "{}", "kind": "value"}}, 400, "encoded"),
        ({"body": {"encoded": "AAAA"}}, 400, "sections of a body"),
        ({"body": {"encoded": "AFNzRQ=="}}, 400, "sections of a body"),
        ({"subject": 5}, 400, "subject must be a text"),
        ({"content_type": "ä"}, 400, "ASCII"),
        ({"time_to_live_s": 0}, 400, "above 0"),
        ({"time_to_live_s": "5"}, 400, "number of seconds"),
        ({"scheduled_for": "soon"}, 400, "no time"),
        ({"properties": {"a": 1}}, 400, "list"),
        ({"properties": [{"name": "a", "value": "1"}] * 1001}, 400, "at most 1000"),
        ({"properties": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}, 400, "twice"),
        ({"properties": [{"name": "a", "type": "int", "value": 2**31}]}, 400, "from -2147483648 to 2147483647"),
        ({"properties": [{"name": "a", "type": "int", "value": True}]}, 400, "is no int"),
        ({"properties": [{"name": "a", "type": "ulong", "value": "-1"}]}, 400, "from 0"),
        ({"properties": [{"name": "a", "type": "double", "value": "1e999"}]}, 400, "is no double"),
        ({"properties": [{"name": "a", "type": "float", "value": 1e39}]}, 400, "is no float"),
        ({"properties": [{"name": "a", "type": "bool", "value": 1}]}, 400, "is no bool"),
        ({"properties": [{"name": "a", "type": "datetime", "value": "today"}]}, 400, "is no datetime"),
        ({"properties": [{"name": "a", "type": "timedelta", "value": "1h"}]}, 400, "is no timedelta"),
        ({"properties": [{"name": "a", "type": "timedelta", "value": "999999999999"}]}, 400, "at most"),
        ({"properties": [{"name": "a", "type": "uuid", "value": "x"}]}, 400, "is no uuid"),
        ({"properties": [{"name": "a", "type": "bytes", "value": "x"}]}, 400, "not base64"),
        ({"properties": [{"name": "a", "type": "char", "value": "ab"}]}, 400, "is no char"),
        ({"properties": [{"name": "a", "type": "map", "value": {}}]}, 400, "known are"),
        ({"properties": [{"name": "a", "encoded": "/w=="}]}, 400, ""),
        ({"properties": [{"name": "a", "encoded": ""}]}, 400, "not one value"),
        ({"properties": [{"name": 5, "value": "x"}]}, 400, "needs a name"),
        ({"properties": [{"name": "a", "value": "x", "more": 1}]}, 400, "object with name"),
    ],
)
async def test_what_cannot_be_sent_is_refused_with_the_reason(
    orders: RunningFrontEnd, document: object, status: int, part: str
) -> None:
    code, text = error(await ask(orders, "POST", "messages", document, path="orders"))
    assert (code, part in text) == (status, True), text
    assert (await orders.namespace.counts("orders")).active == 0


async def test_bodies_of_requests_are_bounded_in_size_and_depth(orders: RunningFrontEnd) -> None:
    most = JSON_PER_BYTE * 4096 + AROUND_BYTES
    reply = await orders.request("POST", url("messages", path="orders"), b" " * (most + 1), JSON)
    told = f"The message is larger than the 4096 bytes that 'orders' takes as JSON. The body has {most + 1} bytes."
    assert error(reply) == (413, told)
    deep = '{"body":' + "[" * 100_000 + "]" * 100_000 + "}"
    assert error(await orders.request("POST", url("messages", path="orders"), deep, JSON))[0] == 400
    for body in (b"[]", b"{", b"\xff", b'{"body":1,"body":2}', b'{"a":NaN}'):
        assert error(await orders.request("POST", url("messages", path="orders"), body, JSON))[0] == 400
    reply = await orders.request("POST", url("messages", path="orders"), b"{}", {"Content-Type": "text/plain"})
    assert error(reply)[0] == 415


async def test_where_nothing_can_be_sent_nothing_is(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_queue(QueueDescription("off", status=EntityStatus.SEND_DISABLED))
    await orders.namespace.create_subscription(SubscriptionDescription("events", "all"))
    for path, status in (("off", 403), ("nothing", 404), ("events/subscriptions/all", 400)):
        assert error(await ask(orders, "POST", "messages", {}, path=path))[0] == status
    assert error(await ask(orders, "POST", "messages", {}, path="orders", sub_queue="dead-letter"))[0] == 400
