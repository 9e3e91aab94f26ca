"""How much a store can still grow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tandembus.store.embedded.environment import EmbeddedSettings, OpenedStore, disk_free_bytes
from tandembus.store.messaging_store import Room

_RESERVED_SHARE: Final = 20
_META_PAGES: Final = 2


def measure_room(opened: OpenedStore, folder: Path, settings: EmbeddedSettings) -> Room:
    """Free on the volume (as far as the map reaches) plus free within the file, where deleted pages are used
    again.

    Free pages are what the trees do not hold: three counts that LMDB keeps, no walk. The pages that hold the
    list of free pages itself count as free here; they are few.
    """
    info = opened.environment.info()
    with opened.environment.begin() as txn:
        trees = [opened.environment.stat()] + [txn.stat(tree) for tree in (opened.body, opened.state, opened.log)]
    held = sum(tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"] for tree in trees)
    page_bytes = trees[0]["psize"]
    file_bytes = (info["last_pgno"] + 1) * page_bytes
    within_file = max(0, info["last_pgno"] + 1 - _META_PAGES - held) * page_bytes
    beyond_file = max(0, min(disk_free_bytes(folder), opened.map_bytes - file_bytes))
    reserve = reserve_bytes(opened, folder, settings)
    return Room(within_file + beyond_file, reserve, used_bytes=file_bytes - within_file)


def reserve_bytes(opened: OpenedStore, folder: Path, settings: EmbeddedSettings) -> int:
    if settings.reserve_bytes is not None:
        return settings.reserve_bytes
    volume = os.statvfs(folder)
    share = min(volume.f_blocks * volume.f_frsize, opened.map_bytes) // _RESERVED_SHARE
    return max(settings.min_reserve_bytes, min(share, settings.max_reserve_bytes))
