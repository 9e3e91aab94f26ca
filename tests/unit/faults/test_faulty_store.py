"""A store that an injected fault takes away, slows down or fills up, seen from the broker that owns it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tandembus.broker import message_broker
from tandembus.broker.locks import COMPLETE
from tandembus.broker.message_broker import MessageBroker
from tandembus.errors import FragmentUnavailable, MessageLockLost, OperationTimeout, StoreFull, StoreUnavailable
from tandembus.faults.board import FaultBoard
from tandembus.faults.fault import Topology, read_fault
from tandembus.faults.faulty_store import StoreFaults
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message


@pytest.fixture(autouse=True)
def _never_reopens_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is opened again in these tests was woken."""
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 1000.0)


class WatchedBoard(FaultBoard):
    """Tells when something has begun to wait."""

    is_delaying: asyncio.Event

    async def delay(self, seconds: float, is_wanted: Callable[[], bool]) -> None:
        self.is_delaying.set()
        await super().delay(seconds, is_wanted)

    async def until_delaying(self) -> None:
        await asyncio.wait_for(self.is_delaying.wait(), 10.0)
        self.is_delaying.clear()


class FaultyQueue(OneQueue):
    def __init__(self) -> None:
        super().__init__()
        self.draws: list[float] = []
        self.board = WatchedBoard(self.clock, Topology(stores=2, brokers=2), draw=lambda: self.draws.pop(0))
        self.board.is_delaying = asyncio.Event()
        faults = StoreFaults(self.board, 1)
        self.broker = MessageBroker(faults.opening(self._open_store), self.clock, self.budget, commit_outage_s=5.0)
        self.broker.on_turn_end = self._turn_ended.set
        self.reopened = asyncio.Event()
        self.broker.on_reopened.append(self.reopened.set)
        faults.watch(self.broker)

    async def __aenter__(self) -> FaultyQueue:
        await super().__aenter__()
        return self

    def inject(self, kind: str, target: str = "store/1", **more: object) -> None:
        self.board.put(read_fault("f1", {"target": target, "kind": kind, **more}))


@covers("B3")
async def test_a_store_that_is_out_fails_its_fragments_at_once_and_is_back_when_healed() -> None:
    async with FaultyQueue() as queue:
        await queue.send("a")
        receiver = queue.receiver()
        lock = await receiver.take_one()
        epoch = queue.broker.store.epoch
        queue.inject("unavailable")
        assert "injected fault 'f1'" in str(await queue.failed())
        with pytest.raises(StoreUnavailable) as refused:
            queue.stage(message("b"))
        assert not isinstance(refused.value, FragmentUnavailable)
        queue.board.clear()
        await queue.reopened.wait()
        assert queue.broker.store.epoch == epoch + 1
        assert await queue.send("c") == [2]
        with pytest.raises(MessageLockLost):
            queue.settle(lock, COMPLETE)
        assert await receiver.take(5) == ["a", "c"]


@covers("B3")
async def test_what_was_staged_when_the_store_went_out_was_not_stored() -> None:
    async with FaultyQueue() as queue:
        answer = queue.stage(message("a"))
        queue.inject("unavailable")
        assert isinstance(await answer.wait(), StoreUnavailable)
        queue.board.clear()
        await queue.reopened.wait()
        assert await queue.peek() == []


@covers("B3")
async def test_faults_of_another_store_are_not_felt() -> None:
    async with FaultyQueue() as queue:
        for kind, more in (("unavailable", {}), ("disk-full", {}), ("slow", {"latency_ms": 60_000})):
            queue.inject(kind, "store/0", **more)
            await queue.send(kind)
        assert len(await queue.peek()) == 3


@covers("B3")
async def test_a_slow_store_takes_longer_for_every_commit() -> None:
    async with FaultyQueue() as queue:
        queue.inject("slow", latency_ms=3000)
        answer = queue.stage(message("a"))
        await queue.board.until_delaying()
        assert not answer.is_given
        queue.clock.advance(3.0)
        queue.inject("slow", latency_ms=3000)  # whatever wakes it
        assert await answer.wait() is None
        second = queue.stage(message("b"))
        await queue.board.until_delaying()
        assert not second.is_given
        queue.board.clear()
        assert await second.wait() is None


@covers("B3")
async def test_a_store_that_is_too_slow_is_an_outage_and_no_overload() -> None:
    async with FaultyQueue() as queue:
        queue.inject("slow", latency_ms=20_000)
        answer = queue.stage(message("a"))
        await queue.board.until_delaying()
        queue.clock.advance(5.5)
        queue.broker.check_commit()
        with pytest.raises(OperationTimeout):
            queue.stage(message("b"))
        queue.board.clear()
        assert await answer.wait() is None
        queue.broker.check_commit()
        await queue.send("c")


@covers("B3")
async def test_a_slow_store_that_goes_out_fails_the_commit_that_waits() -> None:
    async with FaultyQueue() as queue:
        queue.inject("slow", latency_ms=60_000)
        answer = queue.stage(message("a"))
        await queue.board.until_delaying()
        queue.inject("unavailable")
        assert isinstance(await answer.wait(), StoreUnavailable)
        queue.board.clear()
        await queue.reopened.wait()
        assert await queue.peek() == []


@covers("B3")
async def test_a_full_disk_refuses_sends_at_once_and_settling_goes_on() -> None:
    async with FaultyQueue() as queue:
        await queue.send("a")
        receiver = queue.receiver()
        lock = await receiver.take_one()
        queue.inject("disk-full")
        with pytest.raises(StoreFull, match="injected fault 'f1'"):
            queue.stage(message("b"))
        await queue.complete(lock)
        queue.board.clear()
        await queue.send("c")


@covers("B3")
async def test_a_store_that_fails_now_and_then_fails_as_often_as_it_says() -> None:
    async with FaultyQueue() as queue:
        queue.inject("unavailable", probability=0.1)
        queue.draws += [0.1, 0.05]
        await queue.send("a")
        answer = queue.stage(message("b"))
        assert isinstance(await answer.wait(), StoreUnavailable)
        queue.broker.reopen_soon()
        await queue.reopened.wait()
        assert await queue.peek() == ["a"]


@covers("B3")
async def test_a_store_that_is_out_when_its_broker_starts_cannot_be_opened() -> None:
    queue = FaultyQueue()
    queue.inject("unavailable")
    with pytest.raises(StoreUnavailable, match="injected fault"):
        await queue.broker.start()
