"""The small store under the catalog: all or nothing, and nothing that rotted is believed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from tandembus.errors import StoreDamaged, StoreFull, StoreUnavailable
from tandembus.store.embedded.catalog_store import CatalogStore, encode_record
from tests.covers import covers

MAP_BYTES = 4 * 1024 * 1024
DOCUMENT = {"name": "é", "number": 2**53, "list": [1, None, True], "nested": {"a": 1.5}}


def contents(folder: Path) -> dict[bytes, object]:
    store = CatalogStore(folder, MAP_BYTES)
    documents, damaged = store.read_all()
    store.close()
    assert damaged == []
    return dict(documents)


@covers("M1")
def test_what_was_committed_is_there_after_a_reopening(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path / "new" / "catalog", MAP_BYTES)
    store.commit({b"a": DOCUMENT, b"b": {}})
    store.commit({b"c": {"x": 1}}, [b"b", b"never-there"])
    store.reopen()
    assert store.read_all() == ({b"a": DOCUMENT, b"c": {"x": 1}}, [])
    store.close()
    assert contents(tmp_path / "new" / "catalog") == {b"a": DOCUMENT, b"c": {"x": 1}}


def test_a_key_that_is_dropped_and_put_in_one_commit_is_put(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path, MAP_BYTES)
    store.commit({b"a": {"x": 1}})
    store.commit({b"a": {"x": 2}}, [b"a"])
    store.close()
    assert contents(tmp_path) == {b"a": {"x": 2}}


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    CatalogStore(tmp_path / "catalog", MAP_BYTES).close()
    assert stat.S_IMODE((tmp_path / "catalog").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "catalog" / "data.mdb").stat().st_mode) == 0o600


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path, MAP_BYTES)
    with pytest.raises(StoreUnavailable):
        CatalogStore(tmp_path, MAP_BYTES)
    store.close()
    CatalogStore(tmp_path, MAP_BYTES).close()


@covers("M13")
def test_a_commit_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path, 256 * 1024)
    store.commit({b"a": DOCUMENT})
    with pytest.raises(StoreFull):
        store.commit({b"b": {"x": "y" * 300_000}}, [b"a"])
    store.reopen()
    store.commit({b"c": {}})
    assert set(store.read_all()[0]) == {b"a", b"c"}
    store.close()


@covers("F6")
def test_every_flipped_bit_of_a_record_is_noticed(tmp_path: Path) -> None:
    keys = [b"%05d" % bit for bit in range(len(encode_record(b"00000", {"name": "orders"})) * 8)]
    CatalogStore(tmp_path, MAP_BYTES).close()
    with lmdb.open(str(tmp_path), map_size=MAP_BYTES) as environment, environment.begin(write=True) as txn:
        for bit, key in enumerate(keys):
            value = bytearray(encode_record(key, {"name": "orders"}))
            value[bit // 8] ^= 1 << bit % 8
            txn.put(key, bytes(value))
    store = CatalogStore(tmp_path, MAP_BYTES)
    documents, reported = store.read_all()
    store.close()
    assert documents == {}
    assert [one.key for one in reported] == keys


@covers("F6")
@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x00\x00\x00\x00", encode_record(b"other", {"x": 1})])
def test_a_record_that_is_cut_or_stands_under_another_key_is_not_believed(tmp_path: Path, value: bytes) -> None:
    CatalogStore(tmp_path, MAP_BYTES).close()
    with lmdb.open(str(tmp_path), map_size=MAP_BYTES) as environment, environment.begin(write=True) as txn:
        txn.put(b"a", value)
    store = CatalogStore(tmp_path, MAP_BYTES)
    documents, reported = store.read_all()
    store.close()
    assert (documents, [one.key for one in reported]) == ({}, [b"a"])


@covers("F6")
def test_a_file_that_was_cut_short_is_refused_and_kills_nobody(tmp_path: Path) -> None:
    store = CatalogStore(tmp_path, MAP_BYTES)
    store.commit({b"%04d" % number: {"x": "y" * 500} for number in range(200)})
    store.close()
    path = tmp_path / "data.mdb"
    whole = path.read_bytes()
    for size in range(4_096, len(whole), 5 * 4_096):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreDamaged):
            CatalogStore(tmp_path, MAP_BYTES)
    path.write_bytes(whole)
    assert len(contents(tmp_path)) == 200


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        CatalogStore(tmp_path / "file" / "catalog", MAP_BYTES)


KILLED = """
import os, signal, sys
from pathlib import Path
from tandembus.store.embedded.catalog_store import CatalogStore
store = CatalogStore(Path(sys.argv[1]), 4 * 1024 * 1024)
for number in range(10_000):
    store.commit({b"a": {"n": number}, b"b": {"n": number}})
    os.write(1, b"%d\\n" % number)
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@covers("M1", "F2")
@pytest.mark.parametrize("last", [0, 3, 17])
def test_what_was_committed_survives_a_kill(tmp_path: Path, last: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(last)],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.stdout.split()[-1] == b"%d" % last, run.stderr
    assert contents(tmp_path) == {b"a": {"n": last}, b"b": {"n": last}}
