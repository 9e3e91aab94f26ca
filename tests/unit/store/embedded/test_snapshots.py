"""Snapshots of several stores show one instant, whoever writes meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.store.embedded.lmdb_file import DATA_FILE, read_meta
from tandembus.store.embedded.snapshots import LOCK_FILE, Cut
from tests.covers import covers
from tests.scale import scaled
from tests.unit.store.embedded.raw import PAGE_BYTES

WRITER = """
import sys, time, lmdb
stores = [lmdb.open(one, map_size=1 << 28, sync=False, max_readers=16) for one in sys.argv[1:]]
for one in stores:
    with one.begin(write=True) as txn:
        txn.put(b"number", b"0")
print("ready", flush=True)
number = 0
while True:
    number += 1
    for one in (stores[0], stores[-1]):
        with one.begin(write=True) as txn:
            txn.put(b"number", str(number).encode())
            txn.put(str(number % 100).encode(), bytes(3000))
    if number % 100 == 0:
        time.sleep(0.001)  # as any writer has nothing to write at times
"""
STORES = 20


def number_in(cut: Cut, at: int) -> int:
    return int(cut.snapshots[at].txn.get(b"number") or b"0")


@covers("F6")
def test_a_cut_through_stores_that_are_written_to_shows_one_instant(tmp_path: Path) -> None:
    """The writer counts up in the first store, then in the last: at any instant the first is ahead by one or none."""
    folders = [tmp_path / str(number) for number in range(STORES)]
    command = [sys.executable, "-c", WRITER, *map(str, folders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            seen = set()
            for _ in range(scaled(100, 1_000, 10_000)):
                with Cut(folders) as cut:
                    first, last = number_in(cut, 0), number_in(cut, STORES - 1)
                assert first - last in (0, 1)
                seen.add(first)
            assert len(seen) > 10, "it was written meanwhile"
        finally:
            writer.kill()


@covers("F6")
def test_a_copy_of_a_snapshot_is_that_state_whatever_is_written_since(tmp_path: Path) -> None:
    folder, copied = tmp_path / "store", tmp_path / "copy"
    copied.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(tmp_path / "other")], stdout=subprocess.PIPE
    ) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            with Cut([folder]) as cut, (copied / DATA_FILE).open("wb") as file:
                number = number_in(cut, 0)
                size_bytes = cut.snapshots[0].copy(file.write)
        finally:
            writer.kill()
    assert (copied / DATA_FILE).stat().st_size == size_bytes
    with Cut([copied], is_still=True) as cut:
        assert number_in(cut, 0) == number
    assert not (copied / LOCK_FILE).exists(), "nothing is written where nobody writes"


@covers("F6")
def test_a_copy_that_cannot_be_written_ends(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 28) as environment, environment.begin(write=True) as txn:
        for number in range(3_000):
            txn.put(str(number).encode(), bytes(2_000))

    def full(_part: bytes) -> None:
        raise OSError("no room")

    with Cut([tmp_path]) as cut, pytest.raises(OSError, match="no room"):
        cut.snapshots[0].copy(full)


@covers("F6")
def test_a_store_that_cannot_be_copied_for_a_missing_page_is_called_damaged(tmp_path: Path) -> None:
    """Trying again later would not help."""
    with lmdb.open(str(tmp_path), map_size=1 << 28) as environment, environment.begin(write=True) as txn:
        for number in range(3_000):
            txn.put(b"%05d" % number, bytes(3_000))
    with (tmp_path / DATA_FILE).open("rb+") as file:
        file.seek(300 * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    with Cut([tmp_path], is_still=True) as cut, pytest.raises(StoreDamaged, match="cannot be copied"):
        cut.snapshots[0].copy(lambda _part: None)


@covers("F6")
def test_a_file_whose_size_cannot_be_told_for_a_damaged_first_page_is_called_damaged(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 28) as environment, environment.begin(write=True) as txn:
        txn.put(b"number", b"1")
    path = tmp_path / DATA_FILE
    with path.open("rb+") as file:
        file.seek(read_meta(file.fileno(), path).named.root * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    with Cut([tmp_path], is_still=True) as cut, pytest.raises(StoreDamaged, match="cannot be read"):
        cut.snapshots[0].used_bytes()


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        Cut([tmp_path])
    assert list(tmp_path.iterdir()) == [], "and nothing is made"
