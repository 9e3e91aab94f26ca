"""Sends to a store of this process that fails: what is in doubt is learnt when it is open again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tandembus.broker.locks import COMPLETE, CallbackSettleReply
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import TransactionSettlement
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    MessageLockLost,
    OutcomeUnknown,
    QuotaExceeded,
    StoreFull,
    StoreUnavailable,
)
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.in_process import InProcessChannel
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.message import IS_SCHEDULED
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, OneQueue, body_of, message, small
from tests.unit.interconnect.two_ends import discharge, send, stage, until


class MarkedQueue:
    def __init__(self, queue: OneQueue) -> None:
        self.queue = queue
        self.channel = InProcessChannel(queue.broker, queue.clock, ChannelSettings())
        broker = queue.broker
        self.traffic = LocalTraffic(queue.fragment, broker.want, broker.session_serving.want, self.channel.core)

    def keep_closed(self, tries: int) -> None:
        """The store cannot be opened again so many times."""
        self.queue.open_faults = [StoreUnavailable("not yet")] * tries

    async def pass_time(self, seconds: float) -> None:
        self.queue.clock.advance(seconds)
        self.channel.core.tick(self.queue.clock.monotonic())


@pytest.fixture
async def marked() -> AsyncIterator[MarkedQueue]:
    async with OneQueue() as queue:
        marked = MarkedQueue(queue)
        yield marked
        marked.channel.close()


async def test_sends_are_answered_as_without_a_channel(marked: MarkedQueue) -> None:
    await send(marked.traffic, "a", "b", "c")
    assert await marked.queue.peek() == ["a", "b", "c"]
    assert marked.channel.core.open_count() == 0


@covers("P13", "P15")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_send_in_doubt_is_answered_with_what_the_store_says_when_it_is_back(
    marked: MarkedQueue, is_kept: bool
) -> None:
    await send(marked.traffic, "before")
    marked.queue.fault_next(Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST)
    answers = [stage(marked.traffic, message("a")), stage(marked.traffic, message("b"))]
    errors = [await answer.wait() for answer in answers]
    assert [type(error) for error in errors] == [type(None) if is_kept else FragmentUnavailable] * 2
    assert await marked.queue.peek() == ["before", *(["a", "b"] if is_kept else [])]


@covers("P13", "P15", "P24")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_schedule_in_doubt_is_answered_with_its_number_or_a_refusal_when_the_store_is_back(
    marked: MarkedQueue, is_kept: bool
) -> None:
    await send(marked.traffic, "before")
    marked.queue.fault_next(Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST)
    requests = LocalRequests(marked.queue.broker, marked.queue.fragment, marked.channel.core)
    later = message("later", scheduled_at_ms=marked.queue.clock.now_ms() + 60_000)
    if is_kept:
        assert await requests.schedule([later], 100) == [2]
        await requests.cancel_scheduled([2])
    else:
        with pytest.raises(FragmentUnavailable):
            await requests.schedule([later], 100)
    assert await marked.queue.peek() == ["before"]


async def test_what_was_staged_behind_the_failed_commit_was_not_taken(marked: MarkedQueue) -> None:
    await send(marked.traffic, "before")
    marked.queue.fault_next(Fault.HANG)
    first = stage(marked.traffic, message("a"))
    await marked.queue.disk.is_hanging.wait()
    second = stage(marked.traffic, message("b"))
    marked.keep_closed(1_000_000)
    marked.queue.broker.give_up(marked.queue.broker.store, StoreUnavailable("gone"))
    marked.queue.disk.go_on.set()
    assert await first.wait() is None
    assert isinstance(await second.wait(), FragmentUnavailable), "at once: no need to wait for the store"
    with pytest.raises(FragmentUnavailable):
        marked.traffic.send(_operation())
    marked.queue.open_faults.clear()


def _operation() -> SendOperation:
    return SendOperation([message("x")], 10, CallbackSendReply(lambda *_: None), 0)


@covers("P15")
async def test_a_store_that_stays_away_leaves_the_outcome_unknown(marked: MarkedQueue) -> None:
    marked.keep_closed(1_000_000)
    marked.queue.fault_next(Fault.UNKNOWN_KEPT)
    answer = stage(marked.traffic, message("a"))
    await marked.queue.failed()
    await marked.pass_time(4.9)
    assert not answer.is_given
    await marked.pass_time(0.2)
    assert isinstance(answer.error, OutcomeUnknown)
    marked.queue.open_faults.clear()


@covers("P15")
async def test_a_silent_store_leaves_the_outcome_unknown_after_fifteen_seconds(marked: MarkedQueue) -> None:
    await send(marked.traffic, "before")
    marked.queue.fault_next(Fault.HANG)
    answer = stage(marked.traffic, message("a"))
    await marked.queue.disk.is_hanging.wait()
    await marked.pass_time(14.9)
    assert not answer.is_given
    await marked.pass_time(0.2)
    assert isinstance(answer.error, OutcomeUnknown)
    marked.queue.disk.go_on.set()
    await marked.queue.quiet()
    assert await marked.queue.peek() == ["before", "a"], "it was carried out all the same"


async def test_a_hanging_store_is_told_by_a_timer(marked: MarkedQueue) -> None:
    """Nobody has to call `tick`: the channel sees to it for as long as somebody waits."""
    marked.keep_closed(1_000_000)
    marked.queue.fault_next(Fault.UNKNOWN_LOST)
    answer = stage(marked.traffic, message("a"))
    await marked.queue.failed()
    marked.queue.clock.advance(6.0)
    assert isinstance(await answer.wait(), OutcomeUnknown)
    marked.queue.open_faults.clear()


async def test_refusals_are_the_fragments_own() -> None:
    async with OneQueue(small(max_size_bytes=2000)) as queue:
        marked = MarkedQueue(queue)
        assert isinstance(await stage(marked.traffic, message("big", padding=5000)).wait(), QuotaExceeded)
        queue.fault_next(Fault.FULL)
        assert isinstance(await stage(marked.traffic, message("a")).wait(), StoreFull)
        marked.channel.close()


async def test_more_than_4096_wait_for_their_numbers_and_keep_their_order(marked: MarkedQueue) -> None:
    answers = [stage(marked.traffic, message(f"m{number}")) for number in range(5000)]
    assert marked.channel.core.open_count() == 4096
    assert [await answer.wait() for answer in answers] == [None] * 5000
    stored = [place[2] for place in sorted(marked.queue.disk.bodies)]
    assert len(stored) == 5000


@covers("P13")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_thousands_in_doubt_are_each_told_right(marked: MarkedQueue, is_kept: bool) -> None:
    answers = [stage(marked.traffic, message(f"m{number}")) for number in range(5000)]
    marked.queue.fault_next(Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST)
    errors = [await answer.wait() for answer in answers]
    stored = set(_stored(marked.queue))
    for number, error in enumerate(errors):
        assert (f"m{number}" in stored) == (error is None)
    assert all(error is None or isinstance(error, FragmentUnavailable) for error in errors)


def _stored(queue: OneQueue) -> list[str]:
    return sorted(body_of(one) for one in queue.disk.bodies.values())


@covers("P16")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_transaction_in_doubt_is_learnt_as_a_whole(marked: MarkedQueue, is_kept: bool) -> None:
    queue = marked.queue
    await queue.send("a")
    receiver = queue.receiver()
    receiver.consumer.credit = 1
    marked.traffic.feed(receiver.consumer, 0, False)
    await until(lambda: len(receiver.locks) == 1)
    settled: list[BusError | None] = []
    part = TransactionSettlement(
        receiver.locks[0], COMPLETE, CallbackSettleReply(lambda _lock, error: settled.append(error))
    )
    queue.fault_next(Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST)
    answer = discharge(marked.traffic, [message("b")], part)
    error = await answer.wait()
    assert (error is None) == is_kept
    assert (None in settled) == is_kept
    assert await queue.peek() == (["b"] if is_kept else ["a"])


async def test_a_transaction_that_is_refused_on_the_spot_has_no_number(marked: MarkedQueue) -> None:
    queue = marked.queue
    await queue.send("a")
    receiver = queue.receiver()
    receiver.consumer.credit = 1
    marked.traffic.feed(receiver.consumer, 0, False)
    await until(lambda: len(receiver.locks) == 1)
    queue.clock.advance(61.0)
    with pytest.raises(MessageLockLost):
        discharge(marked.traffic, [message("b")], TransactionSettlement(receiver.locks[0], COMPLETE))
    assert marked.channel.core.open_count() == 0


async def test_seeded_failures_lose_nothing_and_double_nothing(marked: MarkedQueue) -> None:
    """Whoever is told FragmentUnavailable sends again, as a round robin would, to the same place here."""
    chance = random.Random(7)
    queue = marked.queue
    waiting: dict[str, Answer] = {}
    for number in range(300):
        if chance.random() < 0.1:
            queue.fault_next(chance.choice([Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST]))
        waiting[f"m{number}"] = stage(marked.traffic, message(f"m{number}"))
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    while waiting:
        for body, answer in list(waiting.items()):
            error = await answer.wait()
            assert error is None or isinstance(error, FragmentUnavailable)
            if error is None:
                del waiting[body]
            else:
                await until(lambda: marked.traffic.failure() is None)
                waiting[body] = stage(marked.traffic, message(body))
    assert _stored(queue) == sorted(f"m{number}" for number in range(300))


@covers("P13", "P26")
async def test_what_another_fragment_takes_bears_no_trace_of_the_first(marked: MarkedQueue) -> None:
    """The first one may still be busy with it, and would number the same object."""
    await send(marked.traffic, "before")
    marked.queue.fault_next(Fault.HANG)
    sent = message("a", ttl_ms=5000, scheduled_at_ms=marked.queue.clock.now_ms() + 1000)
    answer = stage(marked.traffic, sent)
    await marked.queue.disk.is_hanging.wait()
    await marked.pass_time(15.1)
    assert isinstance(answer.error, OutcomeUnknown)
    again = answer.messages[0]
    assert again is not sent
    assert (sent.number, sent.original_number) == (2, 2)
    assert (again.number, again.original_number, again.enqueued_at) == (0, 0, 0)
    assert sent.flags == again.flags | IS_SCHEDULED != again.flags
    assert (again.sections, again.ttl_ms, again.scheduled_at) == (sent.sections, 5000, sent.scheduled_at)
    marked.queue.disk.go_on.set()
