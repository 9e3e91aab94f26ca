"""Which store the fragments of a new entity go to."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from tandembus.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import StoreUnavailable
from tandembus.namespace.entries import Entry, QueueEntry, SubscriptionEntry, TopicEntry
from tandembus.namespace.placement import Placed, Stores, place, turns_by_store
from tests.covers import covers


def all_of(count: int) -> Stores:
    return Stores(range(count), range(count))


def entry(stores: tuple[int, ...]) -> Entry:
    return QueueEntry(QueueDescription("q", enable_partitioning=len(stores) > 1), 1, 1, 0.0, 0.0, stores=stores)


@covers("P1")
def test_plain_entities_go_where_the_fewest_are() -> None:
    placed = Placed()
    for expected in (0, 1, 2, 0, 1, 2):
        assert place(False, all_of(3), placed) == (expected,)
        placed.add(entry((expected,)))
    placed.add(entry((1,)), -1)
    assert place(False, all_of(3), placed) == (1,)


@covers("P1")
def test_among_stores_with_as_many_plain_entities_the_one_with_fewer_fragments_is_taken() -> None:
    placed = Placed()
    placed.add(entry(place(True, all_of(3), placed)))  # six of its fragments are in store 0, five in each other
    assert [place(False, all_of(3), placed)[0]] == [1]


@covers("P1")
def test_plain_entities_go_only_where_they_can_be_made_now() -> None:
    placed = Placed()
    assert place(False, Stores(range(4), [2]), placed) == (2,)
    with pytest.raises(StoreUnavailable):
        place(False, Stores(range(4), []), placed)


@covers("P2")
@pytest.mark.parametrize("count", [*range(1, 20), 32, 64])
def test_a_partitioned_entity_has_its_sixteen_fragments_spread_evenly_in_a_row(count: int) -> None:
    stores = place(True, all_of(count), Placed())
    assert len(stores) == 16
    assert all(later == (earlier + 1) % count for earlier, later in pairwise(stores))
    per_store = Counter(stores)
    assert max(per_store.values()) - min(per_store.values()) <= 1
    assert len(per_store) == min(count, 16)


@covers("P2")
@pytest.mark.parametrize("count", [*range(1, 20), 32, 64])
def test_many_partitioned_entities_are_spread_evenly_together(count: int) -> None:
    placed, total = Placed(), Counter[int]()
    for _ in range(100):
        stores = place(True, all_of(count), placed)
        placed.add(entry(stores))
        total.update(stores)
    assert len(total) == count
    assert max(total.values()) - min(total.values()) <= 16 // count + 2


@covers("P2")
@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_goes_stores_stay_about_even(seed: int) -> None:
    chance = random.Random(seed)
    placed, there = Placed(), list[Entry]()
    for _ in range(600):
        if there and chance.random() < 0.4:
            placed.add(there.pop(chance.randrange(len(there))), -1)
        else:
            there.append(entry(place(chance.random() < 0.3, all_of(5), placed)))
            placed.add(there[-1])
    for _ in range(400):
        there.append(entry(place(False, all_of(5), placed)))
        placed.add(there[-1])
    plain = Counter(one.stores[0] for one in there if not one.is_partitioned)
    assert max(plain.values()) - min(plain.values()) <= 1
    assert placed.entity_count == len(there)
    assert placed.partitioned_count == sum(one.is_partitioned for one in there)


@covers("P25")
def test_subscriptions_count_nowhere_they_are_where_their_topics_are() -> None:
    placed = Placed()
    stores = (0,) * 16
    placed.add(TopicEntry(TopicDescription("t", enable_partitioning=True), 1, 1, 0.0, 0.0, stores=stores))
    placed.add(SubscriptionEntry(SubscriptionDescription("t", "s"), 2, 17, 0.0, 0.0, stores=stores))
    assert (placed.entity_count, placed.partitioned_count, placed.fragments[0]) == (1, 1, 16)


def test_fragments_of_one_store_take_their_turns_behind_each_other() -> None:
    assert turns_by_store((0,) * 4) == [0, 1, 2, 3]
    assert turns_by_store((0, 1, 0, 1, 0, 1)) == [0, 2, 4, 1, 3, 5]
    assert turns_by_store((2, 0, 1, 2)) == [1, 2, 0, 3]
