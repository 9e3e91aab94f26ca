"""What can go wrong when messages are set aside with plain operations."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping

import pytest

from tandembus.client import Management, OutgoingMessage, ReceivedMessage, Receiver, ServiceBus, connect
from tandembus.client.management import Disposition
from tandembus.client.request_link import Answer
from tandembus.clock import ManualClock, SystemClock
from tandembus.errors import ServerBusy
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.deferral import MOST_LATE, RECEIVED_TOGETHER, DeferralLedger
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.ranges import Batch, FragmentRanges, numbers_of, ranges_of
from tandembus.spark.source.stream import Stream
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered


async def nothing() -> None: ...


class CountingLink(Link):
    """Counts what is asked of management nodes, and lets a receiver fail."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self.calls = 0
        self.receives = 0
        self.empty_receives = 0
        self.before_second_receive: Callable[[], Awaitable[None]] = nothing
        self.fails_before_defer: Exception | None = None
        self.fails_after_defer: Exception | None = None

    async def management(self, entity: str) -> Management:
        node = await super().management(entity)
        ask = node._ask
        if getattr(ask, "__name__", "") != "counted":

            async def counted(operation: str, body: dict[str, object], link_name: str | None = None) -> Answer:
                self.calls += 1
                return await ask(operation, body, link_name)

            node._ask = counted  # type: ignore[method-assign]
        return node

    async def receiver(self, entity: str) -> Receiver:
        receiver = await super().receiver(entity)
        defer, receive = receiver.defer, receiver.receive

        async def failing(*messages: ReceivedMessage, properties: Mapping[str, object] | None = None) -> None:
            before, self.fails_before_defer = self.fails_before_defer, None
            if before is not None:
                raise before
            await defer(*messages, properties=properties)
            after, self.fails_after_defer = self.fails_after_defer, None
            if after is not None:
                raise after

        async def receive_later(max_messages: int = 1, wait_s: float | None = None) -> list[ReceivedMessage]:
            self.receives += 1
            if self.receives == 2:
                await self.before_second_receive()
            if self.empty_receives > 0:
                self.empty_receives -= 1
                return []
            return await receive(max_messages, wait_s)

        receiver.defer = failing  # type: ignore[method-assign]
        receiver.receive = receive_later  # type: ignore[method-assign]
        return receiver


class Deferring:
    """A ledger of one queue, called as a stream calls it."""

    def __init__(self, stage: Stage, loop: LoopThread) -> None:
        options = stage.options(entities=stage.queue, backend="azure", owner="reader")
        self.queue = stage.queue
        self.loop = loop
        self.link = CountingLink(options)
        self.ledger = DeferralLedger(self.link, options, SystemClock())

    def plan(self, count: int) -> FragmentRanges:
        return self.loop.call(self.ledger.plan(self.queue, count, 1 << 30))

    def settle(self, *numbers: int) -> None:
        self.loop.call(self.ledger.settle({self.queue: ranges_of(numbers)}))

    def left_over(self) -> Batch:
        return self.loop.call(self.ledger.left_over())


async def lock_deferred(stage: Stage, numbers: list[int]) -> tuple[ServiceBus, list[ReceivedMessage]]:
    bus = await connect(stage.namespace.connection_string)
    return bus, await (await bus.management(stage.queue)).receive_deferred(numbers)


async def give_up(bus: ServiceBus, stage: Stage, locked: list[ReceivedMessage]) -> None:
    node = await bus.management(stage.queue)
    await node.settle(Disposition.ABANDON, [token for one in locked if (token := one.lock_token) is not None])
    await bus.close()


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

    bus, locked = deferring.loop.call(lock_deferred(stage, [2, 3]))
    deferring.settle(1, 2, 3, 4)
    assert [message.sequence_number for message in stage.peek()] == [2, 3, *range(5, 11)]
    assert deferring.left_over() == {}

    deferring.loop.call(give_up(bus, stage, locked))
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


