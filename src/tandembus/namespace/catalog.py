"""Which entities exist, durably.

An entity is `creating` until its fragment is made, then `active`; deleted, it leaves a tombstone until
everything of its fragment is gone. Incarnations and fragment keys are never given out twice, so nothing of an
earlier life can come up in a later one of the same name. The catalog decides about names and lives; making
and dropping fragments is its caller's work, who tells it when each step is through:

    begin_create -> (fragment made)    -> finish_create
                 -> (that failed)      -> abandon_create -> (fragment dropped) -> forget
    delete       -> (fragment dropped) -> forget

A rule has no fragment: it is there, changed or gone with the one commit that says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar, final

from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    rule_to_record,
)
from tandembus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    QuotaExceeded,
    StoreDamaged,
    StoreUnavailable,
)
from tandembus.limits import Limits
from tandembus.namespace import catalog_records as records
from tandembus.namespace.applying import apply
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent
from tandembus.namespace.catalog_loading import bury_forsaken, load, read_whole
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.directory import burial
from tandembus.namespace.entries import (
    EntityState,
    Entry,
    Facts,
    QueueEntry,
    SubscriptionEntry,
    Tombstone,
    TopicEntry,
)
from tandembus.namespace.placement import Stores, place
from tandembus.namespace.quotas import (
    check_entity_count,
    check_partitioned_count,
    check_plain_rule_count,
    check_rule_counts,
    check_subscription_count,
)
from tandembus.namespace.rule_table import RuleCounts, count_of
from tandembus.security.scopes import fold
from tandembus.store.embedded.catalog_store import CatalogStore, Document
from tandembus.tasks import uninterrupted

__all__ = ["Catalog", "EntityState", "Entry", "QueueEntry", "SubscriptionEntry", "Tombstone", "TopicEntry"]

LAST_FRAGMENT_KEY: Final = 0xFFFFFFFF
ONE_STORE: Final = Stores()

RECENT_CHANGES: Final = 256
"""Kept for those who missed some of them: a whole catalog is much more to take."""

Listener = Callable[[CatalogChange, Sequence[CatalogEvent]], None]

E = TypeVar("E", bound=Entry)


def _nothing() -> None:
    return


@final
class Catalog(CatalogView):
    """Changed through the store: a change is visible once it is durable, never before."""

    def __init__(self, store: records.RecordStore, now: float) -> None:
        super().__init__(load(store, now))
        self._store = store
        self._changing = asyncio.Lock()
        self._must_reload = False
        self._recent: deque[CatalogChange] = deque(maxlen=RECENT_CHANGES)
        self.listeners: list[Listener] = []
        """Told of every change right after it is durable, in the order of versions, with what it means."""

    @classmethod
    def open(cls, folder: Path, limits: Limits, now: float) -> Catalog:
        """Raises StoreUnavailable where another process holds it, StoreDamaged where it cannot be used."""
        store = CatalogStore(folder, limits.catalog_map_size_bytes)
        try:
            return cls(store, now)
        except BaseException:
            store.close()
            raise

    async def settled(self) -> None:
        """Until no change is under way: one goes on when its caller has gone, and writes in a thread."""
        async with self._changing:
            return

    def close(self) -> None:
        self._store.close()

    # Creating: take the name and give out new numbers. Visible to clients only after `finish_create`.

    @uninterrupted
    async def begin_create(
        self, description: QueueDescription, limits: Limits, now: float, stores: Stores = ONE_STORE
    ) -> QueueEntry:
        """Raises EntityAlreadyExists, QuotaExceeded, StoreUnavailable."""
        async with self._changing:
            await self._reload_if_needed(now)
            self._check_new_entity(description, limits)
            placed = self._placed(description, stores)
            numbers = self._next_numbers(len(placed))
            entry = QueueEntry(
                description, *numbers, now, now, EntityState.CREATING, stores=placed, ignores_key_case=True
            )
            await self._begin(entry, (), now)
            return entry

    @uninterrupted
    async def begin_create_topic(
        self, description: TopicDescription, limits: Limits, now: float, stores: Stores = ONE_STORE
    ) -> TopicEntry:
        """As for queues."""
        async with self._changing:
            await self._reload_if_needed(now)
            self._check_new_entity(description, limits)
            placed = self._placed(description, stores)
            numbers = self._next_numbers(len(placed))
            entry = TopicEntry(
                description, *numbers, now, now, EntityState.CREATING, stores=placed, ignores_key_case=True
            )
            await self._begin(entry, (), now)
            return entry

    @uninterrupted
    async def begin_create_subscription(
        self, description: SubscriptionDescription, rules: Sequence[RuleDescription], limits: Limits, now: float
    ) -> SubscriptionEntry:
        """With the rules it begins with. Raises EntityNotFound for its topic, EntityAlreadyExists, QuotaExceeded."""
        async with self._changing:
            await self._reload_if_needed(now)
            topic = self.get_topic(description.topic_name)
            self._check_name_is_free(fold(description.path), description.path)
            creating = len(self._directory.creating_subscriptions(topic.key))
            check_subscription_count(topic.description.name, self.subscription_count(topic.key) + creating, limits)
            self._check_new_rules(topic, rules, limits)
            kept = replace(description, topic_name=topic.description.name)
            numbers = self._next_numbers(len(topic.stores))
            entry = SubscriptionEntry(
                kept,
                *numbers,
                now,
                now,
                EntityState.CREATING,
                stores=topic.stores,
                ignores_key_case=topic.ignores_key_case,
            )
            await self._begin(entry, [replace(rule, created_at=now) for rule in rules], now)
            return entry

    async def _begin(self, entry: Entry, rules: Sequence[RuleDescription], now: float) -> None:
        facts = replace(
            self._next_facts(),
            next_incarnation=entry.incarnation + 1,
            next_fragment_key=entry.fragment_keys.stop,
        )
        puts: dict[bytes, Document] = {records.entry_key(entry): records.entry_document(entry)}
        puts.update({records.rule_key(entry.fragment_key, rule.name): rule_to_record(rule) for rule in rules})
        await self._commit(facts, now, puts)

    @uninterrupted
    async def finish_create(self, entry: E, now: float) -> E:
        """Its fragment is made: from here on the entity exists."""
        async with self._changing:
            await self._reload_if_needed(now)
            if self._directory.creating.get(entry.key) != entry:
                raise EntityNotFound(f"The messaging entity '{entry.description.path}' is not being created any more.")
            active = replace(entry, state=EntityState.ACTIVE)
            puts: dict[bytes, Document] = {records.entry_key(active): records.entry_document(active)}
            if isinstance(entry, SubscriptionEntry):
                puts.update(_accesses({entry.topic_key: now}))  # to subscribe is to use the topic
            await self._commit(self._next_facts(), now, puts)
            return active

    @uninterrupted
    async def abandon_create(self, entry: Entry, now: float) -> list[Tombstone]:
        """It could not be made after all: the name is free again, and what there may be of it is to be
        dropped.

        Also after a `finish_create` that failed without saying whether it was carried out. Nothing is returned
        where nothing is left to do.
        """
        async with self._changing:
            await self._reload_if_needed(now)
            found = self._directory.creating.get(entry.key) or self._directory.find(entry.key)
            if found is None or found.incarnation != entry.incarnation:
                return []
            return await self._bury([found], now)

    # Updating: a new description for the same life. What may change is the caller's to check.

    @uninterrupted
    async def update_queue(self, description: QueueDescription, now: float) -> QueueEntry:
        """Raises EntityNotFound. The name keeps the letters it was created with."""
        async with self._changing:
            await self._reload_if_needed(now)
            old = self.get_queue(description.name)
            kept = replace(description, name=old.description.name)
            return await self._update(replace(old, description=kept), now)

    @uninterrupted
    async def update_topic(self, description: TopicDescription, now: float) -> TopicEntry:
        async with self._changing:
            await self._reload_if_needed(now)
            old = self.get_topic(description.name)
            kept = replace(description, name=old.description.name)
            return await self._update(replace(old, description=kept), now)

    @uninterrupted
    async def update_subscription(self, description: SubscriptionDescription, now: float) -> SubscriptionEntry:
        async with self._changing:
            await self._reload_if_needed(now)
            old = self.get_subscription(description.topic_name, description.name)
            names = old.description
            kept = replace(description, topic_name=names.topic_name, name=names.name)
            return await self._update(replace(old, description=kept), now)

    async def _update(self, entry: E, now: float) -> E:
        entry = replace(entry, updated_at=now, version=entry.version + 1)
        await self._commit(self._next_facts(), now, {records.entry_key(entry): records.entry_document(entry)})
        return entry

    # Deleting: the name is free when this returns; the tombstones say what is to be dropped.

    @uninterrupted
    async def delete_queue(self, name: str, now: float) -> list[Tombstone]:
        """Raises EntityNotFound."""
        async with self._changing:
            await self._reload_if_needed(now)
            return await self._bury([self.get_queue(name)], now)

    @uninterrupted
    async def delete_topic(self, name: str, now: float) -> list[Tombstone]:
        """With all its subscriptions, in one commit; also those that are just being created."""
        async with self._changing:
            await self._reload_if_needed(now)
            topic = self.get_topic(name)
            creating = self._directory.creating_subscriptions(topic.key)
            return await self._bury([*self.subscriptions(topic.key), *creating, topic], now)

    @uninterrupted
    async def delete_subscription(self, topic: str, name: str, now: float) -> list[Tombstone]:
        async with self._changing:
            await self._reload_if_needed(now)
            return await self._bury([self.get_subscription(topic, name)], now)

    @uninterrupted
    async def forget(self, tombstones: Sequence[Tombstone], now: float) -> None:
        """Everything of these fragments is gone. Their numbers stay used."""
        async with self._changing:
            await self._reload_if_needed(now)
            known = [one.fragment_key for one in tombstones if one.fragment_key in self._directory.tombstones]
            if known:
                await self._commit(self._next_facts(), now, {}, [records.tombstone_key(one) for one in known])

    async def _bury(self, entries: Sequence[Entry], now: float) -> list[Tombstone]:
        puts: dict[bytes, Document] = {}
        drops: list[bytes] = []
        tombstones = [one for entry in entries for one in burial(self._directory, entry, now, puts, drops)]
        await self._commit(self._next_facts(), now, puts, drops)
        return tombstones

    # Rules.

    @uninterrupted
    async def create_rule(
        self, topic: str, subscription: str, rule: RuleDescription, limits: Limits, now: float
    ) -> RuleDescription:
        """Raises EntityNotFound, EntityAlreadyExists, QuotaExceeded."""
        async with self._changing:
            await self._reload_if_needed(now)
            entry = self.get_subscription(topic, subscription)
            if self.find_rule(topic, subscription, rule.name) is not None:
                path = f"{entry.description.path}/Rules/{rule.name}"
                raise EntityAlreadyExists(f"The messaging entity '{path}' already exists.")
            self._check_new_rule(entry, rule, limits)
            return await self._put_rule(entry, replace(rule, created_at=now), now)

    @uninterrupted
    async def update_rule(
        self, topic: str, subscription: str, rule: RuleDescription, limits: Limits, now: float
    ) -> RuleDescription:
        """Another filter and action under the same name. Raises EntityNotFound, QuotaExceeded."""
        async with self._changing:
            await self._reload_if_needed(now)
            entry = self.get_subscription(topic, subscription)
            old = self.get_rule(topic, subscription, rule.name)
            if count_of(old) != count_of(rule):
                self._check_new_rule(entry, rule, limits)
            return await self._put_rule(entry, replace(rule, name=old.name, created_at=old.created_at), now)

    @uninterrupted
    async def delete_rule(self, topic: str, subscription: str, name: str, now: float) -> None:
        """Raises EntityNotFound."""
        async with self._changing:
            await self._reload_if_needed(now)
            entry = self.get_subscription(topic, subscription)
            self.get_rule(topic, subscription, name)
            drop = records.rule_key(entry.fragment_key, name)
            await self._commit(self._next_facts(), now, _accesses({entry.key: now}), [drop])

    async def _put_rule(self, entry: SubscriptionEntry, rule: RuleDescription, now: float) -> RuleDescription:
        """Who changes its rules uses the subscription."""
        key = records.rule_key(entry.fragment_key, rule.name)
        puts = {**_accesses({entry.key: now}), key: rule_to_record(rule)}
        await self._commit(self._next_facts(), now, puts)
        return rule

    # What is not an entity.

    @uninterrupted
    async def skip_fragment_keys(self, next_key: int, now: float) -> None:
        """Never give out a fragment key below this one."""
        async with self._changing:
            await self._reload_if_needed(now)
            facts = self._next_facts()
            if facts.next_fragment_key < next_key:
                await self._commit(replace(facts, next_fragment_key=next_key), now, {})

    @uninterrupted
    async def skip_versions(self, version: int, now: float) -> None:
        """Somebody has a copy that is newer than this catalog, which was restored from a backup then: versions from now
        on must be none that a copy with another content may have."""
        async with self._changing:
            await self._reload_if_needed(now)
            if self.version < version:
                await self._commit(replace(self._directory.facts, version=version + 1), now, {})

    @uninterrupted
    async def record_accesses(self, times: Mapping[str, float], now: float) -> None:
        """When entities were last used, many in one commit: for a pass once a minute."""
        async with self._changing:
            await self._reload_if_needed(now)
            known = {fold(path): max(at, self.accessed_at(path)) for path, at in times.items() if self.find(path)}
            if known:
                await self._commit(self._next_facts(), now, _accesses(known))

    @uninterrupted
    async def put_policy(self, policy: AuthorizationRule, now: float) -> None:
        """A policy of the namespace, new or in place of the one of this name."""
        async with self._changing:
            await self._reload_if_needed(now)
            key = records.policy_key(policy.key_name)
            await self._commit(self._next_facts(), now, {key: records.policy_document(policy)})

    @uninterrupted
    async def remove_policy(self, name: str, now: float) -> None:
        async with self._changing:
            await self._reload_if_needed(now)
            if name not in self._directory.policies:
                raise EntityNotFound(f"The policy '{name}' could not be found.")
            await self._commit(self._next_facts(), now, {}, [records.policy_key(name)])

    # Checks, numbers, commits.

    def _check_new_entity(self, description: QueueDescription | TopicDescription, limits: Limits) -> None:
        self._check_name_is_free(fold(description.name), description.name)
        placed = self._directory.placed
        check_entity_count(placed.entity_count, limits)
        if description.enable_partitioning:
            check_partitioned_count(placed.partitioned_count, limits)

    def _placed(self, description: QueueDescription | TopicDescription, stores: Stores) -> tuple[int, ...]:
        return place(description.enable_partitioning, stores, self._directory.placed)

    def _check_name_is_free(self, key: str, path: str) -> None:
        if self._directory.find(key) is not None:
            raise EntityAlreadyExists(f"The messaging entity '{path}' already exists.")
        if key in self._directory.creating:
            raise StoreUnavailable(f"Creating '{path}' failed a moment ago, and the name is not free yet. Try again.")
        taken = {records.queue_key(key), records.topic_key(key), records.subscription_key(key)}
        if any(one.key in taken for one in self._directory.damaged):
            raise StoreDamaged(
                f"The catalog's record of '{path}' is damaged, and its messages are kept. "
                "Restore the catalog, or use another name."
            )

    def _check_new_rule(self, entry: SubscriptionEntry, rule: RuleDescription, limits: Limits) -> None:
        if count_of(rule).plain:
            plain_count = self._directory.rules(entry.fragment_key).counts.plain
            check_plain_rule_count(entry.description.path, plain_count, limits)
        self._check_new_rules(self.get_topic(entry.topic_key), [rule], limits)

    def _check_new_rules(self, topic: TopicEntry, rules: Sequence[RuleDescription], limits: Limits) -> None:
        added = RuleCounts()
        for rule in rules:
            added += count_of(rule)
        check_rule_counts(topic.description.name, self._directory.rule_counts(topic.key), added, limits)

    def _next_numbers(self, fragment_count: int) -> tuple[int, int]:
        """Incarnation and first fragment key of what is created next."""
        facts = self._directory.facts
        if facts.next_fragment_key + fragment_count > LAST_FRAGMENT_KEY:
            raise QuotaExceeded("The namespace has given out all its fragment keys.")
        return facts.next_incarnation, facts.next_fragment_key

    def _next_facts(self) -> Facts:
        return replace(self._directory.facts, version=self._directory.facts.version + 1)

    async def _commit(
        self, facts: Facts, now: float, puts: Mapping[bytes, Document], drops: Sequence[bytes] = ()
    ) -> None:
        """In a thread: a sync may take long, and nobody else's messages must wait for it."""
        change = CatalogChange(facts.version, {**puts, **records.facts_documents(facts)}, drops)
        try:
            await asyncio.to_thread(self._store.commit, change.puts, change.drops)
        except StoreUnavailable:
            self._must_reload = True
            try:
                await self._reload_if_needed(now)
            except StoreUnavailable:
                pass  # Tried again before the next change.
            raise
        self._take_in(change)

    def _take_in(self, change: CatalogChange) -> None:
        """What is durable becomes visible, and is told."""
        events = apply(self._directory, change)
        if change.is_whole:
            self._recent.clear()
        else:
            self._recent.append(change)
        for listener in self.listeners:
            listener(change, events)

    async def _reload_if_needed(self, now: float) -> None:
        """After a commit of unknown outcome, what exists is what the store says, not what we remember."""
        if not self._must_reload:
            return
        underway = {entry.incarnation for entry in self._directory.creating.values()}
        self._take_in(await asyncio.to_thread(self._reread, now))
        burying = bury_forsaken(self._directory, now, underway)
        if burying is not None:
            await asyncio.to_thread(self._store.commit, burying.puts, burying.drops)
            self._take_in(burying)
        self._must_reload = False

    def _reread(self, now: float) -> CatalogChange:
        self._store.reopen()
        return read_whole(self._store, now)

    # For those who have a copy.

    async def catch_up(
        self, namespace_id: str, version: int, then: Callable[[], None] = _nothing
    ) -> list[CatalogChange]:
        """What a copy at this version has missed; everything, where that is not known any more. `then` is called before
        anything more can change."""
        async with self._changing:
            missed = [change for change in self._recent if change.version > version]
            is_known = version == self.version or (missed and missed[0].version == version + 1)
            if namespace_id != self.namespace_id or not is_known:
                missed = [await asyncio.to_thread(self._whole)]
            then()
            return missed

    async def snapshot(self) -> CatalogChange:
        """All there is, at one moment."""
        async with self._changing:
            return await asyncio.to_thread(self._whole)

    def _whole(self) -> CatalogChange:
        documents, damaged = self._store.read_all()
        return CatalogChange(self.version, documents, is_whole=True, damaged=tuple(damaged))


def _accesses(times: Mapping[str, float]) -> dict[bytes, Document]:
    return {records.access_key(key): {"accessed_at": at} for key, at in times.items()}
