"""Requests to a management node that are wrong in some way, and the status that each of them gets."""

from __future__ import annotations

import uuid
from typing import cast

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    application_properties_section,
    data_section,
    decode_message,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import Array, Typed, int_, symbol, timestamp, uint, ulong
from tandembus.clock import SystemClock
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import LISTENS_KEY, SENDS_KEY
from tests.integration.raw_amqp import MESSAGE, RECEIVER, SENDER, Node, RawAmqp, plain, state_of, texts
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

PEEK = "com.microsoft:peek-message"
RENEW = "com.microsoft:renew-lock"
FETCH = "com.microsoft:receive-by-sequence-number"
SETTLE = "com.microsoft:update-disposition"
SCHEDULE = "com.microsoft:schedule-message"
CANCEL = "com.microsoft:cancel-scheduled-message"
DELETE = "com.microsoft:batch-delete-messages"
OPERATIONS = (PEEK, RENEW, FETCH, SETTLE, SCHEDULE, CANCEL, DELETE)

BAD_ARGUMENT = (400, "com.microsoft:argument-error")
NOT_FOUND = (404, "com.microsoft:message-not-found")
LOCK_LOST = (410, "com.microsoft:message-lock-lost")
MALFORMED = (400, "amqp:decode-error")
TOO_LARGE = (403, "amqp:link:message-size-exceeded")
NOT_IMPLEMENTED = (501, "amqp:not-implemented")
UNAUTHORIZED = (401, "amqp:unauthorized-access")

LONG, UUID = 0x81, 0x98
LARGEST_LONG = 2**63 - 1
SOMEBODY = uuid.UUID(int=7)


def longs(*numbers: int) -> Array:
    return Array(LONG, list(numbers))


def uuids(*tokens: uuid.UUID) -> Array:
    return Array(UUID, list(tokens))


def numbered(*numbers: int, **more: object) -> dict[str, object]:
    return {"sequence-numbers": longs(*numbers), "receiver-settle-mode": uint(1), **more}


def scheduled(*payloads: object) -> dict[str, object]:
    return {"messages": [{"message-id": None, "message": payload} for payload in payloads]}


@covers("B1")
def test_replies_of_one_node_go_where_the_request_wants_them(raw: RawAmqp, queue: str) -> None:
    """Clients that have a node for each of their links may share an AMQP session: fe2o3-amqp."""
    first = raw.attach_node(f"{queue}/$management", 50, reply_to="first")
    second = raw.attach_node(f"{queue}/$management", 60, reply_to="second")
    for node, handle in ((second, 61), (first, 51)):
        assert node.manage(PEEK, {"message-count": int_(1), "from-sequence-number": 1})[0] == 204
        assert node.replied_on == handle


@pytest.fixture
def node(raw: RawAmqp, queue: str) -> Node:
    return raw.attach_node(f"{queue}/$management")


def assert_answers(node: Node) -> None:
    """The node still does what it is for."""
    assert node.manage(PEEK, {"message-count": int_(1), "from-sequence-number": 1})[0] in (200, 204)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "body",
    [None, {}, "text", 7, [], b"", {"operation": "x"}],
    ids=["none", "empty", "text", "int", "list", "bytes", "x"],
)
def test_a_request_without_its_arguments_is_a_bad_argument(node: Node, operation: str, body: object) -> None:
    status, condition, answer = node.manage(operation, body)
    assert (status, condition, answer) == (*BAD_ARGUMENT, None)
    assert_answers(node)


