"""The catalog's records as plain documents, and what a store full of them amounts to.

m0, m1     counters and the namespace's own facts, twice: without them nothing could be numbered safely
q KEY      a queue, under its path in lower case
d F        tombstone of fragment key F (u32)
x KEY      when the queue was last used
p NAME     a policy of the namespace
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Final, Protocol

from tandembus.descriptions import QueueDescription, from_record, to_record
from tandembus.errors import StoreDamaged
from tandembus.security.claims import Policy, Right
from tandembus.security.scopes import fold
from tandembus.store.embedded.catalog_store import DamagedRecord, Document

_META_KEYS: Final = (b"m0", b"m1")
_QUEUE: Final = b"q"
_TOMBSTONE: Final = b"d"
_ACCESS: Final = b"x"
_POLICY: Final = b"p"
_FRAGMENT: Final = struct.Struct(">I")


class EntityState(Enum):
    CREATING = "creating"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue as the catalog holds it."""

    description: QueueDescription
    incarnation: int
    fragment_key: int
    created_at: float
    updated_at: float
    state: EntityState = EntityState.ACTIVE
    version: int = 1
    """Of the description: one more with every update."""

    @property
    def key(self) -> str:
        """Its path in lower case: what it is found by."""
        return fold(self.description.name)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A life that has ended; its fragment may be dropped, because the catalog itself says so."""

    path: str
    incarnation: int
    fragment_key: int
    deleted_at: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What the namespace knows of itself, and the numbers it gives out next."""

    namespace_id: str
    created_at: float
    next_incarnation: int = 1
    next_fragment_key: int = 1
    version: int = 0


@dataclass(slots=True)
class Contents:
    """Everything a catalog holds."""

    facts: Facts
    queues: dict[str, QueueEntry] = field(default_factory=dict)
    creating: dict[str, QueueEntry] = field(default_factory=dict)
    tombstones: dict[int, Tombstone] = field(default_factory=dict)
    accessed_at: dict[str, float] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    damaged: list[DamagedRecord] = field(default_factory=list)


class RecordStore(Protocol):
    """What the catalog needs of its store (`CatalogStore` keeps its promises)."""

    def read_all(self) -> tuple[dict[bytes, Document], list[DamagedRecord]]: ...

    def commit(self, puts: Mapping[bytes, Document], drops: Iterable[bytes] = ()) -> None: ...

    def reopen(self) -> None: ...

    def close(self) -> None: ...


def load(store: RecordStore, now: float, underway: Collection[int] = ()) -> Contents:
    """What the store holds, once every creation that nobody carries on (`underway`: incarnations) is
    buried."""
    documents, damaged = store.read_all()
    contents = Contents(_facts(documents, damaged, now), damaged=damaged)
    for key, document in documents.items():
        _take_in(contents, key, document)
    forsaken = [entry for entry in contents.creating.values() if entry.incarnation not in underway]
    puts: dict[bytes, Document] = facts_documents(contents.facts)
    for entry in forsaken:
        tombstone = tombstone_of(entry, now)
        puts[tombstone_key(tombstone.fragment_key)] = asdict(tombstone)
        contents.tombstones[tombstone.fragment_key] = tombstone
        del contents.creating[entry.key]
    if forsaken or any(key not in documents for key in _META_KEYS):
        store.commit(puts, [queue_key(entry.key) for entry in forsaken])
    return contents


def _facts(documents: Mapping[bytes, Document], damaged: list[DamagedRecord], now: float) -> Facts:
    copies = [Facts(**documents[key]) for key in _META_KEYS if key in documents]  # type: ignore[arg-type]
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


def _take_in(contents: Contents, key: bytes, document: Document) -> None:
    kind, name = key[:1], key[1:]
    if kind == _QUEUE:
        entry = _entry(document)
        group = contents.queues if entry.state is EntityState.ACTIVE else contents.creating
        group[entry.key] = entry
    elif kind == _TOMBSTONE:
        tombstone = Tombstone(**document)  # type: ignore[arg-type]
        contents.tombstones[tombstone.fragment_key] = tombstone
    elif kind == _ACCESS:
        contents.accessed_at[name.decode()] = _float(document["accessed_at"])
    elif kind == _POLICY:
        policy = _policy(document)
        contents.policies[policy.name] = policy


def queue_key(key: str) -> bytes:
    return _QUEUE + key.encode()


def access_key(key: str) -> bytes:
    return _ACCESS + key.encode()


def policy_key(name: str) -> bytes:
    return _POLICY + name.encode()


def tombstone_key(fragment_key: int) -> bytes:
    return _TOMBSTONE + _FRAGMENT.pack(fragment_key)


def facts_documents(facts: Facts) -> dict[bytes, Document]:
    return dict.fromkeys(_META_KEYS, asdict(facts))


def entry_document(entry: QueueEntry) -> Document:
    return {
        "description": to_record(entry.description),
        "incarnation": entry.incarnation,
        "fragment_key": entry.fragment_key,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
        "state": entry.state.value,
        "version": entry.version,
    }


def tombstone_of(entry: QueueEntry, now: float) -> Tombstone:
    return Tombstone(entry.description.name, entry.incarnation, entry.fragment_key, now)


def policy_document(policy: Policy) -> Document:
    return {
        "name": policy.name,
        "primary_key": policy.primary_key,
        "secondary_key": policy.secondary_key,
        "rights": sorted(right.value for right in policy.rights),
    }


def _entry(document: Document) -> QueueEntry:
    values = dict(document)
    description = values.pop("description")
    state = EntityState(values.pop("state"))
    assert isinstance(description, dict)
    return QueueEntry(description=from_record(description), state=state, **values)  # type: ignore[arg-type]


def _policy(document: Document) -> Policy:
    values = dict(document)
    rights = values.pop("rights")
    assert isinstance(rights, list)
    return Policy(**values, rights=frozenset(Right(one) for one in rights))  # type: ignore[arg-type]


def _float(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)
