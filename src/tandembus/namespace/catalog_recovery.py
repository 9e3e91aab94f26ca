"""A catalog that is lost or damaged becomes what the newest of its copies says.

A catalog that can be read is right: every change is durable there before any copy hears of it. A copy that is ahead
means that somebody has put the catalog back to an earlier state, which counts then. Nothing that is found is deleted: a
catalog that cannot be used any more is kept beside the new one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace import catalog_records as records
from tandembus.namespace.applying import facts_of
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.entries import Facts
from tandembus.store.embedded.catalog_store import CatalogStore, DamagedRecord, Document, decode_record
from tandembus.store.embedded.lmdb_file import DATA_FILE, begin_with_zeros, hold_only_zeros, read_meta
from tandembus.store.embedded.lmdb_pages import LmdbPages
from tandembus.store.folder_lock import FolderLock

log = logging.getLogger("tandembus.namespace")


@dataclass(frozen=True, slots=True)
class _Found:
    """What a folder holds."""

    folder: Path
    facts: Facts | None = None
    documents: Mapping[bytes, Document] | None = None
    damaged: Sequence[DamagedRecord] = ()
    error: StoreUnavailable | None = None
    is_blank: bool = False
    """The file exists, and holds nothing but zeros."""

    @property
    def is_empty(self) -> bool:
        return not self.documents and not self.damaged and self.error is None


def places_fragments(store: int, catalog: Path, copies: Sequence[Path]) -> bool:
    """Whether the catalog or any copy of it has an entity with a fragment in this store. Where the catalog cannot be
    read, what is damaged in a copy may be one. Nothing is opened: other processes may have them open."""
    placing = [_placing(store, folder / DATA_FILE) for folder in (catalog, *copies)]
    return True in placing or (None in placing and placing[0] is not False)


def _placing(store: int, path: Path) -> bool | None:
    """Returns None if no such entity was found, but a part of the catalog could not be read."""
    if not path.exists() or path.stat().st_size == 0 or hold_only_zeros(path):
        return False
    findings: list[str] = []
    try:
        with path.open("rb") as file:
            for page in LmdbPages(file.fileno(), read_meta(file.fileno(), path), findings.append).only_tree("catalog"):
                for key, value in page:
                    if key[:1] in records.ENTRIES:
                        document = decode_record(key, value)
                        if isinstance(document, DamagedRecord):
                            findings.append(document.reason)
                        elif records.ENTRIES[key[:1]](document).indexes_in(store):
                            return True
    except (StoreDamaged, KeyError, TypeError, ValueError, AssertionError) as error:
        findings.append(str(error))
    return None if findings else False


def open_catalog(folder: Path, copies: Sequence[Path], limits: Limits, now: float) -> Catalog:
    """The catalog in this folder. Raises StoreUnavailable where another process holds it, StoreDamaged where neither it
    nor any copy can be used."""
    size = limits.catalog_map_size_bytes
    found = _read(folder, size)
    if found.error is not None and not isinstance(found.error, StoreDamaged):
        raise found.error
    candidates = [facts for one in copies if (facts := _facts_in(one, size)) is not None]
    if found.facts is None:
        if found.is_blank and not candidates:
            _require_no_other(found, copies)
            put_aside(folder)
        _rebuild_lost(found, candidates, size)
    else:
        _mend(found, found.facts, [one for one in candidates if one.namespace_id == found.facts.namespace_id], size)
    return Catalog.open(folder, limits, now)


def _rebuild_lost(found: _Found, candidates: list[_Copy], size: int) -> None:
    """What is new has nothing in it, and there are no copies, either."""
    for copy in sorted(candidates, key=_version, reverse=True):
        log.error("the catalog in %s is %s; it is rebuilt", found.folder, "lost" if found.is_empty else "damaged")
        if _rebuild(found.folder, copy, size):
            return
    if found.error is not None:
        raise found.error


def _require_no_other(found: _Found, copies: Sequence[Path]) -> None:
    """A file of zeros is what a power loss leaves of a new catalog. If a copy holds anything else, the catalog was not
    new. Raises StoreDamaged then."""
    for path in [one / DATA_FILE for one in copies]:
        if path.exists() and not hold_only_zeros(path):
            raise StoreDamaged(
                f"{found.folder / DATA_FILE} holds nothing but zeros, and its copy {path} cannot be used"
            )


def _mend(found: _Found, facts: Facts, candidates: list[_Copy], size: int) -> None:
    newest = max(candidates, key=_version, default=None)
    if newest is None or newest.version < facts.version:
        return
    if newest.version > facts.version and found.damaged:
        log.error("the catalog in %s is damaged, and older than a copy; it is rebuilt", found.folder)
        _rebuild(found.folder, newest, size)
    elif newest.version > facts.version:
        _pass_by(found, facts, newest, size)
    elif found.damaged:
        _repair(found, newest, size)


def _pass_by(found: _Found, facts: Facts, newest: _Copy, size: int) -> None:
    """Versions from now on are none that a copy with another content may have."""
    log.warning(
        "the catalog in %s is at version %d and a copy at version %d: it was put back to an earlier state",
        found.folder,
        facts.version,
        newest.version,
    )
    _commit(found.folder, records.facts_documents(replace(facts, version=newest.version + 1)), size)


@dataclass(frozen=True, slots=True)
class _Copy:
    folder: Path
    namespace_id: str
    version: int


def _version(copy: _Copy) -> int:
    return copy.version


def _facts_in(folder: Path, size: int) -> _Copy | None:
    """Returns the copy's facts, or None if it cannot be used: its pages are checked, but only these records read."""
    if not (folder / DATA_FILE).exists():
        return None
    try:
        store = CatalogStore(folder, size)
        try:
            facts = facts_of(store.read(records.META_KEYS))
        finally:
            store.close()
    except StoreUnavailable as error:
        log.warning("the copy of the catalog in %s cannot be looked at: %s", folder, error)
        return None
    return None if facts is None else _Copy(folder, facts.namespace_id, facts.version)


