"""Reservations through the project's own client, on every shape that an entity may have."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from tandembus.client import OutgoingMessage, ReceivedMessage, ServiceBus, SubQueue, connect, subscription_path
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings, SubscriptionSettings, TopicSettings
from tandembus.client.reservations import Ranges, Reservations
from tandembus.errors import (
    BusError,
    InvalidArgument,
    InvalidOperation,
    MessageNotFound,
    SessionCannotBeLocked,
    StaleEpoch,
    Unauthorized,
)
from tests.covers import covers
from tests.integration.conftest import LISTENS_KEY, SENDS_KEY
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import Shape, on_every_shape

pytestmark = on_every_shape

PATIENCE_S = 20.0
MOST = 1 << 40
COUNT = 40


def a_name() -> str:
    return f"reserve-{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def administration(running_namespace: RunningNamespace) -> AsyncIterator[Administration]:
    async with Administration(running_namespace.connection_string) as connected:
        yield connected


@pytest.fixture
async def client(running_namespace: RunningNamespace) -> AsyncIterator[ServiceBus]:
    async with await connect(running_namespace.connection_string, timeout_s=PATIENCE_S) as connected:
        yield connected


@pytest.fixture
async def queue(administration: Administration, shape: Shape) -> AsyncIterator[str]:
    name = a_name()
    await administration.create_queue(name, QueueSettings(partitioning=shape.is_partitioned))
    yield name
    await administration.delete_queue(name)


async def send(client: ServiceBus, entity: str, count: int, start: int = 0) -> list[str]:
    sender = await client.sender(entity)
    texts = [str(number) for number in range(start, start + count)]
    for text in texts:
        await sender.send(OutgoingMessage(text, message_id=text))
    await sender.close()
    return texts


async def browsed(reservations: Reservations, ranges: Ranges) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for fragment, pairs in ranges.items():
        for first, last in pairs:
            at: int | None = first
            while at is not None:
                part = await reservations.browse(fragment, at, last, 7, 1 << 20)
                found += [ReceivedMessage(payload, b"") for payload in part.messages]
                at = part.next
    return found


def texts_of(messages: list[ReceivedMessage]) -> list[str]:
    return sorted((bytes(message.body).decode() for message in messages if isinstance(message.body, bytes)), key=int)


def count_of(ranges: Ranges) -> int:
    return sum(last - first + 1 for pairs in ranges.values() for first, last in pairs)


@covers("D1")
async def test_what_is_reserved_is_kept_from_receivers_until_it_is_settled_or_released(
    client: ServiceBus, queue: str
) -> None:
    sent = await send(client, queue, COUNT)
    reservations = await client.reservations(queue)
    epoch = await reservations.open_owner("query")
    reservation = await reservations.reserve("query", epoch, 1, COUNT, MOST)
    assert reservation.missing_fragments == ()
    assert texts_of(await browsed(reservations, reservation.ranges)) == sent
    receiver = await client.receiver(queue)
    assert await receiver.receive(10, wait_s=0.0) == []
    management = await client.management(queue)
    peeked = await management.peek(max_messages=COUNT)
    assert {message.state for message in peeked} == {"deferred"}
    with pytest.raises(MessageNotFound):
        await management.receive_deferred([peeked[0].sequence_number])
    assert await reservations.reserved("query", epoch) == reservation.ranges
    (owner,) = await reservations.owners()
    assert (owner.owner, owner.epoch, owner.message_count) == ("query", epoch, COUNT)
    assert await reservations.complete_ranges("query", epoch, reservation.ranges) == COUNT
    assert await reservations.complete_ranges("query", epoch, reservation.ranges) == 0
    assert await reservations.reserved("query") == {}
    assert await management.peek() == []


@covers("D1")
async def test_what_is_released_comes_back_in_its_order(client: ServiceBus, queue: str, shape: Shape) -> None:
    sent = await send(client, queue, COUNT)
    reservations = await client.reservations(queue)
    epoch = await reservations.open_owner("query")
    reservation = await reservations.reserve("query", epoch, 1, COUNT, MOST)
    receiver = await client.receiver(queue, prefetch=100)
    assert await reservations.release("query", epoch, reservation.ranges) == COUNT
    assert await reservations.release("query", epoch, reservation.ranges) == 0
    received: list[ReceivedMessage] = []
    while len(received) < COUNT:
        received += await receiver.receive(COUNT, PATIENCE_S)
    assert shape.as_sent([str(one.message_id) for one in received], key=int) == sent
    assert {message.delivery_count for message in received} == {0}
    by_fragment: dict[int, list[int]] = {}
    for message in received:
        by_fragment.setdefault(message.sequence_number >> 48, []).append(message.sequence_number)
    assert all(numbers == sorted(numbers) for numbers in by_fragment.values())


@covers("D1")
async def test_the_same_request_gets_the_same_answer(client: ServiceBus, queue: str) -> None:
    await send(client, queue, COUNT)
    reservations = await client.reservations(queue)
    epoch = await reservations.open_owner("query")
    first = await reservations.reserve("query", epoch, 1, 10, MOST)
    assert count_of(first.ranges) == 10
    await send(client, queue, COUNT, COUNT)
    assert await reservations.reserve("query", epoch, 1, 1000, MOST) == first
    second = await reservations.reserve("query", epoch, 2, 1000, MOST)
    assert count_of(second.ranges) == 2 * COUNT - 10
    assert await reservations.reserve("query", epoch, 2, 1000, MOST) == second
    with pytest.raises(InvalidArgument, match="numbers grow"):
        await reservations.reserve("query", epoch, 1, 10, MOST)
    assert (await reservations.reserve("query", epoch, 3, 1000, MOST)).ranges == {}
    await send(client, queue, 1, 2 * COUNT)
    assert count_of((await reservations.reserve("query", epoch, 3, 1000, MOST)).ranges) == 1, "an empty one is not kept"


@covers("D1")
async def test_an_older_epoch_is_refused_everywhere(client: ServiceBus, queue: str) -> None:
    await send(client, queue, COUNT)
    reservations = await client.reservations(queue)
    old = await reservations.open_owner("query")
    ranges = (await reservations.reserve("query", old, 1, COUNT, MOST)).ranges
    new = await reservations.open_owner("query")
    assert new > old
    for call in (
        reservations.reserve("query", old, 2, 10, MOST),
        reservations.reserved("query", old),
        reservations.complete_ranges("query", old, ranges),
        reservations.release("query", old, ranges),
    ):
        with pytest.raises(StaleEpoch, match="opened again"):
            await call
    for fragment in ranges:
        with pytest.raises(StaleEpoch):
            await reservations.complete_ranges("query", old, {fragment: ranges[fragment]})
    assert await reservations.reserved("query", new) == ranges
    assert await reservations.complete_ranges("query", new, ranges) == COUNT


@covers("D1")
async def test_an_operator_hands_back_what_a_retired_owner_has(client: ServiceBus, queue: str) -> None:
    await send(client, queue, COUNT)
    reservations = await client.reservations(queue)
    epoch = await reservations.open_owner("retired")
    other = await reservations.open_owner("other")
    await reservations.reserve("retired", epoch, 1, 10, MOST)
    kept = (await reservations.reserve("other", other, 1, COUNT, MOST)).ranges
    assert await reservations.release("retired") == 10
    assert await reservations.release("retired") == 0
    assert [one.owner for one in await reservations.owners()] == ["other"]
    with pytest.raises(StaleEpoch):
        await reservations.reserve("retired", epoch, 2, 10, MOST)
    assert await reservations.reserved("other") == kept
    assert await reservations.open_owner("retired") > epoch
    assert await reservations.release("$lost-0") == 0, "a lost owner has no epoch, and is an operator's to release"


@covers("D1")
async def test_bounds_are_kept(client: ServiceBus, queue: str) -> None:
    await send(client, queue, COUNT)
    reservations = await client.reservations(queue)
    ends = await reservations.ends()
    epoch = await reservations.open_owner("query")
    await send(client, queue, COUNT, COUNT)
    taken = 0
    request = 0
    while True:
        request += 1
        found = await reservations.reserve("query", epoch, request, 7, MOST, up_to=ends)
        if not found.ranges:
            break
        assert count_of(found.ranges) <= 7
        assert all(last <= ends[index] for index, pairs in found.ranges.items() for _, last in pairs)
        taken += count_of(found.ranges)
    assert taken == COUNT
    by_bytes = await reservations.reserve("query", epoch, request, 1000, 300)
    assert 1 <= count_of(by_bytes.ranges) < COUNT
    assert count_of((await reservations.reserve("query", epoch, request + 1, 1000, 1)).ranges) == 1


@covers("D1")
async def test_subscriptions_and_dead_letters(client: ServiceBus, administration: Administration, shape: Shape) -> None:
    topic = a_name()
    await administration.create_topic(topic, TopicSettings(partitioning=shape.is_partitioned))
    for name in ("a", "b"):
        await administration.create_subscription(topic, name, SubscriptionSettings(max_delivery_count=1))
    sent = await send(client, topic, COUNT)
    path = subscription_path(topic, "a")
    reservations = await client.reservations(path)
    epoch = await reservations.open_owner("query")
    ranges = (await reservations.reserve("query", epoch, 1, COUNT, MOST)).ranges
    assert texts_of(await browsed(reservations, ranges)) == sent
    assert await reservations.complete_ranges("query", epoch, ranges) == COUNT
    receiver = await client.receiver(subscription_path(topic, "b"))
    for _ in range(5):
        (message,) = await receiver.receive(1, PATIENCE_S)
        await receiver.abandon(message)
    await receiver.close()
    dead = await client.reservations(subscription_path(topic, "b"), SubQueue.DEAD_LETTER)
    epoch = await dead.open_owner("query")
    ranges = (await dead.reserve("query", epoch, 1, COUNT, MOST)).ranges
    assert len(await browsed(dead, ranges)) == 5
    by_path = await client.reservations(f"{subscription_path(topic, 'b')}/$deadletterqueue")
    assert await by_path.reserved("query", epoch) == ranges
    assert await dead.complete_ranges("query", epoch, ranges) == 5
    with pytest.raises(InvalidOperation):
        await (await client.reservations(topic)).open_owner("query")
    await administration.delete_topic(topic)


@covers("D1")
async def test_sessions_are_reserved_unless_somebody_holds_them(
    client: ServiceBus, administration: Administration, shape: Shape
) -> None:
    queue = a_name()
    await administration.create_queue(queue, QueueSettings(requires_session=True, partitioning=shape.is_partitioned))
    sender = await client.sender(queue)
    for number in range(30):
        await sender.send(OutgoingMessage(str(number), message_id=str(number), session_id=f"s{number % 3}"))
    held = await client.accept_session(queue, "s1")
    reservations = await client.reservations(queue)
    epoch = await reservations.open_owner("query")
    ranges = (await reservations.reserve("query", epoch, 1, 100, MOST)).ranges
    found = await browsed(reservations, ranges)
    # A range may pass over messages of a held session only where they lie between ranges.
    assert {message.session_id for message in found} == {"s0", "s2"}
    assert len(found) == 20
    with pytest.raises(SessionCannotBeLocked):
        await client.accept_session(queue, "s0")
    assert len(await held.receive(10, PATIENCE_S)) > 0
    assert await reservations.complete_ranges("query", epoch, ranges) == 20
    assert (await client.accept_session(queue, "s0")).session_id == "s0"
    await administration.delete_queue(queue)


@covers("D1")
async def test_reserving_needs_the_right_to_listen(small_namespace: RunningNamespace, shape: Shape) -> None:
    async with Administration(small_namespace.connection_string) as administration:
        await administration.create_queue(name := a_name(), QueueSettings(partitioning=shape.is_partitioned))
    root = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={small_namespace.key}"
    assert root in small_namespace.connection_string
    sends = small_namespace.connection_string.replace(root, f"SharedAccessKeyName=sends;SharedAccessKey={SENDS_KEY}")
    listens = small_namespace.connection_string.replace(
        root, f"SharedAccessKeyName=listens;SharedAccessKey={LISTENS_KEY}"
    )
    async with await connect(listens) as client:
        reservations = await client.reservations(name)
        epoch = await reservations.open_owner("query")
    async with await connect(sends) as client:
        reservations = await client.reservations(name)
        for call in (
            reservations.open_owner("query"),
            reservations.reserve("query", epoch, 1, 1, 1),
            reservations.reserved("query"),
            reservations.browse(0, 1, 1, 1, 1),
            reservations.complete_ranges("query", epoch, {0: [(1, 1)]}),
            reservations.release("query"),
            reservations.owners(),
            reservations.ends(),
        ):
            with pytest.raises(Unauthorized):
                await call


@covers("D1")
async def test_hostile_requests_are_refused_and_change_nothing(client: ServiceBus, queue: str) -> None:
    await send(client, queue, COUNT)
    reservations = await client.reservations(queue)
    epoch = await reservations.open_owner("query")
    ranges = (await reservations.reserve("query", epoch, 1, 10, MOST)).ranges
    hostile: list[tuple[str, dict[str, object]]] = [
        ("open-owner", {"owner": ""}),
        ("open-owner", {"owner": "x" * 129}),
        ("open-owner", {"owner": "a\nb"}),
        ("open-owner", {"owner": 5}),
        ("open-owner", {"owner": "$lost-0"}),
        ("reserve", {"owner": "$lost-0", "epoch": 0, "request": 1, "max-messages": 1, "max-bytes": 1}),
        ("complete-ranges", {"owner": "$lost-0", "epoch": 0, "ranges": {0: [1, 2]}}),
        ("release", {"owner": "$lost-0", "epoch": 0}),
        ("open-owner", {}),
        ("reserve", {"owner": "query", "epoch": epoch, "request": -1, "max-messages": 1, "max-bytes": 1}),
        ("reserve", {"owner": "query", "epoch": epoch, "request": 2, "max-messages": 0, "max-bytes": 1}),
        ("reserve", {"owner": "query", "epoch": epoch, "request": 2, "max-messages": 1, "max-bytes": "much"}),
        ("reserve", {"owner": "query", "epoch": True, "request": 2, "max-messages": 1, "max-bytes": 1}),
        ("reserve", {"owner": "query", "epoch": epoch, "request": 2, "max-messages": 1, "max-bytes": 1, "up-to": [1]}),
        (
            "reserve",
            {"owner": "query", "epoch": epoch, "request": 2, "max-messages": 1, "max-bytes": 1, "up-to": {99: 1}},
        ),
        ("browse", {"fragment": 99, "first": 1, "last": 2, "max-messages": 1, "max-bytes": 1}),
        ("browse", {"fragment": 0, "first": -1, "last": 2, "max-messages": 1, "max-bytes": 1}),
        ("browse", {"fragment": 0, "first": 1, "last": 1 << 60, "max-messages": 1, "max-bytes": 1}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": {99: [1, 2]}}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": {0: [1]}}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": {0: [2, 1]}}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": {0: [1, 1 << 50]}}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": {0: ["1", "2"]}}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": {"a": [1, 2]}}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": {0: list(range(9000))}}),
        ("complete-ranges", {"owner": "query", "epoch": epoch, "ranges": 7}),
        ("release", {"owner": "query", "epoch": "now"}),
        ("no-such-operation", {}),
    ]
    for operation, body in hostile:
        with pytest.raises(BusError) as refused:
            await reservations._ask(operation, body)
        assert "failed in the broker" not in str(refused.value), operation
    assert await reservations.complete_ranges("query", epoch, {0: [(1 << 40, 1 << 41)]}) == 0
    assert await reservations.reserved("query", epoch) == ranges
