"""Copies of the catalog: in memory for every process, and durable beside each store for those who own one.

The durable copies are there so that no single folder is the only one that knows which entities exist. A copy that
cannot be written keeps nobody from being served: it is written whole as soon as that is possible again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

from tandembus.errors import BusError, StoreDamaged, StoreUnavailable
from tandembus.namespace.applying import facts_of
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent
from tandembus.namespace.catalog_records import META_KEYS
from tandembus.namespace.catalog_recovery import put_aside
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.following import CONFIRM_S, Followers
from tandembus.node.store_folders import COPY_FOLDER
from tandembus.store.embedded.catalog_store import CatalogStore, Document

log = logging.getLogger("tandembus.node")

CATCH_UP_S: Final = 10.0
"""How long copies that could not keep up are left alone."""
NOTHING: Final = -1
"""The version of a copy that holds nothing of use."""


@final
class DurableCopy:
    """One of them. What it holds is right or plainly old, never half of a change."""

    def __init__(self, folder: Path, map_size_bytes: int) -> None:
        self._folder = folder
        self._map_size_bytes = map_size_bytes
        self._store: CatalogStore | None = None
        self.version = NOTHING
        self.namespace_id = ""
        self._open()

    def _open(self) -> None:
        try:
            self._store = CatalogStore(self._folder, self._map_size_bytes)
            facts = facts_of(self._store.read(META_KEYS)) if self._store.is_sound() else None
        except StoreUnavailable as error:
            log.warning("the copy of the catalog in %s cannot be used: %s", self._folder, error)
            return
        if facts is not None:
            self.version, self.namespace_id = facts.version, facts.namespace_id

    def read(self) -> Mapping[bytes, Document] | None:
        """All of it; None for one that holds nothing, or is damaged: then it is not relied on any more."""
        if self.version == NOTHING or self._store is None:
            return None
        try:
            documents, damaged = self._store.read_all()
            if not damaged:
                return documents
            log.warning("the copy of the catalog in %s is damaged: %s", self._folder, damaged[0])
        except StoreUnavailable as error:
            log.warning("the copy of the catalog in %s cannot be read: %s", self._folder, error)
        self.version = NOTHING
        return None

    def write(self, change: CatalogChange, before: int) -> None:
        """A change of a catalog that was at version `before`; one that does not follow on what is here is left out."""
        try:
            if change.is_whole:
                if self.version != change.version:
                    self._write_whole(change)
            elif self.version == before:
                self._opened().commit(change.puts, change.drops)
                self.version = change.version
        except StoreUnavailable as error:
            log.warning("the copy of the catalog in %s cannot be written: %s", self._folder, error)
            self.close()
            self.version = NOTHING

    def _write_whole(self, change: CatalogChange) -> None:
        """What the catalog itself cannot read any more is kept: this may be the last place that has it."""
        store = self._opened()
        kept = {*change.puts, *(damaged.key for damaged in change.damaged)}
        store.commit(change.puts, [key for key in store.read_all()[0] if key not in kept])
        self.version = change.version

    def _opened(self) -> CatalogStore:
        if self._store is None:
            try:
                self._store = CatalogStore(self._folder, self._map_size_bytes)
            except StoreDamaged as error:
                log.error("the copy of the catalog in %s is written again: %s", self._folder, error)
                put_aside(self._folder)
                self._store = CatalogStore(self._folder, self._map_size_bytes)
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


@final
class DurableCopies:
    """Those of one process."""

    def __init__(self, folders: Sequence[Path], map_size_bytes: int) -> None:
        self._copies = [DurableCopy(folder / COPY_FOLDER, map_size_bytes) for folder in folders]
        self._writing = asyncio.Lock()

    def newest(self) -> CatalogChange | None:
        """What the newest of them holds that can be read."""
        for copy in sorted(self._copies, key=lambda one: one.version, reverse=True):
            documents = copy.read()
            if documents is not None:
                self.keep_only(copy.namespace_id)
                return CatalogChange(copy.version, documents, is_whole=True)
        return None

    def keep_only(self, namespace_id: str) -> None:
        """Copies of other namespaces are none."""
        for copy in self._copies:
            if copy.namespace_id != namespace_id:
                copy.version = NOTHING

    async def write(self, change: CatalogChange, before: int) -> None:
        """One at a time, and to its end also when nobody waits for it any more: a disk may hang for long."""
        await asyncio.shield(asyncio.ensure_future(self._write_in_turn(change, before)))

    async def _write_in_turn(self, change: CatalogChange, before: int) -> None:
        async with self._writing:
            # All at once: each waits for its own disk.
            await asyncio.gather(*(asyncio.to_thread(copy.write, change, before) for copy in self._copies))

    def have(self, version: int) -> bool:
        """Whether all of them are at this version; else they want a whole catalog."""
        return all(copy.version == version for copy in self._copies)

    def close(self) -> None:
        for copy in self._copies:
            copy.close()


@final
class CatalogCopies:
    """What a process other than the catalog's own goes by. Implements `control_link.CatalogCopy`."""

    def __init__(self, open_durable: Callable[[], DurableCopies] | None = None) -> None:
        """`open_durable`: for those who keep copies. They are opened when somebody is there to say what is missing in
        them: until then whoever has lost the catalog may be reading them."""
        self.view = CatalogView.empty()
        self._open_durable = open_durable
        self._durable: DurableCopies | None = None
        self.on_changed: Callable[[Sequence[CatalogEvent]], Awaitable[None]] = _nobody
        """Told what a change means, once it is durable here; it is in effect when that returns."""
        self._taking = asyncio.Lock()
        self._untold: list[CatalogEvent] = []
        """What the view knows and `on_changed` has not brought into effect."""
        self._taken = asyncio.Event()
        self._version_in_effect = NOTHING
        self.is_relied_on = False
        """Set by whoever begins to go by the view, also if nothing was missing in it."""

    @property
    def version(self) -> int:
        return self.view.version

    async def known(self) -> tuple[str, int]:
        """The namespace's id and the version of which nothing is missing here, once what was begun before is over."""
        async with self._taking:
            if self._durable is None and self._open_durable is not None:
                self._durable = self._open_durable()
                found = await asyncio.to_thread(self._durable.newest)
                if found is not None:
                    await self.view.begin_with(found)
            is_in_effect = self._is_complete() and not self._untold
            return (self.view.namespace_id, self.version) if is_in_effect else ("", NOTHING)

    def is_behind(self) -> bool:
        """Whether durable copies want a whole catalog. Nobody can tell while a change is being written to them."""
        return not self._taking.locked() and not self._is_complete()

    def _is_complete(self) -> bool:
        return self._durable is None or self._durable.have(self.version)

    async def take(self, change: CatalogChange) -> None:
        """Once begun it is carried through, also when whoever told it is gone: a view that knows what is not in effect
        would have nobody ask for it again."""
        await asyncio.shield(asyncio.ensure_future(self._take_in_turn(change)))

    async def _take_in_turn(self, change: CatalogChange) -> None:
        async with self._taking:
            before = self.version
            await self._apply(change)
            if self._durable is not None:
                await self._durable.write(change, before)
            await self.on_changed(tuple(self._untold))
            self._untold.clear()
            self._version_in_effect = change.version
        taken, self._taken = self._taken, asyncio.Event()
        taken.set()

    async def _apply(self, change: CatalogChange) -> None:
        """A whole catalog may be large: where nobody goes by the view yet, it is built beside the loop."""
        if change.is_whole and not self.is_relied_on and self._version_in_effect == NOTHING:
            self._untold = await self.view.begin_with(change)
        elif not self._is_known(change):
            self._untold += self.view.apply(change)

    def _is_known(self, change: CatalogChange) -> bool:
        """What is in memory already, and only wanted for durable copies. Of one that is damaged nobody can tell."""
        facts = facts_of(change.puts) if change.is_whole else None
        if change.damaged or self.view.damaged:
            return False
        return facts is not None and (facts.namespace_id, facts.version) == (self.view.namespace_id, self.version)

    async def until(self, version: int) -> None:
        """Returns when this version is in effect here."""
        while self._version_in_effect < version:
            await self._taken.wait()

    def close(self) -> None:
        if self._durable is not None:
            self._durable.close()


