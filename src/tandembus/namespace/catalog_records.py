"""The catalog's records as plain documents under plain keys.

m0, m1     counters and the namespace's own facts, twice: without them nothing could be numbered safely
q KEY      a queue, under its path in lower case
t KEY      a topic
s KEY      a subscription
r F NAME   a rule of the subscription with fragment key F (u32), under its name in lower case
d F        tombstone of fragment key F
x KEY      when the entity was last used
p NAME     a policy of the namespace
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final, Protocol

from tandembus.descriptions import (
    AuthorizationRule,
    from_record,
    subscription_from_record,
    to_record,
    topic_from_record,
)
from tandembus.namespace.entries import (
    EntityState,
    Entry,
    Facts,
    QueueEntry,
    SubscriptionEntry,
    Tombstone,
    TopicEntry,
)
from tandembus.security.scopes import fold
from tandembus.store.embedded.catalog_store import DamagedRecord, Document

META_KEYS: Final = (b"m0", b"m1")
QUEUE: Final = b"q"
TOPIC: Final = b"t"
SUBSCRIPTION: Final = b"s"
RULE: Final = b"r"
TOMBSTONE: Final = b"d"
ACCESS: Final = b"x"
POLICY: Final = b"p"
_FRAGMENT: Final = struct.Struct(">I")


class RecordStore(Protocol):
    """What the catalog needs of its store (`CatalogStore` keeps its promises)."""

    def read_all(self) -> tuple[dict[bytes, Document], list[DamagedRecord]]: ...

    def commit(self, puts: Mapping[bytes, Document], drops: Iterable[bytes] = ()) -> None: ...

    def reopen(self) -> None: ...

    def close(self) -> None: ...


# Keys.


def queue_key(key: str) -> bytes:
    return QUEUE + key.encode()


def topic_key(key: str) -> bytes:
    return TOPIC + key.encode()


def subscription_key(key: str) -> bytes:
    return SUBSCRIPTION + key.encode()


def entry_key(entry: Entry) -> bytes:
    if isinstance(entry, QueueEntry):
        return queue_key(entry.key)
    return topic_key(entry.key) if isinstance(entry, TopicEntry) else subscription_key(entry.key)


def rule_key(fragment_key: int, name: str) -> bytes:
    """By fragment key: short, whatever the topic's name, and never the same for two lives of a subscription."""
    return RULE + _FRAGMENT.pack(fragment_key) + fold(name).encode()


def rule_owner(key: bytes) -> int | None:
    """The fragment key of the subscription that a rule's record belongs to."""
    return _FRAGMENT.unpack_from(key, 1)[0] if len(key) > _FRAGMENT.size else None


def rule_name_key(key: bytes) -> str:
    """The rule's name in lower case."""
    return key[1 + _FRAGMENT.size :].decode()


def tombstone_fragment(key: bytes) -> int:
    """The fragment that a tombstone's record is about."""
    fragment_key: int = _FRAGMENT.unpack_from(key, 1)[0]
    return fragment_key


def access_key(key: str) -> bytes:
    return ACCESS + key.encode()


def policy_key(name: str) -> bytes:
    return POLICY + name.encode()


def tombstone_key(fragment_key: int) -> bytes:
    return TOMBSTONE + _FRAGMENT.pack(fragment_key)


# Documents.


def facts_documents(facts: Facts) -> dict[bytes, Document]:
    return dict.fromkeys(META_KEYS, asdict(facts))


def entry_document(entry: Entry) -> Document:
    return {
        "description": to_record(entry.description),
        "incarnation": entry.incarnation,
        "fragment_key": entry.fragment_key,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
        "state": entry.state.value,
        "version": entry.version,
        "stores": list(entry.stores),
        "ignores_key_case": entry.ignores_key_case,
    }


def queue_entry(document: Document) -> QueueEntry:
    description, values = _entry_values(document)
    return QueueEntry(from_record(description), **values)


def topic_entry(document: Document) -> TopicEntry:
    description, values = _entry_values(document)
    return TopicEntry(topic_from_record(description), **values)


def subscription_entry(document: Document) -> SubscriptionEntry:
    description, values = _entry_values(document)
    return SubscriptionEntry(subscription_from_record(description), **values)


ENTRIES: Final[Mapping[bytes, Callable[[Document], Entry]]] = {
    QUEUE: queue_entry,
    TOPIC: topic_entry,
    SUBSCRIPTION: subscription_entry,
}


def _entry_values(document: Document) -> tuple[dict[str, object], dict[str, Any]]:
    values = dict(document)
    description = values.pop("description")
    assert isinstance(description, dict)
    stores = values.get("stores", (0,))  # older records: there was one store only
    assert isinstance(stores, (list, tuple))
    # "ignores_key_case" is missing in older records: those entities compare exactly, as they always did.
    return description, {**values, "state": EntityState(values["state"]), "stores": tuple(stores)}


def tombstones_of(entry: Entry, now: float, topic_fragment_key: int = 0) -> list[Tombstone]:
    """One for each fragment."""
    return [
        Tombstone(
            entry.description.path,
            entry.incarnation,
            fragment_key,
            now,
            topic_fragment_key + index if topic_fragment_key else 0,
            entry.stores[index],
        )
        for index, fragment_key in enumerate(entry.fragment_keys)
    ]


def policy_document(policy: AuthorizationRule) -> Document:
    return {
        "name": policy.key_name,
        "primary_key": policy.primary_key,
        "secondary_key": policy.secondary_key,
        "rights": sorted(policy.rights),
        "created_at": policy.created_at,
        "modified_at": policy.modified_at,
    }


def policy_of(document: Document) -> AuthorizationRule:
    values: dict[str, Any] = dict(document)
    rights = frozenset(values.pop("rights"))
    return AuthorizationRule(values.pop("name"), rights=rights, **values)
