"""Everything that a catalog holds, in memory: found by key, listed in pages, counted.

It remembers; what may be changed is the catalog's to decide, and what is durable the store's to say.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import final

from tandembus.descriptions import AuthorizationRule, rule_from_record
from tandembus.errors import StoreDamaged
from tandembus.namespace import catalog_records as records
from tandembus.namespace.entries import (
    EntityState,
    Entry,
    Facts,
    QueueEntry,
    SubscriptionEntry,
    Tombstone,
    TopicEntry,
)
from tandembus.namespace.named import Named
from tandembus.namespace.paths import split_subscription
from tandembus.namespace.rule_table import RuleCounts, Rules, total_of
from tandembus.store.embedded.catalog_store import DamagedRecord, Document


@final
class Directory:
    def __init__(self, facts: Facts, damaged: list[DamagedRecord]) -> None:
        self.facts = facts
        self.damaged = damaged
        self.queues: Named[QueueEntry] = Named()
        self.topics: Named[TopicEntry] = Named()
        self._subscriptions: dict[str, Named[SubscriptionEntry]] = {}
        self._rules: dict[int, Rules] = {}
        self.creating: dict[str, Entry] = {}
        self.tombstones: dict[int, Tombstone] = {}
        self.accessed_at: dict[str, float] = {}
        self.policies: Named[AuthorizationRule] = Named()
        self.by_fragment: dict[int, Entry] = {}
        self.with_idle_time: dict[str, Entry] = {}
        """Those that are deleted when nobody uses them: looked through every few seconds."""
        self.incomplete_topics: set[str] = set()
        """Topics with a damaged record of a subscription or rule: served without it, messages would be lost."""

    def find(self, key: str) -> Entry | None:
        """The active entity of this key, of whatever kind."""
        found = self.queues.get(key) or self.topics.get(key)
        if found is not None:
            return found
        parts = split_subscription(key)
        return self.subscriptions(parts[0]).get(parts[1]) if parts is not None else None

    def subscriptions(self, topic_key: str) -> Named[SubscriptionEntry]:
        return self._subscriptions.get(topic_key) or Named()

    def rules(self, fragment_key: int) -> Rules:
        """Of the subscription with this fragment key."""
        found = self._rules.get(fragment_key)
        if found is None:
            found = self._rules[fragment_key] = Rules()
        return found

    def has_rules(self, fragment_key: int) -> bool:
        """Whether there is a subscription with this fragment key."""
        return fragment_key in self._rules

    def rule_counts(self, topic_key: str) -> RuleCounts:
        """Of all subscriptions of a topic, those that are being created included."""
        entries = self.subscriptions(topic_key).page() + self.creating_subscriptions(topic_key)
        return total_of([self.rules(entry.fragment_key).counts for entry in entries])

    def creating_subscriptions(self, topic_key: str) -> list[SubscriptionEntry]:
        return [
            entry
            for entry in self.creating.values()
            if isinstance(entry, SubscriptionEntry) and entry.topic_key == topic_key
        ]

    def put(self, entry: Entry) -> None:
        """An active entity: a new one, or its new description."""
        if isinstance(entry, QueueEntry):
            self.queues.put(entry.key, entry)
        elif isinstance(entry, TopicEntry):
            self.topics.put(entry.key, entry)
        elif isinstance(entry, SubscriptionEntry):
            self._subscriptions.setdefault(entry.topic_key, Named()).put(entry.name_key, entry)
        for fragment_key in entry.fragment_keys:
            self.by_fragment[fragment_key] = entry
        if entry.description.auto_delete_on_idle_s is None:
            self.with_idle_time.pop(entry.key, None)
        else:
            self.with_idle_time[entry.key] = entry

    def remove(self, entry: Entry) -> None:
        """What was active or being created, with its rules."""
        self.creating.pop(entry.key, None)
        self.accessed_at.pop(entry.key, None)
        self.with_idle_time.pop(entry.key, None)
        for fragment_key in entry.fragment_keys:
            self.by_fragment.pop(fragment_key, None)
        if isinstance(entry, QueueEntry):
            self.queues.pop(entry.key)
        elif isinstance(entry, TopicEntry):
            self.topics.pop(entry.key)
        elif isinstance(entry, SubscriptionEntry):
            self._rules.pop(entry.fragment_key, None)
            of_topic = self._subscriptions.get(entry.topic_key)
            if of_topic is not None:
                of_topic.pop(entry.name_key)
                if not of_topic:
                    del self._subscriptions[entry.topic_key]


def load(store: records.RecordStore, now: float, underway: Collection[int] = ()) -> Directory:
    """What the store holds, once every creation that nobody carries on (`underway`: incarnations) is buried."""
    documents, damaged = store.read_all()
    directory = Directory(_facts(documents, damaged, now), damaged)
    for kind in (records.QUEUE, records.TOPIC, records.SUBSCRIPTION, records.RULE):
        for key, document in documents.items():
            if key[:1] == kind:
                _take_in(directory, key, document)
    for key, document in documents.items():
        _take_in_other(directory, key, document)
    _find_incomplete_topics(directory)
    _bury_forsaken(directory, store, now, underway, any(key not in documents for key in records.META_KEYS))
    return directory


def _facts(documents: Mapping[bytes, Document], damaged: list[DamagedRecord], now: float) -> Facts:
    copies = [Facts(**documents[key]) for key in records.META_KEYS if key in documents]  # type: ignore[arg-type]
    if copies:
        return max(copies, key=_version)
    if documents or damaged:
        raise StoreDamaged(
            "the catalog's counters are damaged, both copies: without them numbers could be given out twice. "
            "Restore the catalog from a backup"
        )
    return Facts(uuid.uuid4().hex, now)


def _version(facts: Facts) -> int:
    return facts.version


def _take_in(directory: Directory, key: bytes, document: Document) -> None:
    """An entity or a rule; what hangs from something that is not there is kept in the store and reported."""
    kind = key[:1]
    if kind == records.RULE:
        owner = records.rule_owner(key)
        if owner is None or not directory.has_rules(owner):
            directory.damaged.append(DamagedRecord(key, "its subscription is not there"))
        else:
            directory.rules(owner).put(rule_from_record(document))
        return
    entry: Entry
    if kind == records.QUEUE:
        entry = records.queue_entry(document)
    elif kind == records.TOPIC:
        entry = records.topic_entry(document)
    else:
        entry = records.subscription_entry(document)
        if entry.topic_key not in directory.topics:
            directory.damaged.append(DamagedRecord(key, "its topic is not there"))
            return
        directory.rules(entry.fragment_key)
    if entry.state is EntityState.ACTIVE:
        directory.put(entry)
    else:
        directory.creating[entry.key] = entry


def _take_in_other(directory: Directory, key: bytes, document: Document) -> None:
    kind, name = key[:1], key[1:]
    if kind == records.TOMBSTONE:
        tombstone = Tombstone(**document)  # type: ignore[arg-type]
        directory.tombstones[tombstone.fragment_key] = tombstone
    elif kind == records.ACCESS:
        accessed_at = document["accessed_at"]
        assert isinstance(accessed_at, (int, float))
        directory.accessed_at[name.decode()] = float(accessed_at)
    elif kind == records.POLICY:
        policy = records.policy_of(document)
        directory.policies.put(policy.key_name, policy)


def _find_incomplete_topics(directory: Directory) -> None:
    owners = {
        entry.fragment_key: topic.key
        for topic in directory.topics.page()
        for entry in directory.subscriptions(topic.key).page()
    }
    for damaged in directory.damaged:
        kind, name = damaged.key[:1], damaged.key[1:].decode(errors="replace")
        parts = split_subscription(name) if kind == records.SUBSCRIPTION else None
        owner = records.rule_owner(damaged.key) if kind == records.RULE else None
        topic_key = parts[0] if parts is not None else owners.get(owner or 0)
        if topic_key is not None:
            directory.incomplete_topics.add(topic_key)


def _bury_forsaken(
    directory: Directory, store: records.RecordStore, now: float, underway: Collection[int], must_write: bool
) -> None:
    puts: dict[bytes, Document] = records.facts_documents(directory.facts)
    drops: list[bytes] = []
    for entry in [one for one in directory.creating.values() if one.incarnation not in underway]:
        tombstones = burial(directory, entry, now, puts, drops)
        directory.remove(entry)
        directory.tombstones.update({one.fragment_key: one for one in tombstones})
    if drops or must_write:
        store.commit(puts, drops)


def burial(
    directory: Directory, entry: Entry, now: float, puts: dict[bytes, Document], drops: list[bytes]
) -> list[Tombstone]:
    """What is to be written when one entity ends; its rules end with it."""
    topic_fragment_key = 0
    if isinstance(entry, SubscriptionEntry):
        topic = directory.topics.get(entry.topic_key)
        topic_fragment_key = topic.fragment_key if topic is not None else 0
        rules = directory.rules(entry.fragment_key).by_name.page()
        drops += [records.rule_key(entry.fragment_key, rule.name) for rule in rules]
    tombstones = records.tombstones_of(entry, now, topic_fragment_key)
    puts.update({records.tombstone_key(one.fragment_key): asdict(one) for one in tombstones})
    drops += [records.entry_key(entry), records.access_key(entry.key)]
    return tombstones