BAD_REQUESTS: list[tuple[str, dict[str, object], tuple[int, str]]] = [
    (PEEK, {"message-count": "1", "from-sequence-number": 1}, BAD_ARGUMENT),
    (PEEK, {"message-count": int_(0), "from-sequence-number": 1}, BAD_ARGUMENT),
    (PEEK, {"message-count": int_(-1), "from-sequence-number": 1}, BAD_ARGUMENT),
    (PEEK, {"message-count": True, "from-sequence-number": 1}, BAD_ARGUMENT),
    (PEEK, {"message-count": int_(1), "from-sequence-number": "first"}, BAD_ARGUMENT),
    (PEEK, {"message-count": int_(1), "from-sequence-number": 1.5}, BAD_ARGUMENT),
    (RENEW, {"lock-tokens": uuids()}, BAD_ARGUMENT),
    (RENEW, {"lock-tokens": "text"}, BAD_ARGUMENT),
    (RENEW, {"lock-tokens": SOMEBODY}, BAD_ARGUMENT),
    (RENEW, {"lock-tokens": [SOMEBODY, "text"]}, BAD_ARGUMENT),
    (RENEW, {"lock-tokens": [SOMEBODY.bytes]}, BAD_ARGUMENT),
    (RENEW, {"lock-tokens": uuids(*[SOMEBODY] * 4001)}, BAD_ARGUMENT),
    (RENEW, {"lock-tokens": uuids(SOMEBODY)}, LOCK_LOST),
    (RENEW, {"lock-tokens": [SOMEBODY]}, LOCK_LOST),
    (FETCH, {"sequence-numbers": longs(1)}, BAD_ARGUMENT),
    (FETCH, numbered(1, **{"receiver-settle-mode": uint(2)}), BAD_ARGUMENT),
    (FETCH, numbered(1, **{"receiver-settle-mode": "second"}), BAD_ARGUMENT),
    (FETCH, numbered(), BAD_ARGUMENT),
    (FETCH, {**numbered(1), "sequence-numbers": ["1"]}, BAD_ARGUMENT),
    (FETCH, {**numbered(1), "sequence-numbers": [True]}, BAD_ARGUMENT),
    (FETCH, {**numbered(1), "sequence-numbers": 1}, BAD_ARGUMENT),
    (FETCH, numbered(*range(1, 4002)), BAD_ARGUMENT),
    (FETCH, numbered(1), NOT_FOUND),
    (FETCH, numbered(0), NOT_FOUND),
    (FETCH, numbered(-1), NOT_FOUND),
    (FETCH, numbered(LARGEST_LONG), NOT_FOUND),
    (FETCH, numbered(1 << 48 | 1), NOT_FOUND),
    (FETCH, {**numbered(1), "sequence-numbers": [ulong(2**64 - 1)]}, NOT_FOUND),
    (SETTLE, {"disposition-status": "eaten", "lock-tokens": uuids(SOMEBODY)}, BAD_ARGUMENT),
    (SETTLE, {"disposition-status": 7, "lock-tokens": uuids(SOMEBODY)}, BAD_ARGUMENT),
    (SETTLE, {"disposition-status": "completed"}, BAD_ARGUMENT),
    (SETTLE, {"disposition-status": "completed", "lock-tokens": longs(7)}, BAD_ARGUMENT),
    (SETTLE, {"disposition-status": "completed", "lock-tokens": uuids(SOMEBODY)}, LOCK_LOST),
    (SETTLE, {"disposition-status": "defered", "lock-tokens": uuids(SOMEBODY)}, LOCK_LOST),
    (SCHEDULE, {"messages": []}, BAD_ARGUMENT),
    (SCHEDULE, {"messages": "text"}, BAD_ARGUMENT),
    (SCHEDULE, {"messages": [b"bytes"]}, BAD_ARGUMENT),
    (SCHEDULE, scheduled("text"), BAD_ARGUMENT),
    (SCHEDULE, scheduled(MESSAGE, None), BAD_ARGUMENT),
    (SCHEDULE, scheduled(*[b""] * 4001), BAD_ARGUMENT),
    (SCHEDULE, scheduled(b"garbage"), MALFORMED),
    (SCHEDULE, scheduled(MESSAGE, MESSAGE[:-1]), MALFORMED),
    (SCHEDULE, scheduled(MESSAGE, data_section(b"x" * 262_144)), TOO_LARGE),
    (
        SCHEDULE,
        scheduled(message_annotations_section({"x-opt-scheduled-enqueue-time": "soon"}) + MESSAGE),
        BAD_ARGUMENT,
    ),
    (CANCEL, {"sequence-numbers": longs()}, BAD_ARGUMENT),
    (CANCEL, {"sequence-numbers": longs(*range(1, 4002))}, BAD_ARGUMENT),
    (CANCEL, {"sequence-numbers": longs(1)}, NOT_FOUND),
    (CANCEL, {"sequence-numbers": longs(-(2**63))}, NOT_FOUND),
    (CANCEL, {"sequence-numbers": longs(LARGEST_LONG)}, NOT_FOUND),
    (DELETE, {"message-count": int_(1)}, BAD_ARGUMENT),
    (DELETE, {"message-count": int_(1), "enqueued-time-utc": "now"}, BAD_ARGUMENT),
    (DELETE, {"message-count": int_(0), "enqueued-time-utc": timestamp(0)}, BAD_ARGUMENT),
    (DELETE, {"message-count": int_(4001), "enqueued-time-utc": timestamp(0)}, BAD_ARGUMENT),
    (DELETE, {"message-count": int_(1), "enqueued-time-utc": timestamp(0)}, (204, "com.microsoft:message-not-found")),
]


