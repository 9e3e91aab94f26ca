"""Sending as JSON: one message, with the checks and the meter of every send."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from tandembus.broker.operations import SendOperation
from tandembus.clock import Clock
from tandembus.errors import InvalidOperation, OperationTimeout
from tandembus.front_end.amqp.entity_link import send_checks
from tandembus.front_end.amqp.sender_link import SendMeter
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.places import place_of
from tandembus.front_end.http.api.routes import Route, read_document, told
from tandembus.front_end.http.api.sent_json import encode_document
from tandembus.interconnect.answers import unanswered
from tandembus.limits import Limits
from tandembus.message import Message
from tandembus.metering.meter import Meter
from tandembus.metering.reasons import reason_to_send
from tandembus.metering.slot import PING, SEND
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import SubQueue
from tandembus.security.claims import Right

JSON_PER_BYTE: Final = 3
"""How much longer a body may be in JSON than it is: base64 takes 4/3, text in escapes up to 3."""
AROUND_BYTES: Final = 256 * 1024
"""For all that is not the body."""


class Sending:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter, clock: Clock) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._clock = clock

    def routes(self) -> list[Route]:
        return [Route("POST", "messages", self._send)]

    async def _send(self, request: web.Request) -> web.Response:
        address = place_of(request)
        self._access.check(request, Right.SEND, address.claim_path)
        if address.sub_queue is not SubQueue.MAIN:
            raise InvalidOperation("Messages cannot be sent to a dead-letter queue.")
        entity = await self._namespace.entity(address.key)
        entity.check_can_send()
        limits = self._namespace.limits
        document = await read_message_document(request, entity, limits)
        message = self.read(entity, document)
        entity.accessed_at = self._clock.now()
        with entity.in_use():
            number = await self.store(entity, message)
        return told({"sequence_number": str(number) if number else None}, 201)

    def read(self, entity: Entity, document: Mapping[str, object], original_body: bytes | None = None) -> Message:
        """The message of a document, as this entity takes it."""
        payload = encode_document(document, self._clock.now_ms(), original_body)
        (message,) = send_checks(entity, self._namespace.limits).parse(payload, 0)
        return message

    async def store(self, entity: Entity, message: Message) -> int:
        """Its number, once it is durable; 0 where it was dropped: a duplicate, or what no subscription takes."""
        size_bytes = int(message.wire_size)
        timeout_s = self._namespace.limits.operation_timeout_s
        try:
            (number,) = await asyncio.wait_for(entity.requests.schedule([message], size_bytes), timeout_s)
        except TimeoutError:
            raise OperationTimeout(
                f"The message was not stored within {timeout_s:g} s; whether it will be is not known."
            ) from None
        key = entity.entry.key
        slots = SendMeter(self._meter.slot(key, SEND, reason_to_send(key)), self._meter.slot(key, SEND, PING))
        slots.count(SendOperation([message], size_bytes, unanswered(), 0))
        return number


async def read_message_document(request: web.Request, entity: Entity, limits: Limits) -> dict[str, object]:
    """A message for this entity, as JSON, which may be longer than the message."""
    largest = min(entity.max_message_size_bytes(limits), limits.max_message_size_bytes)
    too_large = f"The message is larger than the {largest} bytes that '{entity.name}' takes as JSON."
    return await read_document(request, JSON_PER_BYTE * largest + AROUND_BYTES, too_large)