def test_settling_again_what_is_settled_costs_two_calls_for_a_hundred(stage: Stage, deferring: Deferring) -> None:
    deferring.plan(10)
    deferring.settle(*range(1, 11))
    deferring.link.calls = 0
    deferring.settle(*range(1, 201))
    assert deferring.link.calls == 4
    deferring.settle(*range(1, 201))
    stage.send(numbered(3))
    assert deferring.plan(10) == {0: [(11, 13)]}


@covers("D1")
def test_what_is_locked_is_settled_while_the_stream_is_idle(stage: Stage, deferring: Deferring) -> None:
    stream = Stream(deferring.link.options, deferring.link, deferring.ledger)
    planned = deferring.loop.call(stream.latest(stream.initial(), 10, 1 << 30))
    bus, locked = deferring.loop.call(lock_deferred(stage, [1, 2, 3]))
    assert deferring.loop.call(stream.latest(planned, 10, 1 << 30)) == planned
    assert [message.sequence_number for message in stage.peek()] == [1, 2, 3]
    deferring.loop.call(give_up(bus, stage, locked))
    assert deferring.loop.call(stream.latest(planned, 10, 1 << 30)) == planned
    assert stage.peek() == []


@covers("D1")
@pytest.mark.parametrize("given_back", [[], [2], [1, 2, 3]])
def test_what_was_received_when_the_connection_went_is_not_overtaken(
    stage: Stage, deferring: Deferring, given_back: list[int]
) -> None:
    """Locked as it is, it would come back when others have been planned; whatever of it the service has given back."""
    deferring.link.fails_before_defer = ConnectionError("gone")
    with pytest.raises(ConnectionError):
        deferring.plan(3)

    async def give_back() -> None:
        node = await deferring.link.management(stage.queue)
        tokens = [deferring.ledger._held[stage.queue][number] for number in given_back]
        if tokens:
            await node.settle(Disposition.ABANDON, tokens)
        await deferring.link.drop()

    deferring.loop.call(give_back())
    assert deferring.plan(6) == {0: [(1, 6)]}


@covers("D1")
def test_what_was_scheduled_and_received_when_the_connection_went_is_not_overtaken() -> None:
    with EmbeddedNamespace(reservations=False) as namespace, LoopThread() as loop:
        stage = Stage(namespace, "q")
        stage.create()
        in_a_minute = namespace.clock.now().timestamp() + 60.0
        stage.send([OutgoingMessage(str(number), scheduled_at=in_a_minute) for number in range(3)])
        namespace.clock.advance(61.0)
        deferring = Deferring(stage, loop)
        deferring.link.fails_before_defer = ConnectionError("gone")
        with pytest.raises(ConnectionError):
            deferring.plan(3)
        loop.call(deferring.link.drop())
        stage.send(numbered(1))
        assert deferring.plan(4) == {0: [(4, 7)]}
        loop.call(deferring.link.drop())


@covers("D1")
@pytest.mark.parametrize("failure", [ConnectionError("gone"), ServerBusy("later")])
def test_what_was_deferred_when_the_connection_went_is_planned_next(deferring: Deferring, failure: Exception) -> None:
    deferring.link.fails_after_defer = failure
    with pytest.raises(type(failure)):
        deferring.plan(3)
    deferring.loop.call(deferring.link.drop())
    assert deferring.plan(6) == {0: [(1, 6)]}
    deferring.settle(*range(1, 7))
    assert deferring.plan(10) == {0: [(7, 10)]}


@covers("D1")
def test_a_failure_behind_the_first_deferred_ones_plans_these(stage: Stage, deferring: Deferring) -> None:
    stage.send(numbered(500))
    planned: list[int] = []
    while len(planned) < 510:
        deferring.link.fails_after_defer = ServerBusy("later") if planned else None
        try:
            planned += numbers_of(deferring.plan(1000))
        except ServerBusy:
            pass
        deferring.loop.call(deferring.link.drop())
    assert sorted(planned) == list(range(1, 511))
    assert deferring.left_over() == {stage.queue: {0: [(1, 510)]}}


