"""A syphon in the application's own process (`enable_syphon`): its events (N16), and refused keys (N14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, final

from azure.servicebus.aio import ServiceBusClient

from tandembus.clock import Clock
from tandembus.errors import Unauthorized
from tandembus.pairing.closing import PrimaryKey, Refusals
from tandembus.pairing.events import Listeners, SyphonMoved
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.sdk_connection import connect
from tandembus.pairing.syphon.client_port import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.syphon.engine import Syphon
from tandembus.pairing.syphon.observer import SyphonFigures
from tandembus.pairing.syphon.settings import SyphonSettings

MAX_SEND_S: Final = 20.0
"""Below the lock duration of a backlog queue, so that the messages of a send without an answer are still locked."""
ANSWER_TIMEOUT_S: Final = 30.0
STOP_PATIENCE_S: Final = 10.0
WINDOW: Final = 200


@final
class HostedFigures(SyphonFigures):
    """Also reports events, and a key that is refused for good (N14): the secondary's by every queue, the primary's by
    an entity that the application itself sends to; again and again, with no message accepted in between.

    Messages decide where the syphon sends, and a key may be good for some entities only. So a refusal elsewhere says
    nothing about the application's client: no message may cause it to be closed.
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
        self._is_over = asyncio.Event()
        self._is_over.set()
        self._secondary = SharedConnection(partial(connect, secondary, ANSWER_TIMEOUT_S))
        self._syphon = Syphon(
            [ClientBacklog(self._secondary, queue) for queue in queues],
            ClientPrimary(SharedConnection(partial(connect, primary, send_timeout_s))),
            settings,
            self.figures,
            runtime.clock,
        )

    def start(self) -> None:
        self._is_over.clear()
        self._runtime.start(self._run)

    async def stop(self, patience_s: float = STOP_PATIENCE_S) -> None:
        """Finishes what is held, but does not wait forever for a namespace that does not answer."""
        await self._syphon.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._is_over.wait()

    async def _run(self) -> None:
        try:
            await self._syphon.run()
        finally:
            await self._secondary.close()
            self._is_over.set()