@pytest.mark.parametrize(("operation", "body", "expected"), BAD_REQUESTS)
def test_a_wrong_argument_gets_the_status_that_says_so(
    node: Node, bus: Bus, queue: str, operation: str, body: dict[str, object], expected: tuple[int, str]
) -> None:
    reply = node.ask({"operation": operation}, body)
    found = texts(reply.application_properties)
    assert (plain(found["statusCode"]), plain(found["errorCondition"])) == expected
    assert found["statusDescription"]
    assert reply.body is None
    assert bus.counts(queue) == Counts(0)


@pytest.mark.parametrize("operation", ["", "nonsense", "com.microsoft:renew-everything", "READ", 7, None, symbol("x")])
def test_an_unknown_operation_is_not_implemented(node: Node, operation: object) -> None:
    found = texts(node.ask({"operation": operation}, {}).application_properties)
    assert (plain(found["statusCode"]), plain(found["errorCondition"])) == NOT_IMPLEMENTED
    assert_answers(node)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", NOT_IMPLEMENTED),
        (b"garbage", MALFORMED),
        (properties_section(message_id="x"), NOT_IMPLEMENTED),
        (application_properties_section({"operation": PEEK}), BAD_ARGUMENT),
        (application_properties_section({"operation": PEEK}) + data_section(b"bytes"), BAD_ARGUMENT),
        (amqp_value_section({"a": 1}) + data_section(b"two kinds"), MALFORMED),
        (b"\x00\x53\x77" + b"\x00\x53\x77" * 100 + b"\x40", MALFORMED),
        (b"\x00\x53\x77\xf0\xff\xff\xff\xff\xff\xff\xff\xff\x40", MALFORMED),
    ],
    ids=["empty", "garbage", "no operation", "no body", "data", "two bodies", "nested", "bomb"],
)
def test_a_request_that_is_no_request_is_answered_all_the_same(
    node: Node, payload: bytes, expected: tuple[int, str]
) -> None:
    found = texts(node.ask_encoded(payload).application_properties)
    assert (plain(found["statusCode"]), plain(found["errorCondition"])) == expected
    assert_answers(node)


@pytest.mark.parametrize("timeout", [uint(1), uint(2**32 - 1), ulong(2**64 - 1), int_(-5), "soon", 0.5, None])
def test_a_time_out_may_be_anything(node: Node, timeout: object) -> None:
    body = {"message-count": int_(1), "from-sequence-number": 1}
    reply = node.ask({"operation": PEEK, "com.microsoft:server-timeout": timeout}, body)
    assert plain(texts(reply.application_properties)["statusCode"]) in (204, 408)


@covers("M4")
@pytest.mark.parametrize("start", [0, -1, -(2**63), LARGEST_LONG, 15 << 48 | 2, ulong(2**64 - 1), uint(1)], ids=str)
@pytest.mark.parametrize("count", [int_(1), int_(2**31 - 1), ulong(2**64 - 1)], ids=str)
def test_a_peek_may_begin_anywhere_and_ask_for_any_number(
    raw: RawAmqp, node: Node, queue: str, start: object, count: object
) -> None:
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 100, MESSAGE)
    status, _, body = node.manage(PEEK, {"message-count": count, "from-sequence-number": start})
    number = cast(int, plain(start))
    assert (status, body is not None) == ((200, True) if number <= 1 else (204, False))


@covers("M15")
@pytest.mark.parametrize(("policy", "key", "right"), [("sends", SENDS_KEY, "Send"), ("listens", LISTENS_KEY, "Listen")])
def test_an_operation_needs_the_right_to_it(small_bus: Bus, policy: str, key: str, right: str) -> None:
    queue = small_bus.make_queue()
    with RawAmqp(small_bus.running.port) as raw:
        raw.log_in(policy, key)
        node = raw.attach_node(f"{queue}/$management")
        for operation in OPERATIONS:
            is_allowed = (operation in (SCHEDULE, CANCEL)) is (right == "Send")
            status, condition, _ = node.manage(operation, {})
            assert (status, condition) == (BAD_ARGUMENT if is_allowed else UNAUTHORIZED)