@covers("D1")
def test_a_query_that_is_to_end_goes_on_when_a_receive_comes_back_empty(stage: Stage, deferring: Deferring) -> None:
    deferring.loop.call(deferring.ledger.remember_ends())
    deferring.link.empty_receives = 2
    assert deferring.plan(10) == {0: [(1, 10)]}
    deferring.settle(*range(1, 11))
    assert deferring.plan(10) == {}


def test_a_query_that_is_to_end_does_not_wait_for_ever_for_what_others_hold(
    stage: Stage, deferring: Deferring, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(deferring.ledger._clock.now())
    ledger = DeferralLedger(deferring.link, deferring.link.options, clock)

    async def time_passes() -> None:
        clock.advance(deferring.link.options.retry_for_s)

    async def held() -> FragmentRanges:
        await ledger.remember_ends()
        async with await connect(stage.namespace.connection_string) as bus:
            receiver = await bus.receiver(stage.queue)
            assert len(await receiver.receive(10, 5.0)) == 10
            deferring.link.before_second_receive = time_passes
            deferring.link.empty_receives = 2
            return await ledger.plan(stage.queue, 10, 1 << 30)

    assert deferring.loop.call(held()) == {}
    assert "start the query again" in caplog.text


@covers("D1")
def test_what_came_too_late_hides_nothing_that_came_in_time(stage: Stage, deferring: Deferring) -> None:
    """Where messages are given back, and in partitioned entities, later ones may be received first."""

    async def hold_all(bus: ServiceBus) -> FragmentRanges:
        receiver = await bus.receiver(stage.queue)
        early = await receiver.receive(10, 5.0)
        await (await bus.sender(stage.queue)).send(OutgoingMessage("late", message_id="late"))
        (late,) = await (await bus.management(stage.queue)).peek(11, 1)
        clock = ManualClock((late.enqueued_at or 0.0) - 0.001)
        ledger = DeferralLedger(deferring.link, deferring.link.options, clock)
        await ledger.remember_ends()
        deferring.link.before_second_receive = lambda: receiver.release(*early)
        return await ledger.plan(stage.queue, 5, 1 << 30)

    async def connected() -> FragmentRanges:
        async with await connect(stage.namespace.connection_string) as bus:
            return await hold_all(bus)

    assert deferring.loop.call(connected()) == {0: [(1, 5)]}
    assert [message.state for message in stage.peek()] == ["deferred"] * 5 + ["active"] * 6


@covers("D1")
def test_a_query_that_is_to_end_looks_no_further_than_what_came_in_time(stage: Stage, deferring: Deferring) -> None:
    """Senders may be faster than whoever looks through all that they send."""
    stage.send(numbered(2000))
    clock = ManualClock((stage.peek()[0].enqueued_at or 0.0) - 0.001)
    ledger = DeferralLedger(deferring.link, deferring.link.options, clock)
    deferring.loop.call(ledger.remember_ends())
    assert deferring.loop.call(ledger.plan(stage.queue, 5, 1 << 30)) == {}
    assert deferring.link.calls == 2


@covers("D1")
def test_what_came_too_late_is_held_in_a_bounded_number(
    stage: Stage, deferring: Deferring, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock((stage.peek()[-1].enqueued_at or 0.0) + 0.001)
    ledger = DeferralLedger(deferring.link, deferring.link.options, clock)

    async def planned(bus: ServiceBus) -> FragmentRanges:
        receiver = await bus.receiver(stage.queue)
        assert len(await receiver.receive(10, 5.0)) == 10  # and keeps them
        await (await bus.sender(stage.queue)).send_many(list(numbered(MOST_LATE + 2 * RECEIVED_TOGETHER)))
        await ledger.remember_ends()
        return await ledger.plan(stage.queue, 1000, 1 << 30)

    async def connected() -> FragmentRanges:
        async with await connect(stage.namespace.connection_string) as bus:
            return await planned(bus)

    assert deferring.loop.call(connected()) == {}
    assert deferring.link.receives == MOST_LATE // RECEIVED_TOGETHER
    assert "start the query again" in caplog.text
