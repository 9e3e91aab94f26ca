"""Messages as JSON: whatever a client may have put into one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import assume, given, settings

from tandembus.amqp.encoding.descriptors import MESSAGE_ANNOTATIONS
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
    section,
)
from tandembus.amqp.encoding.values import (
    Array,
    Described,
    Typed,
    byte_,
    char,
    float_,
    int_,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from tandembus.errors import BusError
from tandembus.front_end.http.api.message_json import (
    LISTED_BODY_BYTES,
    MAX_VALUE_BYTES,
    WHOLE,
    body_json,
    message_json,
)
from tandembus.front_end.http.api.typed_values import read_values, shown
from tandembus.message import parse_message
from tandembus.message_encoding import application_properties_with, encode_changes
from tests.covers import covers
from tests.unit.amqp.mutation import MESSAGE, Mutator
from tests.unit.any_message import messages

TIMESPAN = "com.microsoft:timespan"


def shown_message(payload: bytes, max_body_bytes: int = WHOLE) -> dict[str, Any]:
    """As a client of JSON reads it."""
    found: dict[str, Any] = json.loads(json.dumps(message_json(parse_message(payload), 7, 0, max_body_bytes)))
    return found


def body_of(payload: bytes, max_body_bytes: int = WHOLE) -> dict[str, Any]:
    body: dict[str, Any] = shown_message(payload, max_body_bytes)["body"]
    return body


# Properties.


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ("text", "string", "text"),
        (True, "bool", True),
        (17, "long", "17"),
        (2**63 - 1, "long", "9223372036854775807"),
        (int_(-5), "int", -5),
        (short(-5), "short", -5),
        (byte_(-5), "byte", -5),
        (ubyte(5), "ubyte", 5),
        (ushort(5), "ushort", 5),
        (uint(5), "uint", 5),
        (ulong(2**64 - 1), "ulong", "18446744073709551615"),
        (1.5, "double", 1.5),
        (float("inf"), "double", "Infinity"),
        (float("nan"), "double", "NaN"),
        (float_(0.5), "float", 0.5),
        (timestamp(1_700_000_000_123), "datetime", "2023-11-14T22:13:20.123Z"),
        (timestamp(2**62), "datetime", str(2**62)),
        (uuid.UUID(int=5), "uuid", str(uuid.UUID(int=5))),
        (b"\x00\xff", "bytes", "AP8="),
        (Described(TIMESPAN, -15_000_000), "timedelta", "-1.5"),
        (Described(TIMESPAN, 2**63 - 1), "timedelta", "922337203685.4775807"),
        (Described("com.microsoft:uri", "http://x"), "uri", "http://x"),
        (char("ä"), "char", "ä"),
        (symbol("word"), "symbol", "word"),
        (None, "null", None),
    ],
)
@covers("M1", "B4")
def test_a_property_is_told_with_its_type_and_read_back_the_same(value: object, kind: str, told: object) -> None:
    entry = json.loads(json.dumps({"name": "p", **shown(value)}))
    assert entry == {"name": "p", "type": kind, "value": told}
    (again,) = read_values([entry], "properties", 1).values()
    assert repr(again) == repr(value)


@given(messages())
@settings(max_examples=200)
def test_all_properties_of_any_message_are_told_and_read_back_the_same(sent: MessageSections) -> None:
    told = shown_message(encode_message(sent))
    texts = {name: value for name, value in (sent.application_properties or {}).items() if isinstance(name, str)}
    entries = [entry for entry in told["properties"] if entry["name"] in texts]
    # Two keys of different types may read the same.
    assume(len({entry["name"] for entry in told["properties"]}) == len(told["properties"]))
    again = application_properties_section(read_values(entries, "properties", 100))
    assert repr(decode_message(again, typed=True).application_properties) == repr(texts)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Typed(0x94, bytes.fromhex("30340000000000000000000000000000")), "decimal128"),
        ({"a": 1}, "map"),
        ([1, "b"], "list"),
        (Array(0x71, [1, 2]), "array"),
        (Described("com.microsoft:datetime-offset", 638_000_000_000_000_000), "datetime-offset"),
        (Described(99, "x"), "described"),
    ],
)
def test_what_json_cannot_say_exactly_comes_with_its_bytes(value: object, kind: str) -> None:
    (entry,) = shown_message(application_properties_section({"p": value}))["properties"]
    assert entry["type"] == kind
    again = application_properties_section(read_values([entry], "properties", 1))
    assert again == application_properties_section({"p": value})


def test_one_property_that_cannot_be_read_hides_no_other() -> None:
    section = application_properties_section({"good": 1, "broken": "aXbXc", "after": 2})
    told = shown_message(section.replace(b"aXbXc", b"a\xffb\xfec"))
    assert [(entry["name"], entry["type"]) for entry in told["properties"]] == [
        ("good", "long"),
        ("broken", "unreadable"),
        ("after", "long"),
    ]
    section = application_properties_section({"nXme": 1})
    (entry,) = shown_message(section.replace(b"nXme", b"n\xffme"))["properties"]
    assert "\ufffd" in entry["name"]


def test_fields_annotations_and_reasons_are_told() -> None:
    payload = (
        message_annotations_section(
            {"x-opt-partition-key": "k", "own": 5, "x-opt-scheduled-enqueue-time": timestamp(0)}
        )
        + properties_section(
            message_id=uuid.UUID(int=1),
            user_id=b"\xff",
            to="t",
            subject="s",
            reply_to="r",
            correlation_id=7,
            content_type="text/plain",
            content_encoding="gzip",
            group_id="k",
            reply_to_group_id="g",
        )
        + application_properties_section({"DeadLetterReason": "first"})
        + data_section(b"x")
    )
    message = parse_message(payload)
    message.enqueued_at, message.expires_at, message.delivery_count = 1_000, 61_500, 3
    message.application_properties = application_properties_with(message, encode_changes({"DeadLetterReason": "why"}))
    told = message_json(message, 3 << 48 | 5, 2, WHOLE)
    assert (told["sequence_number"], told["fragment"], told["state"]) == (str(3 << 48 | 5), 3, "scheduled")
    assert (told["message_id"], told["correlation_id"], told["user_id"]) == (str(uuid.UUID(int=1)), "7", "/w==")
    assert (told["to"], told["subject"], told["reply_to"], told["session_id"]) == ("t", "s", "r", "k")
    assert (told["content_type"], told["content_encoding"]) == ("text/plain", "gzip")
    assert (told["reply_to_session_id"], told["partition_key"]) == ("g", "k")
    assert (told["enqueued_at"], told["expires_at"]) == ("1970-01-01T00:00:01Z", "1970-01-01T00:01:01.5Z")
    assert (told["time_to_live_s"], told["delivery_count"]) == (60.5, 3)
    assert (told["scheduled_for"], told["dead_letter_reason"]) == ("1970-01-01T00:00:00Z", "why")
    annotations = told["annotations"]
    assert isinstance(annotations, list)
    assert {"name": "own", "type": "long", "value": "5"} in annotations


@covers("B4")
@pytest.mark.parametrize("time", ["--5", "-", "1" * 5_000, "\u00b2", "soon", 5])
def test_a_message_is_shown_whatever_stands_where_its_time_should(time: object) -> None:
    """The broker reads a key of a described type as none of its own, but it looks the same to people."""
    annotations = map_section(MESSAGE_ANNOTATIONS, {Described("x", "x-opt-scheduled-enqueue-time"): time})
    told = shown_message(annotations + data_section(b"x"))
    assert told["scheduled_for"] == ("1970-01-01T00:00:00.005Z" if time == 5 else time)


def test_a_sequence_number_is_a_text_of_all_its_digits() -> None:
    for number in (2**53 + 1, 2**63 - 1):
        told = json.loads(json.dumps(message_json(parse_message(data_section(b"")), number, 0, WHOLE)))
        assert (told["sequence_number"], told["fragment"]) == (str(number), number >> 48)


# Bodies.


def test_a_body_is_text_where_it_can_be_read_as_such() -> None:
    body = body_of(data_section("Grüße\n\t<b>".encode()))
    assert body == {"kind": "data", "size_bytes": 12, "text": "Grüße\n\t<b>", "base64": None, "is_truncated": False}
    for binary in (b"\xff\xfe", b"a\x00b", b"\x1b[31m", "\x85".encode()):
        body = body_of(data_section(binary))
        assert (body["text"], body["size_bytes"]) == (None, len(binary))
        assert body["base64"]
    assert body_of(data_section(b"ab") + data_section(b"cd"))["text"] == "abcd"
    assert body_of(application_properties_section({"a": 1}))["text"] == ""


@pytest.mark.parametrize("most", range(1, 9))
def test_a_body_that_is_cut_within_a_character_is_still_text(most: int) -> None:
    body = body_of(data_section("ä€😀".encode()), most)
    assert "ä€😀".startswith(body["text"])
    assert (body["is_truncated"], body["size_bytes"]) == (True, 9)


def test_values_and_sequences_are_told_as_json() -> None:
    assert body_of(amqp_value_section("text"))["text"] == "text"
    assert body_of(amqp_value_section(b"\x01"))["base64"] == "AQ=="
    assert body_of(amqp_value_section(None))["text"] == "null"
    told = body_of(amqp_value_section({"a": [1, uuid.UUID(int=1)], "b": 1.5}))
    assert told["kind"] == "value"
    assert json.loads(told["text"]) == {"a": [1, str(uuid.UUID(int=1))], "b": 1.5}
    told = body_of(section(0x76, [1, 2]) + section(0x76, ["x"]))
    assert (told["kind"], told["text"]) == ("sequence", '[[1, 2], ["x"]]')


@pytest.mark.parametrize(
    "payload",
    [
        section(0x75, [1, 2]),
        section(0x75, b"a") + section(0x77, "b"),
        amqp_value_section("aXb").replace(b"aXb", b"a\xffb"),
    ],
    ids=["data that is a list", "two kinds", "no utf-8"],
)
def test_a_body_that_cannot_be_read_is_shown_as_its_bytes(payload: bytes) -> None:
    body = body_of(payload)
    assert (body["kind"], body["text"]) == ("unreadable", None)
    assert body["base64"] == body["encoded"]


def test_a_body_that_is_not_plain_data_comes_with_its_bytes() -> None:
    footed = data_section(b"x") + map_section(0x78, {"crc": 5})
    for payload in (footed, amqp_value_section({"a": 1}), section(0x76, [1])):
        message = parse_message(payload)
        rest = message.sections[message.application_end :]
        assert body_of(payload)["encoded"]
        assert "encoded" not in body_of(payload, LISTED_BODY_BYTES)
        assert body_json(rest, 0, WHOLE)["encoded"] == body_of(payload)["encoded"]


def test_a_huge_map_is_not_built_to_be_shown() -> None:
    payload = amqp_value_section([0] * (MAX_VALUE_BYTES // 2 + 1))
    body = body_of(payload)
    assert (body["text"], body["is_truncated"], body["size_bytes"]) == (None, True, MAX_VALUE_BYTES + 11)
    assert body_of(amqp_value_section("x" * (MAX_VALUE_BYTES + 1)))["size_bytes"] == MAX_VALUE_BYTES + 1


# Anything.


@given(messages())
@settings(max_examples=200)
def test_every_message_can_be_shown(sent: MessageSections) -> None:
    told = shown_message(encode_message(sent))
    assert len(told["properties"]) == len(sent.application_properties or {})
    assert len(told["annotations"]) == len(sent.message_annotations or {})


@covers("B4")
def test_whatever_the_broker_takes_can_be_shown() -> None:
    mutator = Mutator(20_250_901, [MESSAGE])
    taken = 0
    for _ in range(10_000):
        try:
            message = parse_message(mutator.next())
        except BusError:
            continue
        taken += 1
        for most in (LISTED_BODY_BYTES, WHOLE):
            json.dumps(message_json(message, 1, 1, most))
    assert taken > 1_000
