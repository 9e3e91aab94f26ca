"""Sending over HTTP: a body and headers, or a batch as JSON, become messages of an entity, all of them or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from aiohttp import web

from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.clock import Clock
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, OperationTimeout
from tandembus.front_end.amqp.entity_link import send_checks
from tandembus.front_end.amqp.sender_link import SendChecks, SendMeter
from tandembus.front_end.http.broker_properties import HEADER, BrokerProperties, read_broker_properties
from tandembus.front_end.http.property_headers import read_property_headers
from tandembus.front_end.http.request import check_encoding, read_body, seconds_of
from tandembus.front_end.http.rest_message import BATCH_TYPE, encode_sent, read_batch
from tandembus.front_end.large_room import room_to_take
from tandembus.interconnect.answers import tell
from tandembus.large_messages import LargeMemory
from tandembus.limits import Limits
from tandembus.message import Message
from tandembus.metering.meter import Meter
from tandembus.metering.reasons import reason_to_send
from tandembus.metering.slot import PING, SEND
from tandembus.namespace.entity import Entity
from tandembus.namespace.paths import SubQueue
from tandembus.pair_view.sightings import Sightings


class HttpSender:
    def __init__(self, limits: Limits, meter: Meter, clock: Clock, sightings: Sightings, large: LargeMemory) -> None:
        self._limits = limits
        self._large = large
        self._sightings = sightings
        self._meter = meter
        self._clock = clock

    async def send(self, request: web.Request, entity: Entity, sub_queue: SubQueue) -> web.Response:
        if sub_queue is not SubQueue.MAIN:
            raise InvalidOperation("Messages cannot be sent to a dead-letter queue.")
        entity.check_can_send()
        check_encoding(request)
        longest_s = self._limits.operation_timeout_s
        timeout_s = min(seconds_of(request, "timeout", longest_s), longest_s)
        checks = send_checks(entity, self._limits)
        most_bytes = int(checks.max_message_bytes)
        size_bytes = most_bytes if request.content_length is None else request.content_length
        if size_bytes > most_bytes:
            raise checks.too_large(size_bytes)
        async with room_to_take(self._large, size_bytes):
            body = await read_body(request, most_bytes)
            if body is None:
                raise checks.too_large(0)
            await self._store(entity, self._messages(request, body, checks), timeout_s)
        return web.Response(status=201)

    def _messages(self, request: web.Request, body: bytes, checks: SendChecks) -> list[Message]:
        if request.content_type == BATCH_TYPE:
            payloads = read_batch(body, int(checks.max_batch_messages), self._clock.now_ms())
        else:
            payloads = [self._payload(request, body)]
        size_bytes = sum([len(payload) for payload in payloads])
        if size_bytes > checks.max_message_bytes:
            raise checks.too_large(size_bytes)
        return [message for payload in payloads for message in checks.parse(payload, 0)]

    def _payload(self, request: web.Request, body: bytes) -> bytes:
        headers = request.headers.getall(HEADER, [])
        if len(headers) > 1:
            raise InvalidArgument(f"The header {HEADER} stands twice.")
        broker = read_broker_properties(headers[0]) if headers else BrokerProperties()
        if broker.content_type is None:
            broker = replace(broker, content_type=request.headers.get("Content-Type"))
        properties = read_property_headers(request.headers.items())
        return encode_sent(body, broker, properties, self._clock.now_ms())

    async def _store(self, entity: Entity, messages: list[Message], timeout_s: float) -> None:
        """Returns when they are durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        meter = self._meter_of(entity)

        def sent(operation: SendOperation, error: BusError | None) -> None:
            if error is None:
                meter.count(operation)
            else:
                meter.refused(operation, error)
            tell(done, error)

        size_bytes = sum([int(message.wire_size) for message in messages])
        entity.accessed_at = self._clock.now()
        operation = SendOperation(messages, size_bytes, CallbackSendReply(sent), 0)
        with entity.in_use():
            try:
                entity.traffic.send(operation)
            except BusError as error:
                meter.refused(operation, error)
                raise
            try:
                await asyncio.wait_for(done, timeout_s)
            except TimeoutError:
                raise OperationTimeout(
                    f"The message was not stored within {timeout_s:g} s; whether it will be is not known."
                ) from None

    def _meter_of(self, entity: Entity) -> SendMeter:
        key, meter = entity.entry.key, self._meter
        watch = self._sightings.of_sender(entity.name, entity.outage_mark)
        return SendMeter(meter.slot(key, SEND, reason_to_send(key)), meter.slot(key, SEND, PING), watch)
