"""Everything that a catalog holds, in memory: found by key, listed in pages, counted.

It remembers; what may be changed is the catalog's to decide, and what is durable the store's to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import final

from tandembus.descriptions import AuthorizationRule
from tandembus.namespace import catalog_records as records
from tandembus.namespace.entries import (
    Entry,
    Facts,
    QueueEntry,
    SubscriptionEntry,
    Tombstone,
    TopicEntry,
)
from tandembus.namespace.named import Named
from tandembus.namespace.paths import split_subscription
from tandembus.namespace.placement import Placed
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
        self.placed = Placed()
        """Also what is being created."""
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

    def find_of_kind(self, kind: bytes, key: str) -> Entry | None:
        """The active entity of this key, if its record is of this kind."""
        if kind == records.QUEUE:
            return self.queues.get(key)
        if kind == records.TOPIC:
            return self.topics.get(key)
        parts = split_subscription(key)
        return self.subscriptions(parts[0]).get(parts[1]) if parts is not None else None

    def entries(self) -> Iterator[Entry]:
        """All that is active, a topic before its subscriptions."""
        yield from self.queues.page()
        for topic in self.topics.page():
            yield topic
            yield from self.subscriptions(topic.key).page()

    def subscriptions(self, topic_key: str) -> Named[SubscriptionEntry]:
        return self._subscriptions.get(topic_key) or Named()

    def subscription_count(self) -> int:
        return sum([len(of_topic) for of_topic in self._subscriptions.values()])

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

    def put_creating(self, entry: Entry) -> None:
        self._take_place(entry)
        self.creating[entry.key] = entry

    def _take_place(self, entry: Entry) -> None:
        if not self.is_known(entry):
            self.placed.add(entry)

    def is_known(self, entry: Entry) -> bool:
        """This very life, active or being created."""
        creating = self.creating.get(entry.key)
        is_creating = creating is not None and creating.incarnation == entry.incarnation
        return is_creating or entry.fragment_key in self.by_fragment

    def put(self, entry: Entry) -> None:
        """An active entity: a new one, one whose creation is through, or its new description."""
        self._take_place(entry)
        self.creating.pop(entry.key, None)
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
        if self.is_known(entry):
            self.placed.add(entry, -1)
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
