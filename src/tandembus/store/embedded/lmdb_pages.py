"""Reads the trees of an LMDB file page by page, the ordinary way, and believes none of them.

LMDB trusts its pages: a flipped bit in one can end the process, hide keys, or have a page that is in use written over.
Here each page is looked at before it is followed: its number, its kind, the places and the order of its nodes, whether
another tree or the list of free pages has it, too. What is damaged is reported and passed over; the rest is read. The
layout is that of `lmdb_file.py`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

from tandembus.errors import StoreDamaged
from tandembus.store.embedded.lmdb_file import (
    HAS_OVERFLOW,
    IS_BRANCH,
    IS_LEAF,
    MAX_DEPTH,
    NO_PAGE,
    NODE,
    PAGE,
    FileMeta,
    Tree,
    read_meta,
    tree_at,
)

Records = list[tuple[bytes, bytes]]
Tell = Callable[[str], None]

_META_PAGES: Final = 2
_IS_OVERFLOW: Final = 0x04
_KINDS: Final = 0x7F
"""All bits that say what a page is for, and the one of a page that is not written yet: none in a file has it."""
_NUMERIC: Final = 0x08
"""A tree whose keys are numbers: the list of free pages, and no other."""
_IS_TREE: Final = 0x02
_FREE: Final = 1
_USED: Final = 2
_OVERFLOW: Final = struct.Struct("=QHHI")
_NUMBER: Final = struct.Struct("=Q")


class _Broken(Exception):
    """Why a page cannot be followed."""


@final
class _Counted:
    def __init__(self) -> None:
        self.branch_pages = 0
        self.leaf_pages = 0
        self.overflow_pages = 0
        self.entries = 0

    def differs_from(self, tree: Tree) -> bool:
        there = (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries)
        return there != (self.branch_pages, self.leaf_pages, self.overflow_pages, self.entries)


def check_catalog_pages(path: Path) -> None:
    """Raises StoreDamaged for a file without named trees of which LMDB could not use every page. Nobody may be writing
    to it."""
    findings: list[str] = []
    if path.exists() and path.stat().st_size > 0:
        with path.open("rb") as file:
            for _ in LmdbPages(file.fileno(), read_meta(file.fileno(), path), findings.append).only_tree("the catalog"):
                pass
    if findings:
        raise StoreDamaged(f"{path} is damaged: {findings[0]}")


def find_store_damage(path: Path) -> list[str]:
    """Why LMDB could not use every page of a store. Nobody may be writing to it. Raises StoreDamaged where not even
    the first pages can be read."""
    findings: list[str] = []
    if path.stat().st_size > 0:
        with path.open("rb") as file:
            pages = LmdbPages(file.fileno(), read_meta(file.fileno(), path), findings.append)
            for name, tree in pages.named_trees().items():
                for _ in pages.records(f"tree '{name.decode(errors='replace')}'", tree):
                    pass
    return findings


@final
class LmdbPages:
    """The file as one of its meta pages describes it. Nobody may write over pages of that state meanwhile: either
    nobody writes at all, or a reader of LMDB's own holds them."""

    def __init__(self, descriptor: int, meta: FileMeta, tell: Tell) -> None:
        self._descriptor = descriptor
        self._page_bytes = meta.page_bytes
        self._meta = meta
        self._tell = tell
        self._present = os.fstat(descriptor).st_size // meta.page_bytes
        self._pages = bytearray(min(meta.last_page + 1, self._present))
        """What each is used for."""
        self._damage_count = 0

    @property
    def size_bytes(self) -> int:
        return len(self._pages) * self._page_bytes

    def named_trees(self) -> dict[bytes, Tree]:
        """Of a file that has such; first of all."""
        self._read_free()
        trees: dict[bytes, Tree] = {}
        for records in self._leaves("list of trees", self._meta.named, are_trees=True):
            for key, value in records:
                try:
                    trees[key] = tree_at(value, 0)
                except struct.error:
                    self._damaged(f"the record of the tree {key!r} is cut short")
        return trees

    def only_tree(self, name: str) -> Iterator[Records]:
        """All of a file that has no named trees."""
        self._read_free()
        yield from self._leaves(name, self._meta.named)

    def _read_free(self) -> None:
        self._pages[:_META_PAGES] = bytes([_USED]) * _META_PAGES
        for records in self._leaves("list of free pages", self._meta.free, is_numeric=True):
            for _, value in records:
                self._take_free(value)

    def records(self, name: str, tree: Tree) -> Iterator[Records]:
        """All of a tree, in key order, those of one page at a time."""
        return self._leaves(name, tree)

    def lost_pages(self) -> int:
        """Neither used nor free: harmless, and told only where nothing else is wrong. Once all trees were read."""
        return 0 if self._damage_count else self._pages.count(0)

    def _damaged(self, text: str) -> None:
        self._damage_count += 1
        self._tell(text)

    def _leaves(self, name: str, tree: Tree, *, is_numeric: bool = False, are_trees: bool = False) -> Iterator[Records]:
        if tree.root == NO_PAGE:
            if tree.entries:
                self._damaged(f"{name}: it has no first page, but {tree.entries} records")
            return
        if tree.flags != (_NUMERIC if is_numeric else 0):
            self._damaged(f"{name}: it is of another kind ({tree.flags:#x}) than its place")
            return
        counted, before = _Counted(), self._damage_count
        yield from self._walk(_Walk(name, tree.depth, counted, is_numeric, are_trees), tree.root, 1)
        if self._damage_count == before and counted.differs_from(tree):
            self._damaged(f"{name}: {counted.entries} records were found, and {tree.entries} should be there")

    def _walk(self, walk: _Walk, page: int, depth: int) -> Iterator[Records]:
        try:
            data = self._read_page(page, IS_LEAF if depth == walk.depth else IS_BRANCH)
            if depth < walk.depth:
                children = self._children(walk, data)
                walk.counted.branch_pages += 1
            else:
                records = self._leaf(walk, data)
                walk.counted.leaf_pages += 1
                walk.counted.entries += len(records)
        except (_Broken, struct.error, IndexError, OSError) as error:
            self._damaged(f"{walk.name}: page {page} is damaged: {error}")
            return
        if depth == walk.depth:
            yield records
        elif depth < MAX_DEPTH:
            for child in children:
                yield from self._walk(walk, child, depth + 1)

    def _read_page(self, page: int, kind: int) -> bytes:
        self._use(page, 1)
        data = os.pread(self._descriptor, self._page_bytes, page * self._page_bytes)
        number, _, flags, lower, upper = PAGE.unpack_from(data, 0)
        if number != page:
            raise _Broken(f"it says that it is page {number}")
        if flags & _KINDS != kind:
            raise _Broken(f"it is of another kind ({flags:#x}) than its place")
        if not PAGE.size <= lower <= upper <= self._page_bytes or lower % 2 != 0:
            raise _Broken("its places do not fit it")
        if lower == PAGE.size:
            raise _Broken("it is empty")
        return data

    def _use(self, page: int, count: int) -> None:
        if page < _META_PAGES or page + count > len(self._pages):
            raise _Broken("the file has no such page")
        used = self._pages[page : page + count]
        if any(used):
            raise _Broken("it is in the list of free pages" if _FREE in used else "it is used twice")
        self._pages[page : page + count] = bytes([_USED]) * count

    def _children(self, walk: _Walk, data: bytes) -> list[int]:
        children: list[int] = []
        before = b""
        for at, low, high, flags, key_bytes in self._nodes(data):
            # The first node of a branch page has no key of its own.
            order = walk.order_of(data[at : at + key_bytes]) if children else b""
            if children and order <= before:
                raise _Broken("its keys are not in order")
            before = order
            children.append(low | high << 16 | flags << 32)
        return children

    def _nodes(self, data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
        """Where the key of each stands, and its fields."""
        _, _, _, lower, upper = PAGE.unpack_from(data, 0)
        for (at,) in struct.iter_unpack("=H", data[PAGE.size : lower]):
            if at < upper:
                raise _Broken("a node lies outside of its places")
            low, high, flags, key_bytes = NODE.unpack_from(data, at)
            if at + NODE.size + key_bytes > self._page_bytes:
                raise _Broken("a key reaches over its end")
            yield at + NODE.size, low, high, flags, key_bytes

    def _leaf(self, walk: _Walk, data: bytes) -> Records:
        """Order is kept from leaf to leaf, whatever the pages above them say."""
        records: Records = []
        for at, low, high, flags, key_bytes in self._nodes(data):
            key = data[at : at + key_bytes]
            order = walk.order_of(key)
            if walk.last is not None and order <= walk.last:
                raise _Broken("its keys are not in order")
            walk.last = order
            size, start = low | high << 16, at + key_bytes
            if flags != (_IS_TREE if walk.are_trees else flags & HAS_OVERFLOW):
                raise _Broken(f"a node has the unknown flags {flags:#x}")
            if flags & HAS_OVERFLOW:
                records.append((key, self._overflow(walk, _NUMBER.unpack_from(data, start)[0], size)))
            elif start + size > self._page_bytes:
                raise _Broken("a value reaches over its end")
            else:
                records.append((key, data[start : start + size]))
        return records

    def _overflow(self, walk: _Walk, page: int, size: int) -> bytes:
        count = (PAGE.size - 1 + size) // self._page_bytes + 1
        self._use(page, count)
        walk.counted.overflow_pages += count
        data = os.pread(self._descriptor, PAGE.size + size, page * self._page_bytes)
        number, _, flags, pages = _OVERFLOW.unpack_from(data, 0)
        if number != page or flags & _KINDS != _IS_OVERFLOW or pages != count or len(data) < PAGE.size + size:
            raise _Broken(f"page {page}, where a large value begins, is damaged")
        return data[PAGE.size :]

    def _take_free(self, value: bytes) -> None:
        try:
            (count,) = _NUMBER.unpack_from(value, 0)
            numbers: tuple[int, ...] = struct.unpack_from(f"={count}Q", value, 8) if count * 8 < len(value) else ()
        except struct.error:
            count, numbers = 1, ()
        if len(numbers) != count:
            self._damaged("list of free pages: a record is cut short")
        for page in numbers:
            if page < len(self._pages) and (page < _META_PAGES or self._pages[page]):
                self._damaged(f"list of free pages: page {page} is in use, or stands there twice")
            elif page > self._meta.last_page:
                self._damaged(f"list of free pages: there is no page {page}")
            elif page < len(self._pages):
                self._pages[page] = _FREE


@final
class _Walk:
    """One walk through one tree."""

    def __init__(self, name: str, depth: int, counted: _Counted, is_numeric: bool, are_trees: bool) -> None:
        self.name: Final = name
        self.depth: Final = depth
        self.counted: Final = counted
        self.is_numeric: Final = is_numeric
        self.are_trees: Final = are_trees
        self.last: bytes | None = None
        """The key before, in the form in which keys are compared."""

    def order_of(self, key: bytes) -> bytes:
        """The form in which LMDB compares this key: the list of free pages has numbers in native byte order."""
        return bytes(_NUMBER.unpack(key)[0].to_bytes(8, "big")) if self.is_numeric else key
