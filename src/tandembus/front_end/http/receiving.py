"""Receiving over HTTP: the next message, locked or for good; then complete, unlock or renew by its lock token."""

from __future__ import annotations

import re
import uuid
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from aiohttp import web

from tandembus.broker.locks import ABANDON, COMPLETE, MessageLock
from tandembus.clock import Clock
from tandembus.errors import EntityNotFound, InvalidOperation, Unauthorized, anew
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.broker_properties import HEADER, write_broker_properties
from tandembus.front_end.http.kept_ready import StandIns
from tandembus.front_end.http.message_paths import MESSAGES, MessagePath
from tandembus.front_end.http.request import HttpRefusal, connection_of, origin_of, seconds_of
from tandembus.front_end.http.rest_message import ReceivedOverHttp, present_received
from tandembus.front_end.http.values import format_http_time
from tandembus.front_end.http.waiting import HeadReceiver, Taken
from tandembus.interconnect.answers import settle_all
from tandembus.large_messages import LARGE_BYTES
from tandembus.message_encoding import encode_delivery
from tandembus.metering import slot as operations
from tandembus.metering.meter import Meter
from tandembus.metering.reasons import reason_to_receive, reason_to_wait
from tandembus.metering.slot import EMPTY_RECEIVE, RECEIVE, RENEW_LOCK, operations_for
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Claims
from tandembus.store.messaging_store import MAIN, NUMBER_BITS

DEFAULT_WAIT_S: Final = 60.0
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


class HttpReceiver:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter, clock: Clock) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter
        self._clock = clock
        self._waiting: set[HeadReceiver] = set()
        self._stand_ins = StandIns(clock, namespace.limits.receive_cache_s)
        self._is_stopping = False

    def stop_waiting(self) -> None:
        """The namespace stops: who waits for a message is told that there is none."""
        self._is_stopping = True
        for receiver in list(self._waiting):
            receiver.give_up()
        self._stand_ins.leave_all()

    # The next message.

    async def receive(
        self, request: web.Request, path: MessagePath, entity: Entity, lane: int, claims: Claims
    ) -> web.Response:
        """DELETE takes it for good, POST locks it."""
        entity.check_can_receive(lane)
        if lane == MAIN and entity.requires_session:
            raise InvalidOperation(
                f"The messaging entity '{entity.name}' requires sessions, which HTTP has no receivers for. "
                "Receive from it over AMQP."
            )
        failure = entity.traffic.failure()
        if failure is not None:
            raise anew(failure)
        wait_s = min(seconds_of(request, "timeout", DEFAULT_WAIT_S), self._namespace.limits.max_receive_wait_s)
        is_destructive = request.method == "DELETE"
        with self._in_line(request, entity, lane):
            receiver = HeadReceiver(entity, lane, is_destructive, self._clock, self._namespace.large_messages)
            try:
                taken = await self._wait(request, receiver, wait_s, claims)
            except BaseException:
                receiver.written()
                raise
        if taken is None:
            self._count(entity, EMPTY_RECEIVE, 0, 1, 0)
            return web.Response(status=204)
        try:
            received = self._present(entity, taken, is_destructive)
            status, headers = 200, received.headers
            if not is_destructive:
                status, headers = 201, {**headers, "Location": self._location(request, path, received, taken[1])}
            response = web.Response(status=status, body=received.body, headers=headers)
            if len(received.body) > LARGE_BYTES:  # its room is taken until the client has read it
                await response.prepare(request)
                await response.write_eof()
            return response
        finally:
            receiver.written()

    def _in_line(self, request: web.Request, entity: Entity, lane: int) -> AbstractContextManager[None]:
        """A connection that stays open has its place also between its requests, where that is worth something."""
        if not entity.traffic.is_partitioned or not request.keep_alive or self._is_stopping:
            return nullcontext()
        return self._stand_ins.standing(connection_of(request), entity, lane)

    async def _wait(self, request: web.Request, receiver: HeadReceiver, wait_s: float, claims: Claims) -> Taken | None:
        """Until there is a message, the time is up, the client has gone, its claim ends, the entity ends, or we do."""
        connection = connection_of(request)
        connection.when_lost.add(receiver.give_up)
        self._waiting.add(receiver)
        try:
            await self._wait_as_long_as_allowed(receiver, wait_s, claims)
            await receiver.take_what_is_there(self._namespace.limits.operation_timeout_s)
        finally:
            receiver.give_up()
            connection.when_lost.discard(receiver.give_up)
            self._waiting.discard(receiver)
        if connection.is_lost:
            receiver.give_back()
            raise ConnectionResetError("the client left while it waited")
        try:
            return receiver.taken()
        except EntityNotFound as error:
            raise HttpRefusal(410, str(error)) from error

    async def _wait_as_long_as_allowed(self, receiver: HeadReceiver, wait_s: float, claims: Claims) -> None:
        look_s = self._namespace.limits.token_check_interval_s
        left_s = 0.0 if self._is_stopping else wait_s
        while left_s > 0 and not await receiver.wait(min(left_s, look_s)):
            left_s -= look_s
            if not self._access.is_current(claims):
                receiver.cut(Unauthorized("The token has expired or is no longer valid."))

    def _present(self, entity: Entity, taken: Taken, is_destructive: bool) -> ReceivedOverHttp:
        message, lock = taken
        number = int(lock.index) << NUMBER_BITS | int(message.number)
        payload = encode_delivery(message, number, 0 if is_destructive else lock.locked_until_ms, 0)
        self._count(entity, RECEIVE, 1, operations_for(len(payload)), len(payload))
        time_to_live_ms = int(message.expires_at - message.enqueued_at) if message.expires_at > 0 else None
        return present_received(payload, None if is_destructive else lock.token, time_to_live_ms)

    def _location(self, request: web.Request, path: MessagePath, received: ReceivedOverHttp, lock: MessageLock) -> str:
        """By its id, as the service does, unless that would need escapes that not every client gives back unchanged."""
        name = received.message_id if _PLAIN_ID.fullmatch(received.message_id) else str(received.sequence_number)
        entity = path.address.path + path.address.sub_queue.value
        token = uuid.UUID(bytes_le=lock.token)
        return origin_of(request, self._namespace.name).url(f"{entity}/{MESSAGES}/{name}/{token}")

    # What was received.

    async def settle(self, request: web.Request, path: MessagePath, entity: Entity, lane: int) -> web.Response:
        """DELETE completes, PUT unlocks, POST renews the lock."""
        locks = await entity.requests.find_locks([path.lock_token], lane)
        entity.accessed_at = self._clock.now()
        if request.method == "POST":
            (until_ms,) = await entity.requests.renew([path.lock_token])
            until = format_http_time(until_ms)
            self._count(entity, RENEW_LOCK, 1, 1, 0)
            return web.Response(headers={HEADER: write_broker_properties({"LockedUntilUtc": until})})
        is_complete = request.method == "DELETE"
        await settle_all(entity.traffic, locks, COMPLETE if is_complete else ABANDON)
        self._count(entity, operations.COMPLETE if is_complete else operations.ABANDON, 1, 1, 0)
        return web.Response()

    def _count(self, entity: Entity, operation: str, messages: int, units: int, size_bytes: int) -> None:
        key = entity.entry.key
        reason = reason_to_wait(key) if operation == EMPTY_RECEIVE else reason_to_receive(key)
        self._meter.count(key, operation, reason, messages, units, size_bytes)