@final
class CopiesFollowing:
    """Keeps the durable copies of the process that has the catalog itself. Implements `CatalogFollower`: nobody waits
    for a disk that hangs, and what is behind catches up later."""

    name = "the copies of the catalog"

    def __init__(
        self,
        catalog: Catalog,
        durable: DurableCopies,
        followers: Followers,
        confirm_s: float = CONFIRM_S,
        catch_up_s: float = CATCH_UP_S,
    ) -> None:
        self._catalog = catalog
        self._durable = durable
        self._followers = followers
        self._confirm_s = confirm_s
        self._catch_up_s = catch_up_s
        self._catching_up: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        """Held from the look at the catalog until that is written: no change comes in between."""

    async def start(self) -> None:
        """Copies that are older than the catalog become what it is."""
        self._durable.keep_only(self._catalog.namespace_id)
        self._followers.add(self, self._confirm_s)
        await self._write_whole_where_needed()
        if not self._is_level():
            self._catch_up_later()

    async def stop(self) -> None:
        self._followers.leave(self)
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.gather(self._catching_up, return_exceptions=True)

    async def take(self, change: CatalogChange) -> None:
        async with self._writing:
            await self._durable.write(change, change.version - 1)
        if not self._durable.have(change.version):
            self._catch_up_later()

    async def _write_whole_where_needed(self) -> None:
        async with self._writing:
            if not self._is_level():
                await self._durable.write(await self._catalog.snapshot(), NOTHING)

    def _is_level(self) -> bool:
        return self._durable.have(self._catalog.version)

    def cut_off(self, reason: BusError) -> None:
        log.warning("the copies of the catalog are behind: %s", reason)
        self._catch_up_later()

    def _catch_up_later(self) -> None:
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up(), name="catching up with the catalog")

    async def _catch_up(self) -> None:
        """Until nothing is missing: whoever is left behind meanwhile finds this under way, and relies on it."""
        while self not in self._followers or not self._is_level():
            await asyncio.sleep(self._catch_up_s)
            if self not in self._followers:
                self._followers.add(self, self._confirm_s)
            await self._write_whole_where_needed()


async def _nobody(_events: Sequence[CatalogEvent]) -> None:
    return
