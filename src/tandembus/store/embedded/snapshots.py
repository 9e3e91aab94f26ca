"""Looks at stores that another process may be writing to, all of them as they were at one and the same instant.

LMDB lets any process read beside the one that writes, and neither waits for the other. What is read is the state of the
last commit before, for as long as the snapshot is held; meanwhile the writer cannot use pages again that were freed
since, so that its file grows.

Several stores are in one state only at an instant at which none of them commits. So all snapshots are begun, and taken
when none of the stores has gone on by then; else they are begun once more. What they hold together is what a power
failure at that instant would have left.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, final

import lmdb

from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.store.embedded.environment import LMDB_MAJOR, MIN_MAP_BYTES
from tandembus.store.embedded.keys import BODY_TREE, LOG_TREE, STATE_TREE
from tandembus.store.embedded.lmdb_file import DATA_FILE, FileMeta, check_length, read_metas
from tandembus.store.embedded.lmdb_pages import LmdbPages, Tell

COPY_BYTES: Final = 1 << 20
LOCK_FILE: Final = "lock.mdb"
MAX_TREES: Final = 3
META_PAGES: Final = 2
SPARE_MAP_BYTES: Final = 1 << 34
"""A file that grows between its opening and the snapshot must still fit."""
MAX_TRIES: Final = 100_000
"""Each takes some microseconds for each store: thousands of commits in a second leave gaps enough."""


@final
class Snapshot:
    """One LMDB environment, as it was at the instant of its cut."""

    def __init__(self, folder: Path, is_still: bool) -> None:
        """`is_still`: nobody writes there, and nothing is written there, not even the note of a reader. Raises
        StoreDamaged or StoreUnavailable."""
        self.folder: Final = folder
        self._environment = _opened(folder, is_still)
        self._descriptor = os.open(folder / DATA_FILE, os.O_RDONLY | os.O_CLOEXEC)
        self._txn: lmdb.Transaction[bytes] | None = None
        self._meta: FileMeta | None = None

    @property
    def txn(self) -> lmdb.Transaction[bytes]:
        assert self._txn is not None, "a snapshot is read once it is begun"
        return self._txn

    def begin(self) -> None:
        self._txn = self._environment.begin()

    def is_current(self) -> bool:
        return self.txn.id() == int(self._environment.info()["last_txnid"])

    def find_meta(self) -> bool:
        """Whether the meta page of this state is there still: the second commit after it writes over it."""
        metas = read_metas(self._descriptor, self.folder / DATA_FILE)
        self._meta = next((meta for meta in metas if meta.transaction == self.txn.id()), None)
        return self._meta is not None

    def items(self, tree: bytes, prefixes: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """What a tree has under these prefixes, as LMDB reads it: quickly, trusting its pages. Raises StoreDamaged."""
        try:
            with self.txn.cursor(self._environment.open_db(tree, self.txn, create=False)) as cursor:
                for prefix in prefixes:
                    found = cursor.set_range(prefix)
                    while found and cursor.key().startswith(prefix):
                        yield cursor.key(), cursor.value()
                        found = cursor.next()
        except lmdb.Error as error:
            raise StoreDamaged(f"{self.folder / DATA_FILE} cannot be read: {error}") from error

    def pages(self, tell: Tell) -> LmdbPages:
        """For a look that believes nothing, not even LMDB's own pages."""
        assert self._meta is not None
        return LmdbPages(self._descriptor, self._meta, tell)

    def drop(self) -> None:
        if self._txn is not None:
            self._txn.abort()
            self._txn = None

    def size_bytes(self) -> int:
        """With the pages that are free."""
        return int(self._environment.info()["last_pgno"] + 1) * int(self._environment.stat()["psize"])

    def used_bytes(self) -> int:
        """Of a copy, which leaves out what is free. Raises StoreDamaged."""
        trees = [self.txn.stat(None)]
        for name in (BODY_TREE, STATE_TREE, LOG_TREE):
            try:
                trees.append(self.txn.stat(self._environment.open_db(name, self.txn, create=False)))
            except lmdb.NotFoundError:
                pass  # a catalog has no named trees
            except lmdb.Error as error:
                raise StoreDamaged(f"{self.folder / DATA_FILE} cannot be read: {error}") from error
        pages = [tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"] for tree in trees]
        return int((sum(pages) + META_PAGES) * trees[0]["psize"])

    def copy(self, write: Callable[[bytes], object]) -> int:
        """All that is in use, without gaps, as a file of its own; returns its size. Raises StoreDamaged or
        StoreUnavailable."""
        reading, writing = os.pipe()
        failures: list[lmdb.Error] = []
        copying = threading.Thread(target=self._copy_into, args=(writing, failures), name="copy", daemon=True)
        copying.start()
        size_bytes = 0
        try:
            while part := os.read(reading, COPY_BYTES):
                write(part)
                size_bytes += len(part)
        finally:
            os.close(reading)  # whoever copies into a pipe that nobody reads any more ends, too
            copying.join()
        if failures:
            raise _kind_of(failures[0])(f"{self.folder} cannot be copied: {failures[0]}") from failures[0]
        return size_bytes

    def _copy_into(self, writing: int, failures: list[lmdb.Error]) -> None:
        try:
            self._environment.copyfd(writing, compact=True, txn=self.txn)
        except lmdb.Error as error:
            failures.append(error)
        finally:
            os.close(writing)

    def close(self) -> None:
        if self._descriptor >= 0:
            self.drop()
            self._environment.close()
            os.close(self._descriptor)
            self._descriptor = -1


@final
class Cut:
    """Snapshots of several environments, of one and the same instant. To be closed; each may be closed before."""

    def __init__(self, folders: Iterable[Path], *, is_still: bool = False) -> None:
        """`is_still`: nobody writes there. Raises StoreDamaged or StoreUnavailable."""
        self.snapshots: list[Snapshot] = []
        try:
            for folder in folders:
                self.snapshots.append(Snapshot(folder, is_still))
            _begin_together(self.snapshots)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for snapshot in self.snapshots:
            snapshot.close()

    def __enter__(self) -> Cut:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _begin_together(snapshots: Sequence[Snapshot]) -> None:
    try:
        for _ in range(MAX_TRIES):
            for snapshot in snapshots:
                snapshot.begin()
            # All that counts is the time from the first of these lines to the second, so nothing else is done there.
            is_one_instant = all(snapshot.is_current() for snapshot in snapshots)
            if is_one_instant and all(snapshot.find_meta() for snapshot in snapshots):
                return
            for snapshot in snapshots:
                snapshot.drop()
    except lmdb.Error as error:
        raise StoreUnavailable(f"the stores cannot be read: {error}") from error
    raise StoreUnavailable(
        f"{len(snapshots)} stores were never without a commit between two of them being looked at: "
        "repeat this when there is less to do"
    )


def _opened(folder: Path, is_still: bool) -> lmdb.Environment:
    path = folder / DATA_FILE
    _require_file(path, is_still)
    map_bytes = path.stat().st_size * 2 + SPARE_MAP_BYTES
    while True:
        try:
            environment = lmdb.open(
                str(folder),
                map_size=map_bytes,
                readonly=True,
                create=False,
                lock=not is_still,
                max_dbs=MAX_TREES,
                mode=0o600,
                lib_version=LMDB_MAJOR,
            )
        except lmdb.Error as error:
            is_too_large = isinstance(error, lmdb.MemoryError) or error.code == errno.ENOMEM
            if not is_too_large or map_bytes // 2 < MIN_MAP_BYTES:
                raise _kind_of(error)(f"{path} cannot be read: {error}") from error
            map_bytes //= 2
        else:
            if not is_still:
                environment.reader_check()  # one that was killed before would hold its pages for ever
            return environment


def _kind_of(error: lmdb.Error) -> type[StoreUnavailable]:
    """The system's errors have positive codes, LMDB's own negative ones."""
    return StoreUnavailable if error.code > 0 else StoreDamaged


def _require_file(path: Path, is_still: bool) -> None:
    """LMDB maps whatever it is given, and notes its readers in a file beside it: one that belongs to another user would
    keep the namespace from starting."""
    try:
        owner = path.stat().st_uid
        check_length(path)
        with path.open("rb") as file:
            read_metas(file.fileno(), path)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
    if not is_still and owner != os.geteuid() and not path.with_name(LOCK_FILE).exists():
        raise StoreUnavailable(f"{path} belongs to another user (number {owner}): run this as that user")