def _read(folder: Path, size: int) -> _Found:
    """Raises StoreDamaged for one that a newer version wrote: that is no damage."""
    if not (folder / DATA_FILE).exists():
        return _Found(folder)
    if _is_blank(folder):
        FolderLock(folder).release()
        return _Found(folder, is_blank=True)
    try:
        store = CatalogStore(folder, size)
    except StoreUnavailable as error:
        return _Found(folder, error=error)
    try:
        documents, damaged = store.read_all()
        return _Found(folder, facts_of(documents), documents, damaged)
    except StoreDamaged as error:
        if store.is_of_newer_format:
            raise
        return _Found(folder, error=error)
    finally:
        store.close()


def _is_blank(folder: Path) -> bool:
    return begin_with_zeros(folder / DATA_FILE) and hold_only_zeros(folder / DATA_FILE)


def _rebuild(folder: Path, copy: _Copy, size: int) -> bool:
    """Returns whether the copy was good enough for that."""
    read = _read(copy.folder, size)
    if read.facts is None or read.documents is None:
        return False
    for damaged in read.damaged:
        log.error("the copy of the catalog holds a damaged record, its entity is not there any more: %s", damaged)
    put_aside(folder)
    _commit(folder, {**read.documents, **records.facts_documents(read.facts)}, size)
    log.warning("the catalog was rebuilt from %s, as of version %d", copy.folder, copy.version)
    return True


def _repair(found: _Found, copy: _Copy, size: int) -> None:
    """Records that cannot be read any more, from a copy that is just as new."""
    there = _read(copy.folder, size).documents or {}
    damaged = [one.key for one in found.damaged if one.key in there]
    sound = {key: there[key] for key in damaged if not _is_buried(found, there[key])}
    if sound:
        _commit(found.folder, sound, size)
        log.warning("%d damaged records of the catalog were repaired from %s", len(sound), copy.folder)


def _commit(folder: Path, documents: Mapping[bytes, Document], size: int) -> None:
    store = CatalogStore(folder, size)
    try:
        store.commit(documents)
    finally:
        store.close()


def _is_buried(found: _Found, document: Document) -> bool:
    """What the copy has may be of an earlier life: it kept what the catalog could not read any more."""
    fragment_key = document.get("fragment_key")
    return isinstance(fragment_key, int) and records.tombstone_key(fragment_key) in (found.documents or {})


def put_aside(folder: Path) -> None:
    """Rename the folder of a catalog, or of a copy, that cannot be used; a file of zeros is deleted instead."""
    if _is_blank(folder):
        (folder / DATA_FILE).unlink()
    elif folder.exists():
        number = 1
        while (aside := folder.with_name(f"{folder.name}.damaged-{number}")).exists():
            number += 1
        folder.rename(aside)
        log.warning("what was found of the catalog is kept in %s", aside)