@covers("M15")
def test_a_token_for_another_queue_opens_no_management_node(bus: Bus) -> None:
    mine, other = bus.make_queue(), bus.make_queue()
    with RawAmqp(bus.running.port) as raw:
        raw.start()
        raw.begin()
        raw.put_token(f"sb://localhost/{mine}")
        assert_answers(raw.attach_node(f"{mine}/$management", handle=60))
        attach = raw.attach_sender(70, f"{other}/$management")
        assert attach[6] is None


def test_a_queue_deleted_meanwhile_is_not_found(node: Node, bus: Bus, queue: str) -> None:
    bus.admin.delete_queue(queue)
    body = {"message-count": int_(1), "from-sequence-number": 1}
    assert node.manage(PEEK, body) == (404, "amqp:not-found", None)


def lock_one(raw: RawAmqp, queue: str, delivery_id: int = 0, payload: bytes = MESSAGE) -> uuid.UUID:
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, delivery_id, payload)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    tag = raw.receive_message()[0][2]
    assert isinstance(tag, bytes)
    return uuid.UUID(bytes_le=tag)


@covers("M2", "M3")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("completed", Counts(0)),
        ("abandoned", Counts(1)),
        ("suspended", Counts(0, dead=1)),
        ("defered", Counts(1)),
        ("unlocked", Counts(1)),
    ],
)
def test_a_token_settles_its_message_once(
    raw: RawAmqp, node: Node, bus: Bus, queue: str, status: str, expected: Counts
) -> None:
    token = lock_one(raw, queue)
    body = {"disposition-status": status, "lock-tokens": uuids(token)}
    assert node.manage(SETTLE, body) == (200, None, {})
    assert bus.counts(queue) == expected
    assert node.manage(SETTLE, body)[:2] == LOCK_LOST
    assert node.manage(RENEW, body)[:2] == LOCK_LOST


@covers("M2")
def test_one_lost_lock_among_many_settles_none(raw: RawAmqp, node: Node, bus: Bus, queue: str) -> None:
    token = lock_one(raw, queue)
    for tokens, expected in (((token, SOMEBODY), LOCK_LOST), ((token, token), BAD_ARGUMENT)):
        body = {"disposition-status": "completed", "lock-tokens": uuids(*tokens)}
        assert node.manage(SETTLE, body)[:2] == expected
    assert node.manage(RENEW, {"lock-tokens": uuids(token, SOMEBODY)})[:2] == LOCK_LOST
    assert bus.counts(queue) == Counts(1)
    assert node.manage(SETTLE, {"disposition-status": "completed", "lock-tokens": uuids(token)})[0] == 200
    assert bus.counts(queue) == Counts(0)


@covers("M3")
def test_what_is_said_about_a_dead_letter_is_bounded(raw: RawAmqp, node: Node, bus: Bus, queue: str) -> None:
    token = lock_one(raw, queue)
    body = {
        "disposition-status": "suspended",
        "lock-tokens": uuids(token),
        "deadletter-reason": "r" * 300_000,
        "deadletter-description": "d" * 300_000,
    }
    assert node.manage(SETTLE, body)[0] == 200
    properties = bus.properties(queue)
    assert (properties.dead_letter_message_count, (properties.size_in_bytes or 0) < 20_000) == (1, True)


@covers("M3", "M13")
def test_changed_properties_keep_their_types_and_their_limit(raw: RawAmqp, node: Node, queue: str) -> None:
    sent = application_properties_section({"kept": ulong(1), "changed": "old"}) + MESSAGE
    token = lock_one(raw, queue, payload=sent)
    settle: dict[object, object] = {"disposition-status": "abandoned", "lock-tokens": uuids(token)}
    large = {"large": "x" * 70_000}
    assert node.manage(SETTLE, {**settle, "properties-to-modify": large})[:2] == BAD_ARGUMENT
    assert node.manage(SETTLE, {**settle, "properties-to-modify": [1]})[:2] == BAD_ARGUMENT
    moment = timestamp(1_700_000_000_000)
    changes = {"changed": int_(7), "time": moment, "token": SOMEBODY}
    assert node.manage(SETTLE, {**settle, "properties-to-modify": changes})[0] == 200
    raw.flow(RECEIVER, 1, delivery_count=1)
    _, message = raw.receive_message()
    assert texts(message.application_properties) == {"kept": ulong(1), **changes}


