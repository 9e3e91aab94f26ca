"""Verifies a whole data folder, or a backup: every file, every record, and that catalog and stores fit each other.

All of it is looked at as it was at one instant, so a namespace that runs can be checked, and what does not fit is
wrong. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tandembus.errors import StoreUnavailable
from tandembus.namespace import catalog_records as records
from tandembus.namespace.applying import facts_of
from tandembus.namespace.entries import EntityState, Entry, SubscriptionEntry, TopicEntry
from tandembus.node.store_folders import COPY_FOLDER, catalog_folder, store_folder, stores_that_exist
from tandembus.node.store_guard import known_findings
from tandembus.node.upkeep.folders import Progress, environments_of
from tandembus.node.upkeep.manifest import MANIFEST_FILE, read_manifest
from tandembus.node.upkeep.restore import verify_files
from tandembus.store.embedded.catalog_store import DamagedRecord, Document, decode_record
from tandembus.store.embedded.checking import StoreReport, check_store, look_at_store
from tandembus.store.embedded.snapshots import Cut, Snapshot

CATALOG: Final = "catalog"
FILES: Final = "files"


@dataclass(slots=True)
class Part:
    """The files of a backup, the catalog, a copy of it, or a store."""

    name: str
    record_count: int = 0
    message_count: int | None = None
    """Of a store."""
    epoch: int | None = None
    size_bytes: int = 0
    quarantined_count: int = 0
    damage_count: int = 0
    findings: list[str] = field(default_factory=list)

    def damaged(self, text: str) -> None:
        self.damage_count += 1
        self.findings.append(text)


@dataclass(slots=True)
class _Catalog:
    part: Part
    documents: dict[bytes, Document] = field(default_factory=dict)

    def entries(self) -> list[Entry]:
        found: list[Entry] = []
        for key, document in self.documents.items():
            if key[:1] in records.ENTRIES:
                try:
                    found.append(records.ENTRIES[key[:1]](document))
                except (KeyError, TypeError, ValueError, AssertionError) as error:
                    self.part.damaged(f"the entity under the key {key!r} cannot be understood: {error}")
        return found


def check_folder(folder: Path, begun: Callable[[int], Progress]) -> list[Part]:
    """`begun`: told about how many bytes there are. Raises BackupError for a backup whose manifest cannot be used,
    StoreUnavailable where nothing can be looked at."""
    is_backup = (folder / MANIFEST_FILE).is_file()
    usable, parts = _sorted_out(folder, is_backup)
    manifest = read_manifest(folder) if is_backup else None
    with Cut(usable, is_still=is_backup) as cut:
        size_bytes = sum(snapshot.size_bytes() for snapshot in cut.snapshots)
        progress = begun(size_bytes + (manifest.size_bytes if manifest else 0))
        if manifest is not None:
            wrong = verify_files(folder, manifest, progress)
            files = len(manifest.files)
            parts.append(Part(FILES, files, size_bytes=manifest.size_bytes, damage_count=len(wrong), findings=wrong))
        parts += _check_cut(folder, {snapshot.folder: snapshot for snapshot in cut.snapshots}, progress)
    _tell_missing(folder, parts)
    return parts


def check_quickly(folder: Path) -> list[Part]:
    """The catalog whole, and of each store whether it can be opened and has the fragments it ought to have."""
    usable, parts = _sorted_out(folder, is_still=False)
    with Cut(usable) as cut:
        snapshots = {snapshot.folder: snapshot for snapshot in cut.snapshots}
        main = snapshots.get(catalog_folder(folder))
        catalog = None if main is None else _check_catalog(CATALOG, main, _nobody)
        entries = [] if catalog is None else catalog.entries()
        parts += [] if catalog is None else [catalog.part]
        for store in range(stores_that_exist(folder)):
            at = store_folder(folder, store)
            findings = known_findings(at)
            if findings:
                parts.append(Part(_name_of(folder, at), damage_count=len(findings), findings=findings))
            elif at in snapshots:
                report = look_at_store(snapshots[at])
                if catalog is not None:
                    _compare(store, report, catalog, entries)
                parts.append(_part_of(_name_of(folder, at), report))
    _tell_missing(folder, parts)
    return parts


def _sorted_out(folder: Path, is_still: bool) -> tuple[list[Path], list[Part]]:
    """What can be opened at all, and a report on the rest."""
    usable: list[Path] = []
    parts: list[Part] = []
    for one in environments_of(folder):
        try:
            Cut([one], is_still=is_still).close()
            usable.append(one)
        except StoreUnavailable as error:
            parts.append(Part(_name_of(folder, one), damage_count=1, findings=[str(error)]))
    return usable, parts


def _nobody(_done: int) -> None:
    return


def _name_of(folder: Path, environment: Path) -> str:
    return environment.relative_to(folder).as_posix()


def _tell_missing(folder: Path, parts: list[Part]) -> None:
    stores = range(stores_that_exist(folder))
    for one in [catalog_folder(folder), *(store_folder(folder, store) for store in stores)]:
        if _name_of(folder, one) not in [part.name for part in parts]:
            parts.append(Part(_name_of(folder, one), damage_count=1, findings=["it is missing"]))


def _check_cut(folder: Path, snapshots: Mapping[Path, Snapshot], progress: Progress) -> list[Part]:
    main = snapshots.get(catalog_folder(folder))
    catalog = None if main is None else _check_catalog(CATALOG, main, progress)
    entries = [] if catalog is None else catalog.entries()
    parts = [] if catalog is None else [catalog.part]
    shared = _shared_bodies(entries)
    for store in range(stores_that_exist(folder)):
        at = store_folder(folder, store)
        if at in snapshots:
            report = check_store(snapshots[at], shared, progress)
            if catalog is not None:
                _compare(store, report, catalog, entries)
            parts.append(_part_of(_name_of(folder, at), report))
        if at / COPY_FOLDER in snapshots:
            copy = _check_catalog(_name_of(folder, at / COPY_FOLDER), snapshots[at / COPY_FOLDER], progress)
            parts.append(copy.part)
    return parts


def _part_of(name: str, report: StoreReport) -> Part:
    return Part(
        name,
        report.record_count,
        report.message_count,
        report.epoch,
        report.size_bytes,
        report.quarantined_count,
        report.damage_count,
        report.findings,
    )


def _check_catalog(name: str, snapshot: Snapshot, progress: Progress) -> _Catalog:
    part = Part(name)
    catalog = _Catalog(part)
    pages = snapshot.pages(part.damaged)
    part.size_bytes = pages.size_bytes
    for found in pages.only_tree("the catalog"):
        for key, value in found:
            document = decode_record(key, value)
            if isinstance(document, DamagedRecord):
                part.damaged(f"the record under the key {key!r}: {document.reason}")
            else:
                catalog.documents[key] = document
        part.record_count += len(found)
        progress(sum(len(value) for _, value in found))
    if facts_of(catalog.documents) is None and part.record_count:
        part.damaged("the counters are lost, both copies")
    return catalog


def _shared_bodies(entries: Sequence[Entry]) -> dict[int, int]:
    """For each fragment of a subscription, its topic's."""
    topics = {entry.key: entry for entry in entries if isinstance(entry, TopicEntry)}
    shared: dict[int, int] = {}
    for entry in entries:
        if isinstance(entry, SubscriptionEntry) and entry.topic_key in topics:
            shared.update(zip(entry.fragment_keys, topics[entry.topic_key].fragment_keys, strict=False))
    return shared


def _compare(store: int, report: StoreReport, catalog: _Catalog, entries: Sequence[Entry]) -> None:
    """Fragments that the catalog knows and the store has not, and the other way round."""
    expected = {entry.fragment_keys[index]: entry for entry in entries for index in entry.indexes_in(store)}
    for fragment, entry in expected.items():
        head = report.heads.get(fragment)
        if head is None and entry.state is EntityState.ACTIVE:
            report.damaged(f"fragment {fragment} of '{entry.description.path}' is missing")
        elif head is not None and head.incarnation != entry.incarnation:
            report.damaged(f"fragment {fragment} of '{entry.description.path}' is of another life of it")
    buried = {records.tombstone_fragment(key) for key in catalog.documents if key[:1] == records.TOMBSTONE}
    if catalog.part.damage_count == 0:
        for fragment, head in report.heads.items():
            if fragment not in expected and fragment not in buried and not head.is_dropping:
                report.damaged(f"fragment {fragment} belongs to no entity of the catalog")
