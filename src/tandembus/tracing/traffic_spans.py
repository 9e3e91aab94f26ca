"""Spans of what links do, and of what is forwarded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, final

from opentelemetry.trace import Span

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE, MessageLock
from tandembus.broker.operations import SendOperation
from tandembus.errors import BusError
from tandembus.message import Message
from tandembus.tracing.context import sampled_context
from tandembus.tracing.spans import Attributes, Spans, end

MAX_DELIVERED: Final = 10_000
"""Messages in clients' hands whose trace is remembered until they are settled; the oldest beyond that are forgotten."""
SETTLEMENTS: Final = {
    COMPLETE: "complete",
    ABANDON: "abandon",
    DEFER: "defer",
    DEAD_LETTER: "dead_letter",
    RELEASE: "release",
}


@final
class TrafficSpans:
    """The spans of one process."""

    def __init__(self, spans: Spans, max_delivered: int = MAX_DELIVERED) -> None:
        self.spans: Final = spans
        self._max_delivered: Final = max_delivered
        self._delivered: Final[OrderedDict[bytes, Mapping[str, str]]] = OrderedDict()
        """By lock token."""

    def of_link(self, path: str) -> LinkSpans:
        return LinkSpans(path, self)

    def remember(self, token: bytes, context: Mapping[str, str]) -> None:
        self._delivered[token] = context
        if len(self._delivered) > self._max_delivered:
            self._delivered.popitem(last=False)

    def forget(self, token: bytes) -> Mapping[str, str] | None:
        return self._delivered.pop(token, None)

    def forwarded(self, message: Message, source: str, target: str) -> None:
        """From the message's arrival in the source until it is durable in the target."""
        context = sampled_context(message)
        if context is not None:
            attributes = {"messaging.source.name": source, **_about("forward", target)}
            start_ns = int(message.enqueued_at) * 1_000_000
            end([self.spans.begin(f"forward {source}", context, attributes, start_ns)], None)


@final
class LinkSpans:
    """Implements `LinkTrace` for a link of the entity with this path."""

    def __init__(self, path: str, traffic: TrafficSpans) -> None:
        self._path: Final = path
        self._traffic: Final = traffic
        self._begin: Final = traffic.spans.begin
        self._sends: Final[dict[SendOperation, list[Span]]] = {}
        self._settlements: Final[dict[bytes, Span]] = {}

    def send_began(self, operation: SendOperation) -> None:
        begun: list[Span] = []
        for message in operation.messages:
            context = sampled_context(message)
            if context is not None:
                attributes: Attributes = {
                    **_about("send", self._path),
                    "messaging.message.body.size": int(message.wire_size),
                    "messaging.batch.message_count": len(operation.messages),
                }
                begun.append(self._begin(f"send {self._path}", context, attributes))
        if begun:
            self._sends[operation] = begun

    def send_ended(self, operation: SendOperation, error: BusError | None) -> None:
        """The messages are durable, or refused."""
        end(self._sends.pop(operation, []), error)

    def delivered(self, message: Message, lock: MessageLock) -> None:
        """The message is written to the connection: a moment."""
        context = sampled_context(message)
        if context is not None:
            attributes: Attributes = {
                **_about("receive", self._path),
                "messaging.message.delivery_count": int(message.delivery_count) + 1,
            }
            end([self._begin(f"receive {self._path}", context, attributes)], None)
            self._traffic.remember(lock.token, context)

    def settle_began(self, lock: MessageLock, settlement: int) -> None:
        context = self._traffic.forget(lock.token)
        if context is not None:
            attributes: Attributes = {
                **_about("settle", self._path),
                "messaging.servicebus.disposition_status": SETTLEMENTS.get(settlement, "settle"),
            }
            self._settlements[lock.token] = self._begin(f"settle {self._path}", context, attributes)

    def settle_ended(self, lock: MessageLock, error: BusError | None) -> None:
        """The settlement is durable, or refused."""
        span = self._settlements.pop(lock.token, None)
        if span is not None:
            end([span], error)


def _about(operation: str, path: str) -> dict[str, str | int]:
    return {"messaging.operation.name": operation, "messaging.destination.name": path}
