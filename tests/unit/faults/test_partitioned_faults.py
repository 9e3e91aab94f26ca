"""Faults of single fragments, brokers and whole entities, seen through a partitioned queue."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tandembus.broker.locks import COMPLETE, DEFER
from tandembus.errors import FragmentUnavailable, ServerBusy, StoreFull
from tandembus.faults.board import FaultBoard, FragmentPlace
from tandembus.faults.fault import Topology, read_fault
from tandembus.interconnect.traffic import Traffic
from tandembus.namespace.partitioning import fragment_of_key
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import small
from tests.unit.namespace.partitioned_queue import PartitionedQueue, Wish, keyed


class GatedFragments(PartitionedQueue):
    def __init__(self, requires_session: bool = False) -> None:
        super().__init__(small(window_messages=100, block_size=64, requires_session=requires_session), wrap=self._gated)
        draw = random.Random(1).random
        self.board = FaultBoard(self.clock, Topology(stores=2, brokers=2), draw=draw, later=self.timers.later)

    def _gated(self, inner: Traffic) -> Traffic:
        return self.board.gate(inner, FragmentPlace("orders", int(inner.index), int(inner.index) % 2))

    async def __aenter__(self) -> GatedFragments:
        await super().__aenter__()
        return self

    def inject(self, target: str, kind: str = "unavailable", **more: object) -> None:
        self.board.put(read_fault("f1", {"target": target, "kind": kind, **more}))


def key_for(index: int) -> str:
    return next(key for key in map(str, range(1000)) if fragment_of_key(key) == index)


@covers("B3", "P3", "P13")
@pytest.mark.parametrize("kind", ["unavailable", "throttled", "disk-full"])
@pytest.mark.parametrize(("target", "hit"), [("fragment/orders/3", [3]), ("broker/1", list(range(1, 16, 2)))])
async def test_sends_without_a_key_go_to_the_fragments_that_are_left(kind: str, target: str, hit: list[int]) -> None:
    async with GatedFragments() as queue:
        queue.inject(target, kind)
        await queue.send(*[f"m{number}" for number in range(64)])
        counts = queue.counts()
        assert [counts[index] for index in hit] == [0] * len(hit)
        left = [count for index, count in enumerate(counts) if index not in hit]
        assert sum(left) == 64
        assert queue.traffic.is_limited() is (kind == "unavailable")
        assert queue.traffic.failure() is None


@covers("B3", "P14", "P20")
@pytest.mark.parametrize(
    ("kind", "error"), [("unavailable", FragmentUnavailable), ("throttled", ServerBusy), ("disk-full", StoreFull)]
)
async def test_only_the_share_of_keys_that_are_pinned_there_fails(kind: str, error: type[Exception]) -> None:
    async with GatedFragments() as queue:
        queue.inject("fragment/orders/3", kind)
        failed: Counter[int] = Counter()
        for number in range(320):
            try:
                queue.stage(keyed(f"m{number}", partition_key=str(number)))
            except error:
                failed[int(fragment_of_key(str(number)))] += 1
        await queue.quiet()
        expected = sum(1 for number in range(320) if fragment_of_key(str(number)) == 3)
        assert failed == {3: expected}
        assert sum(queue.counts()) == 320 - expected


@covers("B3", "P3")
async def test_receivers_get_what_the_other_fragments_have_and_the_rest_when_healed() -> None:
    async with GatedFragments() as queue:
        for index in range(16):
            await queue.send_to(index, f"m{index}")
        queue.inject("fragment/orders/3")
        receiver = queue.receiver()
        got = await receiver.take(20)
        assert sorted(got) == sorted(f"m{index}" for index in range(16) if index != 3)
        for lock in receiver.locks:
            queue.settle(lock, COMPLETE)
        queue.board.clear()
        await queue.quiet()
        assert receiver.bodies[15:] == ["m3"]


@covers("B3", "P6")
async def test_what_was_kept_ready_of_a_fragment_goes_back_uncounted_when_that_goes_out() -> None:
    async with GatedFragments() as queue:
        for index in range(16):
            await queue.send_to(index, f"m{index}")
        receiver = queue.receiver()
        (first,) = await receiver.take(1)  # the others answered, too, and are kept ready
        gone = "m5" if first != "m5" else "m6"
        queue.inject(f"fragment/orders/{gone[1:]}")
        rest = await receiver.take(20)
        assert gone not in rest
        assert len(rest) == 14
        queue.board.clear()
        await queue.quiet()
        assert receiver.bodies[-1] == gone
        assert receiver.messages[-1].delivery_count == 0


@covers("B3", "P6")
async def test_a_drain_does_not_wait_for_a_fragment_that_is_out() -> None:
    async with GatedFragments() as queue:
        await queue.send_to(2, "a")
        await queue.send_to(3, "b")
        queue.inject("fragment/orders/3")
        receiver = queue.receiver()
        assert await receiver.drain(10) == ["a"]
        queue.board.clear()
        assert await receiver.drain(10) == ["b"]


@covers("B3", "P15")
async def test_a_slow_fragment_holds_up_its_own_traffic_only() -> None:
    async with GatedFragments() as queue:
        queue.inject("fragment/orders/3", "slow", latency_ms=700)
        slow = queue.stage(keyed("slow", partition_key=key_for(3)))
        quick = queue.stage(keyed("quick", partition_key=key_for(4)))
        await queue.quiet()
        assert (slow.is_given, quick.is_accepted) == (False, True)
        queue.timers.advance(0.7)
        await queue.quiet()
        assert slow.is_accepted


@covers("B3", "P20")
async def test_sessions_of_other_fragments_go_on() -> None:
    async with GatedFragments(requires_session=True) as queue:
        out, fine = key_for(3), key_for(4)
        await queue.send(keyed("a", session_id=out), keyed("b", session_id=fine))
        held = Wish(queue, fine)
        queue.inject("fragment/orders/3")
        assert held.session == fine
        refused = Wish(queue, out)
        assert isinstance(refused.error, FragmentUnavailable)
        waiting = Wish(queue)
        await queue.quiet()
        assert waiting.answer_count == 0
        queue.board.clear()
        await queue.quiet()
        await queue.pass_time(5.0)
        assert waiting.session == out


@covers("B3")
async def test_an_entity_that_is_out_takes_nothing_at_all() -> None:
    async with GatedFragments() as queue:
        queue.inject("entity/orders")
        for message in (keyed("a"), keyed("b", partition_key="k")):
            with pytest.raises(FragmentUnavailable):
                queue.stage(message)
        assert isinstance(queue.traffic.failure(), FragmentUnavailable)
        queue.board.clear()
        await queue.send("c")


@covers("B3", "P6")
@pytest.mark.parametrize("is_draining", [False, True])
async def test_a_message_whose_removal_is_refused_comes_again_when_the_fault_is_over(is_draining: bool) -> None:
    async with GatedFragments() as queue:
        await queue.send(*[str(number) for number in range(32)])
        queue.inject("entity/orders", probability=0.5)
        receiver = queue.receiver(is_destructive=True)
        receiver.want(32, is_draining)
        await queue.quiet()
        assert 0 < len(receiver.bodies) < 32
        queue.board.clear()
        await queue.pass_time(0.1)
        await receiver.drain(32)
        assert sorted(receiver.bodies, key=int) == [str(number) for number in range(32)]
        assert (sum(queue.counts()), queue.locked_count()) == (0, 0)


@covers("B3", "P6")
@pytest.mark.parametrize("is_alone", [False, True])
async def test_a_removal_that_waits_at_a_slow_fragment_is_not_carried_out_for_a_receiver_that_is_gone(
    is_alone: bool,
) -> None:
    async with GatedFragments() as queue:
        bodies = [f"m{index}" for index in range(16)]
        for index, body in enumerate(bodies):
            await queue.send_to(index, body)
        other = None if is_alone else queue.receiver(is_destructive=True)
        receiver = queue.receiver(is_destructive=True)
        queue.inject("entity/orders", "slow", latency_ms=5000)
        receiver.want(4)
        queue.timers.advance(5.0)
        assert (int(receiver.consumer.removing_count), receiver.bodies) == (4, [])
        receiver.leave()
        await queue.quiet()
        assert queue.locked_count() == 0, "they are there for others at once"
        queue.timers.advance(20.0)
        await queue.quiet()
        assert (sum(queue.counts()), receiver.bodies) == (16, [])
        queue.board.clear()
        other = other or queue.receiver(is_destructive=True)
        assert sorted(await other.take(16)) == sorted(bodies)
        assert {int(one.delivery_count) for one in other.messages} == {0}


@covers("B3", "P24")
async def test_deferred_messages_whose_removal_is_refused_are_deferred_as_before() -> None:
    async with GatedFragments() as queue:
        await queue.send(*[str(number) for number in range(32)])
        receiver = queue.receiver()
        await receiver.take(32)
        for lock in receiver.locks:
            queue.settle(lock, DEFER)
        await queue.quiet()
        numbers = [one.sequence_number for one in await queue.requests.peek(MAIN, 0, 100, 1 << 20)]
        queue.inject("entity/orders", probability=0.5)
        got = await queue.requests.receive_deferred(MAIN, numbers, True)
        assert 0 < len(got) < 32
        queue.board.clear()
        await queue.quiet()
        assert queue.locked_count() == 0
        left = [one.sequence_number for one in await queue.requests.peek(MAIN, 0, 100, 1 << 20)]
        assert len(await queue.requests.receive_deferred(MAIN, left, True)) == 32 - len(got)


@covers("P3", "P6", "B3")
async def test_a_slow_fragment_holds_nobody_up_who_wants_the_next_session() -> None:
    async with GatedFragments(requires_session=True) as queue:
        for index in (3, 5):
            queue.stage(keyed(f"m{index}", session_id=key_for(index)))
            await queue.quiet()
            queue.timers.advance(0.01)
        queue.inject("fragment/orders/3", "slow", latency_ms=20_000)
        first = Wish(queue)
        await queue.quiet()
        queue.timers.advance(0.3)
        await queue.quiet()
        assert first.session == key_for(5), "the older one is in the slow fragment"
        second = Wish(queue)
        queue.timers.advance(20.0)
        await queue.quiet()
        assert (second.session, first.answer_count, second.answer_count) == (key_for(3), 1, 1)
