"""Reservations over all fragments of an entity: shares, epochs, fragments that are out, and power that goes out."""

from __future__ import annotations

import contextlib

import pytest

from tandembus.broker.reservations import Prospect
from tandembus.descriptions import QueueDescription
from tandembus.errors import FragmentUnavailable, StaleEpoch, StoreUnavailable
from tandembus.namespace.entity_ledger import EntityLedger, Ranges, shares_of
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine
from tests.unit.namespace.partitioned_use import receive_all, send

ORDERS = QueueDescription("Orders", enable_partitioning=True)
BODIES = [f"m{number:02}" for number in range(64)]
STORES = 3
MOST_BYTES = 1 << 40
OWNERS = 4


async def ledger_of(life: Life) -> EntityLedger:
    return EntityLedger((await life.namespace.entity("orders")).requests.ledgers, MAIN)


async def with_orders(life: Life) -> EntityLedger:
    await life.namespace.create_queue(ORDERS)
    await send(life, "orders", *BODIES)
    return await ledger_of(life)


def numbers_in(ranges: Ranges) -> set[tuple[int, int]]:
    return {(index, number) for index, parts in ranges.items() for one in parts for number in range(one[0], one[1] + 1)}


def has(count: int, mean: int = 100) -> Prospect:
    return Prospect(None, count, count * mean)


@covers("D1")
def test_shares_are_even_as_far_as_there_is_something() -> None:
    prospects = {0: has(1000), 1: has(10), 2: has(0), 3: has(1000)}
    shares = shares_of(prospects, 100, MOST_BYTES, 1)
    assert {index: share.messages for index, share in shares.items()} == {0: 45, 1: 10, 3: 45}
    by_bytes = shares_of(prospects, 1000, 10_000, 1)
    assert sum(share.size_bytes for share in by_bytes.values()) <= 10_000
    assert by_bytes[0].size_bytes == by_bytes[3].size_bytes == 4500


@covers("D1")
def test_where_there_is_too_little_for_all_everybody_has_a_turn() -> None:
    prospects = {index: has(5) for index in range(16)}
    served: set[int] = set()
    for request in range(16):
        shares = shares_of(prospects, 1, MOST_BYTES, request)
        assert sum(share.messages for share in shares.values()) == 1
        served |= {index for index, share in shares.items() if share.messages}
    assert served == set(range(16))
    one_at_least = shares_of(prospects, 100, 1, 3)
    assert [share.messages > 0 for share in one_at_least.values()].count(True) == 1


@covers("D1")
async def test_a_request_is_shared_out_and_repeated_whoever_asks() -> None:
    async with Machine(stores=STORES).life() as life:
        ledger = await with_orders(life)
        epoch = await ledger.open_owner("query", OWNERS)
        first = await ledger.reserve("query", epoch, 1, 32, MOST_BYTES, {})
        assert len(numbers_in(first.ranges)) == 32
        assert {len(numbers_in({0: parts})) for parts in first.ranges.values()} == {2}
        await send(life, "orders", "late")
        assert await (await ledger_of(life)).reserve("query", epoch, 1, 64, MOST_BYTES, {}) == first
        second = await ledger.reserve("query", epoch, 2, 64, MOST_BYTES, {})
        assert len(numbers_in(second.ranges)) == 33
        assert await ledger.complete("query", epoch, first.ranges) == 32
        assert await ledger.release("query", epoch, None) == 33
        assert [one[0] for one in await ledger.owners()] == ["query"]
        assert await ledger.release("query", None, None) == 0
        assert await ledger.owners() == []


@covers("D1")
async def test_a_fragment_that_is_out_is_named_and_the_rest_goes_on() -> None:
    async with Machine(stores=STORES).life() as life:
        ledger = await with_orders(life)
        epoch = await ledger.open_owner("query", OWNERS)
        await life.take_out(1)
        ledger = await ledger_of(life)
        part = await ledger.reserve("query", epoch, 1, 1000, MOST_BYTES, {})
        missing = part.missing_fragments
        assert 0 < len(missing) < 16
        assert set(part.ranges) == set(range(16)) - set(missing)
        for call in (ledger.open_owner("query", OWNERS), ledger.reserved("query", epoch), ledger.ends()):
            with pytest.raises(FragmentUnavailable, match=f"Fragment {missing[0]}, "):
                await call
        await life.bring_back()
        ledger = await ledger_of(life)
        epoch = await ledger.open_owner("query", OWNERS)
        whole = await ledger.reserve("query", epoch, 2, 1000, MOST_BYTES, {})
        assert whole.missing_fragments == ()
        assert set(whole.ranges) == set(missing)
        assert numbers_in(await ledger.reserved("query", epoch)) == numbers_in(part.ranges) | numbers_in(whole.ranges)


