"""Which entities exist, durably.

A queue is `creating` until its fragment is made, then `active`; deleted, it leaves a tombstone until
everything of its fragment is gone. Incarnations and fragment keys are never given out twice, so nothing of an
earlier life can come up in a later one of the same name. The catalog decides about names and lives; making
and dropping fragments is its caller's work, who tells it when each step is through:

    begin_create -> (fragment made)    -> finish_create
                 -> (that failed)      -> abandon_create -> (fragment dropped) -> forget
    delete_queue -> (fragment dropped) -> forget
"""

from __future__ import annotations

import asyncio
import functools
from bisect import bisect_left, insort
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, final

from tandembus.descriptions import QueueDescription
from tandembus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    QuotaExceeded,
    StoreDamaged,
    StoreUnavailable,
)
from tandembus.limits import Limits
from tandembus.namespace.catalog_records import (
    Contents,
    EntityState,
    Facts,
    QueueEntry,
    RecordStore,
    Tombstone,
    access_key,
    entry_document,
    facts_documents,
    load,
    policy_document,
    policy_key,
    queue_key,
    tombstone_key,
    tombstone_of,
)
from tandembus.namespace.quotas import check_entity_count
from tandembus.security.claims import Policy
from tandembus.security.scopes import fold
from tandembus.store.embedded.catalog_store import CatalogStore, DamagedRecord, Document

__all__ = ["Catalog", "EntityState", "QueueEntry", "Tombstone"]

LAST_FRAGMENT_KEY: Final = 0xFFFFFFFF

T = TypeVar("T")
P = ParamSpec("P")


