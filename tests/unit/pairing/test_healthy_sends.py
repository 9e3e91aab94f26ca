"""Sends on an open link: what they cost, and that they can be given up all the same."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from tandembus.pairing import EntityState, PairClosed
from tandembus.pairing.runtime import Attempt
from tandembus.pairing.sender import PairedSender
from tests.covers import covers
from tests.unit.pairing.conftest import ScriptedPair
from tests.unit.pairing.scripted import ScriptedSender


async def open_sender(pair: ScriptedPair) -> PairedSender:
    sender = pair.client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("opens it"))
    return sender


def made(kind: type) -> int:
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


@covers("N4")
async def test_a_healthy_send_makes_no_task_no_timer_and_nothing_that_outlives_it(pair: ScriptedPair) -> None:
    sender = await open_sender(pair)
    pair.primary.hangs.add("orders")
    before = asyncio.all_tasks(), made(Attempt), len(pair.runtime._timers)
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("0")))
    await pair.runtime.settle()
    assert asyncio.all_tasks() - before[0] == {sending}
    assert (made(Attempt), len(pair.runtime._timers)) == before[1:]
    assert list(sender._link.calls) == [sending]
    pair.primary.answer_late("orders")
    await sending
    assert not sender._link.calls


@covers("N1")
async def test_a_send_on_an_open_link_that_is_not_answered_ends_when_its_time_is_up(pair: ScriptedPair) -> None:
    sender = await open_sender(pair)
    pair.primary.hangs.add("orders")
    await pair.runtime.advance(45.0)
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("0")))
    await pair.runtime.advance(59.9)
    assert not sending.done()
    await pair.runtime.advance(0.1)
    with pytest.raises(OperationTimeoutError, match="60 s"):
        await sending
    assert pair.client.entity_state("orders") is EntityState.FAILING
    assert not pair.runtime._given_up


@covers("N5")
async def test_sends_on_an_open_link_are_in_the_backlog_the_moment_failover_engages(pair: ScriptedPair) -> None:
    sender = await open_sender(pair)
    pair.primary.down.add("orders")
    with pytest.raises(ServiceBusConnectionError):
        await pair.client.get_queue_sender("orders").send_messages(ServiceBusMessage("raised"))
    await pair.runtime.advance(10.0)
    pair.primary.hangs.add("orders")
    sending = [asyncio.ensure_future(sender.send_messages(ServiceBusMessage(str(number)))) for number in range(10)]
    await pair.runtime.advance(49.99)
    assert not any(one.done() for one in sending)
    await pair.runtime.advance(0.01)
    assert pair.client.entity_state("orders") is EntityState.FAILED_OVER
    await asyncio.gather(*sending)
    assert sorted(pair.in_backlog()) == [str(number) for number in range(10)]
    assert not pair.runtime._given_up


@covers("N14")
async def test_sends_on_an_open_link_end_when_the_paired_client_is_closed_and_none_is_begun(pair: ScriptedPair) -> None:
    sender = await open_sender(pair)
    pair.primary.hangs.add("orders")
    sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage("0")))
    await pair.runtime.settle()
    closing = asyncio.ensure_future(pair.client.close())
    await asyncio.sleep(0)
    with pytest.raises(PairClosed):
        await sender.send_messages(ServiceBusMessage("1"))
    with pytest.raises(PairClosed):
        await sending
    await closing
    assert pair.primary.tried["orders"] == 2


async def as_asked(sending: Callable[[], Coroutine[Any, Any, None]]) -> str:
    """How the caller is when its send is over."""
    try:
        await sending()
    except asyncio.CancelledError:
        return "cancelled"
    await asyncio.sleep(0)
    return "goes on"


@covers("N5")
@pytest.mark.parametrize("cancels_first", [True, False])
async def test_a_caller_who_cancels_in_the_moment_of_failover_is_cancelled(cancels_first: bool) -> None:
    pair = ScriptedPair(failover_interval=timedelta(seconds=20))
    sender = await open_sender(pair)
    pair.primary.hangs.add("orders")
    sending = asyncio.ensure_future(as_asked(lambda: sender.send_messages(ServiceBusMessage("0"))))
    await pair.runtime.settle()
    if cancels_first:
        sending.cancel()
    sender._link.outdate()
    sending.cancel()
    assert await sending == "cancelled"
    assert not pair.in_backlog()


@covers("N5")
async def test_a_caller_who_was_cancelled_before_and_sends_all_the_same_is_not_cancelled_by_failover() -> None:
    pair = ScriptedPair(failover_interval=timedelta(0))
    sender = await open_sender(pair)

    async def say_goodbye() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return await as_asked(lambda: sender.send_messages(ServiceBusMessage("goodbye")))
        return ""

    saying = asyncio.ensure_future(say_goodbye())
    await pair.runtime.settle()
    pair.primary.hangs_on["goodbye"] = "orders"
    saying.cancel()
    await pair.runtime.settle()
    pair.primary.down.add("orders")
    await pair.client.get_queue_sender("orders").send_messages(ServiceBusMessage("another"))
    assert await saying == "goes on"
    assert sorted(pair.in_backlog()) == ["another", "goodbye"]


class LastMomentSender(ScriptedSender):
    """Answers when it is cancelled."""

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        try:
            await super().send_messages(message)
        except asyncio.CancelledError:
            self._namespace.accepted[self.entity_name].append(message)


@covers("N5")
async def test_an_answer_in_the_moment_of_failover_counts_and_leaves_the_caller_uncancelled() -> None:
    pair = ScriptedPair()
    pair.primary_client.get_queue_sender = lambda name: LastMomentSender(pair.primary, name)  # type: ignore
    sender = await open_sender(pair)
    link = sender._link
    pair.primary.hangs.add("orders")
    sending = asyncio.ensure_future(as_asked(lambda: sender.send_messages(ServiceBusMessage("0"))))
    await pair.runtime.settle()
    link.outdate()
    assert await sending == "goes on"
    assert pair.primary.bodies("orders") == ["opens it", "0"]
    assert not pair.in_backlog()
    assert not link.calls
    assert not pair.runtime._given_up
    assert pair.runtime.timer_count == 0
