"""Lock tokens, and the order in which locks lapse."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tandembus.broker.locks import COMPLETE, LAPSE, LEAST_OVER, OPEN, LockTable, MessageLock, OwnedLocks, is_of_epoch
from tests.covers import covers


def lock(table: LockTable, number: int, now: float = 0.0, duration_s: float = 60.0) -> MessageLock:
    return table.lock(0, number, now, duration_s, 10, 0)


@covers("M2")
def test_a_lock_is_found_by_its_token() -> None:
    table = LockTable(0, 1)
    locks = [lock(table, number) for number in range(100)]
    assert [table.find(one.token) for one in locks] == locks
    assert table.find(bytes(16)) is None


@covers("M2")
def test_every_token_is_another_and_has_16_bytes() -> None:
    table = LockTable(0, 1)
    tokens = {lock(table, number).token for number in range(1000)}
    assert len(tokens) == 1000
    assert {len(token) for token in tokens} == {16}


@covers("M2")
def test_behind_fragment_and_epoch_no_part_of_a_token_follows_from_those_before() -> None:
    """Each bit is set in about half of many tokens, and changes from one to the next about half of the time."""
    table, count = LockTable(3, 7), 4000
    tokens = [lock(table, number).token for number in range(count)]
    assert {token[:6] for token in tokens} == {b"\x00\x03\x00\x00\x00\x07"}
    values = [int.from_bytes(token[6:], "big") for token in tokens]
    changes = [one ^ other for one, other in pairwise(values)]
    for numbers in (values, changes):
        for bit in range(80):
            assert 0.4 < sum(number >> bit & 1 for number in numbers) / count < 0.6
    assert not {token[6:] for token in tokens} & {lock(LockTable(3, 7), number).token[6:] for number in range(count)}


@covers("M2")
def test_a_token_of_an_earlier_epoch_is_told_from_ones_of_this() -> None:
    token = lock(LockTable(3, 7), 1).token
    assert is_of_epoch(token, 7)
    assert not is_of_epoch(token, 8)
    assert not is_of_epoch(token[:15], 7)


@covers("M2")
def test_a_lock_that_is_over_is_not_found() -> None:
    table = LockTable(0, 1)
    one = lock(table, 1)
    table.forget(one)
    assert table.find(one.token) is None
    assert len(table) == 0


@covers("M2")
def test_locks_lapse_in_the_order_in_which_they_were_given() -> None:
    table = LockTable(0, 1)
    for number in range(3):
        lock(table, number, now=float(number))
    assert [one.number for one in table.lapsed(61.0, 10)] == [0, 1]


@covers("M2")
def test_a_lock_lapses_when_its_time_is_up_and_not_before() -> None:
    table = LockTable(0, 1)
    one = lock(table, 1)
    assert table.lapsed(59.9, 10) == []
    assert table.lapsed(60.0, 10) == [one]


@covers("M2")
def test_a_renewed_lock_lapses_at_its_new_time_only() -> None:
    table = LockTable(0, 1)
    one = lock(table, 1)
    table.renew(one, 30.0, 60.0)
    assert table.lapsed(60.0, 10) == []
    assert table.lapsed(90.0, 10) == [one]
    assert table.lapsed(1000.0, 10) == []


@covers("M2")
def test_a_lock_that_is_being_settled_does_not_lapse() -> None:
    table = LockTable(0, 1)
    lock(table, 1).settlement = COMPLETE
    assert table.lapsed(1000.0, 10) == []


@covers("M2")
def test_a_short_lock_lapses_before_a_longer_one_given_earlier() -> None:
    table = LockTable(0, 1)
    lock(table, 1, duration_s=300.0)
    short = lock(table, 2, now=1.0, duration_s=5.0)
    assert table.lapsed(6.0, 10) == [short]


@covers("M2")
def test_a_mass_lapse_comes_in_slices() -> None:
    table = LockTable(0, 1)
    for number in range(5):
        lock(table, number)
    assert [one.number for one in table.lapsed(60.0, 3)] == [0, 1, 2]
    assert [one.number for one in table.lapsed(60.0, 3)] == [3, 4]


@covers("M2")
def test_the_next_lapse_is_the_earliest_over_all_durations() -> None:
    table = LockTable(0, 1)
    assert table.next_lapse() == 0.0
    lock(table, 1, duration_s=300.0)
    lock(table, 2, duration_s=5.0)
    assert table.next_lapse() == 5.0


@covers("M2")
def test_voiding_ends_every_lock() -> None:
    table = LockTable(0, 1)
    one, settled = lock(table, 1), lock(table, 2)
    settled.settlement = COMPLETE
    table.void()
    assert table.find(one.token) is None
    assert (one.settlement, settled.settlement) == (LAPSE, COMPLETE)
    assert table.lapsed(1000.0, 10) == []


def test_the_locks_of_an_owner_are_told_from_others() -> None:
    table, owner, somebody = LockTable(0, 1), OwnedLocks(), OwnedLocks()
    mine = [lock(table, number) for number in range(5)]
    for one in mine:
        owner.add(one)
    somebody.add(lock(table, 9))
    assert owner.all() == mine
    for gone in (2, 4, 0):
        table.forget(mine[gone])
    assert owner.all() == [mine[1], mine[3]]
    table.void()
    assert owner.all() == somebody.all() == []
    owner.add(lock(table, 10))
    assert len(owner.all()) == 1


@covers("M2")
@pytest.mark.parametrize("is_renewed", [False, True], ids=["settled", "renewed"])
def test_one_long_lock_does_not_keep_all_that_is_over_in_memory(is_renewed: bool) -> None:
    table = LockTable(0, 1)
    lasting = lock(table, 0)
    for number in range(10 * LEAST_OVER):
        if is_renewed:
            table.renew(lasting, float(number), 60.0)
        else:
            table.forget(lock(table, number))
    assert sum(len(order) for order in table._orders.values()) <= LEAST_OVER + 2
    assert table.find(lasting.token) is lasting
    assert table.lapsed(1e9, 10) == [lasting]


def test_a_lock_is_open_until_somebody_settles_it() -> None:
    assert lock(LockTable(0, 1), 1).settlement == OPEN
