"""One messaging store in the broker process that owns it: opened, hosted, served to front ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from tandembus.broker.message_broker import MessageBroker
from tandembus.errors import BusError, StoreDamaged, StoreUnavailable
from tandembus.namespace.hosting import FragmentHost
from tandembus.namespace.transfers import Transfers
from tandembus.node.waiting import comes_true
from tandembus.store.folder_lock import FolderLock
from tandembus.tasks import WhenBroken, essential

log = logging.getLogger("tandembus.node")

FIRST_RETRY_S: Final = 0.05
LAST_RETRY_S: Final = 30.0
FREE_WITHIN_S: Final = 10.0
"""How long an owner of an earlier life, whose end has come already, may take to be gone."""


@final
class OwnedStore:
    """Not open before its folder is free and its files are sound; tried again for as long as it takes, since other
    stores of the process may be all right."""

    def __init__(self, index: int, broker: MessageBroker, host: FragmentHost, transfers: Transfers) -> None:
        self.index = index
        self.broker = broker
        self.host = host
        self.transfers = transfers
        self.is_open = False
        self.is_hosting = False
        self.opening_failure: BusError | None = StoreUnavailable("it is not open yet")
        self._resuming: asyncio.Task[None] | None = None

    @property
    def failure(self) -> BusError | None:
        if not self.is_open:
            return self.opening_failure
        if self.broker.failure is None and self.broker.is_hanging:
            return StoreUnavailable("a commit takes too long")
        if self.broker.failure is None and not self.is_hosting:
            return StoreUnavailable("it is not served yet")
        return self.broker.failure

    @property
    def is_waiting(self) -> bool:
        """To be hosted, and nothing is in the way."""
        return self.is_open and self.broker.failure is None and not self.is_hosting

    def status(self) -> dict[object, object]:
        failure = self.failure
        return {
            "epoch": self.broker.store.epoch if failure is None else None,
            "audited": self.broker.audit.last_number if failure is None and self.broker.audit is not None else None,
            "failure": None if failure is None else str(failure),
            "newest_key": self.host.newest_key,
        }

    async def try_to_open(self) -> bool:
        try:
            await self.broker.start()
        except BusError as error:
            self.opening_failure = error
            return False
        self.is_open = True
        return True

    async def open_at_last(self, opened: Callable[[OwnedStore], None]) -> None:
        """For one that did not open at once."""
        delay_s = FIRST_RETRY_S
        while not await self.try_to_open():
            log.error("messaging store %d cannot be opened: %s", self.index, self.opening_failure)
            if isinstance(self.opening_failure, StoreDamaged):
                delay_s = LAST_RETRY_S  # it stays so until somebody replaces the file
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_RETRY_S)
        opened(self)

    async def start_hosting(self, when_broken: WhenBroken) -> None:
        """Once the copy of the catalog is what it must be; again after each time when it was not."""
        if not self.is_hosting:
            await self.host.start()
            self.is_hosting = True
            self._resuming = essential(self.transfers.resume(), "resuming transfers", when_broken)
        await self.host.catch_up()

    async def stop(self) -> None:
        """Commit what was accepted, then close."""
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.gather(self._resuming, return_exceptions=True)
        if self.is_hosting:
            await self.host.stop()
        if self.is_open:
            await self.broker.stop()


async def until_free(folder: Path, within_s: float = FREE_WITHIN_S) -> None:
    """Returns when nobody holds the store, or after so long: then whoever opens it is told who does."""
    await comes_true(lambda: _is_free(folder), within_s)


def _is_free(folder: Path) -> bool:
    if not folder.is_dir():
        return True
    try:
        FolderLock(folder).release()
    except StoreUnavailable:
        return False
    return True
