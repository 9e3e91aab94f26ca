"""Which entities have series of their own: there may be ten thousand, and a scraper has to live with what it gets."""

from __future__ import annotations

from collections import Counter
from typing import Final, final

from tandembus.broker.fragment_lives import BACKLOG_PART
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import Entry

OTHER: Final = "$other"
"""Who all the others are together: no legal name, so it is nobody's."""


@final
class NamedEntities:
    """The oldest come first, so that every process names the same ones, and a new entity displaces none.

    Whoever is counted among the others once stays there until the process ends: a sum that falls would look like a
    counter that began anew, and its whole as something that has just happened.
    """

    def __init__(self, view: CatalogView, max_entities: int, max_fragments: int) -> None:
        self._view = view
        self._max_entities = max_entities
        self._max_fragments = max_fragments
        self._version = -1
        self._places: dict[int, str] = {}
        """By the key of the first fragment: the entity's name, or that of the others."""
        self._counts: Counter[int] = Counter()
        self._backlog_counts: Counter[int] = Counter()
        self._divided: set[int] = set()
        """Those whose fragments are told one by one."""

    def name_of(self, entry: Entry) -> str:
        return self._places.get(entry.fragment_key, OTHER)

    def is_divided(self, entry: Entry) -> bool:
        return entry.fragment_key in self._divided

    def count_in(self, store: int) -> int:
        """How many fragments the catalog names there."""
        return self._counts[store]

    def backlog_count_in(self, store: int) -> int:
        """How many of these are of backlog queues."""
        return self._backlog_counts[store]

    def look(self) -> None:
        """Once per scrape: the catalog may have changed."""
        if self._version == self._view.version:
            return
        self._version = self._view.version
        entries = sorted(self._view.entries(), key=lambda entry: entry.fragment_key)
        self._counts = Counter(store for entry in entries for store in entry.stores)
        self._backlog_counts = Counter(
            store for entry in entries if BACKLOG_PART in entry.key for store in entry.stores
        )
        known = {entry.fragment_key for entry in entries}
        self._places = {key: name for key, name in self._places.items() if key in known}
        self._divided &= known
        free = self._max_entities - sum(name != OTHER for name in self._places.values())
        for entry in entries:
            if entry.fragment_key not in self._places:
                self._places[entry.fragment_key] = entry.description.path if free > 0 else OTHER
                free -= 1
        self._divide(entries)

    def _divide(self, entries: list[Entry]) -> None:
        free = self._max_fragments - sum(len(one.stores) for one in entries if one.fragment_key in self._divided)
        for entry in entries:
            is_named = self._places[entry.fragment_key] != OTHER
            if is_named and entry.is_partitioned and entry.fragment_key not in self._divided:
                if len(entry.stores) > free:
                    return
                self._divided.add(entry.fragment_key)
                free -= len(entry.stores)
