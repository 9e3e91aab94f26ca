"""What is kept ready in the front end, of a single fragment: credit, ends of receivers, two front ends."""

from __future__ import annotations

import pytest

from tandembus.broker.locks import COMPLETE, CallbackSettleReply, MessageLock
from tandembus.broker.operations import CallbackConsumer
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.message import Message
from tandembus.namespace.partitioned_traffic import PartitionedTraffic
from tandembus.namespace.partitioning import PartitionSettings
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, body_of, small
from tests.unit.namespace.partitioned_queue import Timers


class Link:
    """A receiver that notes what it is given."""

    def __init__(self, traffic: PartitionedTraffic, is_destructive: bool = False) -> None:
        self.traffic = traffic
        self.consumer = CallbackConsumer(is_destructive, self._deliver, self._drained)
        self.got: list[tuple[Message, MessageLock]] = []
        self.drain_count = 0
        traffic.attach(self.consumer, MAIN)

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.got.append((message, lock))

    def _drained(self) -> None:
        self.consumer.credit = 0
        self.drain_count += 1

    def want(self, credit: int, is_draining: bool = False) -> None:
        self.consumer.credit += credit
        self.traffic.feed(self.consumer, MAIN, is_draining)

    @property
    def bodies(self) -> list[str]:
        return [body_of(message) for message, _ in self.got]


def single(queue: OneQueue) -> PartitionedTraffic:
    local = LocalTraffic(queue.fragment, queue.broker.want, queue.broker.session_serving.want)
    return PartitionedTraffic([local], PartitionSettings(), queue.clock, Timers(queue.clock).later)


@covers("P6")
@pytest.mark.parametrize("is_destructive", [False, True])
async def test_receivers_get_no_more_than_their_credit_and_nothing_is_kept_beyond_it(is_destructive: bool) -> None:
    async with OneQueue(small(window_messages=100, block_size=64)) as queue:
        traffic = single(queue)
        await queue.send(*[str(number) for number in range(30)])
        link = Link(traffic, is_destructive)
        link.want(10)
        await queue.quiet()
        assert link.bodies == [str(number) for number in range(10)]
        cache = traffic.cache(MAIN)
        assert cache is not None
        assert len(cache) == 0
        link.want(30, is_draining=True)
        await queue.quiet()
        assert link.bodies == [str(number) for number in range(30)]
        assert link.drain_count == 1
        assert int(queue.fragment.main.live_count) == (0 if is_destructive else 30)


@covers("P6", "M2")
async def test_a_link_that_ends_leaves_locked_what_it_had() -> None:
    async with OneQueue(small(window_messages=100, block_size=64)) as queue:
        traffic = single(queue)
        await queue.send("a", "b", "c", "d")
        ended, other = Link(traffic), Link(traffic)
        ended.want(1)
        await queue.quiet()
        traffic.detach(ended.consumer, MAIN)
        await queue.quiet()
        other.want(10)
        await queue.quiet()
        assert sorted(other.bodies) == ["b", "c", "d"]
        answers: list[object] = []
        reply = CallbackSettleReply(lambda _lock, error: answers.append(error))
        traffic.settle(ended.got[0][1], COMPLETE, reply)
        await queue.quiet()
        assert answers == [None]


@covers("P6")
async def test_what_is_received_beside_a_cache_is_shared_with_it() -> None:
    """Two front ends: what one keeps ready the other does not get, but what it gave back."""
    async with OneQueue(small(window_messages=100, block_size=64)) as queue:
        one, other = single(queue), single(queue)
        await queue.send("a", "b")
        first, second = Link(one), Link(other)
        first.want(1)
        second.want(1)
        await queue.quiet()
        assert sorted(first.bodies + second.bodies) == ["a", "b"]
