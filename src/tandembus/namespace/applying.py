"""Taking a change of the catalog into memory, and saying what it means.

The catalog itself, a copy in another process and a catalog that is read from its store all go this way, so that none of
them can know anything else than the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, final

from tandembus.descriptions import RuleDescription, rule_from_record, rule_to_record
from tandembus.namespace import catalog_records as records
from tandembus.namespace.catalog_change import (
    CatalogChange,
    CatalogEvent,
    EntityChanged,
    EntityCreated,
    EntityEnded,
    FragmentBuried,
    PolicyChanged,
    RulesChanged,
)
from tandembus.namespace.directory import Directory
from tandembus.namespace.entries import EntityState, Entry, Facts, SubscriptionEntry, Tombstone
from tandembus.namespace.paths import split_subscription
from tandembus.store.embedded.catalog_store import DamagedRecord, Document

_ENTITIES: Final = (records.QUEUE, records.TOPIC, records.SUBSCRIPTION)
_ORDER: Final = (*_ENTITIES, records.RULE, records.TOMBSTONE, records.ACCESS, records.POLICY)
"""What others hang from comes first."""


def apply(directory: Directory, change: CatalogChange) -> list[CatalogEvent]:
    """The directory as it is after the change. What stayed as it was stays the same object: compiled rules go by
    that."""
    applying = _Applying(directory)
    drops: Iterable[bytes] = change.drops
    if change.is_whole:
        drops = [key for key in known_keys(directory) if key not in change.puts]
        directory.damaged = list(change.damaged)
        directory.incomplete_topics = set()
    by_kind = _by_kind(change.puts)
    for key in drops:
        applying.drop(key)
    for kind in _ORDER:
        for key in by_kind.get(kind, ()):
            applying.put(key, change.puts[key])
    directory.facts = facts_of(change.puts) or directory.facts
    if change.is_whole:
        _find_incomplete_topics(directory)
    return applying.events()


def facts_of(documents: Mapping[bytes, Document]) -> Facts | None:
    """The newer one of both copies; None where neither is there."""
    copies = [Facts(**documents[key]) for key in records.META_KEYS if key in documents]  # type: ignore[arg-type]
    return max(copies, key=_version) if copies else None


def _version(facts: Facts) -> int:
    return facts.version


def known_keys(directory: Directory) -> list[bytes]:
    """Of every record that the directory knows of, apart from the namespace's own facts."""
    entries = [*directory.entries(), *directory.creating.values()]
    keys = [records.entry_key(entry) for entry in entries]
    for entry in entries:
        if isinstance(entry, SubscriptionEntry):
            rules = directory.rules(entry.fragment_key).by_name.page()
            keys += [records.rule_key(entry.fragment_key, rule.name) for rule in rules]
    keys += [records.tombstone_key(fragment_key) for fragment_key in directory.tombstones]
    keys += [records.access_key(key) for key in directory.accessed_at]
    return keys + [records.policy_key(policy.key_name) for policy in directory.policies.page()]