@covers("M3", "M13")
def test_a_message_that_would_outgrow_its_properties_is_dead_lettered_as_it_was(
    raw: RawAmqp, node: Node, bus: Bus, queue: str
) -> None:
    lock_one(raw, queue)
    for delivery in range(2):
        change = {symbol(f"change {delivery}"): "x" * 40_000}
        raw.dispose(raw.frames[-1].number(1), state_of(codes.MODIFIED, True, False, change))
        raw.expect(codes.DISPOSITION)
        raw.flow(RECEIVER, 1, delivery_count=delivery + 1)
        if delivery == 0:
            raw.receive_message()
    assert bus.counts(queue) == Counts(0, dead=1)
    raw.attach_receiver(3, f"{queue}/$DeadLetterQueue")
    raw.flow(3, 1)
    found = texts(raw.receive_message()[1].application_properties)
    assert found["DeadLetterReason"] == "HeaderSizeExceeded"
    assert found.keys() == {"change 0", "DeadLetterReason", "DeadLetterErrorDescription"}


@covers("M5")
def test_a_number_named_twice_is_no_way_to_get_a_message_twice(raw: RawAmqp, node: Node, bus: Bus, queue: str) -> None:
    later = timestamp(SystemClock().now_ms() + 3_600_000)
    payload = message_annotations_section({"x-opt-scheduled-enqueue-time": later}) + MESSAGE
    status, _, body = node.manage(SCHEDULE, scheduled(payload))
    assert isinstance(body, dict)
    numbers = texts(body)["sequence-numbers"]
    assert (status, isinstance(numbers, Array) and numbers.code) == (200, LONG)
    assert isinstance(numbers, Array)
    (number,) = cast(list[int], numbers.items)
    assert node.manage(CANCEL, {"sequence-numbers": longs(number, number)})[0] in (400, 404)
    assert bus.counts(queue) == Counts(0, scheduled=1)
    assert node.manage(CANCEL, {"sequence-numbers": longs(number)})[0] == 200
    token = lock_one(raw, queue, delivery_id=100)
    assert node.manage(SETTLE, {"disposition-status": "defered", "lock-tokens": uuids(token)})[0] == 200
    deferred = number_of_first(node)
    assert node.manage(FETCH, numbered(deferred, deferred))[0] in (400, 404)
    status, _, body = node.manage(FETCH, numbered(deferred))
    assert (status, bus.counts(queue)) == (200, Counts(1))
    assert node.manage(FETCH, numbered(deferred))[:2] == NOT_FOUND


@covers("M4", "M3")
def test_peeked_and_fetched_messages_say_their_state(raw: RawAmqp, node: Node, queue: str) -> None:
    token = lock_one(raw, queue)
    states = []
    for change in (None, "defered"):
        if change is not None:
            node.manage(SETTLE, {"disposition-status": change, "lock-tokens": uuids(token)})
        _, _, body = node.manage(PEEK, {"message-count": int_(1), "from-sequence-number": 1})
        annotations = texts(encoded_messages(body)[0].message_annotations)
        states.append(annotations.get("x-opt-message-state"))
        assert "x-opt-locked-until" not in annotations
    assert states in ([None, int_(1)], [int_(0), int_(1)])
    _, _, body = node.manage(FETCH, numbered(number_of_first(node)))
    annotations = texts(encoded_messages(body)[0].message_annotations)
    assert annotations["x-opt-message-state"] == int_(1)
    assert isinstance(annotations["x-opt-locked-until"], Typed)


def number_of_first(node: Node) -> int:
    """What a browse shows first: the fragment it is in depends on the queue."""
    _, _, body = node.manage(PEEK, {"message-count": int_(1), "from-sequence-number": 1})
    number = texts(encoded_messages(body)[0].message_annotations)["x-opt-sequence-number"]
    return int(cast(int, plain(number)))


def encoded_messages(body: object) -> list[MessageSections]:
    assert isinstance(body, dict)
    found = texts(body)["messages"]
    assert isinstance(found, list)
    payloads = [texts(one)["message"] for one in found]
    return [decode_message(cast(bytes, payload), typed=True) for payload in payloads]


@covers("M12")
def test_the_oldest_messages_are_deleted_in_batches(raw: RawAmqp, node: Node, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    for number in range(10):
        raw.send_message(SENDER, 100 + number, MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    raw.receive_message()
    now = timestamp(SystemClock().now_ms() + 1000)
    for count, deleted in ((4, 4), (4000, 5)):
        body = {"message-count": int_(count), "enqueued-time-utc": now}
        status, _, answer = node.manage(DELETE, body)
        assert (status, texts(cast("dict[object, object]", answer))) == (200, {"message-count": int_(deleted)})
    assert node.manage(DELETE, body)[0] == 204
    assert bus.counts(queue) == Counts(1)
