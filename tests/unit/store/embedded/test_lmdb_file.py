"""A data file that lost pages is refused before LMDB touches it, for LMDB would die of it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tandembus.errors import StoreDamaged
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.embedded.lmdb_file import DATA_FILE, check_length, read_meta
from tandembus.store.messaging_store import MAIN, BodyRange, Changes
from tests.contract.samples import FRAGMENT, block, sends
from tests.covers import covers
from tests.scale import scaled

SETTINGS = EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop")

OPEN_EACH = """
import asyncio, sys
from pathlib import Path
from tandembus.errors import StoreDamaged
from tandembus.message import Message
from tandembus.store.embedded import EmbeddedSettings, LmdbStore

async def look(folder):
    try:
        store = LmdbStore.open(folder, EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop"))
    except StoreDamaged:
        return "refused"
    left = await store.bodies_left(7, 0, 10_000)
    bodies = await store.bodies(7, 0, left, 1 << 30)
    assert all(isinstance(body, Message) for body in bodies)
    await store.blocks(7, 0)
    await store.close()
    return f"complete {len(left)}"

for line in sys.stdin:
    print(asyncio.run(look(Path(line.strip()))), flush=True)
"""


async def filled(folder: Path) -> int:
    """A store with values inside and outside of leaf pages, and free ones. How many messages it holds."""
    store = LmdbStore.open(folder, SETTINGS)
    for first in range(1, 301, 50):
        changes = sends(range(first, first + 50), size_bytes=1000)
        changes.bodies += sends(range(first + 1000, first + 1010), size_bytes=5000).bodies
        changes.blocks = [block(0), block(1)]
        await store.commit(changes)
    drop = Changes()
    drop.dropped_bodies = [BodyRange(FRAGMENT, MAIN, 1, 100)]
    await store.commit(drop)
    left = len(await store.bodies_left(FRAGMENT, MAIN, 10_000))
    await store.close()
    return left


def open_each(folders: list[Path]) -> list[str]:
    """In a process of its own: if a check were missing it would be killed, not raise."""
    lines = "".join(f"{folder}\n" for folder in folders)
    run = subprocess.run([sys.executable, "-c", OPEN_EACH], input=lines, text=True, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@covers("F6")
async def test_a_file_cut_at_any_place_is_refused_or_complete(tmp_path: Path) -> None:
    original = tmp_path / "original"
    count = await filled(original)
    size = (original / DATA_FILE).stat().st_size
    chance = random.Random(3)
    cuts = list(range(4096, size, 4096)) + [chance.randrange(1, size) for _ in range(scaled(20, 200, 500))]
    folders = []
    for cut in cuts:
        folder = tmp_path / str(cut)
        folder.mkdir()
        shutil.copy(original / DATA_FILE, folder / DATA_FILE)
        os.truncate(folder / DATA_FILE, cut)
        folders.append(folder)
    outcomes = open_each([*folders, original])
    assert len(outcomes) == len(cuts) + 1
    assert set(outcomes) <= {"refused", f"complete {count}"}
    assert outcomes.count("refused") > len(cuts) // 2
    assert outcomes[-1] == f"complete {count}"


@covers("F6")
async def test_a_file_that_lacks_only_free_pages_is_complete(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    await store.commit(sends(range(1, 11)))
    await store.commit(sends(range(101, 2001), size_bytes=1000))
    drop = Changes()
    drop.dropped_bodies = [BodyRange(FRAGMENT, MAIN, 101, 2001)]
    await store.commit(drop)
    for _ in range(4):  # what is written from now on goes to pages that became free
        changes = Changes()
        changes.blocks = [block(0)]
        await store.commit(changes)
    await store.close()
    path = tmp_path / DATA_FILE
    with path.open("rb") as file:
        meta = read_meta(file.fileno(), path)
    os.truncate(path, meta.last_page * meta.page_bytes)
    assert open_each([tmp_path]) == ["complete 10"]


@covers("F6")
@pytest.mark.parametrize("content", [b"x", b"not a store" * 1000, bytes(8192), bytes(100)])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / DATA_FILE).write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"data\.mdb"):
        LmdbStore.open(tmp_path, SETTINGS)
    assert (tmp_path / DATA_FILE).read_bytes() == content


@covers("F6")
async def test_meta_pages_with_a_foreign_version_or_page_size_are_refused(tmp_path: Path) -> None:
    await filled(tmp_path)
    path = tmp_path / DATA_FILE
    sound = path.read_bytes()
    for at, word in ((20, "version"), (40, "pages of")):
        path.write_bytes(sound[:at] + b"\xee\xee\xee\x00" + sound[at + 4 :])
        with pytest.raises(StoreDamaged, match=word):
            LmdbStore.open(tmp_path, SETTINGS)


@covers("F6")
async def test_a_damaged_list_of_free_pages_does_not_excuse_missing_ones(tmp_path: Path) -> None:
    await filled(tmp_path)
    path = tmp_path / DATA_FILE
    with path.open("rb") as file:
        meta = read_meta(file.fileno(), path)
    data = bytearray(path.read_bytes()[:-4096])
    at = meta.free.root * meta.page_bytes
    data[at + 10 : at + 12] = b"\x04\x00"
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match="cut short"):
        check_length(path)


def test_an_empty_or_missing_file_is_a_new_store(tmp_path: Path) -> None:
    check_length(tmp_path / DATA_FILE)
    (tmp_path / DATA_FILE).touch()
    check_length(tmp_path / DATA_FILE)