def _uninterrupted(
    method: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A change once begun is carried through when its caller goes away: memory must not miss what is
    durable."""

    @functools.wraps(method)
    async def carried_through(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.shield(asyncio.ensure_future(method(*args, **kwargs)))

    return carried_through


@final
class Catalog:
    """Looked up in memory, changed through the store: a change is visible once it is durable, never
    before."""

    def __init__(self, store: RecordStore, now: float) -> None:
        self._store = store
        self._changing = asyncio.Lock()
        self._contents = load(store, now)
        self._sorted = sorted(self._contents.queues)
        self._must_reload = False

    @classmethod
    def open(cls, folder: Path, limits: Limits, now: float) -> Catalog:
        """Raises StoreUnavailable where another process holds it, StoreDamaged where it cannot be used."""
        store = CatalogStore(folder, limits.catalog_map_size_bytes)
        try:
            return cls(store, now)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        self._store.close()

    @property
    def namespace_id(self) -> str:
        return self._contents.facts.namespace_id

    @property
    def created_at(self) -> float:
        """When the namespace came into being: the data folder's first start."""
        return self._contents.facts.created_at

    @property
    def version(self) -> int:
        """One more with every change of an entity or policy."""
        return self._contents.facts.version

    @property
    def damaged(self) -> Sequence[DamagedRecord]:
        """Records that could not be believed at open; their entities are not served, their fragments are
        kept."""
        return self._contents.damaged

    def find_queue(self, name: str) -> QueueEntry | None:
        """The active queue of this name, in whatever letters."""
        return self._contents.queues.get(fold(name))

    def get_queue(self, name: str) -> QueueEntry:
        """The same, or EntityNotFound."""
        entry = self.find_queue(name)
        if entry is None:
            raise EntityNotFound(f"The messaging entity '{name}' could not be found.")
        return entry

    def queues(self, skip: int = 0, top: int | None = None) -> list[QueueEntry]:
        """Active queues sorted by name: one page, without touching the others."""
        keys = self._sorted[skip:] if top is None else self._sorted[skip : skip + top]
        return [self._contents.queues[key] for key in keys]

    def queue_count(self) -> int:
        return len(self._contents.queues)

    def tombstones(self) -> list[Tombstone]:
        """Fragments to drop, or to go on dropping after a restart."""
        return list(self._contents.tombstones.values())

    def accessed_at(self, name: str) -> float:
        """When the queue was last known to be used, also across restarts."""
        key = fold(name)
        entry = self._contents.queues.get(key)
        return max(self._contents.accessed_at.get(key, 0.0), entry.created_at if entry is not None else 0.0)

    def policies(self) -> list[Policy]:
        return list(self._contents.policies.values())

    @_uninterrupted
    async def begin_create(self, description: QueueDescription, limits: Limits, now: float) -> QueueEntry:
        """Take the name and give out new numbers. Visible to clients only after `finish_create`.

        Raises EntityAlreadyExists, QuotaExceeded.
        """
        async with self._changing:
            await self._reload_if_needed(now)
            contents, key = self._contents, fold(description.name)
            self._check_name_is_free(key, description.name)
            check_entity_count(len(contents.queues) + len(contents.creating), limits)
            facts = self._next_facts()
            if facts.next_fragment_key >= LAST_FRAGMENT_KEY:
                raise QuotaExceeded("The namespace has given out all its fragment keys.")
            entry = QueueEntry(
                description, facts.next_incarnation, facts.next_fragment_key, now, now, EntityState.CREATING
            )
            facts = replace(
                facts,
                next_incarnation=facts.next_incarnation + 1,
                next_fragment_key=facts.next_fragment_key + 1,
            )
            await self._commit(facts, now, {queue_key(key): entry_document(entry)})
            contents.creating[key] = entry
            return entry

    @_uninterrupted
    async def finish_create(self, entry: QueueEntry, now: float) -> QueueEntry:
        """Its fragment is made: from here on the queue exists."""
        async with self._changing:
            await self._reload_if_needed(now)
            if self._contents.creating.get(entry.key) != entry:
                raise EntityNotFound(f"The messaging entity '{entry.description.name}' is not being created any more.")
            active = replace(entry, state=EntityState.ACTIVE)
            await self._commit(self._next_facts(), now, {queue_key(entry.key): entry_document(active)})
            del self._contents.creating[entry.key]
            self._contents.queues[entry.key] = active
            insort(self._sorted, entry.key)
            return active

    @_uninterrupted
    async def abandon_create(self, entry: QueueEntry, now: float) -> Tombstone | None:
        """It could not be made after all: the name is free again, and what there may be of it is to be
        dropped.

        Also after a `finish_create` that failed without saying whether it was carried out. None where there
        is nothing left to do.
        """
        async with self._changing:
            await self._reload_if_needed(now)
            found = self._contents.creating.get(entry.key) or self._contents.queues.get(entry.key)
            if found is None or found.incarnation != entry.incarnation:
                return None
            return await self._bury(found, now)

    @_uninterrupted
    async def update_queue(self, description: QueueDescription, now: float) -> QueueEntry:
        """A new description for the same life. Raises EntityNotFound; what may change is the caller's to
        check."""
        async with self._changing:
            await self._reload_if_needed(now)
            old = self.get_queue(description.name)
            # The name keeps the letters it was created with.
            kept = replace(description, name=old.description.name)
            entry = replace(old, description=kept, updated_at=now, version=old.version + 1)
            await self._commit(self._next_facts(), now, {queue_key(entry.key): entry_document(entry)})
            self._contents.queues[entry.key] = entry
            return entry

    @_uninterrupted
    async def delete_queue(self, name: str, now: float) -> Tombstone:
        """The name is free when this returns; the tombstone says what is to be dropped. Raises
        EntityNotFound."""
        async with self._changing:
            await self._reload_if_needed(now)
            return await self._bury(self.get_queue(name), now)

    @_uninterrupted
    async def forget(self, tombstone: Tombstone, now: float) -> None:
        """Everything of the fragment is gone. Its numbers stay used."""
        async with self._changing:
            await self._reload_if_needed(now)
            if tombstone.fragment_key in self._contents.tombstones:
                await self._commit(self._contents.facts, now, {}, [tombstone_key(tombstone.fragment_key)])
                del self._contents.tombstones[tombstone.fragment_key]

    @_uninterrupted
    async def skip_fragment_keys(self, next_key: int, now: float) -> None:
        """Never give out a fragment key below this one."""
        async with self._changing:
            await self._reload_if_needed(now)
            facts = self._next_facts()
            if facts.next_fragment_key < next_key:
                await self._commit(replace(facts, next_fragment_key=next_key), now, {})

    @_uninterrupted
    async def record_accesses(self, times: Mapping[str, float], now: float) -> None:
        """When queues were last used, many in one commit: for a pass once a minute."""
        async with self._changing:
            await self._reload_if_needed(now)
            known = {fold(name): at for name, at in times.items() if fold(name) in self._contents.queues}
            if known:
                puts: dict[bytes, Document] = {access_key(key): {"accessed_at": at} for key, at in known.items()}
                await self._commit(self._contents.facts, now, puts)
                self._contents.accessed_at.update(known)

    @_uninterrupted
    async def put_policy(self, policy: Policy, now: float) -> None:
        async with self._changing:
            await self._reload_if_needed(now)
            await self._commit(self._next_facts(), now, {policy_key(policy.name): policy_document(policy)})
            self._contents.policies[policy.name] = policy

    @_uninterrupted
    async def remove_policy(self, name: str, now: float) -> None:
        async with self._changing:
            await self._reload_if_needed(now)
            if name not in self._contents.policies:
                raise EntityNotFound(f"The policy '{name}' could not be found.")
            await self._commit(self._next_facts(), now, {}, [policy_key(name)])
            del self._contents.policies[name]

    def _check_name_is_free(self, key: str, name: str) -> None:
        if key in self._contents.queues or key in self._contents.creating:
            raise EntityAlreadyExists(f"The messaging entity '{name}' already exists.")
        if any(one.key == queue_key(key) for one in self._contents.damaged):
            raise StoreDamaged(
                f"The catalog's record of '{name}' is damaged, and its messages are kept. "
                "Restore the catalog, or use another name."
            )

    def _next_facts(self) -> Facts:
        return replace(self._contents.facts, version=self._contents.facts.version + 1)

    async def _bury(self, entry: QueueEntry, now: float) -> Tombstone:
        tombstone = tombstone_of(entry, now)
        put = {tombstone_key(tombstone.fragment_key): asdict(tombstone)}
        await self._commit(self._next_facts(), now, put, [queue_key(entry.key), access_key(entry.key)])
        contents = self._contents
        contents.tombstones[tombstone.fragment_key] = tombstone
        contents.accessed_at.pop(entry.key, None)
        contents.creating.pop(entry.key, None)
        if contents.queues.pop(entry.key, None) is not None:
            del self._sorted[bisect_left(self._sorted, entry.key)]
        return tombstone

    async def _commit(
        self, facts: Facts, now: float, puts: Mapping[bytes, Document], drops: Sequence[bytes] = ()
    ) -> None:
        """In a thread: a sync may take long, and nobody else's messages must wait for it."""
        everything = {**puts, **facts_documents(facts)}
        try:
            await asyncio.to_thread(self._store.commit, everything, drops)
        except StoreUnavailable:
            self._must_reload = True
            try:
                await self._reload_if_needed(now)
            except StoreUnavailable:
                pass  # Tried again before the next change.
            raise
        self._contents.facts = facts

    async def _reload_if_needed(self, now: float) -> None:
        """After a commit of unknown outcome, what exists is what the store says, not what we remember."""
        if not self._must_reload:
            return
        underway = {entry.incarnation for entry in self._contents.creating.values()}
        self._contents = await asyncio.to_thread(self._reloaded, now, underway)
        self._sorted = sorted(self._contents.queues)
        self._must_reload = False

    def _reloaded(self, now: float, underway: set[int]) -> Contents:
        self._store.reopen()
        return load(self._store, now, underway)
