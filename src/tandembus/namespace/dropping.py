"""What was deleted is dropped from its store, in the background and however often the process is restarted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tandembus.broker.dropping import drop_fragments
from tandembus.broker.message_broker import MessageBroker
from tandembus.errors import BusError, StoreUnavailable
from tandembus.namespace.entries import Tombstone

log = logging.getLogger("tandembus.namespace")

RETRY_S = 10.0
DROPPED_TOGETHER = 16
"""Fragments whose last records go in one commit: a topic may have thousands of subscriptions."""


class Dropper:
    """Of one store."""

    def __init__(self, broker: MessageBroker) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()
        self._underway: set[int] = set()
        self._resting: set[asyncio.Event] = set()
        self.on_dropped: Callable[[Sequence[Tombstone]], Awaitable[None]] = _nobody
        """Told when nothing of these fragments is left, so that the catalog forgets them. Asked again after a while if
        it fails."""

    def start(self, tombstones: Sequence[Tombstone]) -> None:
        """One after the other; what was deleted at another time does not wait for it. A topic goes before its
        subscriptions: then nobody counts any more who of the others still has a message."""
        new = [one for one in tombstones if one.fragment_key not in self._underway]
        if new:
            new.sort(key=_is_subscription)
            self._underway.update(one.fragment_key for one in new)
            task = asyncio.create_task(self._drop_all(new), name=f"dropping {new[0].path}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def retry(self) -> None:
        """What was put off goes on at once: the store is back, or whoever is to be told."""
        for one in self._resting:
            one.set()

    async def _rest(self) -> None:
        woken = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(RETRY_S, woken.set)
        self._resting.add(woken)
        try:
            await woken.wait()
        finally:
            self._resting.discard(woken)
            timer.cancel()

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
        for first in range(0, len(tombstones), DROPPED_TOGETHER):
            await self._drop(tombstones[first : first + DROPPED_TOGETHER])
        await self._tell(tombstones)
        self._underway.difference_update(one.fragment_key for one in tombstones)

    async def _drop(self, tombstones: Sequence[Tombstone]) -> None:
        while True:
            try:
                await drop_fragments(self._broker, [one.fragment_key for one in tombstones])
                return
            except StoreUnavailable as error:
                log.warning("dropping '%s' is put off: %s", tombstones[0].path, error)
                await self._rest()

    async def _tell(self, tombstones: Sequence[Tombstone]) -> None:
        while True:
            try:
                await self.on_dropped(tombstones)
                return
            except BusError as error:
                log.warning("'%s' is dropped, and the catalog does not know yet: %s", tombstones[0].path, error)
                await self._rest()


def _is_subscription(tombstone: Tombstone) -> bool:
    return tombstone.topic_fragment_key != 0


async def _nobody(_tombstones: Sequence[Tombstone]) -> None:
    return
