"""Pairing without sockets and waiting: timers on a clock that is moved by hand, and namespaces that do as told."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    ServiceBusConnectionError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from tandembus.clock import ManualClock
from tandembus.pairing.ping import PING_CONTENT_TYPE
from tandembus.pairing.runtime import Runtime, Timer

SETTLES_WITHIN_TURNS = 60


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualRuntime(Runtime):
    """Timers come when the clock is moved past them, each at its own time."""

    def __init__(self) -> None:
        self.manual = ManualClock()
        super().__init__(self.manual)
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._number = itertools.count()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (self.manual.monotonic() + delay_s, next(self._number), timer))
        return timer

    @property
    def timer_count(self) -> int:
        """Without the one that looks after calls: it is left behind by those that are over."""
        return sum(timer.callback not in (None, self._ring) for _, _, timer in self._timers)

    async def advance(self, seconds: float) -> None:
        until = self.manual.monotonic() + seconds
        await self.settle()
        while self._timers and self._timers[0][0] <= until:
            due_at, _, timer = heapq.heappop(self._timers)
            self.manual.advance(max(due_at - self.manual.monotonic(), 0.0))
            if timer.callback is not None:
                timer.callback()
            await self.settle()
        self.manual.advance(until - self.manual.monotonic())

    async def settle(self) -> None:
        """What can happen now has happened."""
        for _ in range(SETTLES_WITHIN_TURNS):
            await asyncio.sleep(0)


class ScriptedNamespace:
    """Takes messages as told: `down` (refused), `busy` (throttled), `hangs` (no answer), else accepted."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.busy: set[str] = set()
        self.hangs: set[str] = set()
        self.room: dict[str, int] = {}
        """How many more sends are accepted, where that is limited."""
        self.hangs_on: dict[str, str] = {}
        """Messages that an entity does not answer, by what their text begins with."""
        self.refused: dict[str, Exception] = {}
        """Messages that are refused for what they are, by what their text begins with."""
        self.accepted: dict[str, list[ServiceBusMessage]] = defaultdict(list)
        self.tried: dict[str, int] = defaultdict(int)
        self.pings: dict[str, list[bool]] = defaultdict(list)
        self.ping_keys: dict[str, list[str | None]] = defaultdict(list)
        """Their session ids."""
        self.connections = 0
        self.life = 0
        self._waiting: dict[str, list[asyncio.Future[None]]] = defaultdict(list)

    def restart(self) -> None:
        """Everything is as before, except for the connections."""
        self.life += 1

    def answer_late(self, path: str) -> None:
        """What hung until now goes on."""
        for answer in self._waiting.pop(path, []):
            if not answer.done():
                answer.set_result(None)

    @property
    def client(self) -> ServiceBusClient:
        return cast(ServiceBusClient, ScriptedClient(self))

    def bodies(self, path: str) -> list[str]:
        return [str(message) for message in self.accepted[path]]

    async def take(self, path: str, messages: list[ServiceBusMessage]) -> None:
        is_ping = [message.content_type == PING_CONTENT_TYPE for message in messages] == [True]
        if not is_ping:
            self.tried[path] += 1
        hangs_on = [text for text, where in self.hangs_on.items() if where == path]
        if path in self.hangs or any(str(message).startswith(tuple(hangs_on)) for message in messages):
            answer = asyncio.get_running_loop().create_future()
            self._waiting[path].append(answer)
            await answer
        if is_ping:
            self.ping_keys[path].append(messages[0].session_id)
            self.pings[path].append(path not in self.down | self.busy)
        if path in self.down:
            raise ServiceBusConnectionError(message=f"{path} is down")
        if path in self.busy:
            raise ServiceBusServerBusyError(message=f"{path} is busy")
        for text, error in self.refused.items():
            if any(str(message).startswith(text) for message in messages):
                raise error
        if not is_ping:
            self._use_room(path)
            self.accepted[path] += messages

    def _use_room(self, path: str) -> None:
        if path in self.room:
            if self.room[path] == 0:
                raise ServiceBusQuotaExceededError(message=f"{path} is full")
            self.room[path] -= 1


class ScriptedClient:
    def __init__(self, namespace: ScriptedNamespace) -> None:
        self._namespace = namespace
        self.is_closed = False

    def get_queue_sender(self, name: str, **options: Any) -> ScriptedSender:
        return ScriptedSender(self._namespace, name)

    get_topic_sender = get_queue_sender

    async def close(self) -> None:
        self.is_closed = True


def _read(message: Any) -> ServiceBusMessage:
    """As the SDK takes it: a message of its own, an annotated one or a mapping."""
    if isinstance(message, Mapping):
        return ServiceBusMessage(**message)
    if isinstance(message, AmqpAnnotatedMessage):
        return ServiceBusMessage(None, message=None, raw_amqp_message=message)
    return cast(ServiceBusMessage, message)


class ScriptedSender:
    fully_qualified_namespace = "contoso.example"
    client_identifier = "scripted"

    def __init__(self, namespace: ScriptedNamespace, entity_name: str) -> None:
        self._namespace = namespace
        self.entity_name = entity_name
        self.is_closed = False
        self._life = namespace.life
        namespace.connections += 1

    async def __aenter__(self) -> ScriptedSender:
        return self

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        if isinstance(message, ServiceBusMessageBatch):
            messages = list(message._messages)
        else:
            messages = [_read(each) for each in (message if isinstance(message, list) else [message])]
        if self._life != self._namespace.life:
            raise ServiceBusConnectionError(message="the connection is gone")
        await self._namespace.take(self.entity_name, messages)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        if self.entity_name in self._namespace.down:
            raise ServiceBusConnectionError(message=f"{self.entity_name} is down")
        return ServiceBusMessageBatch(max_size_in_bytes or 262_144)

    async def close(self) -> None:
        self.is_closed = True
        self._namespace.connections -= 1


def unused_admin() -> ServiceBusAdministrationClient:
    """Never asked for anything."""
    return ServiceBusAdministrationClient("fabrikam.example", cast(Any, object()))
