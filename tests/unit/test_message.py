"""Reading a message's envelope: what the broker sees of it, what it keeps, and what it refuses."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.amqp.encoding import Described, Typed, encode, symbol, timestamp, ubyte, uint, ulong
from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    application_properties_section,
    data_section,
    decode_message,
    header_section,
    map_section,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.errors import BusError, InvalidArgument, MalformedData
from tandembus.message import (
    MAX_TTL_MS,
    UINT_MAX,
    Message,
    copy_of,
    delivery_annotations_at,
    message_id_of,
    parse_message,
    session_id_of,
)
from tandembus.message_sections import split_batch
from tests.covers import covers
from tests.unit.amqp.mutation import MESSAGE, Mutator

HEADER, DELIVERY_ANNOTATIONS, PROPERTIES, SEQUENCE, VALUE, FOOTER = 0x70, 0x71, 0x73, 0x76, 0x77, 0x78
PING = "application/vnd.ms-servicebus-ping"
DAY_MS = 86_400_000


def with_id(*sections: bytes) -> bytes:
    return b"".join((properties_section("id"), *sections))


def sections_of(message: Message) -> MessageSections:
    return decode_message(message.sections, typed=True)


# What is kept.


def test_annotations_properties_and_body_are_kept_as_the_bytes_that_came() -> None:
    kept = (
        message_annotations_section({"x-opt-own": 1})
        + properties_section("id", subject="s")
        + application_properties_section({"a": 1})
        + data_section(b"body")
    )
    assert parse_message(header_section(priority=9) + kept).sections == kept


def test_delivery_annotations_are_kept_behind_all_others_and_the_header_is_not() -> None:
    own, rest = (
        map_section(DELIVERY_ANNOTATIONS, {"x": 1}),
        with_id(data_section(b"body"), map_section(FOOTER, {"f": 1})),
    )
    message = parse_message(header_section(ttl_ms=5) + own + rest)
    assert message.sections == rest + own
    assert delivery_annotations_at(message) == len(rest)


def test_the_ends_of_the_sections_are_where_the_next_one_starts() -> None:
    annotations, properties = message_annotations_section({"x-opt-own": 1}), properties_section("id")
    application = application_properties_section({"a": 1})
    message = parse_message(annotations + properties + application + data_section(b"body"))
    assert message.annotations_end == len(annotations)
    assert message.properties_end == len(annotations + properties)
    assert message.application_end == len(annotations + properties + application)


def test_a_section_that_is_missing_ends_where_the_one_before_it_ends() -> None:
    message = parse_message(with_id(data_section(b"body")))
    assert (message.annotations_end, message.properties_end) == (0, message.application_end)


def test_the_wire_size_is_that_of_what_came() -> None:
    payload = header_section() + data_section(b"body")
    assert parse_message(payload).wire_size == len(payload)


def test_sections_in_any_order_are_brought_into_ours() -> None:
    annotations, rest = message_annotations_section({"x-opt-own": 1}), with_id(data_section(b"body"))
    message = parse_message(rest + annotations)
    assert message.sections == annotations + rest
    assert message.annotations_end == len(annotations)


def test_delivery_annotations_may_come_behind_the_body() -> None:
    payload = with_id(data_section(b"body")) + map_section(DELIVERY_ANNOTATIONS, {"x": 1})
    assert parse_message(payload).sections == payload


def test_a_reordered_message_keeps_the_wire_size_of_what_came() -> None:
    payload = with_id(data_section(b"body")) + map_section(DELIVERY_ANNOTATIONS, {"x": 1})
    assert parse_message(payload).wire_size == len(payload)


@pytest.mark.parametrize("descriptor", [b"\x80" + bytes(7) + b"\x75", encode(symbol("amqp:data:binary"))])
def test_a_long_or_symbolic_descriptor_means_the_same_section(descriptor: bytes) -> None:
    message = parse_message(properties_section("id") + b"\x00" + descriptor + encode(b"body"))
    assert message.sections == with_id(data_section(b"body"))


def test_a_symbolic_header_says_the_time_to_live_too() -> None:
    header = b"\x00" + encode(symbol("amqp:header:list")) + encode([False, ubyte(4), uint(5000)])
    assert parse_message(header + with_id(data_section(b"body"))).ttl_ms == 5000


def test_a_message_may_have_several_data_sections() -> None:
    body = data_section(b"one") + data_section(b"two")
    assert parse_message(with_id(body)).sections.endswith(body)


def test_a_message_may_have_several_sequence_sections() -> None:
    body = section(SEQUENCE, [1]) + section(SEQUENCE, [2])
    assert parse_message(with_id(body)).sections.endswith(body)


def test_a_footer_stays_behind_the_body() -> None:
    rest = data_section(b"body") + map_section(FOOTER, {"f": 1})
    assert parse_message(with_id(rest)).sections.endswith(rest)


def test_a_message_may_have_no_body_at_all() -> None:
    assert parse_message(properties_section("id")).sections == properties_section("id")


def test_nothing_at_all_is_a_message_with_an_id_of_ours() -> None:
    message = parse_message(b"")
    assert len(message_id_of(message)) == 32


# The message id.


@pytest.mark.parametrize(
    "properties",
    [b"", b"\x00\x53\x73\x45", properties_section(None, subject="s")],
    ids=["no properties", "an empty list", "a null id"],
)
def test_a_message_without_an_id_is_given_one_of_32_hexadecimal_digits(properties: bytes) -> None:
    message = parse_message(properties + data_section(b"body"))
    message_id = message_id_of(message)
    assert len(message_id) == 32
    assert int(message_id, 16) >= 0
    assert sections_of(message).property_at(0) == message_id


def test_two_messages_without_an_id_are_given_different_ones() -> None:
    assert message_id_of(parse_message(b"")) != message_id_of(parse_message(b""))


def test_an_id_of_ours_leaves_the_other_properties_and_the_body_alone() -> None:
    message = parse_message(
        message_annotations_section({"x-opt-own": 1})
        + properties_section(None, user_id=b"u", content_type="text/plain", group_sequence=7)
        + application_properties_section({"a": 1})
        + data_section(b"body")
    )
    found = sections_of(message)
    assert found.properties is not None
    assert found.properties[1:] == [
        *(b"u", None, None, None, None, symbol("text/plain")),
        *(None, None, None, None, uint(7)),
    ]
    assert message.sections[message.properties_end :] == application_properties_section({"a": 1}) + data_section(
        b"body"
    )
    assert message.sections[message.application_end :] == data_section(b"body")


@pytest.mark.parametrize(
    ("given_id", "shown"),
    [("text", "text"), (ulong(7), "7"), (uuid.UUID(int=7), str(uuid.UUID(int=7))), (b"\x01\xff", "01ff")],
)
def test_ids_of_every_type_are_legal_and_shown_as_text(given_id: object, shown: str) -> None:
    message = parse_message(properties_section(given_id))
    assert message_id_of(message) == shown
    assert sections_of(message).property_at(0) == given_id


# Annotations that only the broker may set.


OWNED = (
    "x-opt-lock-token",
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-enqueue-sequence-number",
    "x-opt-message-state",
    "x-opt-deadletter-source",
    "x-opt-partition-id",
)


@pytest.mark.parametrize("name", OWNED)
def test_an_annotation_that_only_the_broker_may_set_is_left_out(name: str) -> None:
    message = parse_message(message_annotations_section({name: 5, "x-opt-own": 1}) + with_id(data_section(b"body")))
    assert message.sections == message_annotations_section({"x-opt-own": 1}) + with_id(data_section(b"body"))
    assert message.annotations_end == len(message_annotations_section({"x-opt-own": 1}))


@pytest.mark.parametrize("section_code", [DELIVERY_ANNOTATIONS, 0x72])
@pytest.mark.parametrize(
    "constructor",
    [b"\xa0", b"\xa1", b"\xa3", b"\xb0\x00\x00\x00", b"\xb1\x00\x00\x00", b"\xb3\x00\x00\x00"],
)
def test_such_an_annotation_is_left_out_however_its_name_is_written(constructor: bytes, section_code: int) -> None:
    name = b"x-opt-sequence-number"
    entry = constructor + bytes((len(name),)) + name + b"\x55\x05"
    annotations = b"\x00\x53" + bytes((section_code, 0xC1, len(entry) + 1, 2)) + entry
    assert parse_message(annotations + with_id()).sections == with_id()


@pytest.mark.parametrize("name", OWNED)
def test_it_is_left_out_of_delivery_annotations_as_well(name: str) -> None:
    mine: dict[str, object] = {"a": Described("t", uint(1)), "b": timestamp(2)}
    forged: dict[object, object] = {"a": mine["a"], name: 5, "b": mine["b"]}
    message = parse_message(map_section(DELIVERY_ANNOTATIONS, forged) + with_id())
    assert message.annotations_end == 0
    assert sections_of(message).delivery_annotations == {symbol(key): value for key, value in mine.items()}


@pytest.mark.parametrize("code", [DELIVERY_ANNOTATIONS, FOOTER], ids=["delivery annotations", "footer"])
@pytest.mark.parametrize("value", [b"\x45", b"\xa1\x01a", b"\xc1\x03\x01\x40\x40", b"\xc1\x03\x04\x40\x40"])
def test_a_section_that_is_no_map_is_malformed(code: int, value: bytes) -> None:
    """Receivers would stumble over it."""
    with pytest.raises(MalformedData):
        parse_message(with_id(data_section(b"body"), b"\x00\x53", bytes((code,)), value))


def test_the_section_goes_when_nothing_of_it_is_left() -> None:
    message = parse_message(message_annotations_section({OWNED[0]: 5}) + with_id())
    assert (message.sections, message.annotations_end) == (with_id(), 0)
    assert message.properties_end == len(with_id())


def test_the_other_annotations_keep_their_types() -> None:
    own = {
        "x-opt-a": uint(3),
        "x-opt-b": timestamp(4),
        "x-opt-c": symbol("s"),
        "x-opt-d": Described("t", Typed(0x94, bytes(16))),
    }
    message = parse_message(message_annotations_section({OWNED[0]: 5, **own}) + with_id())
    assert sections_of(message).message_annotations == {symbol(name): value for name, value in own.items()}


# Keys.


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (properties_section("i" * 129), "MessageId"),
        (properties_section("i" * 300), "MessageId"),
        (properties_section("id", group_id="s" * 129), "SessionId"),
        (message_annotations_section({"x-opt-partition-key": "p" * 129}), "PartitionKey"),
    ],
)
@covers("M13")
def test_a_key_of_more_than_128_characters_is_refused(payload: bytes, name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} is longer than 128 characters"):
        parse_message(payload)


@covers("M13")
def test_keys_of_128_characters_are_allowed_whatever_their_bytes() -> None:
    message = parse_message(
        message_annotations_section({"x-opt-partition-key": "ä" * 128})
        + properties_section("ä" * 128, group_id="ä" * 128)
    )
    assert (message.partition_key, message.session_id) == ("ä" * 128, "ä" * 128)
    assert message_id_of(message) == "ä" * 128


@covers("M13")
def test_the_length_of_keys_is_a_setting() -> None:
    with pytest.raises(InvalidArgument, match="longer than 3 characters"):
        parse_message(properties_section("four"), 3)


@pytest.mark.parametrize(
    "payload",
    [
        section(PROPERTIES, ["id", *[None] * 9, 5]),
        message_annotations_section({"x-opt-partition-key": 5}),
        section(PROPERTIES, [b"i" * 200]),
    ],
)
def test_a_key_of_another_type_than_text_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidArgument, match="must be a string"):
        parse_message(payload)


def test_a_null_partition_key_is_none() -> None:
    assert parse_message(message_annotations_section({"x-opt-partition-key": None})).partition_key is None


# Header.


@pytest.mark.parametrize(
    ("header", "ttl_ms"),
    [
        (b"", -1),
        (b"\x00\x53\x70\x45", -1),
        (header_section(), -1),
        (section(HEADER, [False, ubyte(4), uint(0)]), -1),
        (b"\x00\x53\x70\xc0\x04\x03\x40\x40\x43", -1),
        (b"\x00\x53\x70\xc0\x05\x03\x40\x40\x52\x07", 7),
        (b"\x00\x53\x70\xc0\x08\x03\x40\x40\x70\x00\x01\x00\x00", 65_536),
        (b"\x00\x53\x70\xd0\x00\x00\x00\x08\x00\x00\x00\x03\x40\x40\x52\x07", 7),
        (section(HEADER, [False, ubyte(4), uint(UINT_MAX)]), UINT_MAX),
    ],
    ids=["none", "empty list", "null", "zero", "uint0", "smalluint", "uint", "list32", "longest"],
)
@covers("M6")
def test_the_time_to_live_is_read_in_every_form(header: bytes, ttl_ms: int) -> None:
    assert parse_message(header + with_id()).ttl_ms == ttl_ms


@pytest.mark.parametrize("ttl", [5, "5", timestamp(5)])
@covers("M6")
def test_a_time_to_live_of_another_type_is_malformed(ttl: object) -> None:
    with pytest.raises(MalformedData, match="ttl is not a uint"):
        parse_message(section(HEADER, [False, ubyte(4), ttl]))


def test_the_priority_is_read_and_four_without_one() -> None:
    assert parse_message(header_section(priority=9)).priority == 9
    assert parse_message(with_id()).priority == 4


@covers("M6")
def test_a_time_to_live_beyond_49_days_comes_from_the_two_times() -> None:
    properties = properties_section("id", absolute_expiry_time=1_000 + 100 * DAY_MS, creation_time=1_000)
    assert parse_message(header_section(ttl_ms=UINT_MAX) + properties).ttl_ms == 100 * DAY_MS


@covers("M6")
def test_a_time_to_live_longer_than_the_longest_time_span_is_cut_to_it() -> None:
    properties = properties_section("id", absolute_expiry_time=2**62, creation_time=1_000)
    assert parse_message(header_section(ttl_ms=UINT_MAX) + properties).ttl_ms == MAX_TTL_MS


@covers("M6")
def test_the_two_times_say_nothing_beside_a_time_to_live_that_fits() -> None:
    properties = properties_section("id", absolute_expiry_time=100 * DAY_MS, creation_time=1_000)
    assert parse_message(header_section(ttl_ms=7) + properties).ttl_ms == 7
    assert parse_message(properties).ttl_ms == -1


# Schedule.


@pytest.mark.parametrize(("at", "scheduled_at"), [(timestamp(12_345), 12_345), (12_345 << 20, 12_345 << 20), (None, 0)])
@covers("M5")
def test_the_schedule_annotation_says_when(at: object, scheduled_at: int) -> None:
    assert parse_message(message_annotations_section({"x-opt-scheduled-enqueue-time": at})).scheduled_at == scheduled_at


@covers("M5")
def test_a_schedule_that_is_no_time_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="must be a timestamp"):
        parse_message(message_annotations_section({"x-opt-scheduled-enqueue-time": "tomorrow"}))


# Pings.


@pytest.mark.parametrize(
    "body",
    [b"", data_section(b""), b"\x00\x53\x75\xb0\x00\x00\x00\x00", amqp_value_section(None)],
    ids=["none", "empty", "empty in long form", "null"],
)
@covers("N10")
def test_an_empty_message_with_the_content_type_of_a_ping_is_one(body: bytes) -> None:
    message = parse_message(
        header_section(ttl_ms=1000) + properties_section("id", content_type=PING, group_id="s") + body
    )
    assert message.is_ping


@covers("N10")
def test_the_content_type_of_a_ping_may_be_written_in_the_long_form() -> None:
    content_type = b"\xb3\x00\x00\x00" + bytes((len(PING),)) + PING.encode()
    fields = b"\xa1\x02id" + b"\x40" * 5 + content_type
    assert parse_message(b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 7)) + fields).is_ping


@covers("N10")
def test_a_ping_without_an_id_is_a_ping() -> None:
    assert parse_message(properties_section(content_type=PING) + data_section(b"")).is_ping


@pytest.mark.parametrize("body", [data_section(b"x"), amqp_value_section(""), data_section(b"") + data_section(b"x")])
@covers("N10")
def test_a_message_with_a_body_is_never_taken_for_a_ping(body: bytes) -> None:
    assert not parse_message(properties_section("id", content_type=PING) + body).is_ping


@pytest.mark.parametrize("content_type", [True, uint(0), uint(5), b"", PING.encode(), [], ulong(2**60)])
@covers("N10")
def test_a_content_type_that_is_no_text_is_no_ping(content_type: object) -> None:
    assert not parse_message(section(PROPERTIES, ["id", *[None] * 5, content_type])).is_ping


@pytest.mark.parametrize("key", [True, uint(0), 5, b"", uuid.UUID(int=1)])
def test_annotations_under_keys_that_are_no_text_are_kept(key: object) -> None:
    annotations = section(0x72, {key: "value"})
    assert parse_message(annotations + with_id()).sections == annotations + with_id()


@covers("N10")
def test_an_empty_message_of_another_content_type_is_no_ping() -> None:
    assert not parse_message(properties_section("id", content_type=PING + "s") + data_section(b"")).is_ping


# Malformed.


MALFORMED = {
    "no descriptor": b"\x53\x75\xa0\x00",
    "cut after the descriptor": b"\x00\x53\x75",
    "a section outside the message": b"\x00\x53\x79\x40",
    "a section before the message": b"\x00\x53\x6f\x40",
    "properties twice": properties_section("a") + properties_section("b"),
    "value twice": amqp_value_section(1) + amqp_value_section(2),
    "an unknown symbol": b"\x00" + encode(symbol("amqp:nothing:list")) + b"\x45",
    "properties that are a map": section(PROPERTIES, {}),
    "annotations that are a list": section(0x72, [1]),
    "annotations that are null": section(0x72, None),
    "application properties that are a list": section(0x74, ["a", 1]),
    "a header that is a map": section(HEADER, {"a": 1}),
    "annotations with a key alone": b"\x00\x53\x72\xc1\x04\x01\xa3\x01a",
    "application properties with a key alone": b"\x00\x53\x74\xc1\x04\x01\xa1\x01a",
    "annotations larger than their entries": b"\x00\x53\x72\xc1\x06\x02\xa3\x01a\x40\x40",
    "application properties larger than their entries": b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\x40\x40",
    "annotations with fewer entries than they count": b"\x00\x53\x72\xc1\x05\x04\xa3\x01a\x40",
    "application properties with fewer entries": b"\x00\x53\x74\xc1\x05\x04\xa1\x01a\x40",
    "properties larger than their fields": b"\x00\x53\x73\xc0\x03\x01\x40\x40",
    "properties with fewer fields than they count": b"\x00\x53\x73\xc0\x02\x02\x40",
    "a size beyond the message": b"\x00\x53\x75\xa0\x09abc",
    "a huge size": b"\x00\x53\x75\xb0\xff\xff\xff\xffabc",
    "a huge count": b"\x00\x53\x72\xd1\x00\x00\x00\x04\xff\xff\xff\xfe",
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_bytes_that_are_no_message_are_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedData):
        parse_message(payload)


def test_every_truncation_of_a_message_parses_or_is_refused_on_purpose() -> None:
    for length in range(len(MESSAGE)):
        try:
            parse_message(MESSAGE[:length])
        except (MalformedData, InvalidArgument):
            continue


def test_mutated_messages_parse_or_are_refused_on_purpose() -> None:
    corpus = [MESSAGE, MESSAGE[20:] + MESSAGE[:20], header_section(ttl_ms=5) + with_id(data_section(b"body"))]
    mutator = Mutator(20_240_701, corpus)
    for _ in range(5_000):
        payload = mutator.next()
        try:
            message = parse_message(payload)
        except (MalformedData, InvalidArgument):
            continue
        assert 0 <= message.annotations_end <= message.properties_end <= message.application_end
        assert message.application_end <= len(message.sections)


@given(st.binary(max_size=200))
def test_garbage_is_refused_on_purpose(payload: bytes) -> None:
    try:
        parse_message(payload)
    except (MalformedData, InvalidArgument):
        return


# Batches.


@covers("M12")
def test_a_batch_is_its_messages() -> None:
    first, second = with_id(data_section(b"one")), with_id(data_section(b"two" * 100))
    assert split_batch(data_section(first) + data_section(second)) == [first, second]


@covers("M12")
def test_the_envelope_around_a_batch_says_nothing_of_its_own() -> None:
    inner = with_id(data_section(b"one"))
    envelope = header_section(ttl_ms=5) + message_annotations_section({"x-opt-partition-key": "k"})
    assert split_batch(envelope + data_section(inner)) == [inner]


@covers("M12")
def test_a_batch_under_long_descriptors_is_a_batch() -> None:
    assert split_batch(b"\x00" + encode(symbol("amqp:data:binary")) + encode(b"inner")) == [b"inner"]


@pytest.mark.parametrize(
    "payload",
    [b"", header_section(), section(0x75, "text"), b"\x53\x75\xa0\x00", b"\x00\x53\x75\xa0\x09abc", b"\x00\x53"],
    ids=["nothing", "no messages", "text", "no descriptor", "cut", "cut early"],
)
@covers("M12")
def test_what_is_no_batch_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedData):
        split_batch(payload)


@given(st.binary(max_size=200))
def test_garbage_as_a_batch_is_refused_on_purpose(payload: bytes) -> None:
    try:
        split_batch(payload)
    except BusError:
        return


@covers("M7")
@pytest.mark.parametrize("session_id", [None, "", "a", "é" * 128, "x" * 128])
def test_the_session_of_a_message_that_was_read_back_is_in_its_sections(session_id: str | None) -> None:
    for before in (b"", message_annotations_section({"x-opt-own": 1})):
        message = parse_message(before + properties_section("id", group_id=session_id) + data_section(b"body"))
        assert session_id_of(message) == session_id
        assert session_id_of(copy_of(message)) == session_id


@covers("M7")
def test_a_message_with_few_properties_has_no_session() -> None:
    assert session_id_of(copy_of(parse_message(properties_section("id") + data_section(b"body")))) is None
    assert session_id_of(Message(b"")) is None
    assert session_id_of(Message(data_section(b"body"))) is None
