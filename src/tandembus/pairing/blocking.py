"""Pairing for blocking code: the names of `tandembus.pairing` on the SDK's blocking clients.

Pairing itself runs on an event loop, in one thread for all pairs of the process; calls of the application wait for it.
It works through asyncio clients with the settings of the clients that the application gave.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar, final

from azure.servicebus import ServiceBusClient
from azure.servicebus import aio as asyncio_sdk

from tandembus.loop_thread import LoopThread
from tandembus.pairing import pair, paired_client, sender
from tandembus.pairing.batch import PairedMessageBatch
from tandembus.pairing.entity_health import EntityState
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions, check_kind
from tandembus.pairing.sdk import Sendable, rereadable
from tandembus.pairing.transfer import AnyMessage

T = TypeVar("T")
NOT_SETTINGS: Final = ("hostname", "connection_port", "custom_endpoint_hostname", "custom_endpoint_address")
"""What the SDK's configuration derives from the others, or changes."""


@final
class _Portal:
    """The event loop of the blocking pairs. It starts with the first call; a forked process has its own."""

    def __init__(self) -> None:
        self._starting = threading.RLock()  # A signal may come while it is held, and its handler call pairing.
        self._loop: LoopThread | None = None
        self._pid = 0

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._running().call(work)

    def do(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function in the loop, the only thread that uses what belongs to it. Listeners are called there."""

        async def call() -> T:
            return function(*arguments, **named)

        loop = self._running()
        return function(*arguments, **named) if loop.is_current else loop.call(call())

    def _running(self) -> LoopThread:
        with self._starting:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = LoopThread("tandembus-pairing"), os.getpid()
            return self._loop


_portal: Final = _Portal()


def pair_namespace(
    primary_client: ServiceBusClient,
    options: SendAvailabilityPairedNamespaceOptions,
    *,
    primary_name: str | None = None,
) -> PairedServiceBusClient:
    """Makes the backlog queues where they are missing and makes sure that they can be sent to. Whatever prevents that
    is raised as `PairingFailed`; the primary may be away. `primary_name` stands in the paths of the backlog queues; by
    default it is the first label of the primary's host."""
    check_kind("options", options, SendAvailabilityPairedNamespaceOptions)
    check_kind("primary_client", primary_client, ServiceBusClient)
    check_kind("secondary_client", options.secondary_client, ServiceBusClient)
    return _portal.wait(_pair(primary_client, options, primary_name))


async def _pair(
    primary: ServiceBusClient, given: SendAvailabilityPairedNamespaceOptions, name: str | None
) -> PairedServiceBusClient:
    twins: list[_Twin] = []
    try:
        twins += [_twin_of(primary)]
        twins += [_twin_of(given.secondary_client)]
        options = object.__new__(SendAvailabilityPairedNamespaceOptions)
        vars(options).update(vars(given), secondary_client=twins[1], secondary_admin=_Awaited(given.secondary_admin))
        core = await pair.pair_namespace(twins[0], options, primary_name=name)
    except BaseException:
        _let_go(twins)
        raise
    return PairedServiceBusClient(primary, given, core, twins)


@final
class PairedServiceBusClient:
    """Made by `pair_namespace`. Senders come from here; everything else (receivers, sessions) is the primary's.

    What is known of an entity is shared by all its senders: they fail over and return together. Closing it closes its
    senders, pings and syphon, not the clients it was made of: those are the application's.
    """

    def __init__(
        self,
        primary: ServiceBusClient,
        options: SendAvailabilityPairedNamespaceOptions,
        core: paired_client.PairedServiceBusClient,
        twins: list[_Twin],
    ) -> None:
        self.primary = primary
        self.primary_name = core.primary_name
        self.options = options
        self._core = core
        self._twins = twins

    @property
    def secondary(self) -> ServiceBusClient:
        client: ServiceBusClient = self.options.secondary_client
        return client

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """The paths of those in use: without those that refused a message (N7)."""
        return _portal.do(lambda: self._core.backlog_queues)

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> PairedSender:
        """As the SDK's; it sends to the backlog while the queue is failed over."""
        return PairedSender(_portal.do(self._core.get_queue_sender, queue_name, **kwargs))

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> PairedSender:
        """As the SDK's; it sends to the backlog while the topic is failed over."""
        return PairedSender(_portal.do(self._core.get_topic_sender, topic_name, **kwargs))

    def __getattr__(self, name: str) -> Any:
        """Receivers, sessions and whatever else the primary's client offers."""
        if name.startswith("_") or name == "primary":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        _portal.do(self._core.check_open)
        return getattr(self.primary, name)

    def entity_state(self, path: str) -> EntityState:
        """What is known of an entity. One that nobody has sent to is healthy as far as anybody knows."""
        return _portal.do(self._core.entity_state, path)

    def mark_path_healthy(self, path: str) -> None:
        """Send to the primary again, whatever the pings say."""
        _portal.do(self._core.mark_path_healthy, path)

    def clear(self) -> None:
        """Forget what was learnt: every entity is healthy, and every backlog queue in use."""
        _portal.do(self._core.clear)

    def close(self) -> None:
        """Ends senders, pings and syphon. The clients of primary and secondary stay open."""
        _portal.wait(self._close())

    async def _close(self) -> None:
        try:
            await self._core.close()
        finally:
            _let_go(self._twins)

    def __enter__(self) -> PairedServiceBusClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()


@final
class PairedSender:
    """Sends to the primary; to the backlog while the entity is failed over. Made by `PairedServiceBusClient`."""

    def __init__(self, core: sender.PairedSender) -> None:
        self._core = core

    def __enter__(self) -> PairedSender:
        """Opens the link as the SDK does. A primary that is away is no reason to fail here: the sends will tell."""
        _portal.wait(self._core.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()

    def send_messages(self, message: Sendable, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Returns when the primary has the messages, or the backlog. Raises what the SDK raises, until the entity is
        failed over; then `SendAvailabilityBacklogError`, `BacklogMessageTooLarge` or `ReservedPropertyName`."""
        _portal.wait(self._core.send_messages(rereadable(message), timeout=timeout, **kwargs))

    def schedule_messages(
        self,
        messages: AnyMessage | Iterable[AnyMessage],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[int]:
        """On the primary only: `SchedulingUnavailable` while the entity is failed over."""
        given: Any = rereadable(messages)
        return _portal.wait(self._core.schedule_messages(given, schedule_time_utc, timeout=timeout, **kwargs))

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """On the primary, failed over or not: only it knows these numbers. Says nothing about its health."""
        _portal.wait(self._core.cancel_scheduled_messages(sequence_numbers, timeout=timeout, **kwargs))

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """A batch that keeps its messages, so that either namespace can take them."""
        return _portal.wait(self._core.create_message_batch(max_size_in_bytes))

    def close(self) -> None:
        """Closes its links to both namespaces. What is being sent is given up, and raises `PairClosed`: whether it was
        stored nobody knows."""
        _portal.wait(self._core.close())

    @property
    def entity_name(self) -> str:
        return self._core.entity_name

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary's."""
        return self._core.fully_qualified_namespace

    @property
    def client_identifier(self) -> str:
        return self._core.client_identifier

    def __str__(self) -> str:
        return str(self._core)


@final
class _Twin(asyncio_sdk.ServiceBusClient):
    """An asyncio client with the settings of a blocking one. Closing either closes both; all pairs of one share it."""

    def __init__(self, client: Any) -> None:
        credential = client._credential
        super().__init__(
            client.fully_qualified_namespace,
            _Awaited(credential) if hasattr(credential, "get_token") else credential,
            custom_endpoint_address=client._custom_endpoint_address,
            entity_name=client._entity_name,
            **{name: value for name, value in vars(client._config).items() if name not in NOT_SETTINGS},
        )
        self.pair_count = 0
        self._client = client
        self._close_client = client.close
        client.close = self.closed_by_application

    def closed_by_application(self) -> None:
        """Stands in for the blocking client's `close`."""
        _portal.wait(self.close())

    async def close(self) -> None:
        await super().close()
        await _in_thread(self._close_client)

    def let_go(self) -> None:
        """Called when a pair ends. The last one leaves the blocking client as it was."""
        self.pair_count -= 1
        if self.pair_count == 0 and getattr(self._client.close, "__self__", None) is self:
            del self._client.close


def _twin_of(client: ServiceBusClient) -> _Twin:
    found: object = getattr(client.close, "__self__", None)
    twin = found if isinstance(found, _Twin) else _Twin(client)
    twin.pair_count += 1
    return twin


def _let_go(twins: list[_Twin]) -> None:
    """Once, however often a pair is closed."""
    while twins:
        twins.pop().let_go()


@final
class _Awaited:
    """A blocking object of the SDK whose calls are awaited."""

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return partial(_in_thread, found) if callable(found) else found


async def _in_thread(call: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """In a thread of its own: a call that hangs holds up nothing else, not even the end of the process."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done.set_result(call(*arguments, **named))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="tandembus-pairing-call", daemon=True).start()
    return await asyncio.wrap_future(done)
