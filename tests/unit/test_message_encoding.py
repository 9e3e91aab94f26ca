"""A message on its way out: the broker's own header and annotations, and everything else as it came."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import Described, Typed, int_, symbol, timestamp, ubyte, uint
from tandembus.amqp.encoding.sections import (
    MessageSections,
    application_properties_section,
    data_section,
    decode_message,
    header_section,
    map_section,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.errors import BusError
from tandembus.message import Message, parse_message
from tandembus.message_encoding import (
    application_properties_with,
    encode_changes,
    encode_delivery,
    with_application_properties,
    without_body,
)
from tests.covers import covers

NOW_MS = 1_700_000_000_000
NUMBER = (3 << 48) | 42
HEADER = 0x70
BODY = properties_section("id") + application_properties_section({"a": int_(1)}) + data_section(b"body")


def stored(payload: bytes = BODY) -> Message:
    message = parse_message(payload)
    message.number, message.original_number, message.enqueued_at = 42, NUMBER, NOW_MS
    return message


def delivered(message: Message, locked_until_ms: int = 0, state: int = 0) -> MessageSections:
    return decode_message(encode_delivery(message, NUMBER, locked_until_ms, state), typed=True)


def annotation(message: MessageSections, name: str) -> object:
    return (message.message_annotations or {}).get(symbol(name))


# The header.


@covers("M2")
def test_a_delivery_has_a_fresh_header_with_the_count_of_earlier_deliveries() -> None:
    message = stored(header_section(durable=False, ttl_ms=None, delivery_count=9) + BODY)
    message.delivery_count = 3
    assert delivered(message).header == [False, None, None, None, uint(3)]


@pytest.mark.parametrize("expires_at", [0, NOW_MS + 5])
@pytest.mark.parametrize("priority", [None, ubyte(0), ubyte(4), ubyte(9)])
@pytest.mark.parametrize("first_acquirer", [None, False, True])
@pytest.mark.parametrize("durable", [None, False, True])
@covers("M1")
def test_the_senders_fields_of_the_header_are_kept(
    durable: bool | None, first_acquirer: bool | None, priority: Typed | None, expires_at: int
) -> None:
    message = stored(section(HEADER, [durable, priority, None, first_acquirer, uint(9)]) + BODY)
    message.expires_at = expires_at
    granted = uint(5) if expires_at else None
    assert delivered(message).header == [durable, priority, granted, first_acquirer, uint(0)]


@pytest.mark.parametrize(("value", "durable"), [(b"\x56\x00", False), (b"\x56\x01", True), (b"\xa1\x01a", None)])
def test_a_boolean_of_the_header_comes_in_every_form(value: bytes, durable: bool | None) -> None:
    message = stored(b"\x00\x53\x70\xc0" + bytes((len(value) + 1, 1)) + value + BODY)
    assert delivered(message).header == [durable, None, None, None, uint(0)]


@covers("M1")
def test_a_sender_without_a_header_has_said_nothing_in_it() -> None:
    assert delivered(stored()).header == [None, None, None, None, uint(0)]


@covers("M6")
def test_the_time_to_live_is_what_the_broker_granted() -> None:
    message = stored(header_section(ttl_ms=60_000) + BODY)
    message.expires_at = NOW_MS + 5_000
    assert delivered(message).header == [False, None, uint(5_000), None, uint(0)]


@covers("M6")
def test_a_time_to_live_beyond_49_days_is_the_largest_that_fits() -> None:
    message = stored()
    message.expires_at = NOW_MS + 100 * 86_400_000
    header = delivered(message).header
    assert header is not None
    assert header[2] == uint(0xFFFFFFFF)


@pytest.mark.parametrize("count", [1, 255, 65_536, 2**31 - 1])
@covers("M2")
def test_large_delivery_counts_are_told(count: int) -> None:
    message = stored()
    message.delivery_count = count
    header = delivered(message).header
    assert header is not None
    assert header[4] == uint(count)


# The broker's annotations.


@covers("M1")
def test_a_delivery_says_sequence_number_and_time_of_enqueueing() -> None:
    message = delivered(stored())
    assert annotation(message, "x-opt-sequence-number") == NUMBER
    assert annotation(message, "x-opt-enqueued-time") == timestamp(NOW_MS)
    assert annotation(message, "x-opt-enqueue-sequence-number") == NUMBER
    assert len(message.message_annotations or {}) == 3


@covers("M2")
def test_a_locked_delivery_says_until_when() -> None:
    message = delivered(stored(), locked_until_ms=NOW_MS + 60_000)
    assert annotation(message, "x-opt-locked-until") == timestamp(NOW_MS + 60_000)
    assert len(message.message_annotations or {}) == 4


@pytest.mark.parametrize("state", [1, 2])
@covers("M4")
def test_a_parked_message_says_its_state_as_an_int(state: int) -> None:
    message = delivered(stored(), state=state)
    assert annotation(message, "x-opt-message-state") == int_(state)


@pytest.mark.parametrize("count", [1, 3, 200], ids=["map8", "map8 with three", "map32"])
def test_the_senders_annotations_stand_beside_the_brokers(count: int) -> None:
    own = {f"x-opt-own-{index}": int_(index) for index in range(count)}
    message = delivered(stored(message_annotations_section(dict(own)) + BODY), NOW_MS + 1, 1)
    assert len(message.message_annotations or {}) == count + 5
    for name, value in own.items():
        assert annotation(message, name) == value


def test_an_empty_map_of_annotations_is_no_trouble() -> None:
    message = delivered(stored(b"\x00\x53\x72\xc1\x01\x00" + BODY))
    assert len(message.message_annotations or {}) == 3


# Properties and body.


def test_without_a_time_to_live_the_rest_goes_as_it_came() -> None:
    assert encode_delivery(stored(), NUMBER, NOW_MS, 0).endswith(BODY)


@covers("M6")
def test_with_a_time_to_live_the_properties_say_when_it_was_enqueued_and_when_it_expires() -> None:
    payload = properties_section(
        "id", subject="s", absolute_expiry_time=1, creation_time=2, group_id="g", reply_to_group_id="r"
    )
    message = stored(payload + data_section(b"body"))
    message.expires_at = NOW_MS + 5_000
    found = delivered(message)
    assert found.properties == [
        *("id", None, None, "s", None, None, None, None),
        *(timestamp(NOW_MS + 5_000), timestamp(NOW_MS)),
        *("g", None, "r"),
    ]
    assert found.bodies == [b"body"]


@covers("M6")
def test_short_properties_grow_to_hold_the_two_times() -> None:
    message = stored()
    message.expires_at = NOW_MS + 5_000
    found = delivered(message)
    assert found.properties == ["id", *[None] * 7, timestamp(NOW_MS + 5_000), timestamp(NOW_MS)]
    assert (found.application_properties, found.bodies) == ({"a": int_(1)}, [b"body"])


@covers("M3")
@pytest.mark.parametrize("expires_at", [0, NOW_MS + 5])
def test_changed_application_properties_take_the_place_of_the_senders(expires_at: int) -> None:
    message = stored()
    message.expires_at = expires_at
    message.application_properties = application_properties_section({"b": int_(2)})
    found = delivered(message)
    assert (found.application_properties, found.bodies) == ({"b": int_(2)}, [b"body"])
    assert found.property_at(0) == "id"


@covers("M3")
def test_application_properties_come_to_a_message_that_had_none() -> None:
    message = stored(properties_section("id") + data_section(b"body"))
    message.application_properties = application_properties_section({"b": int_(2)})
    found = delivered(message)
    assert (found.application_properties, found.bodies) == ({"b": int_(2)}, [b"body"])


# Changes to application properties.


def changed(message: Message, **changes: object) -> dict[object, object]:
    section = application_properties_with(message, encode_changes(changes))
    return decode_message(section, typed=True).application_properties or {}


@covers("M3")
def test_dead_letter_properties_leave_the_types_of_the_others_alone() -> None:
    own = {"u": uint(1), "t": timestamp(2), "d": Typed(0x94, bytes(16)), "s": Described("com.microsoft:uri", "x")}
    message = stored(properties_section("id") + application_properties_section(dict(own)))
    assert changed(message, DeadLetterReason="because") == {**own, "DeadLetterReason": "because"}


@covers("M3")
def test_a_property_that_is_there_is_replaced() -> None:
    message = stored(properties_section("id") + application_properties_section({"a": int_(1), "b": int_(2)}))
    assert changed(message, a="new") == {"a": "new", "b": int_(2)}


@covers("M3")
def test_a_property_whose_name_came_in_the_long_form_is_replaced_too() -> None:
    entries = b"\xb1\x00\x00\x00\x01a\x54\x01"
    section = b"\x00\x53\x74\xd1" + (len(entries) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + entries
    assert changed(stored(properties_section("id") + section), a="new") == {"a": "new"}


@covers("M3")
def test_a_message_without_properties_gets_them() -> None:
    assert changed(stored(properties_section("id")), a="new", b=int_(2)) == {"a": "new", "b": int_(2)}


@covers("M3")
def test_changes_upon_changes_add_up() -> None:
    message = stored()
    message.application_properties = application_properties_with(message, encode_changes({"b": int_(2)}))
    assert changed(message, c=int_(3)) == {"a": int_(1), "b": int_(2), "c": int_(3)}


@covers("M3")
def test_many_long_properties_survive_a_change() -> None:
    own: dict[str, object] = {f"name-{index}" * 30: "v" * 300 for index in range(50)}
    message = stored(properties_section("id") + application_properties_section(own))
    assert changed(message, x=int_(1)) == {**own, "x": int_(1)}


def test_a_change_that_has_no_amqp_form_is_refused() -> None:
    with pytest.raises(BusError):
        encode_changes({"a": object()})


@covers("M4")
def test_a_copy_without_its_body_keeps_the_delivery_annotations() -> None:
    own, footer = map_section(0x71, {"x-hop": "first"}), map_section(0x78, {"x-foot": "note"})
    found = delivered(without_body(stored(own + BODY + footer)))
    assert (found.bodies, found.footer) == ([], None)
    assert found.delivery_annotations == {symbol("x-hop"): "first"}
    assert found.application_properties == {"a": int_(1)}


def test_a_copy_with_other_application_properties_has_its_ends_where_they_belong() -> None:
    message = stored()
    copy = with_application_properties(message, application_properties_section({"longer": "than before"}))
    assert copy.sections[copy.application_end :] == data_section(b"body")
    assert copy.sections[: copy.properties_end] == properties_section("id")
    assert message.sections == BODY, "the original is as it was"
