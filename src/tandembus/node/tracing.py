"""Whether a process of a namespace makes spans. What that needs is loaded only where it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tandembus.broker.message_broker import MessageBroker
from tandembus.config import ServeSettings
from tandembus.front_end.amqp.front_end import AmqpFrontEnd

if TYPE_CHECKING:
    from tandembus.tracing.process_tracing import ProcessTracing
    from tandembus.tracing.spans import Spans


def start_tracing(settings: ServeSettings, process: str) -> ProcessTracing | None:
    if not settings.tracing:
        return None
    from tandembus.tracing.process_tracing import ProcessTracing

    return ProcessTracing.of(process)


def trace(spans: Spans, front_end: AmqpFrontEnd | None = None, brokers: Iterable[MessageBroker] = ()) -> None:
    """What these do from now on."""
    from tandembus.tracing.traffic_spans import TrafficSpans

    traffic = TrafficSpans(spans)
    if front_end is not None:
        front_end.traced = traffic.traced
    for broker in brokers:
        broker.forwarding.when_moved = traffic.forwarded
