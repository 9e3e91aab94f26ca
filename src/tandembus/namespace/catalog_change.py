"""Changes of the catalog as plain data: what every process that has a copy of it is told, and what that means there.

A change is what one durable commit wrote. Applied in the order of their versions, changes give every copy the same
content; whoever missed some takes a whole one, which says all there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tandembus.namespace.entries import Entry, SubscriptionEntry, Tombstone
from tandembus.store.embedded.catalog_store import DamagedRecord, Document


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """Records that were written and records that went, in one commit."""

    version: int
    """The catalog's after it: one more than before."""
    puts: Mapping[bytes, Document]
    drops: Sequence[bytes] = ()
    is_whole: bool = False
    """Everything there is: what is not among `puts` is not there."""
    damaged: Sequence[DamagedRecord] = ()
    """With a whole one: records that are there and cannot be read. Who has a copy of one keeps it."""


# What a change means to those who serve entities.


@dataclass(frozen=True, slots=True)
class EntityCreated:
    """From here on it exists."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class EntityChanged:
    """The same life with another description."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class EntityEnded:
    """Nobody finds it any more; its rules went with it."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class RulesChanged:
    """A subscription that was there before has other rules."""

    entry: SubscriptionEntry


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A policy of the namespace is there, changed or gone. Those of entities come with their descriptions."""

    name: str


@dataclass(frozen=True, slots=True)
class FragmentBuried:
    """A fragment is to be dropped by whoever owns its store."""

    tombstone: Tombstone


CatalogEvent: TypeAlias = EntityCreated | EntityChanged | EntityEnded | RulesChanged | PolicyChanged | FragmentBuried