@covers("D1")
async def test_an_epoch_that_was_opened_without_a_fragment_is_made_known_to_it_later() -> None:
    async with Machine(stores=STORES).life() as life:
        ledger = await with_orders(life)
        older = await ledger.open_owner("query", OWNERS)
        before = await ledger.reserve("query", older, 1, 16, MOST_BYTES, {})
        await life.take_out(0)
        ledger = await ledger_of(life)
        opened = await ledger.open_reachable("query", OWNERS)
        missing = opened.missing_fragments
        assert opened.epoch > older
        assert 0 in missing  # which gives out the epochs otherwise
        in_reach = await ledger.reserved_in_reach("query", opened.epoch)
        assert in_reach.missing_fragments == missing
        assert set(in_reach.ranges) == set(range(16)) - set(missing)
        assert set(await ledger.ends(sorted(in_reach.ranges))) == set(in_reach.ranges)
        assert (await ledger.extend("query", opened.epoch, missing, OWNERS)).missing_fragments == missing
        await life.bring_back()
        ledger = await ledger_of(life)
        with pytest.raises(StaleEpoch):
            await ledger.reserve("query", opened.epoch, 1, 16, MOST_BYTES, {})
        assert (await ledger.extend("query", opened.epoch, missing, OWNERS)).missing_fragments == ()
        assert await ledger.reserved("query", opened.epoch) == before.ranges
        with pytest.raises(StaleEpoch):
            await ledger.complete("query", older, {missing[0]: [(1, 9)]})
        newer = await ledger.open_owner("query", OWNERS)
        with pytest.raises(StaleEpoch):
            await ledger.extend("query", opened.epoch, missing, OWNERS)
        assert numbers_in(await ledger.reserved("query", newer)) == numbers_in(before.ranges)


@covers("D1")
async def test_of_two_who_open_at_once_one_is_left() -> None:
    async with Machine(stores=STORES).life() as life:
        ledger = await with_orders(life)
        epochs = [await ledger.open_owner("query", OWNERS) for _ in range(3)]
        assert sorted(set(epochs)) == epochs
        for index in range(16):
            for old in epochs[:2]:
                with pytest.raises(StaleEpoch):
                    await ledger.complete("query", old, {index: [(1, 9)]})


@covers("D1")
@pytest.mark.parametrize("is_last_kept", [True, False])
async def test_the_power_goes_out_after_any_commit_and_nothing_is_lost_or_settled_twice(is_last_kept: bool) -> None:
    commits = 0
    while True:
        machine = Machine(stores=STORES)
        settled: set[tuple[int, int]] = set()
        asked: set[tuple[int, int]] = set()
        async with machine.life() as life:
            ledger = await with_orders(life)
            machine.power.fail_after(commits, is_last_kept)
            with contextlib.suppress(StoreUnavailable):
                epoch = await ledger.open_owner("query", OWNERS)
                first = await ledger.reserve("query", epoch, 1, 32, MOST_BYTES, {})
                asked = numbers_in(first.ranges)
                await ledger.complete("query", epoch, first.ranges)
                settled = asked
                second = await ledger.reserve("query", epoch, 2, 1000, MOST_BYTES, {})
                await ledger.release("query", epoch, second.ranges)
            is_cut = machine.power.is_out
        async with machine.life() as life:
            await check_what_is_left(life, asked, settled)
        if not is_cut:
            break
        commits += 1
    assert commits > 10


async def check_what_is_left(life: Life, asked: set[tuple[int, int]], settled: set[tuple[int, int]]) -> None:
    ledger = await ledger_of(life)
    epoch = await ledger.open_owner("query", OWNERS)
    assert not numbers_in(await ledger.reserved("query", epoch)) & settled
    await ledger.release("query", epoch, None)
    left = await receive_all(life, "orders")
    assert len(set(left)) == len(left)
    assert len(BODIES) - len(asked) <= len(left) <= len(BODIES) - len(settled)
