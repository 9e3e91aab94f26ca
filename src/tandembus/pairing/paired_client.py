"""The primary's client, with senders that do not stop (N1, N17)."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, final

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from tandembus.pairing.backlog_queues import BacklogQueues
from tandembus.pairing.backlog_sender import BacklogSender
from tandembus.pairing.closing import Gate, Partners, PrimaryKey, Side
from tandembus.pairing.entity_health import EntityState
from tandembus.pairing.errors import PairClosed
from tandembus.pairing.links import CLOSE_PATIENCE_S
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions
from tandembus.pairing.primary_entity import PrimaryEntity
from tandembus.pairing.runtime import Runtime, together
from tandembus.pairing.sender import PairedSender
from tandembus.pairing.syphon_host import HostedSyphon
from tandembus.pairing.transfer import why_not_a_path

SYPHON_PATIENCE_S: Final = 4.0
"""Less than the partner has to follow: whoever closes both, one after the other, is in time."""


@final
class PairedServiceBusClient:
    """Made by `pair_namespace`. Senders come from here; everything else (receivers, sessions) is the primary's.

    What is known of an entity is shared by all its senders: they fail over and return together. Closing it closes its
    senders, pings and syphon, not the clients it was made of: those are the application's.
    """

    def __init__(
        self,
        primary: ServiceBusClient,
        primary_name: str,
        options: SendAvailabilityPairedNamespaceOptions,
        queues: BacklogQueues,
        runtime: Runtime,
        syphoned: Sequence[str] = (),
    ) -> None:
        self.primary = primary
        self.primary_name = primary_name
        self.options = options
        self._queues = queues
        self._runtime = runtime
        self._entities: dict[str, PrimaryEntity] = {}
        self._senders: weakref.WeakSet[PairedSender] = weakref.WeakSet()
        self._gate = Gate()
        self._key = PrimaryKey(runtime.clock, functools.partial(self._client_faulted, "primary"))
        self._syphon: HostedSyphon | None = None
        self._partners = Partners(
            primary,
            options.secondary_client,
            options.enable_syphon,
            runtime,
            options.listeners,
            self._fault,
            self._end_syphon,
        )
        if syphoned:
            self._start_syphon(syphoned)

    @property
    def secondary(self) -> ServiceBusClient:
        client: ServiceBusClient = self.options.secondary_client
        return client

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """The paths of those in use: without those that refused a message (N7)."""
        self._gate.check()
        return self._queues.available

    # Senders.

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> PairedSender:
        """As the SDK's; it sends to the backlog while the queue is failed over."""
        return self._sender(queue_name, functools.partial(self.primary.get_queue_sender, queue_name, **kwargs))

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> PairedSender:
        """As the SDK's; it sends to the backlog while the topic is failed over."""
        return self._sender(topic_name, functools.partial(self.primary.get_topic_sender, topic_name, **kwargs))

    def _sender(self, path: str, open_primary: Callable[[], ServiceBusSender]) -> PairedSender:
        self._gate.check()
        if (wrong := why_not_a_path(path)) is not None:
            raise ValueError(f"{path!r} cannot be sent to: {wrong}")
        timeout_s = self.options.operation_timeout.total_seconds()
        sender = PairedSender(
            self._entity(path, open_primary),
            open_primary,
            BacklogSender(path, self.secondary, self._queues, timeout_s, self._runtime, self._gate),
            timeout_s,
            self._runtime,
            self._gate,
            self._key,
        )
        self._senders.add(sender)
        return sender

    def _entity(self, path: str, open_primary: Callable[[], ServiceBusSender]) -> PrimaryEntity:
        """Names of entities are the same in upper and lower case."""
        entity = self._entities.get(path.lower())
        if entity is None:
            entity = PrimaryEntity(path, open_primary, self.options, self._runtime)
            self._entities[path.lower()] = entity
        return entity

    def __getattr__(self, name: str) -> Any:
        """Receivers, sessions and whatever else the primary's client offers."""
        if name.startswith("_") or name == "primary":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.check_open()
        return getattr(self.primary, name)

    def check_open(self) -> None:
        """Raises if the pair was closed or has faulted."""
        self._gate.check()

    # Health.

    def entity_state(self, path: str) -> EntityState:
        """What is known of an entity. One that nobody has sent to is healthy as far as anybody knows."""
        self._gate.check()
        entity = self._entities.get(path.lower())
        return EntityState.HEALTHY if entity is None else entity.state

    def mark_path_healthy(self, path: str) -> None:
        """Send to the primary again, whatever the pings say."""
        self._gate.check()
        entity = self._entities.get(path.lower())
        if entity is not None:
            entity.mark_healthy()

    def clear(self) -> None:
        """Forget what was learnt: every entity is healthy, and every backlog queue in use."""
        self._gate.check()
        entities = list(self._entities.values())
        for entity in entities:
            entity.mark_healthy()
        self._queues.restore()

    # Its end.

    def _client_faulted(self, side: Side, error: BaseException) -> None:
        """One of the clients is of no use any more (N14)."""
        self._partners.client_faulted(side, error)

    def _start_syphon(self, queues: Sequence[str]) -> None:
        self._syphon = HostedSyphon(
            self.primary,
            queues,
            self.options,
            self._runtime,
            functools.partial(self._client_faulted, "secondary"),
            self._key,
            self._is_own_path,
        )
        self._syphon.start()

    def _is_own_path(self, path: str) -> bool:
        return path.lower() in self._entities

    async def close(self) -> None:
        """Ends senders, pings and syphon. The clients of primary and secondary stay open."""
        if self._gate.refusal is None:
            self._gate.refusal = _closed
        self._stop()
        if self._syphon is not None:
            await self._syphon.stop()
        senders = list(self._senders)
        await together([sender.close for sender in senders])
        await self._runtime.close(CLOSE_PATIENCE_S)

    async def __aenter__(self) -> PairedServiceBusClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.close()

    def _fault(self) -> None:
        """Called when a client is closed because of the other."""
        self._gate.refusal = self._partners.error
        self._stop()

    async def _end_syphon(self) -> None:
        """One of its clients is gone, or is about to be closed."""
        if self._syphon is not None:
            await self._syphon.stop(SYPHON_PATIENCE_S)

    def _stop(self) -> None:
        self._partners.stop()
        entities, senders = list(self._entities.values()), list(self._senders)
        for entity in entities:
            entity.close()
        for sender in senders:
            sender.stop()


def _closed() -> PairClosed:
    return PairClosed("the paired client was closed")
