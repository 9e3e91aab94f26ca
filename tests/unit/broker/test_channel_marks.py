"""Marks: whoever is in doubt about an operation learns from the store what became of it."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker.channel_marks import KEPT_MS, ChannelMark, ChannelMarks
from tandembus.broker.locks import COMPLETE, CallbackSettleReply, MessageLock
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.errors import BusError, StoreFull, StoreUnavailable
from tandembus.message import Message
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MARK_NUMBERS
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue, message, small

CHANNEL = bytes(range(16))


class Numbered:
    """Answers of one numbered operation, as a broker gives them to a channel."""

    def __init__(self, mark: ChannelMark, number: int) -> None:
        self._mark = mark
        self._number = number
        self.error: BusError | None = None

    def when_collected(self, _operation: object) -> None:
        self._mark.done(self._number)

    def answer(self, _operation: object, error: BusError | None) -> None:
        if error is not None:
            self._mark.undo(self._number)
        self.error = error


class Channel:
    """One front end's connection to the broker of a queue."""

    def __init__(self, queue: OneQueue) -> None:
        self._queue = queue
        self._last_number = 0
        self.mark = queue.broker.channel_marks.open(CHANNEL, queue.clock.now_ms())

    def next_reply(self) -> Numbered:
        self._last_number += 1
        return Numbered(self.mark, self._last_number)

    def send(self, *messages: Message) -> Numbered:
        reply = self.next_reply()
        size = sum(len(one.sections) for one in messages)
        self._queue.fragment.send(
            SendOperation(list(messages), size, CallbackSendReply(reply.answer, reply.when_collected), 0)
        )
        return reply

    def settle(self, lock: MessageLock, settlement: int) -> Numbered:
        reply = self.next_reply()
        self._queue.fragment.settle(lock, settlement, CallbackSettleReply(reply.answer, reply.when_collected))
        return reply

    def discharge(self, sends: list[Message], *settlements: TransactionSettlement) -> Numbered:
        reply = self.next_reply()
        quiet = CallbackSendReply(lambda *_: None)
        operations = [SendOperation([one], len(one.sections), quiet, -1) for one in sends]
        told = CallbackTransactionReply(reply.answer, reply.when_collected)
        self._queue.fragment.discharge(TransactionOperation(operations, list(settlements), told))
        return reply

    @property
    def done(self) -> list[int]:
        return done_of(self.mark, self._last_number)


def done_of(mark: ChannelMark | None, last: int) -> list[int]:
    assert mark is not None
    return [number for number in range(1, last + 1) if mark.is_done(number)]


async def stored_marks(queue: OneQueue, last: int) -> list[int]:
    """What another broker would find."""
    marks = ChannelMarks()
    marks.load(list(queue.disk.marks.values()))
    mark = marks.find(CHANNEL)
    return [] if mark is None else done_of(mark, last)


async def reopened(queue: OneQueue) -> None:
    """Until the store, which has failed or is about to, is open again."""
    is_open = asyncio.Event()
    queue.broker.on_reopened.append(is_open.set)
    await is_open.wait()


# The mark itself.


def test_a_mark_knows_the_last_numbers_and_no_others() -> None:
    mark = ChannelMarks().open(CHANNEL, 0)
    for number in range(1, MARK_NUMBERS + 11):
        mark.done(number)
    assert not mark.is_done(10)
    assert mark.is_done(11)
    assert mark.is_done(MARK_NUMBERS + 10)
    assert not mark.is_done(MARK_NUMBERS + 11)


def test_numbers_that_were_passed_over_are_not_done_although_their_places_were_taken_before() -> None:
    mark = ChannelMarks().open(CHANNEL, 0)
    for number in range(1, MARK_NUMBERS + 1):
        mark.done(number)
    mark.done(MARK_NUMBERS + 5)
    assert [number for number in range(1, MARK_NUMBERS + 6) if not mark.is_done(number)] == [
        *range(1, 6),
        *range(MARK_NUMBERS + 1, MARK_NUMBERS + 5),
    ]


def test_a_great_leap_forgets_everything_before_it() -> None:
    mark = ChannelMarks().open(CHANNEL, 0)
    mark.done(7)
    mark.done(7 + MARK_NUMBERS)
    assert mark.is_done(7 + MARK_NUMBERS)
    mark.done(7 + 3 * MARK_NUMBERS)
    assert not mark.is_done(7 + 2 * MARK_NUMBERS)
    assert not mark.is_done(7 + MARK_NUMBERS)


def test_numbers_may_be_decided_out_of_order() -> None:
    mark = ChannelMarks().open(CHANNEL, 0)
    for number in (5, 2, 9, 1):
        mark.done(number)
    assert done_of(mark, 10) == [1, 2, 5, 9]
    mark.undo(9)
    mark.undo(3)
    assert done_of(mark, 10) == [1, 2, 5]


def test_only_marks_that_changed_are_written_and_only_once() -> None:
    marks = ChannelMarks()
    first, second = marks.open(b"a" * 16, 0), marks.open(b"b" * 16, 0)
    first.done(1)
    first.done(2)
    assert [record.channel for record in marks.records(5)] == [b"a" * 16]
    marks.committed()
    assert marks.records(6) == []
    second.done(1)
    assert [(record.channel, record.at_ms) for record in marks.records(7)] == [(b"b" * 16, 7)]


# In the commit.


