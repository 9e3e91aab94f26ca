"""Transactions at one entity: all of it in one commit, or nothing."""

from __future__ import annotations

import pytest

from tandembus.errors import (
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    MessageLockLost,
    QuotaExceeded,
    ServerBusy,
    StoreFull,
    StoreUnavailable,
)
from tandembus.limits import Limits
from tests.behaviour.driver import Bus, Fault, Queue, Received, message
from tests.behaviour.shapes import PLAIN, UNPARTITIONED, on_shapes
from tests.covers import covers


async def locked(queue: Queue, *bodies: str) -> list[Received]:
    """Send these, and lock them."""
    await queue.send(*bodies)
    found = await queue.receive(len(bodies))
    assert [one.body for one in found] == list(bodies)
    return found


@covers("M11")
async def test_sends_and_settlements_are_carried_out_in_one_commit(bus: Bus, queue: Queue) -> None:
    first, second = await locked(queue, "a", "b")
    before = bus.commit_count
    await queue.transaction(["c", "d"], [(first, "complete"), (second, "complete")])
    assert bus.commit_count == before + 1
    await bus.kill()
    assert await queue.held() == ["c", "d"]


@covers("M11")
async def test_every_kind_of_settlement_works_in_a_transaction(queue: Queue) -> None:
    done, again, later, dead, back = await locked(queue, "done", "again", "later", "dead", "back")
    await queue.transaction(
        settle=[(done, "complete"), (again, "abandon"), (later, "defer"), (dead, "dead-letter"), (back, "release")]
    )
    assert [(one.body, one.delivery_count) for one in await queue.receive()] == [("again", 1), ("back", 0)]
    counts = await queue.counts()
    assert (counts.active, counts.deferred, counts.dead_letter) == (3, 1, 1)
    assert await queue.dead_letters.held() == ["dead"]


@covers("M11")
@pytest.mark.parametrize("loss", ["settled", "lapsed", "lapsed unseen", "twice"])
async def test_one_lost_lock_and_nothing_is_done(bus: Bus, queue: Queue, loss: str) -> None:
    first, second = await locked(queue, "a", "b")
    if loss == "settled":
        await second.complete()
    elif loss == "lapsed":
        await bus.advance(61.0)
    elif loss == "lapsed unseen":
        bus.loop.skip(61.0)
    settlements = [(first, "complete"), (second, "complete"), *([(first, "defer")] if loss == "twice" else [])]
    with pytest.raises(InvalidOperation if loss == "twice" else MessageLockLost):
        await queue.transaction(["c"], settlements)  # type: ignore[arg-type]
    assert "c" not in await queue.held()
    assert "a" in await queue.held()
    if loss in ("settled", "twice"):
        await first.complete()


@covers("M11")
async def test_of_a_discharge_and_a_settlement_in_the_same_turn_one_is_done(bus: Bus, queue: Queue) -> None:
    (one,) = await locked(queue, "a")
    discharged = await queue.stage_transaction(["b"], [(one, "complete")])
    settled = await one.stage("abandon")
    await bus.quiet()
    assert discharged.is_accepted is not settled.is_accepted
    loser = settled if discharged.is_accepted else discharged
    assert isinstance(loser.error, MessageLockLost)
    assert await queue.held() == (["b"] if discharged.is_accepted else ["a"])


@covers("M11", "M13")
async def test_a_transaction_that_does_not_fit_the_entity_is_refused_whole(bus: Bus) -> None:
    queue = await bus.queue(max_size_in_megabytes=1)
    (one,) = await locked(queue, "a")
    large = [message(body, padding=600_000) for body in "bc"]
    with pytest.raises(QuotaExceeded):
        await queue.transaction(large, [(one, "complete")])
    await queue.transaction(large[:1], [(one, "complete")])
    assert await queue.held() == ["b"]


@covers("M11")
async def test_a_dead_letter_cannot_be_dead_lettered_in_a_transaction_either(queue: Queue) -> None:
    (one,) = await locked(queue, "a")
    await one.dead_letter()
    dead = await queue.dead_letters.receive_one()
    with pytest.raises(InvalidOperation):
        await queue.transaction(["b"], [(dead, "dead-letter")])
    assert await queue.held() == []


@covers("M11", "M13")
async def test_short_of_room_only_transactions_that_send_nothing_are_taken(bus: Bus, queue: Queue) -> None:
    first, second = await locked(queue, "a", "b")
    bus.set_room(10, 100)
    await bus.advance(60.0 - 1)
    with pytest.raises(StoreFull):
        await queue.transaction(["c"], [(first, "complete")])
    await queue.transaction([], [(first, "complete"), (second, "complete")])
    assert await queue.held() == []


@covers("M11")
@pytest.mark.parametrize("limits", [Limits(commit_operations=3)])
async def test_more_transactions_than_a_commit_takes_go_with_the_next_ones_and_none_is_split(
    bus: Bus, queue: Queue
) -> None:
    before = bus.commit_count
    answers = [await queue.stage_transaction([f"{number}{part}" for part in "abcd"]) for number in range(3)]
    await bus.quiet()
    assert all(answer.is_accepted for answer in answers)
    assert bus.commit_count == before + 3
    assert await queue.held() == [f"{number}{part}" for number in range(3) for part in "abcd"]


