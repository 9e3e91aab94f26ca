"""How namespaces and entities are called: the same whatever their case, and shown as they are written at home."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Written:
    """A name as somebody wrote it."""

    space: str
    entity_key: str
    entity: str
    is_backlog: bool = True
    """By a sender, who may write it otherwise than it is at home."""


@dataclass(frozen=True, slots=True)
class Names:
    spaces: dict[str, str]
    entities: dict[tuple[str, str], str]
    homes: dict[str, str]
    """The namespace of each entity; of several, one that has a backlog somewhere."""

    @classmethod
    def of(cls, written: Iterable[Written], namespaces: Iterable[str]) -> Names:
        names = cls({each.lower(): each for each in namespaces}, {}, {})
        listed = sorted(written, key=lambda one: (one.is_backlog, one.space, one.entity))
        names.add(listed)
        primaries = {one.space for one in listed if one.is_backlog}
        for one in sorted(listed, key=lambda one: one.space not in primaries):
            names.homes.setdefault(one.entity_key, one.space)
        return names

    def add(self, written: Iterable[Written]) -> None:
        for one in written:
            self.entities.setdefault((one.space, one.entity_key), one.entity)

    def entity(self, space: str, key: str) -> str:
        return self.entities.get((space, key), key)

    def namespace(self, space: str) -> str:
        return self.spaces.get(space, space)
