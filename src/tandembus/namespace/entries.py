"""Entities as the catalog holds them: what they are asked to be, which life they are in, and their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tandembus.descriptions import (
    EntityDescription,
    EntityKind,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.security.scopes import fold


class EntityState(Enum):
    CREATING = "creating"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entity of any kind."""

    description: EntityDescription
    incarnation: int
    fragment_key: int
    """Of the first fragment."""
    created_at: float
    updated_at: float
    state: EntityState = EntityState.ACTIVE
    version: int = 1
    """Of the description: one more with every update."""
    stores: tuple[int, ...] = (0,)
    """The store that each fragment is in: one for a plain entity, sixteen for a partitioned one. A subscription has
    its topic's, so that a message reaches both in one commit."""
    ignores_key_case: bool = False
    """Whether SessionIds and PartitionKeys are compared without regard to case: given at creation and never changed,
    since it says where messages are. Entities of older versions compare exactly; a subscription follows its topic."""

    @property
    def is_partitioned(self) -> bool:
        return len(self.stores) > 1

    @property
    def fragment_keys(self) -> range:
        """Of its fragments, in the order of their index. Given out in a row and never again: a key names one life of
        one entity."""
        return range(self.fragment_key, self.fragment_key + len(self.stores))

    def indexes_in(self, store: int) -> list[int]:
        """Its fragments in this store."""
        return [index for index, one in enumerate(self.stores) if one == store]

    @property
    def key(self) -> str:
        """Its path in lower case: what it is found by."""
        return fold(self.description.path)

    @property
    def kind(self) -> EntityKind:
        return self.description.kind


@dataclass(frozen=True, slots=True)
class QueueEntry(Entry):
    description: QueueDescription


@dataclass(frozen=True, slots=True)
class TopicEntry(Entry):
    description: TopicDescription


@dataclass(frozen=True, slots=True)
class SubscriptionEntry(Entry):
    description: SubscriptionDescription

    @property
    def topic_key(self) -> str:
        return fold(self.description.topic_name)

    @property
    def name_key(self) -> str:
        """What it is found by among its topic's subscriptions."""
        return fold(self.description.name)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A fragment of a life that has ended; it may be dropped, because the catalog itself says so."""

    path: str
    incarnation: int
    fragment_key: int
    deleted_at: float
    topic_fragment_key: int = 0
    """A subscription's: where the bodies are that it shared; 0 for what had its own."""
    store: int = 0
    """Where the fragment is: dropped when that store is in reach."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the namespace knows of itself, and the numbers it gives out next."""

    namespace_id: str
    created_at: float
    next_incarnation: int = 1
    next_fragment_key: int = 1
    version: int = 0
