"""Which messaging stores a data folder has, and how many a namespace is to have."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tandembus.config import ServeSettings
from tandembus.errors import StoreUnavailable

COPY_FOLDER: Final = "catalog"
"""Within a store's folder: its copy of the catalog."""


PARTIAL: Final = ".partial-"
"""In the name of a folder that is being filled, and takes its place when it is whole."""


def require_whole(data: Path) -> None:
    """Raises StoreUnavailable for a mounted volume into which a restore has moved only a part of what it has copied:
    the rest would look like something that was never there."""
    for one in data.glob(f"*{PARTIAL}*"):
        if one.is_dir() and any(one.iterdir()):
            raise StoreUnavailable(
                f"a restore into {data} was not finished: a part of it is still in {one.name}. "
                f"Remove everything in {data}, and restore the backup again"
            )


def catalog_folder(data: Path) -> Path:
    """Whoever holds its lock serves the data folder."""
    return data / "catalog"


def store_folder(data: Path, store: int) -> Path:
    return data / "stores" / str(store)


def stores_that_exist(data: Path) -> int:
    """One more than the highest number there is: what was written with more stores is served with fewer, too."""
    folder = data / "stores"
    names = [one.name for one in folder.iterdir() if one.is_dir()] if folder.is_dir() else []
    return max((int(name) + 1 for name in names if name.isdecimal() and str(int(name)) == name), default=0)


def stores_for_new_entities(settings: ServeSettings) -> int:
    """Where no number is asked for: one per message broker or, in one process, all there are."""
    return settings.stores or settings.brokers or max(stores_that_exist(settings.data), 1)


def store_count(settings: ServeSettings) -> int:
    """All that are served."""
    return max(stores_for_new_entities(settings), stores_that_exist(settings.data))
