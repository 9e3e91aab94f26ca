"""Messages as clients write them and see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tandembus.amqp.encoding import timestamp
from tandembus.amqp.encoding.sections import (
    MessageSections,
    application_properties_section,
    data_section,
    decode_message,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.store.messaging_store import NUMBER_BITS
from tests.behaviour.shapes import Shape

TOGETHER = "together"
PING = "application/vnd.ms-servicebus-ping"


@dataclass(frozen=True)
class Draft:
    """A message to be sent. Its id is its body unless it says otherwise."""

    body: str
    id: str | None = None
    session: str | None = None
    key: str | None = None
    """Messages that name no key and no session share one on partitioned shapes, so that they have an order (P10)."""
    is_spread: bool = False
    """This one shares no key: any fragment may take it."""
    via_key: str | None = None
    ttl_s: float | None = None
    in_s: float | None = None
    """Scheduled for so long from now."""
    properties: dict[str, object] = field(default_factory=dict)
    subject: str | None = None
    padding: int = 0
    content_type: str | None = None

    def payload(self, now_ms: int, shape: Shape) -> bytes:
        annotations: dict[str, object] = {}
        has_place = self.key is not None or self.session is not None or self.is_spread
        if self.key is not None or (shape.is_partitioned and not has_place):
            annotations["x-opt-partition-key"] = self.key or TOGETHER
        if self.via_key is not None:
            annotations["x-opt-via-partition-key"] = self.via_key
        if self.in_s is not None:
            annotations["x-opt-scheduled-enqueue-time"] = timestamp(now_ms + int(self.in_s * 1000))
        payload = header_section(ttl_ms=int(self.ttl_s * 1000)) if self.ttl_s is not None else b""
        payload += message_annotations_section(annotations) if annotations else b""
        payload += properties_section(
            self.body if self.id is None else self.id,
            subject=self.subject,
            content_type=self.content_type,
            group_id=self.session,
        )
        payload += application_properties_section(dict(self.properties)) if self.properties else b""
        return payload + data_section(self.body.encode() + bytes(self.padding))


def message(body: str, **options: Any) -> Draft:
    return Draft(body, **options)


def ping(id: str = "ping") -> Draft:
    return Draft("", id=id, ttl_s=1.0, content_type=PING)


class Seen:
    """A message as a client sees it."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._sections: MessageSections | None = None

    @property
    def sections(self) -> MessageSections:
        if self._sections is None:
            self._sections = decode_message(self._payload)
        return self._sections

    def annotation(self, name: str) -> Any:
        return (self.sections.message_annotations or {}).get(name)

    @property
    def body(self) -> str:
        return b"".join(one for one in self.sections.bodies if isinstance(one, bytes)).rstrip(b"\0").decode()

    @property
    def number(self) -> int:
        """Its sequence number."""
        return int(self.annotation("x-opt-sequence-number"))

    @property
    def fragment(self) -> int:
        return self.number >> NUMBER_BITS

    @property
    def original_number(self) -> int:
        return int(self.annotation("x-opt-enqueue-sequence-number"))

    @property
    def enqueued_at_ms(self) -> int:
        return int(self.annotation("x-opt-enqueued-time"))

    @property
    def locked_until_ms(self) -> int:
        return int(self.annotation("x-opt-locked-until"))

    @property
    def source(self) -> str | None:
        """The entity that a dead letter comes from."""
        found = self.annotation("x-opt-deadletter-source")
        return None if found is None else str(found)

    @property
    def state(self) -> str:
        return {None: "active", 0: "active", 1: "deferred", 2: "scheduled"}[self.annotation("x-opt-message-state")]

    @property
    def delivery_count(self) -> int:
        header = self.sections.header or []
        return int(header[4] or 0) if len(header) > 4 else 0  # type: ignore[call-overload]

    @property
    def id(self) -> object:
        return (self.sections.properties or [None])[0]

    @property
    def session(self) -> object:
        properties = self.sections.properties or []
        return properties[10] if len(properties) > 10 else None

    @property
    def properties(self) -> dict[object, object]:
        return dict(self.sections.application_properties or {})

    @property
    def reason(self) -> object:
        return self.properties.get("DeadLetterReason")
