"""A syphon in the application's own process (`enable_syphon`), and what it tells (N16) and notices (N14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from azure.servicebus.aio import ServiceBusClient

from tandembus.clock import Clock
from tandembus.errors import Unauthorized
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.closing import PrimaryKey, Refusals
from tandembus.pairing.events import Listeners, SyphonMoved
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions
from tandembus.pairing.runtime import Runtime, pause
from tandembus.pairing.sdk_connection import connect
from tandembus.pairing.syphon import Syphon
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_rules import SyphonSettings

MAX_SEND_S: Final = 20.0
"""Below the lock duration of a backlog queue: what a send without an answer held is still ours then."""
ANSWER_TIMEOUT_S: Final = 30.0
STOP_PATIENCE_S: Final = 10.0
LOOK_AGAIN_S: Final = 0.05
WINDOW: Final = 200


@final
class HostedFigures(SyphonFigures):
    """Also tells events, and when the key of a namespace is refused for good (N14): the secondary's for every queue,
    the primary's for an entity that the application itself sends to; again and again, with no message taken meanwhile.

    What stands in messages decides where the syphon sends, and a key may be good for some entities only. So being
    refused elsewhere says nothing about the application's client: nobody must be able to have it closed by a message.
    """

    def __init__(
        self,
        clock: Clock,
        listeners: Listeners,
        queue_count: int,
        refused: Callable[[BaseException], None],
        primary_key: PrimaryKey,
        is_own_path: Callable[[str], bool],
    ) -> None:
        super().__init__(clock)
        self._told_by = clock
        self._listeners = listeners
        self._queue_count = queue_count
        self._refused = refused
        self._primary_key = primary_key
        self._is_own_path = is_own_path
        self._refusals = Refusals(clock)

    def moved(self, queue: str, path: str, count: int, size_bytes: int) -> None:
        super().moved(queue, path, count, size_bytes)
        self._refusals.forget(queue)
        self._primary_key.taken()
        self._listeners.tell(SyphonMoved(self._told_by.now(), queue, path, count))

    def stuck(self, queue: str, path: str, error: BaseException) -> None:
        super().stuck(queue, path, error)
        self._not_taken(path, error)

    def retried(self, queue: str, path: str, error: BaseException) -> None:
        super().retried(queue, path, error)
        self._not_taken(path, error)

    def troubled(self, queue: str, error: BaseException) -> None:
        super().troubled(queue, error)
        if not isinstance(error, Unauthorized):
            self._refusals.forget(queue)
            return
        self._refusals.add(queue)
        if len(self._refusals.names_for_good()) < self._queue_count:
            return
        self._refusals.clear()
        self._refused(error)

    def _not_taken(self, path: str, error: BaseException) -> None:
        if self._is_own_path(path):
            self._primary_key.not_taken(path, error)


@final
class HostedSyphon:
    """Runs in the background from `start` to `stop`, on connections of its own with the settings and credentials of the
    application's clients."""

    def __init__(
        self,
        primary: ServiceBusClient,
        queues: Sequence[str],
        options: SendAvailabilityPairedNamespaceOptions,
        runtime: Runtime,
        secondary_refused: Callable[[BaseException], None],
        primary_key: PrimaryKey,
        is_own_path: Callable[[str], bool],
    ) -> None:
        secondary = options.secondary_client
        settings = SyphonSettings(retry_interval_s=options.syphon_retry_interval.total_seconds(), window=WINDOW)
        send_timeout_s = min(options.operation_timeout.total_seconds(), MAX_SEND_S)
        self.figures = HostedFigures(
            runtime.clock, options.listeners, len(queues), secondary_refused, primary_key, is_own_path
        )
        self._runtime = runtime
        self._is_over = True
        self._secondary = SharedConnection(partial(connect, secondary, ANSWER_TIMEOUT_S))
        self._syphon = Syphon(
            [ClientBacklog(self._secondary, queue) for queue in queues],
            ClientPrimary(SharedConnection(partial(connect, primary, send_timeout_s))),
            settings,
            self.figures,
            runtime,
        )

    def start(self) -> None:
        self._is_over = False
        self._runtime.start(self._run)

    async def stop(self, patience_s: float = STOP_PATIENCE_S) -> None:
        """Finishes what is in hand, but does not wait for ever for a namespace that does not answer."""
        await self._syphon.stop()
        ends_at = self._runtime.clock.monotonic() + patience_s
        while not self._is_over and self._runtime.clock.monotonic() < ends_at:
            await pause(LOOK_AGAIN_S)

    async def _run(self) -> None:
        try:
            await self._syphon.run()
        finally:
            await self._secondary.close()
            self._is_over = True
