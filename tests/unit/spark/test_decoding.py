"""Rows of messages that strangers have sent: forged, broken and odd ones. Each is a row, and none is in the way."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.amqp.encoding.codec import encode
from tandembus.amqp.encoding.sections import encode_message, section
from tandembus.amqp.encoding.values import Described, Typed, char, symbol, timestamp, uint
from tandembus.client import OutgoingMessage
from tandembus.errors import BusError
from tandembus.message import parse_message
from tandembus.message_encoding import encode_delivery
from tandembus.spark.source.columns import batch_of
from tandembus.spark.source.decoding import UNREADABLE
from tandembus.spark.source.marks import marks_of, sequence_number_of
from tandembus.spark.source.property_values import from_text, to_text
from tests.covers import covers
from tests.unit.any_message import messages
from tests.unit.spark.stage import Row, rows_of

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = 0x70, *range(0x72, 0x79)
NUMBER = (3 << 48) | 77
ENQUEUED_MS = 1_700_000_000_123
FORGED = b"\xa3\x15x-opt-sequence-number\x81" + (5).to_bytes(8, "big")
GOOD = OutgoingMessage(b"good", message_id="good").encode()


def delivered(payload: bytes, state: int = 1) -> bytes:
    """As the broker gives it out. Raises for what it does not take."""
    message = parse_message(payload)
    message.enqueued_at = ENQUEUED_MS
    return encode_delivery(message, NUMBER, 0, state)


def rows(*payloads: bytes, **options: str) -> list[Row]:
    batch = batch_of("q", list(payloads), **options)
    batch.validate(full=True)
    return rows_of([batch])


def row(payload: bytes) -> Row:
    """Between two others, which are not touched by it."""
    before, found, after = rows(delivered(GOOD), payload, delivered(GOOD))
    assert before == after
    assert before["body"] == b"good"
    return found


@covers("D1")
@pytest.mark.parametrize(
    "forged",
    [
        section(0x71, {symbol("x"): FORGED}) + GOOD,
        section(0x71, {symbol("x-opt-sequence-number"): 5}) + GOOD,
        section(ANNOTATIONS, {symbol("x"): FORGED}),
        section(ANNOTATIONS, {symbol("x-opt-sequence-number"): 5, "x-opt-sequence-number": 6}),
        section(ANNOTATIONS, {symbol("x"): {symbol("x-opt-sequence-number"): 5}}),
        section(ANNOTATIONS, {symbol("x"): Described(0x72, {symbol("x-opt-sequence-number"): 5})}),
        section(PROPERTIES, [FORGED]),
        section(APPLICATION, {"x-opt-sequence-number": 5}),
        section(DATA, FORGED),
    ],
)
def test_what_looks_like_a_sequence_number_is_none(forged: bytes) -> None:
    payload = delivered(forged)
    assert sequence_number_of(payload) == NUMBER
    assert row(payload)["sequence_number"] == NUMBER
    (alone,) = rows(payload, payload="only")
    assert (alone["fragment"], alone["sequence_number"]) == (3, NUMBER)


@covers("D1")
@pytest.mark.parametrize(
    ("state", "scheduled_ms", "is_active"),
    [
        (0, None, True),
        (0, ENQUEUED_MS + 1, True),
        (1, ENQUEUED_MS, False),
        (2, ENQUEUED_MS + 1, False),
        (2, ENQUEUED_MS, True),
    ],
)
def test_a_scheduled_message_is_active_when_it_was_enqueued_at_its_time(
    state: int, scheduled_ms: int | None, is_active: bool
) -> None:
    payload = GOOD
    if scheduled_ms is not None:
        payload = section(ANNOTATIONS, {symbol("x-opt-scheduled-enqueue-time"): timestamp(scheduled_ms)}) + GOOD
    assert marks_of(delivered(payload, state)).is_active() == is_active


@covers("D1")
def test_forged_bytes_in_a_header_are_none() -> None:
    """Another service may let them pass."""
    header = section(HEADER, [True, None, None, None, None, FORGED])
    assert sequence_number_of(header + section(ANNOTATIONS, {symbol("x-opt-sequence-number"): NUMBER})) == NUMBER


BAD_TEXT = b"\xa1\x02\xff\xfe"


def raw_map(code: int, *elements: bytes) -> bytes:
    content = b"".join(elements)
    return bytes((0, 0x53, code, 0xC1, len(content) + 1, len(elements))) + content


def raw_list(code: int, *elements: bytes) -> bytes:
    content = b"".join(elements)
    return bytes((0, 0x53, code, 0xC0, len(content) + 1, len(elements))) + content


def nested(depth: int) -> bytes:
    value = b"\x40"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + value
    return value


BROKEN = {
    "text that is not UTF-8 in a property": raw_map(APPLICATION, b"\xa1\x01a", BAD_TEXT),
    "such a name": raw_map(APPLICATION, BAD_TEXT, b"\x40"),
    "a name that is a list": raw_map(APPLICATION, b"\x45", b"\x40"),
    "a name that is described": raw_map(APPLICATION, b"\x00\x53\x01\xa1\x01a", b"\x40"),
    "a name that is a number": raw_map(APPLICATION, b"\x55\x01", b"\x40"),
    "one name twice": raw_map(APPLICATION, b"\xa1\x01a", b"\x40", b"\xa3\x01a", b"\x40"),
    "a list in a map's key": raw_map(APPLICATION, b"\xa1\x01a", b"\xc1\x03\x02\x45\x40"),
    "a subject that is not UTF-8": raw_list(PROPERTIES, b"\xa1\x02id", b"\x40", b"\x40", BAD_TEXT),
    "a subject that is a list": raw_list(PROPERTIES, b"\xa1\x02id", b"\x40", b"\x40", b"\x45"),
    "data that is null": b"\x00\x53\x75\x40",
    "data that is text": b"\x00\x53\x75\xa1\x01a",
}


@covers("D1")
@pytest.mark.parametrize("broken", list(BROKEN))
def test_a_message_that_cannot_be_read_is_a_row_with_what_is_certain(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    payload = delivered(BROKEN[broken])
    found = row(payload)
    assert found["body"] == payload
    assert (found["entity"], found["fragment"], found["sequence_number"]) == ("q", 3, NUMBER)
    assert found["enqueued_time"].timestamp() == ENQUEUED_MS / 1000
    assert found["state"] == "deferred"
    assert list(found["properties"]) == list(found["property_types"]) == [UNREADABLE]
    assert found["properties"][UNREADABLE]
    assert "q: 1 messages cannot be read" in caplog.text
    assert len(caplog.records) == 1


def test_the_fields_that_can_be_read_are_told_with_it() -> None:
    """A session or key among them, so that what is sent on can keep its order."""
    fields = [b"\xa1\x02id", b"\x40", b"\x40", BAD_TEXT, *[b"\x40"] * 6, b"\xa1\x01s"]
    annotations = section(ANNOTATIONS, {symbol("x-opt-partition-key"): "s"})
    found = row(delivered(section(HEADER, [True, None, uint(5000)]) + annotations + raw_list(PROPERTIES, *fields)))
    assert (found["message_id"], found["session_id"], found["partition_key"]) == ("id", "s", "s")
    assert found["subject"] is None
    assert UNREADABLE in found["properties"]


def test_nesting_is_bounded() -> None:
    assert UNREADABLE in row(delivered(raw_deep(80)))["properties"]
    assert row(delivered(raw_deep(20)))["property_types"] == {"a": "amqp"}


def raw_deep(depth: int) -> bytes:
    content = b"\xa1\x01a" + nested(depth)
    return b"\x00\x53\x74\xd1" + (len(content) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + content


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (section(VALUE, "text"), b"text"),
        (section(VALUE, b"bytes"), b"bytes"),
        (b"\x00\x53\x77" + BAD_TEXT, b"\xff\xfe"),
        (section(VALUE, None), b"\x40"),
        (section(VALUE, char("\ud800")), encode(char("\ud800"))),
        (section(VALUE, Described("x", [1])), encode(Described("x", [1]))),
        (b"\x00\x53\x77\xc1\x03\x02\x45\x40", b"\xc1\x03\x02\x45\x40"),
        (b"\x00\x53\x77" + nested(100), nested(100)),
        (section(SEQUENCE, [1]) + section(SEQUENCE, [2]), encode([1]) + encode([2])),
        (section(DATA, b"a") + section(DATA, b"") + section(DATA, b"b"), b"ab"),
        (section(DATA, b"x" * 300), b"x" * 300),
        (b"", b""),
    ],
)
def test_a_body_of_any_kind_has_its_bytes(body: bytes, expected: bytes) -> None:
    found = row(delivered(GOOD[: GOOD.index(b"\x00\x53\x75")] + body))
    assert found["body"] == expected
    assert found["properties"] == {}


def test_half_a_character_is_no_text_and_comes_back_all_the_same() -> None:
    value = char("\udfff")
    text, kind = to_text(value)
    assert kind == "amqp"
    assert from_text(text, kind) == value
    assert row(delivered(section(APPLICATION, {"c": value})))["property_types"] == {"c": "amqp"}


def test_a_time_to_live_beyond_the_header_is_told() -> None:
    message = parse_message(OutgoingMessage("x", time_to_live_s=1.0).encode())
    message.enqueued_at, message.expires_at = ENQUEUED_MS, ENQUEUED_MS + 200 * 86_400_000
    found = row(encode_delivery(message, NUMBER, 0, 0))
    assert (found["expires_at"] - found["enqueued_time"]).days == 200


@pytest.mark.parametrize("value", [0, -1, 1 << 62, (1 << 63) - 1])
def test_times_that_are_no_dates_are_none(value: int) -> None:
    annotations = {symbol("x-opt-enqueued-time"): Typed(0x83, value), symbol("x-opt-message-state"): value}
    found = row(
        section(HEADER, [True, None, uint(0xFFFFFFFF), None, uint(0xFFFFFFFF)]) + section(ANNOTATIONS, annotations)
    )
    assert (found["enqueued_time"] is None) == (value != 0)
    assert found["delivery_count"] == (1 << 31) - 1
    assert found["state"] == "active"


def test_message_ids_of_every_type_are_texts() -> None:
    for value, text in ((uuid.UUID(int=7), str(uuid.UUID(int=7))), (Typed(0x80, 9), "9"), (b"\x01\xff", "01ff")):
        assert row(delivered(section(PROPERTIES, [value])))["message_id"] == text


def test_sections_under_long_descriptors_are_read() -> None:
    """Nobody writes them so, and they are legal."""
    payload = b"\x00\x80" + (0x72).to_bytes(8, "big") + encode({symbol("x-opt-sequence-number"): 9})
    assert sequence_number_of(payload) == 9
    assert row(payload + section(DATA, b"x"))["body"] == b"x"


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A message with some bytes changed, left out or put in, as they never come from a real sender."""
    payload = bytearray(encode_message(draw(messages())))
    payload += draw(st.sampled_from([b"", *BROKEN.values()]))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(payload) - 1, 0)))
        payload[at : at + draw(st.integers(0, 3))] = draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([FORGED, BAD_TEXT, b"\x00\x53\x72", b"\xd1", b"\xf0"]))
        )
    return bytes(payload)


@covers("D1")
@given(payload=mutations())
def test_whatever_a_broker_takes_is_a_row_with_its_number(payload: bytes) -> None:
    try:
        taken = delivered(payload)
    except BusError:
        return
    found = row(taken)
    assert found["sequence_number"] == NUMBER
    assert found["enqueued_time"].timestamp() == ENQUEUED_MS / 1000
    assert sequence_number_of(taken) == NUMBER
    assert UNREADABLE not in found["properties"] or found["body"] == taken


@given(payload=mutations() | st.binary(max_size=60))
def test_whatever_comes_from_anywhere_is_a_row(payload: bytes) -> None:
    row(payload)
    assert len(rows(payload, payload="only")) == len(rows(payload, payload="also")) == 1


def test_one_message_of_many_sections_takes_no_longer_than_its_bytes() -> None:
    found: dict[str, Any] = row(delivered(section(DATA, b"x") * 100_000))
    assert found["body"] == b"x" * 100_000
