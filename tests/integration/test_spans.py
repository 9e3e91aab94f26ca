"""Spans of OpenTelemetry: of messages whose senders ask for them, as children of their trace, and of no others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tandembus.node.tracing import trace
from tandembus.pairing.client_ports import ClientPrimary
from tandembus.testing import AsyncEmbeddedNamespace
from tandembus.tracing.spans import Spans
from tandembus.tracing.syphon_spans import TracedPrimary
from tandembus.tracing.traffic_spans import TrafficSpans
from tests.covers import covers
from tests.integration.syphons import pair, until
from tests.unit.pairing.sdk_messages import wire

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
PARENT = 0x00F067AA0BA902B7


def traced(flag: str = "01", name: str = "traceparent", state: str = "rojo=1") -> ServiceBusMessage:
    parent = f"00-{TRACE:032x}-{PARENT:016x}-{flag}"
    return ServiceBusMessage("secret body", application_properties={name: parent, "tracestate": state})


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider)


@pytest.fixture
async def namespace(spans: Spans) -> AsyncIterator[AsyncEmbeddedNamespace]:
    async with AsyncEmbeddedNamespace(stores=2) as namespace:
        trace(spans, namespace.node.front_end, namespace.node.brokers)
        yield namespace


@pytest.fixture
async def sdk(namespace: AsyncEmbeddedNamespace) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


def names(exporter: InMemorySpanExporter) -> list[str]:
    return [span.name for span in exporter.get_finished_spans()]


def assert_is_child(span: ReadableSpan) -> None:
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (TRACE, PARENT)
    assert span.context.trace_state.get("rojo") == "1"


@covers("B5")
@pytest.mark.parametrize("name", ["traceparent", "Diagnostic-Id"])
async def test_a_send_a_receive_and_a_settlement_are_children_of_the_message_s_trace(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient, exporter: InMemorySpanExporter, name: str
) -> None:
    await namespace.create_queue("orders")
    async with sdk.get_queue_sender("orders") as sender, sdk.get_queue_receiver("orders") as receiver:
        await sender.send_messages(traced(name=name))
        (message,) = await receiver.receive_messages(1, max_wait_time=10)
        await receiver.complete_message(message)
    assert names(exporter) == ["send orders", "receive orders", "settle orders"]
    for span in exporter.get_finished_spans():
        assert_is_child(span)
        assert span.attributes is not None
        assert span.attributes["messaging.destination.name"] == "orders"
        assert span.status.status_code is StatusCode.UNSET
        assert "secret" not in span.to_json()


@covers("B5")
@pytest.mark.parametrize("message", [traced("00"), ServiceBusMessage("plain"), traced("zz"), traced("01-more")])
async def test_what_is_not_sampled_makes_no_spans(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient, exporter: InMemorySpanExporter, message: ServiceBusMessage
) -> None:
    await namespace.create_queue("orders")
    async with sdk.get_queue_sender("orders") as sender, sdk.get_queue_receiver("orders") as receiver:
        await sender.send_messages(message)
        (received,) = await receiver.receive_messages(1, max_wait_time=10)
        await receiver.complete_message(received)
    assert names(exporter) == []


@covers("B5")
async def test_each_sampled_message_of_a_batch_has_a_span(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient, exporter: InMemorySpanExporter
) -> None:
    await namespace.create_queue("orders", enable_partitioning=True)
    async with sdk.get_queue_sender("orders") as sender:
        await sender.send_messages([traced(), ServiceBusMessage("plain"), traced()])
    assert names(exporter) == ["send orders", "send orders"]


@covers("B5")
async def test_a_send_that_is_refused_is_an_error(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient, exporter: InMemorySpanExporter
) -> None:
    await namespace.create_queue("orders")
    async with sdk.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("first, so that the link is there"))
        await namespace.inject_fault("entity/orders", "unavailable")
        with pytest.raises(Exception, match="unavailable"):
            await sender.send_messages(traced())
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "FragmentUnavailable"


@covers("B5")
async def test_forwarding_is_a_span_from_the_arrival_to_the_next_store(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient, exporter: InMemorySpanExporter
) -> None:
    await namespace.create_queue("end")
    await namespace.create_queue("start", forward_to="end")
    async with sdk.get_queue_sender("start") as sender:
        await sender.send_messages(traced())
    await until(partial(_is_told, exporter, "forward start"))
    (span,) = [span for span in exporter.get_finished_spans() if span.name == "forward start"]
    assert_is_child(span)
    assert span.attributes is not None
    assert span.attributes["messaging.destination.name"] == "end"


async def _is_told(exporter: InMemorySpanExporter, name: str) -> bool:
    return name in names(exporter)


@covers("B5")
async def test_what_a_syphon_brings_home_is_a_span(exporter: InMemorySpanExporter, spans: Spans) -> None:
    async with pair("orders") as both:
        await both.divert("orders", [wire(traced()), wire(traced("00"))])
        home = ClientPrimary(both.connection_to(both.primary))
        syphon = both.syphon(primary=TracedPrimary(home, spans))  # type: ignore[arg-type]
        assert await syphon.run(once=True)
        assert len(await both.at_home("orders")) == 2
    (span,) = exporter.get_finished_spans()
    assert span.name == "syphon orders"
    assert_is_child(span)


@covers("B5")
async def test_traces_of_messages_that_are_never_settled_are_not_remembered_for_ever(
    namespace: AsyncEmbeddedNamespace, sdk: ServiceBusClient, exporter: InMemorySpanExporter, spans: Spans
) -> None:
    namespace.node.front_end.traced = TrafficSpans(spans, max_delivered=1).traced
    await namespace.create_queue("orders")
    async with sdk.get_queue_sender("orders") as sender, sdk.get_queue_receiver("orders") as receiver:
        await sender.send_messages([traced(), traced()])
        for message in await receiver.receive_messages(2, max_wait_time=10):
            await receiver.complete_message(message)
    assert names(exporter).count("settle orders") == 1


@covers("B5")
def test_where_tracing_is_off_nothing_of_it_is_loaded() -> None:
    loaded = "[one for one in sys.modules if 'opentelemetry' in one]"
    code = f"import sys, tandembus.node.wiring, tandembus.cli.serving; print({loaded})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
