"""Opening the catalog or, where it is lost, making it again from the newest of its copies.

The catalog itself is right whenever it can be read: copies are written after it. One that cannot be read is set aside,
never removed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tandembus.errors import StoreDamaged
from tandembus.limits import Limits
from tandembus.namespace.applying import facts_of
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.node.catalog_copy import COPY_FOLDER, DurableCopies
from tandembus.store.embedded.catalog_store import CatalogStore
from tandembus.store.embedded.lmdb_file import DATA_FILE

log = logging.getLogger("tandembus.node")

CATALOG_FOLDER: Final = "catalog"


def open_catalog(data: Path, store_folders: Sequence[Path], limits: Limits, now: float) -> Catalog:
    """Raises StoreUnavailable where another process holds it; StoreDamaged where neither it nor any copy of it can be
    used."""
    folder = data / CATALOG_FOLDER
    if not (folder / DATA_FILE).exists():
        _make_again(folder, store_folders, limits)
        return Catalog.open(folder, limits, now)
    try:
        catalog = Catalog.open(folder, limits, now)
    except StoreDamaged as error:
        return _replaced(folder, store_folders, limits, now, error)
    if catalog.damaged and _has_better(catalog, store_folders, limits):
        catalog.close()
        reason = StoreDamaged(f"the catalog holds damaged records: {catalog.damaged[0]}")
        return _replaced(folder, store_folders, limits, now, reason)
    return catalog


def _has_better(catalog: Catalog, store_folders: Sequence[Path], limits: Limits) -> bool:
    """A sound copy that is as new."""
    found = _newest(store_folders, limits)
    facts = facts_of(found.puts) if found is not None else None
    return facts is not None and facts.namespace_id == catalog.namespace_id and facts.version >= catalog.version


def _replaced(folder: Path, store_folders: Sequence[Path], limits: Limits, now: float, error: StoreDamaged) -> Catalog:
    if _newest(store_folders, limits) is None:
        raise error
    aside = _free_name(folder)
    folder.rename(aside)
    log.error("%s: it is set aside as %s", error, aside.name)
    _make_again(folder, store_folders, limits)
    return Catalog.open(folder, limits, now)


def _make_again(folder: Path, store_folders: Sequence[Path], limits: Limits) -> None:
    found = _newest(store_folders, limits)
    if found is None:
        return
    store = CatalogStore(folder, limits.catalog_map_size_bytes)
    try:
        store.commit(found.puts)
    finally:
        store.close()
    log.warning("the catalog was lost and is made again from a copy, at version %d", found.version)


def _newest(store_folders: Sequence[Path], limits: Limits) -> CatalogChange | None:
    """The best copy there is."""
    there = [one for one in store_folders if (one / COPY_FOLDER / DATA_FILE).exists()]
    with contextlib.closing(DurableCopies(there, limits.catalog_map_size_bytes)) as copies:
        return copies.newest()


def _free_name(folder: Path) -> Path:
    number = 1
    while (aside := folder.with_name(f"{folder.name}.damaged-{number}")).exists():
        number += 1
    return aside
