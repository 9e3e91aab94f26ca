"""What can go wrong when messages are set aside with plain operations."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tandembus.client import ReceivedMessage, ServiceBus, connect
from tandembus.client.management import Disposition
from tandembus.clock import SystemClock
from tandembus.spark.source.deferral import DeferralLedger
from tandembus.spark.source.link import Link
from tandembus.spark.source.loop_thread import LoopThread
from tandembus.spark.source.ranges import Batch, FragmentRanges, ranges_of
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered


class Deferring:
    """A ledger of one queue, called as a stream calls it."""

    def __init__(self, stage: Stage, loop: LoopThread) -> None:
        options = stage.options(entities=stage.queue, backend="azure")
        self.queue = stage.queue
        self.loop = loop
        self.link = Link(options)
        self.ledger = DeferralLedger(self.link, options, SystemClock())

    def plan(self, count: int) -> FragmentRanges:
        return self.loop.call(self.ledger.plan(self.queue, count, 1 << 30))

    def settle(self, *numbers: int) -> None:
        self.loop.call(self.ledger.settle({self.queue: ranges_of(numbers)}))

    def left_over(self) -> Batch:
        return self.loop.call(self.ledger.left_over())


@pytest.fixture
def stage(plain_namespace: EmbeddedNamespace) -> Stage:
    return Stage(plain_namespace, f"q-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def deferring(stage: Stage) -> Iterator[Deferring]:
    stage.create()
    stage.send(numbered(10))
    with LoopThread() as loop:
        deferring = Deferring(stage, loop)
        yield deferring
        loop.call(deferring.link.drop())


def test_numbers_that_are_gone_do_not_keep_the_others_from_being_settled(stage: Stage, deferring: Deferring) -> None:
    assert deferring.plan(7) == {0: [(1, 7)]}
    deferring.settle(2, 5)
    deferring.settle(*range(1, 8), 900, 901)
    assert [message.sequence_number for message in stage.peek()] == [8, 9, 10]


@covers("D1")
def test_a_message_that_a_dead_driver_has_locked_is_settled_when_its_lock_is_over(
    stage: Stage, deferring: Deferring
) -> None:
    deferring.plan(4)

    async def lock() -> tuple[ServiceBus, list[ReceivedMessage]]:
        bus = await connect(stage.namespace.connection_string)
        return bus, await (await bus.management(stage.queue)).receive_deferred([2, 3])

    bus, locked = deferring.loop.call(lock())
    deferring.settle(1, 2, 3, 4)
    assert [message.sequence_number for message in stage.peek()] == [2, 3, *range(5, 11)]
    assert deferring.left_over() == {}

    async def give_up() -> None:
        node = await bus.management(stage.queue)
        tokens = [token for one in locked if (token := one.lock_token) is not None]
        await node.settle(Disposition.ABANDON, tokens)
        await bus.close()

    deferring.loop.call(give_up())
    deferring.settle()
    assert [message.sequence_number for message in stage.peek()] == list(range(5, 11))


def test_only_what_is_deferred_is_taken_over(stage: Stage, deferring: Deferring) -> None:
    deferring.plan(3)

    async def lock(bus: ServiceBus) -> Batch:
        receiver = await bus.receiver(stage.queue)
        assert len(await receiver.receive(2, 5.0)) == 2
        return await deferring.ledger.left_over()

    async def connected() -> Batch:
        async with await connect(stage.namespace.connection_string) as bus:
            return await lock(bus)

    assert deferring.loop.call(connected()) == {stage.queue: {0: [(1, 3)]}}
