"""Scheduling, cancelling and session states in transactions, frame by frame as the .NET SDK makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from tandembus.amqp.encoding.values import Array, int_
from tandembus.clock import SystemClock
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import RawAmqp, texts
from tests.integration.shapes import Shape, on_every_shape
from tests.sdk.dotnet_frames import LONG, DotNetClient, condition, detach, message, schedule

pytestmark = on_every_shape

NOT_ALLOWED, ROLLBACK = "amqp:not-allowed", "amqp:transaction:rollback"
HOUR_MS = 3_600_000


@pytest.fixture
def client(bus: Bus) -> Iterator[DotNetClient]:
    with DotNetClient(bus.running.port) as client:
        client.coordinate()
        yield client


def in_ms(delay_ms: int) -> int:
    return SystemClock().now_ms() + delay_ms


def cancel(client: DotNetClient, node: int, txn_id: bytes | None, *numbers: int) -> int:
    return client.ask(node, "cancel-scheduled-message", {"sequence-numbers": Array(LONG, list(numbers))}, txn_id)[0]


def peeked(client: DotNetClient, node: int, session_id: str | None = None) -> int:
    """How many messages there are to see."""
    body: dict[str, object] = {"from-sequence-number": 1, "message-count": int_(50)}
    if session_id is not None:
        body["session-id"] = session_id
    status, reply = client.ask(node, "peek-message", body)
    if status == 204:
        return 0
    messages = texts(cast("dict[object, object]", reply))["messages"]
    return len(messages.items if isinstance(messages, Array) else cast("list[object]", messages))


def waiting(client: DotNetClient, node: int, txn_id: bytes | None, shape: Shape, count: int = 1) -> list[int]:
    """Schedules messages for in an hour; returns their numbers."""
    payloads = [message(str(place), shape.key, due_ms=in_ms(HOUR_MS)) for place in range(count)]
    status, numbers = schedule(client, node, txn_id, *payloads)
    assert (status, len(numbers)) == (200, count)
    return numbers


@covers("M11", "M8", "P26")
def test_what_is_scheduled_has_its_numbers_at_once_and_is_there_after_the_commit(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    node = client.node(queue)
    txn_id = client.declare()
    numbers = waiting(client, node, txn_id, bus.shape, count=3)
    assert sorted(set(numbers)) == numbers
    assert (bus.counts(queue), peeked(client, node)) == (Counts(0), 0)
    assert cancel(client, node, None, numbers[0]) == 404
    client.commit(txn_id)
    assert (bus.counts(queue), peeked(client, node)) == (Counts(0, scheduled=3), 3)
    assert cancel(client, node, None, numbers[1]) == 200
    assert cancel(client, node, None, numbers[1]) == 404
    assert bus.counts(queue) == Counts(0, scheduled=2)


@covers("M11", "M8", "P26")
def test_after_a_rollback_the_numbers_stay_unused(client: DotNetClient, bus: Bus, queue: str) -> None:
    node = client.node(queue)
    txn_id = client.declare()
    unused = waiting(client, node, txn_id, bus.shape, count=2)
    client.discharge(txn_id, fail=True)
    again = client.declare()
    (number,) = waiting(client, node, again, bus.shape)
    client.commit(again)
    assert number > unused[-1]
    assert bus.counts(queue) == Counts(0, scheduled=1)
    assert waiting(client, node, None, bus.shape)[0] > number


@covers("M11", "M8")
def test_it_becomes_active_when_its_time_comes_or_has_come(client: DotNetClient, bus: Bus, queue: str) -> None:
    node = client.node(queue)
    txn_id = client.declare()
    key = bus.shape.key
    payloads = [message("soon", key, due_ms=in_ms(1500)), message("before", key, due_ms=in_ms(-1000))]
    status, numbers = schedule(client, node, txn_id, *payloads, message("now", key))
    assert (status, len(numbers)) == (200, 3)
    client.commit(txn_id)
    assert bus.comes_to(queue, Counts(3))
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        raw.attach_receiver(1, queue)
        raw.flow(1, 3)
        bodies = [raw.receive_message()[1].body for _ in range(3)]
    assert sorted(cast("list[bytes]", bodies)) == [b"before", b"now", b"soon"]


@covers("M11", "M8", "M9")
def test_what_is_scheduled_for_a_topic_reaches_its_subscriptions_in_time(client: DotNetClient, bus: Bus) -> None:
    topic = bus.make_topic("red", "blue")
    node = client.node(topic)
    for fail in (True, False):
        txn_id = client.declare()
        status, _ = schedule(client, node, txn_id, message("a", bus.shape.key, due_ms=in_ms(200)))
        assert status == 200
        client.discharge(txn_id, fail)
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        for handle, subscription in enumerate(("red", "blue")):
            raw.attach_receiver(handle, f"{topic}/Subscriptions/{subscription}")
            raw.flow(handle, 5)
            assert raw.receive_message()[1].body == b"a"
    assert bus.counts_of_subscription(topic, "red") == Counts(1)


@covers("M11", "M8", "M7")
def test_what_is_scheduled_for_a_session_is_seen_in_it(client: DotNetClient, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    node = client.node(queue)
    txn_id = client.declare()
    status, _ = schedule(client, node, txn_id, message("a", session_id="s", due_ms=in_ms(HOUR_MS)))
    assert status == 200
    assert peeked(client, node, "s") == 0
    client.commit(txn_id)
    assert (peeked(client, node, "s"), peeked(client, node, "t")) == (1, 0)


@covers("M11", "P16")
def test_what_is_scheduled_needs_the_key_of_the_transaction(client: DotNetClient, bus: Bus, queue: str) -> None:
    node = client.node(queue)
    txn_id = client.declare()
    waiting(client, node, txn_id, bus.shape)
    if bus.shape.is_partitioned:
        assert schedule(client, node, txn_id, message("b", "another", due_ms=in_ms(HOUR_MS)))[0] == 400
        assert condition(client.discharge(txn_id)) == ROLLBACK
        txn_id = client.declare()
        assert schedule(client, node, txn_id, message("b", due_ms=in_ms(HOUR_MS)))[0] == 400
        assert bus.counts(queue) == Counts(0)
    else:
        assert schedule(client, node, txn_id, message("b", "another", due_ms=in_ms(HOUR_MS)))[0] == 200
        client.commit(txn_id)
        assert bus.counts(queue) == Counts(0, scheduled=2)


@covers("M11", "M8")
def test_a_cancellation_counts_after_the_commit(client: DotNetClient, bus: Bus, queue: str) -> None:
    node = client.node(queue)
    numbers = waiting(client, node, None, bus.shape, count=3)
    forgotten = client.declare()
    assert cancel(client, node, forgotten, *numbers) == 200
    client.discharge(forgotten, fail=True)
    assert bus.counts(queue) == Counts(0, scheduled=3)
    txn_id = client.declare()
    assert cancel(client, node, txn_id, *numbers[:2]) == 200
    waiting(client, node, txn_id, bus.shape)
    assert bus.counts(queue) == Counts(0, scheduled=3)
    client.commit(txn_id)
    assert bus.counts(queue) == Counts(0, scheduled=2)
    assert cancel(client, node, None, numbers[0]) == 404


@covers("M11", "M8")
def test_what_is_not_scheduled_cannot_be_cancelled_and_ends_the_transaction(
    client: DotNetClient, bus: Bus, queue: str
) -> None:
    node = client.node(queue)
    numbers = waiting(client, node, None, bus.shape, count=2)
    txn_id = client.declare()
    assert cancel(client, node, txn_id, numbers[0]) == 200
    assert cancel(client, node, txn_id, numbers[1] + 1000) == 404
    assert condition(client.discharge(txn_id)) == ROLLBACK
    twice = client.declare()
    assert [cancel(client, node, twice, numbers[0]) for _ in range(2)] == [200, 200]
    assert condition(client.discharge(twice)) == ROLLBACK
    assert bus.counts(queue) == Counts(0, scheduled=2)


@covers("M11", "M8")
def test_a_cancellation_that_comes_too_late_rolls_back(client: DotNetClient, bus: Bus, queue: str) -> None:
    node = client.node(queue)
    _, numbers = schedule(client, node, None, message("a", bus.shape.key, due_ms=in_ms(1500)))
    txn_id = client.declare()
    assert cancel(client, node, txn_id, *numbers) == 200
    waiting(client, node, txn_id, bus.shape)
    assert bus.comes_to(queue, Counts(1))
    assert condition(client.discharge(txn_id)) == ROLLBACK
    assert bus.counts(queue) == Counts(1)


@covers("M11", "M7")
def test_a_sessions_state_is_set_with_the_commit(client: DotNetClient, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    there = bus.make_queue()
    handle = client.accept_session(queue, "s")
    sender, node, to_there = client.sender(queue), client.node(queue), client.sender(there)
    client.send(sender, message("a", session_id="s"))
    client.raw.flow(handle, 1)
    delivery_id = client.receive()
    assert set_state(client, node, None, b"one") == 200
    forgotten = client.declare()
    assert set_state(client, node, forgotten, b"two") == 200
    client.discharge(forgotten, fail=True)
    assert state(client, node) == b"one"
    txn_id = client.declare()
    for value in (b"three", b"four"):
        assert set_state(client, node, txn_id, value) == 200
    client.complete_in(txn_id, delivery_id)
    client.send_in(to_there, message("b"), txn_id)
    client.send_in(sender, message("next", session_id="s"), txn_id)
    assert state(client, node) == b"one"
    client.commit(txn_id)
    client.raw.next_frame()  # the delivery's end
    assert state(client, node) == b"four"
    assert bus.comes_to(there, Counts(1))
    assert bus.counts(queue) == Counts(1)
    txn_id = client.declare()
    assert set_state(client, node, txn_id, None) == 200
    client.commit(txn_id)
    assert state(client, node) is None


@covers("M11", "M7")
def test_a_session_that_is_lost_rolls_back_its_state(client: DotNetClient, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    handle = client.accept_session(queue, "s")
    node = client.node(queue)
    txn_id = client.declare()
    assert set_state(client, node, txn_id, b"lost") == 200
    waiting_in_session = message("a", session_id="s", due_ms=in_ms(HOUR_MS))
    assert schedule(client, node, txn_id, waiting_in_session)[0] == 200
    detach(client, handle)
    assert condition(client.discharge(txn_id)) == ROLLBACK
    assert bus.counts(queue) == Counts(0)
    client.accept_session(queue, "s")
    assert state(client, node) is None


def set_state(client: DotNetClient, node: int, txn_id: bytes | None, value: bytes | None) -> int:
    return client.ask(node, "set-session-state", {"session-id": "s", "session-state": value}, txn_id)[0]


def state(client: DotNetClient, node: int) -> object:
    _, reply = client.ask(node, "get-session-state", {"session-id": "s"})
    return texts(cast("dict[object, object]", reply))["session-state"]


@covers("M11")
def test_requests_about_another_entity_are_refused(client: DotNetClient, bus: Bus, queue: str) -> None:
    client.receiver(queue, credit=0)
    here, there = client.node(queue), client.node(bus.make_queue())
    txn_id = client.declare()
    waiting(client, here, txn_id, bus.shape)
    assert schedule(client, there, txn_id, message("a", bus.shape.key, due_ms=in_ms(HOUR_MS)))[0] == 400
    assert condition(client.discharge(txn_id)) == ROLLBACK
    assert bus.counts(queue) == Counts(0)
