"""Everybody who has a copy of the catalog hears of its changes, in order, and says when they are in effect.

What administration answers waits for that. Who does not confirm in time is cut off: until it has caught up it serves
nobody, so no client can meet somebody who does not know what another client was told is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import final

from tandembus.errors import BusError, OperationTimeout, StoreUnavailable
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.namespace.store_port import CatalogFollower

log = logging.getLogger("tandembus.namespace")

CONFIRM_S = 2.0


@final
class Followers:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._following: dict[CatalogFollower, _Following] = {}

    def publish(self, change: CatalogChange) -> None:
        """To everybody; returns at once."""
        for following in list(self._following.values()):
            following.put(change)

    async def follow(self, follower: CatalogFollower, namespace_id: str, version: int) -> list[CatalogChange]:
        """From now on it is told of every change. Returns what it has missed, having this version: to be taken before
        the first that it is told of."""
        return await self._catalog.catch_up(namespace_id, version, lambda: self.add(follower))

    def add(self, follower: CatalogFollower, confirm_s: float | None = CONFIRM_S) -> None:
        """For one that has missed nothing. `confirm_s`: how long it may take; None for one that is waited for."""
        self.leave(follower)
        self._following[follower] = _Following(follower, confirm_s, self._cut_off)

    def leave(self, follower: CatalogFollower) -> None:
        following = self._following.pop(follower, None)
        if following is not None:
            following.end()

    def _cut_off(self, follower: CatalogFollower, reason: BusError) -> None:
        if follower in self._following:
            self.leave(follower)
            follower.cut_off(reason)

    async def confirmed(self) -> None:
        """Returns when everybody has confirmed what was published so far, or does not follow any more."""
        await asyncio.gather(*(one.confirmed() for one in list(self._following.values())))

    def __contains__(self, follower: CatalogFollower) -> bool:
        return follower in self._following

    def stop(self) -> None:
        for follower in list(self._following):
            self.leave(follower)


@final
class _Following:
    """One follower, and what it has not confirmed yet."""

    def __init__(
        self,
        follower: CatalogFollower,
        confirm_s: float | None,
        cut_off: Callable[[CatalogFollower, BusError], None],
    ) -> None:
        self._follower = follower
        self._confirm_s = confirm_s
        self._cut_off = cut_off
        self._waiting: deque[CatalogChange] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, change: CatalogChange) -> None:
        if change.is_whole:
            self._waiting.clear()  # it says all that they would
        self._waiting.append(change)
        if self._task is None:
            self._task = asyncio.create_task(self._tell(), name=f"telling {self._follower.name}")

    async def _tell(self) -> None:
        try:
            while self._waiting:
                await asyncio.wait_for(self._follower.take(self._waiting.popleft()), self._confirm_s)
        except TimeoutError:
            reason = OperationTimeout(f"a change of the catalog was not confirmed within {self._confirm_s:g} s")
            self._cut_off(self._follower, reason)
        except BusError as error:
            self._cut_off(self._follower, error)
        except Exception as error:
            log.exception("%s could not take a change of the catalog", self._follower.name)
            self._cut_off(self._follower, StoreUnavailable(f"a change of the catalog could not be taken: {error!r}"))
        finally:
            self._task = None

    async def confirmed(self) -> None:
        task = self._task
        if task is not None:
            await asyncio.wait((task,))

    def end(self) -> None:
        self._waiting.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
