"""The SDK's senders behind ours: who uses them, and when they are closed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus import ServiceBusSender as BlockingSender
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from tandembus.clock import SystemClock
from tandembus.pairing.links import Link
from tandembus.pairing.runtime import FailedOver, Retired, Stopped
from tandembus.pairing.sync import links as blocking_links
from tandembus.pairing.sync.runtime import Runtime as Threads
from tests.covers import covers
from tests.unit.pairing.conftest import ScriptedPair
from tests.unit.pairing.scripted import ManualRuntime, ScriptedNamespace

MANY = 10_000


def scripted(namespace: ScriptedNamespace) -> ServiceBusSender:
    return namespace.client.get_queue_sender("orders")


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


@covers("N5")
async def test_ten_thousand_calls_are_given_up_at_once_when_the_entity_fails_over() -> None:
    runtime, namespace = ManualRuntime(), ScriptedNamespace()
    links = [Link(scripted(namespace), runtime) for _ in range(10)]
    calls = [asyncio.ensure_future(links[number % 10].call(hang, 60.0)) for number in range(MANY)]
    await asyncio.sleep(0)
    assert sum(len(link.calls) for link in links) == MANY
    began = time.process_time()
    for link in links:
        link.outdate()
        link.retire()
    await asyncio.wait(calls)
    assert time.process_time() - began < 5.0, "looking through all of them for each would take minutes"
    assert all(isinstance(call.exception(), FailedOver) for call in calls)
    await runtime.settle()
    assert namespace.connections == 0


@covers("N14")
async def test_nothing_is_begun_on_a_link_that_is_not_used_any_more() -> None:
    runtime, namespace = ManualRuntime(), ScriptedNamespace()
    for end, refusal in ((Link.retire, Retired), (Link.outdate, FailedOver), (Link.stop, Stopped)):
        link = Link(scripted(namespace), runtime)
        end(link)
        with pytest.raises(refusal):
            await link.call(hang, 60.0)


@covers("N5")
@pytest.mark.parametrize("timeout", [None, 30.0])
async def test_a_connection_on_which_one_call_was_given_up_is_closed_when_the_last_one_succeeds(
    timeout: float | None,
) -> None:
    pair = ScriptedPair()
    sender = pair.client.get_queue_sender("orders")
    for number in range(5):
        await sender.send_messages(ServiceBusMessage("opens it"))
        pair.primary.hangs.add("orders")
        under_way = [
            asyncio.ensure_future(sender.send_messages(ServiceBusMessage(f"{number}"), timeout=timeout))
            for _ in range(2)
        ]
        await pair.runtime.settle()
        under_way[0].cancel()
        await pair.runtime.settle()
        pair.primary.hangs.clear()
        await sender.send_messages(ServiceBusMessage("on a new one"))
        pair.primary.answer_late("orders")
        await under_way[1]
        await pair.runtime.settle()
        assert pair.primary.connections == 1
    await pair.client.close()
    await pair.runtime.settle()
    assert pair.primary.connections == 0


# On threads.


class SlowSender:
    """Answers when it is told to."""

    entity_name = "orders"

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.begun = threading.Semaphore(0)
        self.is_closed = threading.Event()

    def send(self) -> None:
        self.begun.release()
        self.answers.wait(60.0)

    def close(self) -> None:
        self.is_closed.set()


@pytest.fixture
def threads() -> Iterator[Threads]:
    runtime = Threads(SystemClock())
    yield runtime
    runtime.close(5.0)


@covers("N14")
def test_a_link_is_closed_at_once_where_failover_came_before_the_call_was_made(threads: Threads) -> None:
    sender = SlowSender()
    link = blocking_links.Link(cast(BlockingSender, sender), threads)
    link.is_outdated = True
    for _ in range(3):
        with pytest.raises(FailedOver):
            link.call(sender.send, 60.0)
    began = time.monotonic()
    link.close()
    assert sender.is_closed.is_set()
    assert time.monotonic() - began < 3.0


@covers("N14")
def test_closing_does_not_wait_for_calls_that_do_not_end_and_they_are_not_disturbed(threads: Threads) -> None:
    sender = SlowSender()
    link = blocking_links.Link(cast(BlockingSender, sender), threads)
    for _ in range(3):
        with pytest.raises((OperationTimeoutError, Retired)):
            link.call(sender.send, 0.01)
    began = time.monotonic()
    link.close(patience_s=0.2)
    assert 0.1 < time.monotonic() - began < 10.0
    assert not sender.is_closed.is_set()
    sender.answers.set()
    assert sender.is_closed.wait(10.0)


@covers("N14")
def test_closing_ends_the_calls_of_other_threads(threads: Threads) -> None:
    sender, raised = SlowSender(), list[BaseException]()
    link = blocking_links.Link(cast(BlockingSender, sender), threads)

    def send() -> None:
        try:
            link.call(sender.send, 60.0)
        except Stopped as error:
            raised.append(error)

    senders = [threading.Thread(target=send) for _ in range(3)]
    for each in senders:
        each.start()
        assert sender.begun.acquire(timeout=30.0)
    link.stop()
    for each in senders:
        each.join(30.0)
    assert len(raised) == 3
    assert not sender.is_closed.is_set()
    sender.answers.set()
    link.close()
    assert sender.is_closed.is_set()
