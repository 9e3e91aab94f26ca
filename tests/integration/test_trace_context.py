"""Trace context goes with a message wherever it goes: the properties that say it arrive byte by byte."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tandembus.client import ReceivedMessage, SubQueue
from tandembus.pairing import FailoverEngaged
from tandembus.testing import AsyncEmbeddedNamespace, EmbeddedNamespace
from tests.covers import covers
from tests.integration.pairs import Form, Pair
from tests.integration.python_sdk import Closer, LoopThread
from tests.integration.syphons import everything, everything_in, pair, until, wait_until
from tests.unit.pairing.sdk_messages import wire

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CONTEXT: dict[str | bytes, Any] = {
    "Diagnostic-Id": f"00-{TRACE}-00f067aa0ba902b7-01",
    "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
    "tracestate": "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE,  tab=\t;%7F=" + "x" * 300,
}


def traced(body: str = "a") -> ServiceBusMessage:
    return ServiceBusMessage(body, application_properties=dict(CONTEXT), message_id=uuid.uuid4().hex)


def text(value: str) -> bytes:
    """As the SDK writes it."""
    raw = value.encode()
    return b"\xa1" + bytes([len(raw)]) + raw if len(raw) < 256 else b"\xb1" + len(raw).to_bytes(4, "big") + raw


SECTION = b"".join(text(str(name)) + text(str(value)) for name, value in CONTEXT.items())


def assert_traced(messages: Sequence[ReceivedMessage], count: int = 1) -> None:
    assert len(messages) == count
    for message in messages:
        assert SECTION in message.payload


@pytest.fixture
async def namespace() -> AsyncIterator[AsyncEmbeddedNamespace]:
    async with AsyncEmbeddedNamespace(stores=2) as namespace:
        yield namespace


@pytest.fixture
async def sdk(namespace: AsyncEmbeddedNamespace) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        yield client


async def send(sdk: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    async with sdk.get_queue_sender(queue) as sender:
        await sender.send_messages(list(messages))


def store_of(namespace: AsyncEmbeddedNamespace, queue: str) -> int:
    return namespace.namespace.catalog.get_queue(queue).stores[0]


@covers("B5")
async def test_through_the_broker(namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient) -> None:
    await namespace.create_queue("orders")
    await send(sdk, "orders", traced())
    async with sdk.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=10)
        received = {key.decode(): value.decode() for key, value in (message.application_properties or {}).items()}  # type: ignore[union-attr]
        assert list(received.items()) == list(CONTEXT.items())
        await receiver.abandon_message(message)
    assert_traced(await everything(namespace, "orders"))


@covers("B5")
async def test_through_forwarding_in_a_store_and_to_another(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient
) -> None:
    for name in ("end", "middle", "start", "other"):
        await namespace.create_queue(name)
    stores = {name: store_of(namespace, name) for name in ("start", "middle", "end", "other")}
    assert len(set(stores.values())) == 2
    here = [name for name in stores if stores[name] == stores["start"] and name != "start"]
    there = [name for name in stores if stores[name] != stores["start"]]
    for source, target in ((here[0], there[0]), ("start", here[0])):
        description = namespace.namespace.catalog.get_queue(source).description
        await namespace.namespace.update_queue(replace(description, forward_to=target))
    await send(sdk, "start", traced())
    await until(lambda: _has_active(namespace, there[0]))
    assert_traced(await everything(namespace, there[0]))


@covers("B5")
async def test_through_a_topic_and_a_rule_that_changes_other_properties(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient
) -> None:
    await namespace.create_topic("news")
    plain = await namespace.create_subscription("news", "plain")
    changed = await namespace.create_subscription("news", "changed", sql="1 = 0")
    await namespace.create_rule("news", "changed", "mark", "1 = 1", "SET marked = 'yes'")
    async with sdk.get_topic_sender("news") as sender:
        await sender.send_messages(traced())
    assert_traced(await everything(namespace, plain))
    assert_traced(await everything(namespace, changed))


@covers("B5")
async def test_to_the_dead_letters_by_a_receiver_by_failed_deliveries_and_on_from_there(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient
) -> None:
    await namespace.create_queue("graves")
    await namespace.create_queue("orders", max_delivery_count=1)
    await namespace.create_queue("passing", forward_dead_lettered_messages_to="graves")
    for queue, count in (("orders", 2), ("passing", 1)):
        await send(sdk, queue, *[traced() for _ in range(count)])
        async with sdk.get_queue_receiver(queue) as receiver:
            first, *rest = await receiver.receive_messages(count, max_wait_time=10)
            await receiver.dead_letter_message(first, reason="because", error_description="of that")
            for message in rest:
                await receiver.abandon_message(message)
    await until(lambda: _has_active(namespace, "graves"))
    assert_traced(await everything(namespace, "orders", SubQueue.DEAD_LETTER), 2)
    assert_traced(await everything(namespace, "graves"))


async def _has_active(namespace: AsyncEmbeddedNamespace, path: str) -> bool:
    return (await namespace.counts(path)).active > 0


@covers("B5", "N8")
async def test_through_a_backlog_queue_and_the_syphon_of_the_program() -> None:
    async with pair("orders") as both:
        await both.divert("orders", [wire(traced())])
        assert await both.syphon().run(once=True)
        assert_traced(await both.at_home("orders"))


@pytest.fixture(params=["async", "sync"])
def form(request: pytest.FixtureRequest, loop_thread: LoopThread, own_closer: Closer) -> Iterator[Form]:
    form = Form(request.param, loop_thread)
    yield form
    own_closer.close(form.close)


@covers("B5", "N8")
def test_through_failover_a_backlog_queue_and_the_syphon_of_the_sdk(
    form: Form, primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    queue = primary.create_queue(f"orders-{uuid.uuid4().hex[:8]}")
    made = Pair(
        form,
        form.client(primary.connection_string),
        form.client(secondary.connection_string),
        form.admin(secondary.tls_connection_string, secondary.ca_path),
        enable_syphon=True,
        backlog_queue_count=1,
        failover_interval=timedelta(0),
        syphon_retry_interval=timedelta(seconds=1),
    )
    form.closing_first(made.close)
    primary.inject_fault(f"entity/{queue}", "unavailable")
    made.sender(queue).send_messages(traced())
    made.events.wait_for(FailoverEngaged)
    primary.heal()
    wait_until(lambda: primary.counts(queue).active == 1)
    assert_traced(everything_in(primary, queue))
