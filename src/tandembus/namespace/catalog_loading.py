"""Reading a catalog from its store: what was only half done in an earlier life is buried."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace

from tandembus.errors import StoreDamaged
from tandembus.namespace import catalog_records as records
from tandembus.namespace.applying import apply, facts_of
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.namespace.directory import Directory, burial
from tandembus.namespace.entries import Facts
from tandembus.store.embedded.catalog_store import Document


def load(store: records.RecordStore, now: float) -> Directory:
    """What the store holds, once every creation that was under way is buried."""
    change = read_whole(store, now)
    directory = Directory(Facts("", now), [])
    apply(directory, change)
    burying = bury_forsaken(directory, now)
    if burying is not None:
        store.commit(burying.puts, burying.drops)
        apply(directory, burying)
    return directory


def read_whole(store: records.RecordStore, now: float) -> CatalogChange:
    """Raises StoreDamaged where the counters are lost. They stand there twice: what is missing of them, as in a catalog
    that is new, is written first of all."""
    documents, damaged = store.read_all()
    facts = facts_of(documents)
    if facts is None:
        if documents or damaged:
            raise StoreDamaged(
                "the catalog's counters are damaged, both copies: without them numbers could be given out twice. "
                "Restore the catalog from a backup"
            )
        facts = Facts(uuid.uuid4().hex, now)
    counters = records.facts_documents(facts)
    if any(key not in documents for key in counters):
        store.commit(counters)
    return CatalogChange(facts.version, {**documents, **counters}, is_whole=True, damaged=tuple(damaged))


def bury_forsaken(directory: Directory, now: float, underway: Collection[int] = ()) -> CatalogChange | None:
    """What ends the creations that nobody carries on any more; `underway`: the incarnations of those that somebody
    does. None where there is nothing to end."""
    forsaken = [entry for entry in directory.creating.values() if entry.incarnation not in underway]
    if not forsaken:
        return None
    facts = replace(directory.facts, version=directory.facts.version + 1)
    puts: dict[bytes, Document] = records.facts_documents(facts)
    drops: list[bytes] = []
    for entry in forsaken:
        burial(directory, entry, now, puts, drops)
    return CatalogChange(facts.version, puts, drops)