def _by_kind(puts: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    by_kind: dict[bytes, list[bytes]] = {}
    for key in puts:
        by_kind.setdefault(key[:1], []).append(key)
    return by_kind


@final
class _Applying:
    """One change on its way into a directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._events: list[CatalogEvent] = []
        self._created: set[int] = set()
        self._with_other_rules: dict[int, None] = {}

    def events(self) -> list[CatalogEvent]:
        for fragment_key in self._with_other_rules:
            entry = self._directory.by_fragment.get(fragment_key)
            if isinstance(entry, SubscriptionEntry) and fragment_key not in self._created:
                self._events.append(RulesChanged(entry))
        return self._events

    def drop(self, key: bytes) -> None:
        kind, name = key[:1], key[1:]
        if kind in _ENTITIES:
            self._drop_entry(kind, name.decode())
        elif kind == records.RULE:
            self._drop_rule(key)
        elif kind == records.TOMBSTONE:
            self._directory.tombstones.pop(records.tombstone_fragment(key), None)
        elif kind == records.ACCESS:
            self._directory.accessed_at.pop(name.decode(), None)
        elif kind == records.POLICY and self._directory.policies.pop(name.decode()) is not None:
            self._events.append(PolicyChanged(name.decode()))

    def put(self, key: bytes, document: Document) -> None:
        kind = key[:1]
        if kind in _ENTITIES:
            self._put_entry(key, _entry(kind, document))
        elif kind == records.RULE:
            self._put_rule(key, document)
        elif kind == records.TOMBSTONE:
            self._put_tombstone(Tombstone(**document))  # type: ignore[arg-type]
        elif kind == records.ACCESS:
            accessed_at = document["accessed_at"]
            assert isinstance(accessed_at, (int, float))
            self._directory.accessed_at[key[1:].decode()] = float(accessed_at)
        elif kind == records.POLICY:
            self._put_policy(document)

    # Entities.

    def _drop_entry(self, kind: bytes, key: str) -> None:
        entry = self._directory.find_of_kind(kind, key)
        if entry is not None:
            self._end(entry)
            return
        creating = self._directory.creating.get(key)
        if creating is not None:
            self._directory.remove(creating)

    def _end(self, entry: Entry) -> None:
        self._directory.remove(entry)
        self._events.append(EntityEnded(entry))

    def _put_entry(self, key: bytes, entry: Entry) -> None:
        directory = self._directory
        if isinstance(entry, SubscriptionEntry) and entry.topic_key not in directory.topics:
            directory.damaged.append(DamagedRecord(key, "its topic is not there"))
            return
        old = directory.find_of_kind(key[:1], entry.key)
        if old is not None and old.incarnation != entry.incarnation:
            self._end(old)
            old = None
        if isinstance(entry, SubscriptionEntry):
            directory.rules(entry.fragment_key)
        if entry.state is EntityState.CREATING:
            directory.put_creating(entry)
        elif entry != old:
            directory.put(entry)
            self._tell(entry, is_new=old is None)

    def _tell(self, entry: Entry, is_new: bool) -> None:
        if is_new:
            self._created.add(entry.fragment_key)
            self._events.append(EntityCreated(entry))
        else:
            self._events.append(EntityChanged(entry))

    # Rules.

    def _drop_rule(self, key: bytes) -> None:
        owner = records.rule_owner(key)
        if owner is not None and self._directory.has_rules(owner):
            self._directory.rules(owner).pop(records.rule_name_key(key))
            self._with_other_rules[owner] = None

    def _put_rule(self, key: bytes, document: Document) -> None:
        """What hangs from something that is not there is kept in the store and reported."""
        owner = records.rule_owner(key)
        if owner is None or not self._directory.has_rules(owner):
            self._directory.damaged.append(DamagedRecord(key, "its subscription is not there"))
            return
        rules = self._directory.rules(owner)
        old = rules.by_name.get(records.rule_name_key(key))
        if old is None or not _is_same_rule(old, document):
            rules.put(rule_from_record(document))
            self._with_other_rules[owner] = None

    # What is neither.

    def _put_tombstone(self, tombstone: Tombstone) -> None:
        if tombstone.fragment_key not in self._directory.tombstones:
            self._directory.tombstones[tombstone.fragment_key] = tombstone
            self._events.append(FragmentBuried(tombstone))

    def _put_policy(self, document: Document) -> None:
        policy = records.policy_of(document)
        if self._directory.policies.get(policy.key_name) != policy:
            self._directory.policies.put(policy.key_name, policy)
            self._events.append(PolicyChanged(policy.key_name))


def _entry(kind: bytes, document: Document) -> Entry:
    if kind == records.QUEUE:
        return records.queue_entry(document)
    return records.topic_entry(document) if kind == records.TOPIC else records.subscription_entry(document)


def _is_same_rule(old: RuleDescription, document: Document) -> bool:
    """As text: equal rules may differ in the types of their values (1 and true)."""
    return json.dumps(rule_to_record(old), sort_keys=True) == json.dumps(document, sort_keys=True)


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
