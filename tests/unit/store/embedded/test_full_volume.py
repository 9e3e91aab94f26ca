"""A volume filled to its last byte, for real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.errors import StoreFull
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.embedded.ballast import BALLAST_FILE
from tandembus.store.messaging_store import BLOCK_SIZE, MAIN, BodyRange, Changes, Place
from tests.contract.samples import FRAGMENT, block, numbers_of, sends
from tests.covers import covers

SETTINGS = EmbeddedSettings(commit_mode="loop")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "volume"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small volume can only be mounted by root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(volume: Path) -> Path:
    """Somebody else takes all that is free."""
    path = volume / "somebody-elses"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
    assert os.statvfs(volume).f_bavail == 0
    return path


async def send(store: LmdbStore, first: int, last: int, size_bytes: int) -> None:
    for start in range(first, last, 10):
        changes = sends(range(start, start + 10), size_bytes=size_bytes)
        changes.blocks = [block(start // BLOCK_SIZE)]
        await store.commit(changes)


async def settle(store: LmdbStore, number: int) -> None:
    """First the bits of a block, then its bodies go."""
    changes = Changes()
    changes.blocks = [block(number)]
    await store.commit(changes)
    changes = Changes()
    changes.dropped_blocks = [Place(FRAGMENT, MAIN, number)]
    changes.dropped_bodies = [BodyRange(FRAGMENT, MAIN, number * BLOCK_SIZE, (number + 1) * BLOCK_SIZE - 1)]
    await store.commit(changes)


@covers("F4", "M13")
@pytest.mark.parametrize("size_bytes", [100, 1000, 5000])
async def test_on_a_full_volume_sends_are_refused_and_settling_makes_room(volume: Path, size_bytes: int) -> None:
    store = LmdbStore.open(volume / "store", SETTINGS)
    await send(store, 0, 4 * BLOCK_SIZE, size_bytes)
    fill(volume)
    with pytest.raises(StoreFull):
        await send(store, 10_000, 20_000, size_bytes)
    kept = await store.bodies(FRAGMENT, MAIN, range(4 * BLOCK_SIZE), 1 << 30)
    assert numbers_of(kept) == list(range(4 * BLOCK_SIZE))
    for number in range(4):
        await settle(store, number)
    left = await store.bodies_left(FRAGMENT, MAIN, 1 << 30)
    assert all(number >= 4 * BLOCK_SIZE for number in left)
    await store.close()


@covers("F4")
async def test_sends_go_on_without_a_restart_once_there_is_room_again(volume: Path) -> None:
    store = LmdbStore.open(volume / "store", SETTINGS)
    await send(store, 0, 1000, 1000)
    somebody_elses = fill(volume)
    with pytest.raises(StoreFull):
        await send(store, 1000, 3000, 1000)
    assert store.room().free_bytes < store.room().reserve_bytes
    somebody_elses.unlink()
    assert store.room().free_bytes > store.room().reserve_bytes
    await send(store, 3000, 4000, 1000)
    await store.close()


@covers("F4")
async def test_a_store_can_be_opened_on_a_full_volume_and_takes_new_ballast_when_it_can(volume: Path) -> None:
    folder = volume / "store"
    store = LmdbStore.open(folder, SETTINGS)
    await send(store, 0, 4 * BLOCK_SIZE, 5000)
    somebody_elses = fill(volume)
    for number in range(2):
        await settle(store, number)
    assert not (folder / BALLAST_FILE).exists()
    await store.close()
    store = LmdbStore.open(folder, SETTINGS)
    assert (await store.bodies_left(FRAGMENT, MAIN, 1))[0] == 2 * BLOCK_SIZE
    somebody_elses.unlink()
    await store.close()
    store = LmdbStore.open(folder, SETTINGS)
    assert (folder / BALLAST_FILE).exists()
    await store.close()


@covers("F4")
async def test_the_volume_may_be_filled_by_the_store_alone(volume: Path) -> None:
    store = LmdbStore.open(volume / "store", SETTINGS)
    with pytest.raises(StoreFull):
        await send(store, 0, 100_000, 1000)
    count = len(await store.bodies_left(FRAGMENT, MAIN, 1 << 30))
    assert count > 20_000
    for number in range(count // BLOCK_SIZE):
        await settle(store, number)
    await send(store, 100_000, 101_000, 1000)
    await store.close()
