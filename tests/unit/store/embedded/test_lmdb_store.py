"""What is particular to the embedded store: how it commits, what if it cannot, and what a commit costs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandembus.clock import ManualClock
from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.embedded.environment import MEGABYTE, CommitMode
from tandembus.store.embedded.lmdb_file import DATA_FILE
from tandembus.store.folder_lock import LOCK_FILE
from tandembus.store.messaging_store import (
    BLOCK_SIZE,
    MAIN,
    BodyRange,
    Changes,
    Place,
    PutBody,
)
from tests.contract.samples import FRAGMENT, block, message, numbers_of, sends
from tests.covers import covers
from tests.volumes import files_limited_to

PLENTY = 1 << 30
SETTINGS = EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop")


def run_script(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


class SlowClock:
    """Every look at it takes a while: commits seem to last that long."""

    def __init__(self, step_s: float) -> None:
        self._clock = ManualClock()
        self._step_s = step_s

    def now(self) -> float:
        return self._clock.now()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        self._clock.advance(self._step_s)
        return self._clock.monotonic()


@pytest.mark.parametrize(
    ("commit_mode", "commit_s", "in_thread"),
    [
        ("auto", 0.0001, False),
        ("auto", 0.01, True),
        ("loop", 0.01, False),
        ("thread", 0.0001, True),
    ],
)
async def test_short_commits_run_in_the_loop_and_long_ones_in_a_thread(
    tmp_path: Path, commit_mode: CommitMode, commit_s: float, in_thread: bool
) -> None:
    settings = EmbeddedSettings(map_bytes=1 << 30, commit_mode=commit_mode)
    store = LmdbStore.open(tmp_path, settings, SlowClock(commit_s))
    assert store.commits_in_thread == in_thread
    await store.close()


@covers("M1")
async def test_a_commit_in_the_loop_is_done_without_giving_up_its_turn(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    commit = store.commit(sends([1]))
    with pytest.raises(StopIteration):
        commit.send(None)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1]
    await store.close()


@covers("M1")
async def test_a_commit_in_a_thread_leaves_the_loop_free(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, EmbeddedSettings(map_bytes=1 << 30, commit_mode="thread"))
    commit = asyncio.ensure_future(store.commit(sends([1])))
    await asyncio.sleep(0)
    await commit
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1]
    await store.close()


@covers("M1")
async def test_a_commit_survives_the_death_of_its_process_right_after_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from tandembus.store.embedded import LmdbStore\n"
        "from tests.contract.samples import sends\n"
        "async def main():\n"
        "    store = LmdbStore.open(Path(sys.argv[1]))\n"
        "    for first in range(1, 1001, 100):\n"
        "        await store.commit(sends(range(first, first + 100)))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    run = run_script(script, tmp_path)
    assert run.returncode == -9
    store = LmdbStore.open(tmp_path, SETTINGS)
    assert store.epoch == 2
    bodies = await store.bodies(FRAGMENT, MAIN, range(1, 1001), PLENTY)
    assert numbers_of(bodies) == list(range(1, 1001))
    await store.close()


@covers("F7")
async def test_a_second_process_is_told_who_holds_the_store_and_what_to_do(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tandembus.errors import StoreUnavailable\n"
        "from tandembus.store.embedded import LmdbStore\n"
        "try:\n"
        "    LmdbStore.open(Path(sys.argv[1]))\n"
        "except StoreUnavailable as error:\n"
        "    print(error)\n"
    )
    run = run_script(script, tmp_path)
    assert f"in use by process {os.getpid()}" in run.stdout
    assert "another data folder" in run.stdout
    await store.close()


def test_a_folder_that_cannot_be_made_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        LmdbStore.open(tmp_path / "file" / "store", SETTINGS)


@pytest.mark.parametrize("name", [DATA_FILE, LOCK_FILE, "lock.mdb"])
def test_a_folder_in_which_a_file_is_not_a_file_is_reported_as_such(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(StoreUnavailable, match=str(tmp_path)):
        LmdbStore.open(tmp_path, SETTINGS)
    (tmp_path / name).rmdir()
    asyncio.run(LmdbStore.open(tmp_path, SETTINGS).close())


def test_nobody_else_can_read_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    asyncio.run(LmdbStore.open(folder, SETTINGS).close())
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / DATA_FILE).stat().st_mode & 0o077 == 0


async def send_until_full(store: LmdbStore) -> int:
    sent = 0
    try:
        while True:
            changes = sends(range(sent, sent + 10), size_bytes=1000)
            changes.blocks = [block(sent // BLOCK_SIZE)]
            await store.commit(changes)
            sent += 10
    except StoreFull:
        return sent


@covers("F4", "M13")
@pytest.mark.parametrize("settling_bytes", [256 << 10, 0])
async def test_a_full_map_refuses_sends_and_recovers_by_deleting(tmp_path: Path, settling_bytes: int) -> None:
    """Without the room set aside for settling LMDB itself has to say that the map is full."""
    settings = EmbeddedSettings(map_bytes=4 * MEGABYTE, settling_bytes=settling_bytes, commit_mode="loop")
    store = LmdbStore.open(tmp_path, settings)
    sent = await send_until_full(store)
    assert sent > 1000
    assert await store.bodies_left(FRAGMENT, MAIN, PLENTY) == list(range(sent)), "nothing of the refused commit"
    full = store.room().free_bytes
    for first in range(0, sent, 100):
        settle = Changes()
        settle.blocks = [block(first // BLOCK_SIZE)]
        settle.dropped_bodies = [BodyRange(FRAGMENT, MAIN, first, first + 99)]
        await store.commit(settle)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == []
    assert store.room().free_bytes > full + 2 * MEGABYTE
    await store.commit(sends(range(sent, sent + 100), size_bytes=1000))
    await store.close()


@covers("F3")
@pytest.mark.parametrize("commit_mode", ["loop", "thread"])
async def test_a_write_that_fails_although_there_is_room_makes_the_store_unusable_until_reopened(
    tmp_path: Path, commit_mode: CommitMode
) -> None:
    settings = EmbeddedSettings(map_bytes=1 << 30, commit_mode=commit_mode)
    store = LmdbStore.open(tmp_path, settings)
    await store.commit(sends([1]))
    limited = files_limited_to((tmp_path / DATA_FILE).stat().st_size)
    with limited, pytest.raises(StoreUnavailable, match="outcome is unknown") as failure:
        await store.commit(sends(range(2, 500), size_bytes=1000))
    assert not isinstance(failure.value, StoreFull)
    with pytest.raises(StoreUnavailable, match="unknown"):
        await store.commit(Changes())
    with pytest.raises(StoreUnavailable, match="unknown"):
        await store.bodies(FRAGMENT, MAIN, [1], PLENTY)
    with pytest.raises(StoreUnavailable, match="unknown"):
        store.room()
    await store.close()
    store = LmdbStore.open(tmp_path, settings)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [1]
    await store.commit(sends([2]))
    await store.close()


async def test_a_record_that_cannot_be_written_is_refused_and_spoils_nothing(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    changes = sends([1])
    changes.dropped_bodies = [BodyRange(1 << 40, MAIN, 1, 2)]
    with pytest.raises(ValueError, match="do not fit"):
        await store.commit(changes)
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == []
    await store.commit(sends([2]))
    assert await store.bodies_left(FRAGMENT, MAIN, 10) == [2]
    await store.close()


def test_where_address_space_is_short_the_map_is_smaller(tmp_path: Path) -> None:
    script = (
        "import asyncio, resource, sys\n"
        "from pathlib import Path\n"
        "from tandembus.store.embedded import LmdbStore\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
        "store = LmdbStore.open(Path(sys.argv[1]))\n"
        "print(store.room().free_bytes)\n"
        "asyncio.run(store.close())\n"
    )
    run = run_script(script, tmp_path)
    assert run.returncode == 0, run.stderr
    assert 0 < int(run.stdout) < 8 << 30


async def test_the_reserve_is_a_share_of_the_volume_within_bounds_or_what_the_settings_say(
    tmp_path: Path,
) -> None:
    for settings, expected in (
        (EmbeddedSettings(map_bytes=64 * MEGABYTE), 8 * MEGABYTE),
        (EmbeddedSettings(map_bytes=320 * MEGABYTE), 16 * MEGABYTE),
        (EmbeddedSettings(map_bytes=1 << 40, max_reserve_bytes=9 * MEGABYTE), 9 * MEGABYTE),
        (EmbeddedSettings(map_bytes=1 << 30, reserve_bytes=123), 123),
    ):
        store = LmdbStore.open(tmp_path, settings)
        assert store.room().reserve_bytes == expected
        await store.close()


def changed_pages(before: bytes, after: bytes) -> int:
    pages = range(0, max(len(before), len(after)), 4096)
    return sum(1 for at in pages if before[at : at + 4096] != after[at : at + 4096])


@covers("M1")
async def test_a_commit_writes_few_pages_more_than_its_bodies_fill(tmp_path: Path) -> None:
    """An index by something random would cost a page per message; this is where it would show."""
    store = LmdbStore.open(tmp_path, SETTINGS)
    for first in range(0, 20_000, 500):
        changes = sends(range(first, first + 500), size_bytes=1000)
        changes.blocks = [block(first // BLOCK_SIZE), block((first + 499) // BLOCK_SIZE)]
        await store.commit(changes)
    path = tmp_path / DATA_FILE

    before = path.read_bytes()
    changes = sends(range(20_000, 20_250), size_bytes=1000)
    changes.blocks = [block(20_000 // BLOCK_SIZE), block(3)]
    await store.commit(changes)
    after = path.read_bytes()
    assert changed_pages(before, after) <= 250 / 3 + 12

    changes = sends([20_250], size_bytes=1000)
    changes.blocks = [block(20_250 // BLOCK_SIZE)]
    await store.commit(changes)
    assert changed_pages(after, after := path.read_bytes()) <= 12, "one message: the paths to it, no more"

    settle = Changes()
    settle.blocks = [block(number) for number in range(1, 5)]
    settle.dropped_blocks = [Place(FRAGMENT, MAIN, 0)]
    settle.dropped_bodies = [BodyRange(FRAGMENT, MAIN, 0, BLOCK_SIZE - 1)]
    await store.commit(settle)
    assert changed_pages(after, path.read_bytes()) <= 16, "a block goes without its pages being rewritten"
    await store.close()


@covers("M1")
async def test_sixteen_interleaved_fragments_take_at_most_half_as_much_again(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, SETTINGS)
    for first in range(0, 1000, 20):
        changes = Changes()
        for fragment in range(16):
            for number in range(first, first + 20):
                changes.bodies.append(PutBody(fragment, MAIN, message(number, 1000)))
        await store.commit(changes)
    await store.close()
    assert (tmp_path / DATA_FILE).stat().st_size < 16_000 * 1060 * 2.1


async def test_deleted_room_is_used_again(tmp_path: Path) -> None:
    """No read transaction may stay open behind a call: it would keep all that is deleted after it."""
    store = LmdbStore.open(tmp_path, SETTINGS)
    sizes = []
    for first in range(0, 30_000, 250):
        changes = sends(range(first, first + 250), size_bytes=1000)
        changes.dropped_bodies = [BodyRange(FRAGMENT, MAIN, 0, first - 500)] if first > 500 else []
        await store.commit(changes)
        await store.bodies(FRAGMENT, MAIN, range(first, first + 250), PLENTY)
        await store.blocks(FRAGMENT, MAIN)
        store.room()
        sizes.append((tmp_path / DATA_FILE).stat().st_size)
    await store.close()
    assert sizes[-1] <= sizes[len(sizes) // 4] * 1.1
