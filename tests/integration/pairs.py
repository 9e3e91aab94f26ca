"""Two namespaces that are paired, as tests use them: the asyncio and the blocking form of pairing behind one face."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus import pairing
from tandembus.pairing import PairingEvent
from tandembus.pairing import sync as blocking_pairing
from tandembus.pairing.aliases import backlog_path
from tests.integration.python_sdk import Blocking, LoopThread

COMES_WITHIN_S = 20.0
INTERVAL = timedelta(milliseconds=300)
E = TypeVar("E", bound=PairingEvent)


class Events:
    """What pairing told, in order."""

    def __init__(self) -> None:
        self._told: list[tuple[float, PairingEvent]] = []
        self._changed = threading.Condition()

    def __call__(self, event: PairingEvent) -> None:
        with self._changed:
            self._told.append((time.monotonic(), event))
            self._changed.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        with self._changed:
            return [event for _, event in self._told if isinstance(event, kind)]

    def time_of(self, kind: type[PairingEvent]) -> float:
        """Of the first, on the monotonic clock."""
        with self._changed:
            return next(at for at, event in self._told if isinstance(event, kind))

    def wait_for(self, kind: type[E], count: int = 1, within_s: float = COMES_WITHIN_S) -> E:
        """The event that makes so many of its kind."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.of_locked(kind)) >= count, within_s)
            assert came, f"{count} of {kind.__name__} did not come: {self._told}"
            return self.of_locked(kind)[count - 1]

    def of_locked(self, kind: type[E]) -> list[E]:
        return [event for _, event in self._told if isinstance(event, kind)]


class Form:
    """One form of pairing with the clients that belong to it."""

    def __init__(self, kind: str, loop: LoopThread) -> None:
        self.kind = kind
        self._loop = loop
        self._to_close: list[Callable[[], object]] = []
        self.pairing: Any = pairing if kind == "async" else blocking_pairing

    def client(self, connection_string: str, **options: Any) -> Any:
        """A client that tries once: how often the SDK tries is not what the tests are about."""
        options.setdefault("retry_total", 0)
        if self.kind == "async":
            client = self._loop.call(AsyncServiceBusClient.from_connection_string, connection_string, **options)
            self._to_close.append(lambda: self._loop.call(client.close))
            return client
        blocking = ServiceBusClient.from_connection_string(connection_string, **options)
        self._to_close.append(blocking.close)
        return blocking

    def admin(self, connection_string: str, ca_path: Path, **options: Any) -> Any:
        options.setdefault("retry_total", 0)
        kind = AsyncServiceBusAdministrationClient if self.kind == "async" else ServiceBusAdministrationClient
        admin: Any = kind.from_connection_string(connection_string, connection_verify=str(ca_path), **options)
        self._to_close.append(lambda: self.call(admin.close))
        return admin

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Wait for it, if it is something to wait for."""
        if self.kind == "async":
            return self._loop.call(function, *arguments, **options)
        return function(*arguments, **options)

    def blocking(self, target: Any) -> Any:
        return Blocking(target, self._loop) if self.kind == "async" else target

    def closing_first(self, close: Callable[[], object]) -> None:
        """Before the clients made so far."""
        self._to_close.append(close)

    def close(self) -> None:
        for close in reversed(self._to_close):
            close()


class Pair:
    """A paired client and what it told."""

    def __init__(self, form: Form, primary: Any, secondary: Any, admin: Any, **options: Any) -> None:
        self.form = form
        self.events = Events()
        self.primary, self.secondary = primary, secondary
        name = options.pop("primary_name", None) or f"contoso-{uuid.uuid4().hex[:8]}"
        options.setdefault("failover_interval", INTERVAL)
        options.setdefault("ping_primary_interval", timedelta(seconds=1))
        options.setdefault("backlog_queue_count", 3)
        self.queues = [backlog_path(name, index) for index in range(options["backlog_queue_count"])]
        self.options = form.pairing.SendAvailabilityPairedNamespaceOptions(admin, secondary, **options)
        self.options.on_event(self.events)
        self._senders: list[Any] = []
        self.client = form.call(form.pairing.pair_namespace, primary, self.options, primary_name=name)

    def sender(self, path: str) -> Any:
        """Not opened: it opens with the first send."""
        return self._kept(self.form.call(self.client.get_queue_sender, path))

    def topic_sender(self, path: str) -> Any:
        return self._kept(self.form.call(self.client.get_topic_sender, path))

    def _kept(self, sender: Any) -> Any:
        """A sender of the SDK that nobody holds goes without saying goodbye."""
        self._senders.append(sender)
        return self.form.blocking(sender)

    def state(self, path: str) -> Any:
        return self.form.call(self.client.entity_state, path)

    def close(self) -> None:
        self.form.call(self.client.close)
