"""A namespace that starts with another number of stores than it had: nothing moves, nothing is lost."""

from __future__ import annotations

import pytest

from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.store.memory import MemoryDisk
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine, assert_disks_hold_just_the_entities
from tests.unit.namespace.partitioned_use import peek, receive_all, send


def with_stores(machine: Machine, count: int) -> Life:
    """Stores are made when they are missing, and stay when fewer are asked for."""
    while len(machine.disks) < count:
        machine.disks.append(MemoryDisk())
    return machine.life(count)


async def add_entities(life: Life, number: int) -> None:
    await life.namespace.create_queue(QueueDescription(f"plain{number}"))
    await life.namespace.create_queue(QueueDescription(f"wide{number}", enable_partitioning=True))
    await life.namespace.create_topic(TopicDescription(f"news{number}", enable_partitioning=True))
    await life.namespace.create_subscription(SubscriptionDescription(f"news{number}", "all"))


def receiving(number: int) -> list[str]:
    return [f"plain{number}", f"wide{number}", f"news{number}/subscriptions/all"]


async def send_to_all(life: Life, numbers: range, turn: int) -> None:
    for number in numbers:
        for name in (f"plain{number}", f"wide{number}", f"news{number}"):
            await send(life, name, *[f"{turn:02}-{one}" for one in range(4)])


@covers("P1", "P2")
@pytest.mark.parametrize("counts", [(1, 4, 2, 16, 3), (16, 1), (2, 1, 5)], ids=str)
async def test_data_written_with_one_number_of_stores_is_served_with_any_other(counts: tuple[int, ...]) -> None:
    machine = Machine()
    expected: dict[str, list[str]] = {}
    for turn, count in enumerate(counts):
        async with with_stores(machine, count) as life:
            await add_entities(life, turn)
            entry = life.catalog.get_queue(f"wide{turn}")
            assert set(entry.stores) == set(range(min(count, 16)))  # new ones are where they are asked for
            await send_to_all(life, range(turn + 1), turn)
            for number in range(turn + 1):
                for path in receiving(number):
                    expected.setdefault(path, []).extend(f"{turn:02}-{one}" for one in range(4))
            for path, bodies in expected.items():
                assert await peek(life, path) == sorted(bodies)
            assert_disks_hold_just_the_entities(life)
    async with with_stores(machine, 1) as life:
        for path, bodies in expected.items():
            assert await receive_all(life, path) == sorted(bodies)


@covers("P1")
async def test_entities_stay_where_they_were_placed() -> None:
    machine = Machine()
    async with with_stores(machine, 4) as life:
        await add_entities(life, 0)
        before = {entry.key: entry.stores for entry in life.catalog.entries()}
    for count in (1, 2, 8):
        async with with_stores(machine, count) as life:
            assert {entry.key: entry.stores for entry in life.catalog.entries()} == before


@covers("P1", "P2")
async def test_what_is_subscribed_later_goes_to_its_topics_stores_whatever_number_is_asked_for_now() -> None:
    machine = Machine()
    async with with_stores(machine, 4) as life:
        await life.namespace.create_topic(TopicDescription("news", enable_partitioning=True))
    async with with_stores(machine, 1) as life:
        entry = await life.namespace.create_subscription(SubscriptionDescription("news", "late"))
        assert entry.stores == life.catalog.get_topic("news").stores == (0, 1, 2, 3) * 4
        await send(life, "news", "a", "b", "c")
        assert await receive_all(life, "news/subscriptions/late") == ["a", "b", "c"]
