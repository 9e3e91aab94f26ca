"""Which faults stand, whom they concern, and when they end."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.clock import ManualClock
from tandembus.errors import (
    BusError,
    EntityNotFound,
    FragmentUnavailable,
    InvalidArgument,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    StoreFull,
    StoreUnavailable,
)
from tandembus.faults.board import FaultBoard, FragmentPlace
from tandembus.faults.fault import Topology, read_fault
from tests.covers import covers

SPREAD = Topology(stores=4, brokers=2)


def put(board: FaultBoard, target: str, kind: str = "unavailable", **more: object) -> None:
    board.put(read_fault("f1", {"target": target, "kind": kind, **more}))


@covers("B3", "P20")
@pytest.mark.parametrize(
    ("target", "hit"),
    [
        ("namespace", "orders/0 orders/3 news/3 sub/3 plain/0"),
        ("entity/ORDERS", "orders/0 orders/3"),
        ("entity/news", "news/3 sub/3"),
        ("entity/news/Subscriptions/all", "sub/3"),
        ("fragment/orders/3", "orders/3"),
        ("fragment/news/3", "news/3 sub/3"),
        ("fragment/plain/1", ""),
        ("broker/1", "orders/3 news/3 sub/3"),
        ("broker/0", "orders/0 plain/0"),
        ("entity/other", ""),
    ],
)
def test_a_fault_concerns_just_its_target(target: str, hit: str) -> None:
    board = FaultBoard(ManualClock(), SPREAD)
    put(board, target)
    places = {
        "orders/0": FragmentPlace("orders", 0, 0),
        "orders/3": FragmentPlace("orders", 3, 3),
        "news/3": FragmentPlace("news", 3, 1),
        "sub/3": FragmentPlace("news/subscriptions/all", 3, 1, "news"),
        "plain/0": FragmentPlace("plain", 0, 2),
    }
    assert [name for name, place in places.items() if board.effects(place)] == hit.split()


@covers("B3")
@pytest.mark.parametrize(("kind", "count"), [("unavailable", 0), ("disk-full", 0), ("throttled", 1)])
def test_what_a_store_does_itself_is_not_done_again_at_the_gate(kind: str, count: int) -> None:
    board = FaultBoard(ManualClock(), SPREAD)
    put(board, "store/3", kind)
    assert len(board.effects(FragmentPlace("orders", 3, 3))) == count
    assert len(board.effects(FragmentPlace("orders", 2, 2))) == 0
    assert [fault.id for fault in board.of_store(3)] == ["f1"]
    assert board.of_store(2) == []


@covers("B3")
def test_a_fault_with_a_duration_ends_by_itself() -> None:
    clock = ManualClock()
    board = FaultBoard(clock)
    ends: list[int] = []
    put(board, "entity/orders", for_s=10)
    board.listen(lambda: ends.append(len(board.standing())))
    clock.advance(9.9)
    board.tick()
    assert ends == []
    assert board.standing()[0].left_s(clock.monotonic()) == pytest.approx(0.1)
    clock.advance(0.1)
    board.tick()
    assert ends == [0]
    assert board.effects(FragmentPlace("orders")) == []


@covers("B3")
def test_setting_the_wall_clock_ends_no_fault() -> None:
    clock = ManualClock()
    board = FaultBoard(clock)
    put(board, "entity/orders", for_s=10)
    clock.shift_wall(3600)
    board.tick()
    assert len(board.standing()) == 1


@covers("B3")
def test_a_fault_put_again_takes_the_place_of_the_first_and_begins_anew() -> None:
    clock = ManualClock()
    board = FaultBoard(clock)
    first = read_fault("f1", {"target": "namespace", "kind": "unavailable", "for_s": 10})
    assert board.put(first) is True
    clock.advance(8)
    assert board.put(first) is False
    clock.advance(8)
    assert [each.fault for each in board.standing()] == [first]
    clock.advance(2)
    assert board.standing() == []


@covers("B3")
def test_faults_are_removed_one_by_one_or_all_together() -> None:
    board = FaultBoard(ManualClock())
    for name in "cab":
        board.put(read_fault(name, {"target": "namespace", "kind": "throttled"}))
    assert [each.fault.id for each in board.standing()] == ["a", "b", "c"]
    board.remove("b")
    with pytest.raises(EntityNotFound, match="no fault 'b'"):
        board.remove("b")
    assert board.clear() == 2
    assert board.clear() == 0
    assert board.standing() == []


@covers("B3")
def test_there_may_be_so_many_faults_and_no_more() -> None:
    board = FaultBoard(ManualClock(), max_faults=2)
    for name in ("a", "b"):
        board.put(read_fault(name, {"target": "namespace", "kind": "throttled"}))
    with pytest.raises(QuotaExceeded, match="clear some"):
        board.put(read_fault("c", {"target": "namespace", "kind": "throttled"}))
    assert board.put(read_fault("b", {"target": "namespace", "kind": "disk-full"})) is False


@covers("B3")
def test_another_process_is_told_all_that_stands_and_how_long_it_lasts() -> None:
    clock, elsewhere = ManualClock(), ManualClock(monotonic=77.0)
    board, copy = FaultBoard(clock, SPREAD), FaultBoard(elsewhere, SPREAD)
    board.put(read_fault("a", {"target": "entity/Orders", "kind": "slow", "latency_ms": 20, "probability": 0.25}))
    board.put(read_fault("b", {"target": "broker/1", "kind": "unavailable", "for_s": 10}))
    clock.advance(4)
    elsewhere.advance(4)
    copy.replace(board.to_records())
    assert [each.fault for each in copy.standing()] == [each.fault for each in board.standing()]
    assert copy.to_records() == board.to_records()
    elsewhere.advance(5.9)
    assert len(copy.standing()) == 2
    elsewhere.advance(0.2)
    assert [each.fault.id for each in copy.standing()] == ["a"]
    copy.replace([])
    assert copy.standing() == []


@covers("B3")
def test_a_process_that_is_told_late_does_not_begin_anew() -> None:
    clock = ManualClock()
    board, copy = FaultBoard(clock), FaultBoard(clock)
    put(board, "namespace", for_s=10)
    records = board.to_records()
    clock.advance(7)
    copy.replace(records)
    assert copy.standing()[0].left_s(clock.monotonic()) == pytest.approx(3)
    clock.advance(4)
    copy.replace(records)
    assert copy.standing() == []


def test_records_that_are_none_change_nothing() -> None:
    board = FaultBoard(ManualClock())
    put(board, "namespace")
    with pytest.raises(InvalidArgument):
        board.replace([{"id": "a", "target": "namespace", "kind": "throttled"}, {"id": "b"}])
    assert [each.fault.id for each in board.standing()] == ["f1"]


@covers("B3")
@pytest.mark.parametrize(
    ("kind", "error", "grows"),
    [("unavailable", StoreUnavailable, False), ("throttled", ServerBusy, False), ("disk-full", StoreFull, True)],
)
async def test_a_fault_of_the_namespace_hits_requests_that_are_about_no_fragment(
    kind: str, error: type[BusError], grows: bool
) -> None:
    board = FaultBoard(ManualClock())
    await board.hit_namespace(grows=True)
    put(board, "namespace", kind)
    with pytest.raises(error, match="injected fault 'f1'"):
        await board.hit_namespace(grows=grows)
    board.clear()
    await board.hit_namespace(grows=True)


@covers("B3")
async def test_a_full_disk_is_felt_by_what_needs_room_only() -> None:
    board = FaultBoard(ManualClock())
    put(board, "namespace", "disk-full")
    await board.hit_namespace(grows=False)
    with pytest.raises(StoreFull):
        await board.hit_namespace(grows=True)


@covers("B3")
def test_only_a_namespace_that_is_out_for_sure_answers_nobody() -> None:
    board = FaultBoard(ManualClock())
    put(board, "namespace", "unavailable", probability=0.9)
    assert board.namespace_outage() is None
    put(board, "namespace", "unavailable")
    assert isinstance(board.namespace_outage(), StoreUnavailable)
    put(board, "entity/orders", "unavailable")
    assert board.namespace_outage() is None


@covers("B3", "P18")
async def test_nothing_changes_an_entity_with_a_fragment_out_of_reach() -> None:
    board = FaultBoard(ManualClock(), SPREAD)
    orders = [FragmentPlace("orders", index, index % 4) for index in range(16)]
    put(board, "fragment/orders/9")
    with pytest.raises(StoreUnavailable):
        await board.hit_change(orders)
    await board.hit_change([FragmentPlace("other", index, index % 4) for index in range(16)])
    await board.hit_change(orders, is_new=True)
    put(board, "broker/1")
    with pytest.raises(StoreUnavailable):
        await board.hit_change(orders, is_new=True)
    put(board, "fragment/orders/9", "throttled")
    await board.hit_change(orders)


@covers("B3", "P18")
async def test_a_change_takes_as_long_as_the_slowest_fragment() -> None:
    clock = ManualClock()
    board = FaultBoard(clock, SPREAD)
    put(board, "broker/1", "slow", latency_ms=60_000)
    change = asyncio.create_task(board.hit_change([FragmentPlace("orders", 1, 1)]))
    await board.hit_change([FragmentPlace("orders", 0, 0)])
    await asyncio.sleep(0)
    assert not change.done()
    board.clear()
    await change


@covers("B3", "P18")
async def test_a_change_that_would_take_too_long_is_not_made() -> None:
    clock = ManualClock()
    board = FaultBoard(clock, SPREAD)
    put(board, "broker/1", "slow", latency_ms=600_000)
    late = asyncio.create_task(board.hit_change([FragmentPlace("orders", 1, 1)], within_s=60.0))
    await asyncio.sleep(0)
    clock.advance(60.0)
    put(board, "broker/1", "slow", latency_ms=600_000)  # whatever wakes it
    with pytest.raises(OperationTimeout, match="injected fault 'f1'"):
        await late
    in_time = asyncio.create_task(board.hit_change([FragmentPlace("orders", 1, 1)], within_s=60.0))
    await asyncio.sleep(0)
    clock.advance(60.0)
    board.clear()
    await in_time


@covers("B3", "P18")
def test_the_broker_of_a_store_that_is_out_cannot_be_asked() -> None:
    board = FaultBoard(ManualClock(), SPREAD)
    put(board, "broker/1")
    assert [board.broker_outage(store) is not None for store in range(4)] == [False, True, False, True]
    put(board, "broker/1", probability=0.5)
    assert board.broker_outage(1) is None


@covers("B3")
def test_nobody_forwards_to_what_is_out_of_reach() -> None:
    board = FaultBoard(ManualClock())
    assert board.outage_of(FragmentPlace("orders")) is None
    put(board, "entity/orders")
    assert isinstance(board.outage_of(FragmentPlace("orders")), FragmentUnavailable)
    put(board, "entity/orders", "slow", latency_ms=10)
    assert board.outage_of(FragmentPlace("orders")) is None
