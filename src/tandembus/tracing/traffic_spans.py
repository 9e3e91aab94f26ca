"""Spans of what links do, and of what is forwarded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Final, final

from opentelemetry.trace import Span

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE, MessageLock
from tandembus.broker.operations import SendOperation
from tandembus.interconnect.traced_traffic import Ended, TracedTraffic, TrafficListener
from tandembus.interconnect.traffic import Traffic
from tandembus.message import Message
from tandembus.tracing.context import sampled_context
from tandembus.tracing.spans import Attributes, Spans, end

MAX_DELIVERED: Final = 10_000
"""Messages in clients' hands whose trace is remembered until they are settled; of more, the oldest are forgotten."""
SETTLEMENTS: Final = {
    COMPLETE: "complete",
    ABANDON: "abandon",
    DEFER: "defer",
    DEAD_LETTER: "dead_letter",
    RELEASE: "release",
}


@final
class TrafficSpans:
    """One for all links of a front end."""

    def __init__(self, spans: Spans, max_delivered: int = MAX_DELIVERED) -> None:
        self._spans: Final = spans
        self._max_delivered: Final = max_delivered
        self._delivered: Final[OrderedDict[bytes, Mapping[str, str]]] = OrderedDict()

    def traced(self, path: str, traffic: Traffic) -> TracedTraffic:
        listener = TrafficListener(
            partial(self._send_began, path), partial(self._settle_began, path), partial(self._delivered_to, path)
        )
        return TracedTraffic(traffic, listener)

    def _send_began(self, path: str, operation: SendOperation) -> Ended | None:
        """Until it is durable."""
        begun: list[Span] = []
        for message in operation.messages:
            context = sampled_context(message)
            if context is not None:
                attributes: Attributes = {
                    "messaging.operation.name": "send",
                    "messaging.destination.name": path,
                    "messaging.message.body.size": int(message.wire_size),
                    "messaging.batch.message_count": len(operation.messages),
                }
                begun.append(self._spans.begin(f"send {path}", context, attributes))
        return partial(end, begun) if begun else None

    def _delivered_to(self, path: str, message: Message, lock: MessageLock) -> None:
        """A moment: it is written to the connection."""
        context = sampled_context(message)
        if context is None:
            return
        attributes: Attributes = {
            "messaging.operation.name": "receive",
            "messaging.destination.name": path,
            "messaging.message.delivery_count": int(message.delivery_count) + 1,
        }
        end([self._spans.begin(f"receive {path}", context, attributes)], None)
        self._delivered[lock.token] = context
        if len(self._delivered) > self._max_delivered:
            self._delivered.popitem(last=False)

    def _settle_began(self, path: str, lock: MessageLock, settlement: int) -> Ended | None:
        """Until it is durable."""
        context = self._delivered.pop(lock.token, None)
        if context is None:
            return None
        outcome = SETTLEMENTS.get(settlement, "settle")
        attributes: Attributes = {
            "messaging.operation.name": "settle",
            "messaging.destination.name": path,
            "messaging.servicebus.disposition_status": outcome,
        }
        return partial(end, [self._spans.begin(f"settle {path}", context, attributes)])

    def forwarded(self, message: Message, source: str, target: str) -> None:
        """From its arrival here until it is durable there."""
        context = sampled_context(message)
        if context is not None:
            attributes: Attributes = {
                "messaging.operation.name": "forward",
                "messaging.source.name": source,
                "messaging.destination.name": target,
            }
            start_ns = int(message.enqueued_at) * 1_000_000
            end([self._spans.begin(f"forward {source}", context, attributes, start_ns)], None)