@covers("P15")
async def test_the_mark_is_stored_with_what_it_decides() -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        channel.send(message("a"))
        queue.stage(message("of no channel"))
        channel.send(message("b"))
        before = queue.disk.commit_count
        await queue.quiet()
        assert queue.disk.commit_count == before + 1
        assert await stored_marks(queue, 9) == [1, 2]


@covers("P15")
async def test_settlements_and_transactions_are_marked_too() -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        await queue.send("a", "b", "c")
        receiver = queue.receiver()
        await receiver.take(3)
        channel.settle(receiver.locks[0], COMPLETE)
        channel.settle(receiver.locks[1], TO_DEAD_LETTERS)  # for which the body is read first
        channel.discharge([message("d")], TransactionSettlement(receiver.locks[2], COMPLETE))
        await queue.quiet()
        assert await stored_marks(queue, 9) == [1, 2, 3]


@covers("P15")
async def test_what_only_waits_for_its_commit_is_not_marked() -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        queue.fault_next(Fault.HANG)
        channel.send(message("a"))
        await queue.disk.is_hanging.wait()
        channel.send(message("b"))
        assert channel.done == [1]
        assert await stored_marks(queue, 9) == []
        queue.disk.go_on.set()
        await queue.quiet()
        assert await stored_marks(queue, 9) == [1, 2]


@covers("P15")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST])
async def test_after_a_commit_of_unknown_outcome_the_mark_tells_it(fault: Fault) -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        await queue.send("before")
        lock = await queue.receiver().take_one()
        queue.fault_next(fault)
        failures: list[StoreUnavailable] = []
        queue.broker.on_failed.append(failures.append)
        replies = [channel.send(message("a")), channel.settle(lock, COMPLETE)]
        await reopened(queue)
        assert all(isinstance(reply.error, StoreUnavailable) for reply in replies)
        assert len(failures) == 1
        is_kept = fault is Fault.UNKNOWN_KEPT
        assert channel.done == ([1, 2] if is_kept else [])
        assert await queue.peek() == (["a"] if is_kept else ["before"])
        channel.send(message("b"))
        await queue.quiet()
        assert channel.done == ([1, 2, 3] if is_kept else [3])


@covers("P15")
async def test_after_a_crash_the_next_broker_knows_what_was_done() -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        channel.send(message("a"))
        await queue.quiet()
        channel.send(message("never committed"))
        async with await queue.after_crash() as again:
            mark = again.broker.channel_marks.find(CHANNEL)
            assert done_of(mark, 9) == [1]
            assert await again.peek() == ["a"]


@covers("P15", "M13")
async def test_sends_that_a_full_store_refuses_are_taken_back_from_the_mark() -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        await queue.send("before")
        lock = await queue.receiver().take_one()
        queue.fault_next(Fault.FULL)
        refused = channel.send(message("a"))
        settled = channel.settle(lock, COMPLETE)
        await queue.quiet()
        assert isinstance(refused.error, StoreFull)
        assert settled.error is None
        assert channel.done == [2]
        assert await stored_marks(queue, 9) == [2]


@covers("P15", "M13")
async def test_what_not_even_fits_without_the_sends_is_taken_back_as_a_whole() -> None:
    async with OneQueue(small(max_delivery_count=1)) as queue:
        channel = Channel(queue)
        await queue.send("before")
        lock = await queue.receiver().take_one()
        queue.fault_next(Fault.FULL)
        queue.disk.faults[queue.disk.commit_count + 2] = Fault.FULL
        replies = [channel.send(message("a")), channel.settle(lock, TO_DEAD_LETTERS)]
        await queue.quiet()
        assert all(isinstance(reply.error, StoreFull) for reply in replies)
        assert channel.done == []
        assert await stored_marks(queue, 9) == []
        assert await queue.peek() == ["before"]


@covers("P15", "M11")
async def test_a_transaction_that_is_rolled_back_is_not_marked() -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        channel.send(message("a"))
        await queue.quiet()
        queue.fault_next(Fault.FULL)
        reply = channel.discharge([message("b")])
        await queue.quiet()
        assert isinstance(reply.error, StoreFull)
        assert channel.done == [1]
        assert await stored_marks(queue, 9) == [1]


# Long gone channels.


@covers("P15")
async def test_marks_of_channels_gone_for_an_hour_are_removed() -> None:
    async with OneQueue() as queue:
        channel = Channel(queue)
        channel.send(message("a"))
        await queue.quiet()
        await queue.pass_time(2 * KEPT_MS / 1000)
        assert CHANNEL in queue.disk.marks, "somebody is connected"
        queue.broker.channel_marks.closed(channel.mark, queue.clock.now_ms())
        await queue.pass_time(KEPT_MS / 1000)
        assert CHANNEL in queue.disk.marks
        await queue.pass_time(1.0)
        assert CHANNEL not in queue.disk.marks
        assert queue.broker.channel_marks.find(CHANNEL) is None


@covers("P15")
async def test_marks_of_an_earlier_life_go_an_hour_after_their_last_commit() -> None:
    async with OneQueue() as queue:
        Channel(queue).send(message("a"))
        await queue.quiet()
        async with await queue.after_crash() as again:
            await again.pass_time(KEPT_MS / 1000)
            assert CHANNEL in queue.disk.marks
            await again.pass_time(1.0)
            assert CHANNEL not in queue.disk.marks
