"""What was deleted is dropped from the store, in the background and however often the process is restarted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tandembus.broker.dropping import drop_fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.errors import StoreUnavailable
from tandembus.namespace.catalog import Catalog, Tombstone

log = logging.getLogger("tandembus.namespace")

RETRY_S = 10.0


class Dropper:
    def __init__(self, catalog: Catalog, broker: MessageBroker, clock: Clock) -> None:
        self._catalog = catalog
        self._broker = broker
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, tombstones: Sequence[Tombstone]) -> None:
        """One after the other; what was deleted at another time does not wait for it."""
        if tombstones:
            task = asyncio.create_task(self._drop_all(tombstones), name=f"dropping {tombstones[-1].path}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def finished(self) -> None:
        """Returns when there is nothing left to drop."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drop_all(self, tombstones: Sequence[Tombstone]) -> None:
        for tombstone in tombstones:
            await self._drop(tombstone)

    async def _drop(self, tombstone: Tombstone) -> None:
        while True:
            try:
                await drop_fragment(self._broker, tombstone.fragment_key)
                await self._catalog.forget([tombstone], self._clock.now())
                return
            except StoreUnavailable as error:
                log.warning("dropping '%s' is put off: %s", tombstone.path, error)
                await asyncio.sleep(RETRY_S)
