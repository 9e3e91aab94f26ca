"""Messages of the client: what is built arrives, and what came can be sent again unchanged."""

from uuid import UUID

from tandembus.amqp.encoding.sections import (
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
from tandembus.amqp.encoding.values import int_, symbol, timestamp, uint
from tandembus.client.messages import OutgoingMessage, ReceivedMessage, as_new, batches_of, with_message_id

DELIVERED = (
    section(0x70, [True, None, uint(60_000), True, uint(3)])
    + map_section(0x71, {"x-opt-lock-token": UUID(int=7), "hop": "kept"})
    + message_annotations_section(
        {
            "x-opt-sequence-number": 42,
            "x-opt-enqueued-time": timestamp(1_700_000_000_500),
            "x-opt-locked-until": timestamp(1_700_000_060_500),
            "x-opt-partition-key": "north",
            "mine": uint(7),
        }
    )
    + properties_section(message_id="id-1", subject="greeting", content_type="text/plain", group_id="s-1")
    + application_properties_section({"DeadLetterReason": "late", "size": int_(5), "note": "kept"})
    + data_section(b"hello")
)


def test_a_built_message_arrives_with_everything_that_was_put_into_it() -> None:
    sent = OutgoingMessage(
        "hello",
        message_id="id-1",
        session_id="s-1",
        correlation_id="c-1",
        content_type="text/plain",
        subject="greeting",
        to="there",
        reply_to="here",
        reply_to_session_id="s-2",
        partition_key="s-1",
        time_to_live_s=60.0,
        scheduled_at=1_700_000_000.5,
        properties={"size": int_(5), "ratio": 0.5, "id": UUID(int=1)},
    )
    received = ReceivedMessage(sent.encode())
    assert received.body == b"hello"
    assert (received.message_id, received.session_id, received.correlation_id) == ("id-1", "s-1", "c-1")
    assert (received.content_type, received.subject, received.to) == ("text/plain", "greeting", "there")
    assert (received.reply_to, received.reply_to_session_id) == ("here", "s-2")
    assert (received.partition_key, received.time_to_live_s) == ("s-1", 60.0)
    assert received.scheduled_at == 1_700_000_000.5
    assert received.properties == {"size": 5, "ratio": 0.5, "id": UUID(int=1)}
    assert received.typed_properties["size"] == int_(5)


def test_messages_get_different_ids_unless_told_otherwise() -> None:
    assert OutgoingMessage().message_id != OutgoingMessage().message_id


def test_a_time_to_live_for_ever_is_the_longest_the_header_can_say() -> None:
    header = decode_message(OutgoingMessage(time_to_live_s=float("inf")).encode()).header
    assert header is not None
    assert header[2] == 0xFFFFFFFF


def test_a_received_message_tells_what_the_service_wrote_on_it() -> None:
    token = UUID("00112233-4455-6677-8899-aabbccddeeff")
    message = ReceivedMessage(DELIVERED, token.bytes_le, 9)
    assert message.lock_token == token
    assert (message.sequence_number, message.delivery_count, message.state) == (42, 3, "active")
    assert (message.enqueued_at, message.locked_until) == (1_700_000_000.5, 1_700_000_060.5)
    assert (message.dead_letter_reason, message.dead_letter_description) == ("late", None)


def test_a_message_without_anything_is_read_as_empty() -> None:
    message = ReceivedMessage(b"")
    assert (message.body, message.message_id, message.properties) == (b"", None, {})
    assert (message.lock_token, message.sequence_number, message.time_to_live_s) == (None, 0, None)


def test_several_data_sections_are_one_body_and_other_bodies_are_values() -> None:
    assert ReceivedMessage(data_section(b"ab") + data_section(b"cd")).body == b"abcd"
    assert ReceivedMessage(amqp_value_section({"a": 1})).body == {"a": 1}


def test_a_message_made_new_keeps_all_but_what_the_service_wrote() -> None:
    again = decode_message(as_new(DELIVERED, frozenset(("DeadLetterReason",))), typed=True)
    assert again.header == [True, None, uint(60_000), True]
    assert again.delivery_annotations == {symbol("hop"): "kept"}
    assert again.message_annotations == {symbol("x-opt-partition-key"): "north", symbol("mine"): uint(7)}
    assert again.application_properties == {"size": int_(5), "note": "kept"}
    assert again.bodies == [b"hello"]


def test_properties_and_body_of_a_message_made_new_are_the_bytes_that_came() -> None:
    properties = properties_section(message_id=UUID(int=5), correlation_id=7, content_type="x/y")
    body = amqp_value_section(["any", {"shape": True}])
    application = application_properties_section({"a": 1})
    assert as_new(header_section(delivery_count=1) + properties + application + body).endswith(
        properties + application + body
    )


def test_a_message_made_new_keeps_what_nobody_can_read() -> None:
    broken = b"\xa1\x02\xff\xfe"
    application = b"\x00\x53\x74\xc1\x08\x02\xa1\x01a" + broken
    properties = b"\x00\x53\x73\xc0\x08\x04\x40\x40\x40" + broken
    annotations = b"\x00\x53\x72\xc1\x08\x02\xa3\x01a" + broken
    payload = header_section(True, delivery_count=3) + annotations + properties + application
    assert as_new(payload) == b"\x00\x53\x70\xc0\x02\x01\x41" + annotations + properties + application
    assert with_message_id(payload, "m").endswith(b"\xa1\x01m\x40\x40" + broken + application)


def test_batches_end_at_their_count_and_at_their_size() -> None:
    payloads = [OutgoingMessage(b"x" * 100, message_id=str(number)).encode() for number in range(5)]
    by_count = list(batches_of(payloads, 2, 1_000_000))
    assert [count for _, count in by_count] == [2, 2, 1]
    assert decode_message(by_count[0][0]).bodies == payloads[:2]
    assert [count for _, count in batches_of(payloads, 100, 300)] == [2, 2, 1]


def test_a_message_above_the_limit_makes_a_batch_of_its_own() -> None:
    payloads = [b"", data_section(b"x" * 500), b""]
    assert [count for _, count in batches_of(payloads, 100, 400)] == [1, 1, 1]


def test_a_time_to_live_beyond_49_days_is_told_by_two_times() -> None:
    message = ReceivedMessage(OutgoingMessage(time_to_live_s=86_400.0 * 60).encode())
    assert message.time_to_live_s == 86_400.0 * 60
    assert decode_message(message.payload).header == [True, None, 0xFFFFFFFF]


def test_a_message_alone_in_its_batch_stays_as_it_is() -> None:
    payloads = [OutgoingMessage(b"x" * 100).encode() for _ in range(3)]
    assert list(batches_of(payloads, 2, 1_000_000))[-1] == (payloads[2], 1)
    assert list(batches_of(payloads, 100, len(payloads[0]))) == [(payload, 1) for payload in payloads]


def test_an_id_is_added_and_nothing_else_changed() -> None:
    typed = properties_section(correlation_id=7, content_type="x/y")
    application, body = application_properties_section({"a": uint(1)}), data_section(b"x")
    named = with_message_id(header_section(True) + typed + application + body, "m")
    assert (
        named
        == header_section(True) + properties_section("m", correlation_id=7, content_type="x/y") + application + body
    )
    assert with_message_id(body, "m") == properties_section("m") + body