@covers("M11", "F2", "F3")
@pytest.mark.parametrize(
    ("fault", "is_kept"), [(Fault.FULL, False), (Fault.UNKNOWN_LOST, False), (Fault.UNKNOWN_KEPT, True)]
)
async def test_whatever_happens_to_its_commit_a_transaction_is_done_whole_or_not_at_all(
    bus: Bus, queue: Queue, fault: Fault, is_kept: bool
) -> None:
    done, later, dead, _open = await locked(queue, "done", "later", "dead", "open")
    await queue.send("scheduled", in_s=600.0)
    bus.fail_next(fault)
    answer = await queue.stage_transaction(
        ["new", message("soon", in_s=500.0)], [(done, "complete"), (later, "defer"), (dead, "dead-letter")]
    )
    await bus.advance(20.0)
    assert answer.is_given
    if bus.shape.is_partitioned or bus.shape.has_channel:
        assert answer.is_accepted is is_kept, "doubt is waited out"
    else:
        assert not answer.is_accepted
    await bus.kill()
    kept, lost = ["later", "open", "scheduled", "new", "soon"], ["done", "later", "dead", "open", "scheduled"]
    assert await queue.held() == (kept if is_kept else lost)
    assert await queue.dead_letters.held() == (["dead"] if is_kept else [])
    counts = await queue.counts()
    assert (counts.deferred, counts.scheduled) == ((1, 2) if is_kept else (0, 1))


@covers("M11", "M13")
async def test_after_a_full_store_the_entity_goes_on_from_what_is_stored(bus: Bus, queue: Queue) -> None:
    first, second = await locked(queue, "a", "b")
    bus.fail_next(Fault.FULL)
    with pytest.raises(StoreFull):
        await queue.transaction(["c"], [(first, "complete")])
    await bus.advance(20.0)
    with pytest.raises(MessageLockLost):
        await second.complete()
    found = await queue.receive()
    assert [one.body for one in found] == ["a", "b"]
    await queue.transaction(["c"], [(one, "complete") for one in found])
    assert await queue.held() == ["c"]


@covers("M11", "M13")
async def test_ordinary_work_of_the_same_turn_is_not_touched_by_a_transaction_that_does_not_fit(
    bus: Bus, queue: Queue
) -> None:
    first, second = await locked(queue, "a", "b")
    bus.fail_next(Fault.FULL, after=1)
    sent, settled = await queue.stage("c"), await second.stage("complete")
    refused = await queue.stage_transaction(["d"], [(first, "complete")])
    await bus.advance(1.0)
    answers = [sent.error, settled.error, refused.error]
    assert len([error for error in answers if error is not None]) <= 1
    await bus.advance(20.0)
    left = await queue.held()
    assert ("d" in left) is refused.is_accepted
    assert ("a" in left) is not refused.is_accepted
    assert ("c" in left) is sent.is_accepted


@covers("M11")
async def test_a_transaction_under_way_when_its_entity_is_deleted_is_answered(bus: Bus, queue: Queue) -> None:
    (one,) = await locked(queue, "a")
    bus.fail_next(Fault.HANG)
    await queue.stage("hangs")
    await bus.quiet()
    answer = await queue.stage_transaction(["b"], [(one, "complete")])
    deleting = bus.process.run(bus.loop.create_task, queue.delete())
    bus.go_on()
    await bus.advance(1.0)
    await deleting
    assert answer.is_given
    with pytest.raises(EntityNotFound):
        await queue.transaction(["c"])


@covers("F6", "M11")
@on_shapes(*UNPARTITIONED)
async def test_a_damaged_message_does_not_hold_up_the_transaction_that_moves_it(bus: Bus, queue: Queue) -> None:
    first, second = await locked(queue, "a", "b")
    bus.damage("a")
    await queue.transaction(["c"], [(first, "dead-letter"), (second, "dead-letter")])
    assert (await queue.dead_letters.held(), await queue.held()) == (["b"], ["c"])
    assert (await queue.counts()).active == 1


@covers("M11", "M14")
@pytest.mark.parametrize("limits", [Limits(operations_per_second=1)])
async def test_a_throttled_transaction_leaves_its_locks_alone(queue: Queue) -> None:
    (one,) = await locked(queue, "a")
    with pytest.raises(ServerBusy):
        await queue.transaction(["b"], [(one, "complete")])
    await one.complete()


@covers("M6", "M11")
async def test_a_refused_transaction_leaves_no_reason_behind(bus: Bus) -> None:
    queue = await bus.queue(max_delivery_count=1)
    first, second = await locked(queue, "a", "b")
    await second.complete()
    with pytest.raises(MessageLockLost):
        await queue.transaction([], [(first, "abandon"), (second, "complete")])
    await first.dead_letter()
    assert (await queue.dead_letters.receive_one()).properties == {}


@covers("M11", "F3")
async def test_a_transaction_is_refused_while_its_store_is_out(bus: Bus, queue: Queue) -> None:
    await queue.send("a")
    for store in range(bus.shape.stores):
        await bus.take_out(store)
    with pytest.raises(StoreUnavailable):
        await queue.transaction(["b"])
    await bus.bring_back()
    assert await queue.held() == ["a"]


@covers("M3", "M11", "M13", "M14")
@on_shapes(PLAIN)
@pytest.mark.parametrize("limits", [Limits(max_message_size_bytes=32 << 20)])
async def test_only_as_much_as_fits_into_memory_is_moved_or_received_at_once(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", "c", padding=23 << 20)
    found = await queue.receive()
    with pytest.raises(QuotaExceeded):
        await queue.transaction([], [(one, "dead-letter") for one in found])
    await queue.transaction([], [(found[0], "dead-letter"), (found[1], "defer"), (found[2], "defer")])
    numbers = [one.number for one in found[1:]]
    with pytest.raises(InvalidArgument, match="ask for fewer"):
        await queue.receive_deferred(*numbers)
    assert len(await queue.receive_deferred(numbers[0])) == 1
