"""The SDK's senders behind ours: who uses them, and when they are closed."""

from __future__ import annotations

import asyncio
import time

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender

from tandembus.pairing.links import Link
from tandembus.pairing.runtime import FailedOver, Retired, Stopped
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
