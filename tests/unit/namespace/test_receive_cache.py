"""Receiving over many fragments: all are asked, the first answers, the rest is kept ready and goes back uncounted."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, MessageLock
from tandembus.namespace.receive_cache import ReceiveCache
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import small
from tests.unit.namespace.partitioned_queue import PartitionedQueue, keyed, until

SIXTEEN = [str(number) for number in range(16)]


def cache_of(queue: PartitionedQueue, lane: int = MAIN) -> ReceiveCache:
    cache = queue.traffic.cache(lane)
    assert cache is not None
    return cache


async def complete(queue: PartitionedQueue, lock: MessageLock) -> None:
    answer = queue.settle(lock, COMPLETE)
    await queue.quiet()
    assert answer.is_accepted


@covers("P6")
async def test_with_a_credit_of_one_and_a_message_in_each_fragment_one_is_given_and_the_rest_kept_ready() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        assert len(await receiver.take(1)) == 1
        assert len(cache_of(queue)) == 15
        assert cache_of(queue).feeders.outstanding == 0
        for left in range(14, -1, -1):
            assert len(await receiver.take(1)) == 1
            assert len(cache_of(queue)) == left
        assert sorted(receiver.bodies, key=int) == SIXTEEN
        assert await receiver.take(1) == []


@covers("P6")
async def test_what_is_kept_ready_goes_out_in_the_order_in_which_it_came() -> None:
    async with PartitionedQueue() as queue:
        receiver = queue.receiver()
        receiver.want(1)
        for number in range(16):
            await queue.send_to(number, str(number))
        assert receiver.bodies == ["0"], "the first one found is given, and then nobody is hungry"
        receiver.want(1)
        await queue.quiet()
        first = [receiver.bodies[1], *[str(one) for one in range(1, 16) if str(one) != receiver.bodies[1]]]
        kept = len(cache_of(queue))
        assert kept == 14
        receiver.want(14)
        await queue.quiet()
        assert sorted(receiver.bodies[1:], key=int) == sorted(first, key=int)


@covers("P6")
async def test_a_message_that_was_kept_ready_and_given_back_counts_no_delivery() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        for _ in range(12):
            assert len(await receiver.take(1)) == 1
            receiver.leave()
            await queue.quiet()
            assert queue.locked_count() == len(receiver.locks)
            queue.settle(receiver.locks[-1], COMPLETE)
            receiver = queue.receiver()
            await queue.quiet()
        last = queue.receiver()
        await last.take(16)
        assert len(last.locks) == 4
        assert {int(lock.delivery_count) for lock in last.locks} == {0}


@covers("P6")
async def test_what_is_kept_ready_goes_back_at_once_when_the_last_receiver_goes() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        first, second = queue.receiver(), queue.receiver()
        await first.take(1)
        first.leave()
        await queue.quiet()
        assert len(cache_of(queue)) == 15, "the other one may want it"
        second.leave()
        await queue.quiet()
        assert queue.traffic.cache(MAIN) is None
        assert queue.locked_count() == 1, "what its client has got"
        third = queue.receiver()
        assert len(await third.take(16)) == 15


@covers("P6")
@pytest.mark.parametrize(("lock_duration_s", "kept_s"), [(60.0, 10.0), (20.0, 5.0)])
async def test_what_is_kept_ready_goes_back_after_a_quarter_of_the_lock_or_ten_seconds(
    lock_duration_s: float, kept_s: float
) -> None:
    async with PartitionedQueue(small(lock_duration_s, window_messages=100, block_size=64)) as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        await receiver.take(1)
        await queue.pass_time(kept_s - 0.5)
        assert len(cache_of(queue)) == 15
        await queue.pass_time(0.6)
        assert len(cache_of(queue)) == 0
        assert queue.locked_count() == 1
        other = queue.receiver()
        assert len(await other.take(15)) == 15
        assert {int(lock.delivery_count) for lock in other.locks} == {0}


@covers("P6")
async def test_a_client_sees_at_least_three_quarters_of_the_lock() -> None:
    async with PartitionedQueue(small(40.0, window_messages=100, block_size=64)) as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        await receiver.take(1)
        await queue.pass_time(9.9)
        await receiver.take(5)
        now_ms = queue.clock.now_ms()
        assert len(receiver.locks) == 6
        assert all(int(lock.locked_until_ms) - now_ms >= 30_000 for lock in receiver.locks[1:])


@covers("P6")
async def test_of_two_receivers_of_which_one_is_idle_the_hungry_one_gets_all() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(100)])
        queue.receiver()
        hungry = queue.receiver()
        taken: list[str] = []
        while got := await hungry.take(3):
            taken += got
        assert sorted(taken, key=int) == [str(number) for number in range(100)]


@covers("P6")
async def test_two_hungry_receivers_share() -> None:
    async with PartitionedQueue() as queue:
        first, second = queue.receiver(), queue.receiver()
        first.want(1000)
        second.want(1000)
        await queue.send(*[str(number) for number in range(640)])
        assert len(first.bodies) + len(second.bodies) == 640
        assert min(len(first.bodies), len(second.bodies)) >= 256


@covers("P6")
@pytest.mark.parametrize("credit", [1, 2, 15, 16, 17, 100, 1000])
async def test_no_more_is_asked_for_or_kept_than_the_credit_and_one_of_each_fragment(credit: int) -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*[str(number) for number in range(200)])
        receiver = queue.receiver()
        receiver.want(credit)
        for _ in range(50):
            cache = cache_of(queue)
            assert cache.feeders.outstanding + len(cache) <= int(receiver.consumer.credit) + 16
            await queue.brokers[0].next_turn()
            await queue.brokers[1].next_turn()
        assert len(receiver.bodies) == min(credit, 200)


@covers("P6")
async def test_all_of_one_fragment_comes_although_the_others_are_empty() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(11, *[str(number) for number in range(300)])
        receiver = queue.receiver()
        assert len(await receiver.take(250)) == 250
        assert receiver.bodies == [str(number) for number in range(250)]


@covers("P6")
async def test_no_fragment_starves_beside_one_that_is_always_full() -> None:
    async with PartitionedQueue() as queue:
        receiver = queue.receiver()
        await queue.send_to(0, *[f"many-{number}" for number in range(90)])
        await receiver.take(20)
        await queue.send_to(5, "lonely")
        await queue.send_to(0, *[f"more-{number}" for number in range(90)])
        await receiver.take(40)
        assert "lonely" in receiver.bodies


@covers("P6")
async def test_no_fragment_starves_when_messages_are_too_large_to_be_kept() -> None:
    async with PartitionedQueue(cache_bytes=100) as queue:
        for index in range(16):
            for number in range(3):
                await queue.send_to(index, keyed(f"{index}-{number}", padding=500))
        receiver = queue.receiver()
        for _ in range(48):
            assert len(await receiver.take(1)) == 1
            assert cache_of(queue).kept_bytes == 0
        assert len(set(receiver.bodies)) == 48
        assert {body.split("-")[0] for body in receiver.bodies[:24]} == {str(index) for index in range(16)}
        assert {int(lock.delivery_count) for lock in receiver.locks} == {0}


@covers("P6")
async def test_never_more_bytes_are_kept_than_allowed() -> None:
    async with PartitionedQueue(cache_bytes=4000) as queue:
        await queue.send(*[keyed(str(number), padding=1000) for number in range(64)])
        receiver = queue.receiver()
        for _ in range(64):
            assert len(await receiver.take(1)) == 1
            assert cache_of(queue).kept_bytes <= 4000
        assert sorted(receiver.bodies, key=int) == [str(number) for number in range(64)]


@covers("P6")
async def test_a_message_that_expires_while_it_is_kept_ready_is_not_given_out() -> None:
    async with PartitionedQueue(small(window_messages=100, block_size=64, dead_letter_expired=True)) as queue:
        await queue.send(*[keyed(str(number), ttl_ms=2000) for number in range(16)])
        receiver = queue.receiver()
        await receiver.take(1)
        await queue.pass_time(3.0)
        assert await receiver.take(1) == []
        await queue.pass_time(1.0)
        assert len(await queue.dead_letters()) == 15


@covers("P6")
async def test_receive_and_delete_takes_out_only_what_was_handed_over() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver(is_destructive=True)
        assert len(await receiver.take(3)) == 3
        assert sum(queue.counts()) == 13
        receiver.leave()
        await queue.quiet()
        assert queue.locked_count() == 0
        other = queue.receiver(is_destructive=True)
        assert len(await other.take(20)) == 13
        assert sum(queue.counts()) == 0
        assert sorted(receiver.bodies + other.bodies, key=int) == SIXTEEN


@covers("P6")
async def test_receive_and_delete_gives_nothing_before_the_removal_is_committed() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(0, "a")
        disk = queue.disks[0]
        disk.faults[disk.commit_count + 1] = Fault.HANG
        receiver = queue.receiver(is_destructive=True)
        receiver.want(1)
        await disk.is_hanging.wait()
        assert receiver.bodies == []
        disk.go_on.set()
        await queue.quiet()
        assert receiver.bodies == ["a"]


@covers("P6")
async def test_a_removal_that_fails_leaves_the_credit_with_the_client() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(0, "a")
        disk = queue.disks[0]
        disk.faults[disk.commit_count + 1] = Fault.UNKNOWN_LOST
        receiver = queue.receiver(is_destructive=True)
        receiver.want(1)
        await queue.quiet()
        await queue.heal(0)
        await queue.quiet()
        assert receiver.bodies == ["a"]
        assert int(receiver.consumer.credit) == 0
        assert int(receiver.consumer.removing_count) == 0


@covers("P6", "M2")
async def test_a_receiver_that_goes_leaves_locked_what_its_client_had() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        first, second = queue.receiver(), queue.receiver()
        await first.take(2)
        first.leave()
        await queue.quiet()
        assert len(await second.take(16)) == 14
        for lock in first.locks:
            await complete(queue, lock)
        assert sum(queue.counts()) == 14


@covers("P6", "M2")
async def test_what_was_settled_is_not_given_back_when_its_receiver_goes() -> None:
    async with PartitionedQueue() as queue:
        await queue.send("a", "b")
        receiver = queue.receiver()
        await receiver.take(2)
        queue.settle(receiver.locks[0], COMPLETE)
        queue.settle(receiver.locks[1], ABANDON)
        receiver.leave()
        await queue.quiet()
        other = queue.receiver()
        assert len(await other.take(5)) == 1
        assert int(other.locks[0].delivery_count) == 1


@covers("P6")
async def test_the_dead_letters_have_a_cache_of_their_own() -> None:
    async with PartitionedQueue(small(max_delivery_count=1, window_messages=100, block_size=64)) as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        await receiver.take(16)
        for lock in receiver.locks:
            queue.settle(lock, ABANDON)
        await queue.quiet()
        dead = queue.receiver(DEAD_LETTER)
        assert len(await dead.take(1)) == 1
        assert len(cache_of(queue, DEAD_LETTER)) == 15
        assert len(cache_of(queue)) == 0
        assert len(await dead.take(15)) == 15


# Draining.


@covers("P6", "M12")
async def test_a_drain_gives_all_there_is_within_the_credit() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(3, *[str(number) for number in range(40)])
        await queue.send_to(9, "x", "y")
        receiver = queue.receiver()
        assert len(await receiver.drain(30)) == 30
        assert len(await receiver.drain(30)) == 12
        assert len(set(receiver.bodies)) == 42
        assert await receiver.drain(5) == []
        assert cache_of(queue).feeders.outstanding == 0


@covers("P6", "M12")
async def test_a_drain_leaves_what_is_beyond_the_credit_ready() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        assert len(await receiver.drain(4)) == 4
        assert int(receiver.consumer.credit) == 0
        assert len(await receiver.drain(12)) == 12


@covers("P6", "M12")
async def test_a_drain_of_receive_and_delete_waits_for_the_commits() -> None:
    async with PartitionedQueue() as queue:
        await queue.send_to(2, "a", "b")
        disk = queue.disks[0]
        disk.faults[disk.commit_count + 1] = Fault.HANG
        receiver = queue.receiver(is_destructive=True)
        receiver.want(5, is_draining=True)
        await disk.is_hanging.wait()
        queue.timers.advance(0.2)
        assert (receiver.bodies, receiver.drain_count) == ([], 0)
        disk.go_on.set()
        await queue.quiet()
        assert (receiver.bodies, receiver.drain_count) == (["a", "b"], 1)


@covers("P3", "P6", "M12")
async def test_a_drain_does_not_wait_for_a_fragment_that_is_down() -> None:
    async with PartitionedQueue(broker_count=4) as queue:
        await queue.send(*SIXTEEN)
        await queue.fail(1)
        receiver = queue.receiver()
        assert len(await receiver.drain(20)) == 12
        assert queue.timers.count <= 1, "it was not the time limit that ended it"


@covers("P6", "M12")
async def test_a_drain_waits_less_than_200_ms_for_a_fragment_that_is_slow() -> None:
    async with PartitionedQueue(small(window_messages=2, block_size=64), broker_count=4) as queue:
        for index in range(4):
            await queue.send_to(index, *[f"{index}-{number}" for number in range(4)])
        answers = asyncio.Event()
        queue.disks[3].before_read = answers.wait  # type: ignore[assignment]
        receiver = queue.receiver()
        receiver.want(20, is_draining=True)
        await until(lambda: len(receiver.bodies) == 14)
        queue.timers.advance(0.149)
        assert receiver.drain_count == 0
        queue.timers.advance(0.002)
        assert receiver.drain_count == 1
        answers.set()
        await queue.quiet()
        assert receiver.drain_count == 1, "its marker comes late and changes nothing"
        assert len(await receiver.take(2)) == 2
        assert len(set(receiver.bodies)) == 16


@covers("P6", "M12")
async def test_a_drain_does_not_end_while_what_is_kept_waits_for_room() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        receiver.consumer.is_full = True
        receiver.want(20, is_draining=True)
        await queue.quiet()
        queue.timers.advance(0.2)
        assert (receiver.bodies, receiver.drain_count) == ([], 0)
        receiver.consumer.is_full = False
        queue.traffic.feed(receiver.consumer, MAIN, True)
        await queue.quiet()
        queue.timers.advance(0.2)
        await queue.quiet()
        assert (sorted(receiver.bodies), receiver.drain_count) == (sorted(SIXTEEN), 1)


@covers("P6", "M12")
async def test_a_drain_that_was_called_off_takes_no_credit_away() -> None:
    async with PartitionedQueue(small(window_messages=2, block_size=64), broker_count=4) as queue:
        await queue.send_to(3, *[str(number) for number in range(4)])
        answers = asyncio.Event()
        queue.disks[3].before_read = answers.wait  # type: ignore[assignment]
        receiver = queue.receiver()
        receiver.want(20, is_draining=True)
        await until(lambda: len(receiver.bodies) == 2)
        queue.traffic.feed(receiver.consumer, MAIN, False)
        queue.timers.advance(0.2)
        answers.set()
        await queue.quiet()
        assert (len(receiver.bodies), receiver.drain_count, int(receiver.consumer.credit)) == (4, 0, 16)


@covers("P6", "M12")
async def test_receivers_that_drain_at_the_same_time_are_all_told() -> None:
    async with PartitionedQueue() as queue:
        await queue.send("a", "b", "c")
        receivers = [queue.receiver() for _ in range(3)]
        for receiver in receivers:
            receiver.want(2, is_draining=True)
        await queue.quiet()
        assert [receiver.drain_count for receiver in receivers] == [1, 1, 1]
        assert sorted(body for receiver in receivers for body in receiver.bodies) == ["a", "b", "c"]


# Outages.


@covers("P3", "P6")
async def test_what_is_kept_ready_of_a_failed_store_is_thrown_away_and_comes_again() -> None:
    async with PartitionedQueue() as queue:
        await queue.send(*SIXTEEN)
        receiver = queue.receiver()
        await receiver.take(1)
        await queue.fail(1)
        assert {int(one.lock.index) % 2 for one in cache_of(queue)._kept} == {0}
        await receiver.take(15)
        assert len(receiver.bodies) in (8, 9)
        await queue.heal(1)
        assert len(receiver.bodies) == 16
        assert len(set(receiver.bodies)) >= 15, "the one that was locked when the store failed may come again"
        assert {int(lock.delivery_count) for lock in receiver.locks} == {0}


@covers("P6")
async def test_an_idle_receiver_of_an_empty_queue_causes_no_work() -> None:
    async with PartitionedQueue() as queue:
        receiver = queue.receiver()
        receiver.want(10)
        await queue.quiet()
        timers = queue.timers.count
        commits = [broker.commit_count for broker in queue.brokers]
        queue.timers.advance(60.0)
        assert queue.timers.count == timers
        assert len(queue.timers) == 0
        assert [broker.commit_count for broker in queue.brokers] == commits
