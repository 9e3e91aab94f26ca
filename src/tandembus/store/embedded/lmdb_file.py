"""What can be said about an LMDB data file before LMDB maps it.

LMDB trusts its file: touching a page behind the end of a file that was cut short kills the process with
SIGBUS. So the length is compared with what the file says about itself, by reading it the ordinary way. The
layout read here is that of LMDB 0.9 (data format 1) on the machine that wrote it, native byte order:

    page    number u64, pad u16, flags u16, lower u16, upper u16; from byte 16 the offsets of its nodes, u16,
            up to `lower`. A page of the overflow kind has its count of pages in the place of lower and upper
    meta    pages 0 and 1, from byte 16: magic u32, version u32, address u64, map size u64, two trees of 48
            bytes (free pages, then the named trees), last page u64, transaction u64: the larger is current
    tree    page size u32 (of the first tree only), flags u16, depth u16, four counts u64, root page u64
    node    size of the data, or number of a page (low u16, high u16), flags u16, key size u16, key, data

A file may rightly be shorter than its last page: a page that was taken and given back within one transaction
is never written, only listed as free. So missing pages are looked up in the list of free pages before a file
is called cut.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.errors import StoreDamaged

DATA_FILE: Final = "data.mdb"
MIN_PAGE_BYTES: Final = 512
MAX_PAGE_BYTES: Final = 0x8000
READ_BYTES: Final = 1 << 20

PAGE: Final = struct.Struct("=QHHHH")
_META: Final = struct.Struct("=IIQQ")
TREE: Final = struct.Struct("=IHHQQQQQ")
_META_END: Final = struct.Struct("=QQ")
NODE: Final = struct.Struct("=HHHH")
_MAGIC: Final = 0xBEEFC0DE
_DATA_VERSION: Final = 1
IS_BRANCH: Final = 0x01
IS_LEAF: Final = 0x02
_IS_META: Final = 0x08
HAS_OVERFLOW: Final = 0x01
NO_PAGE: Final = 0xFFFFFFFFFFFFFFFF
MAX_DEPTH: Final = 32
_META_BYTES: Final = PAGE.size + _META.size + 2 * TREE.size + _META_END.size


@dataclass(frozen=True, slots=True)
class Tree:
    """What the file says of one of its trees."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


@dataclass(frozen=True, slots=True)
class FileMeta:
    """One of the two meta pages."""

    page_bytes: int
    free: Tree
    named: Tree
    """Holds the records of the named trees."""
    last_page: int
    transaction: int


def check_length(path: Path) -> None:
    """Refuse a file that lacks pages it needs. A file that does not exist, or is empty, is a new store."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        # In this order: somebody may be writing, and a file only ever grows.
        meta = read_meta(file.fileno(), path)
        size = os.fstat(file.fileno()).st_size
        present = size // meta.page_bytes
        if present > meta.last_page:
            return
        free = _free_pages(file.fileno(), meta, present, path)
        # The count first: a damaged file may claim any number of pages.
        count = meta.last_page + 1 - present
        if count > len(free) or not free.issuperset(range(present, present + count)):
            raise StoreDamaged(
                f"{path} has {size} bytes but needs {(meta.last_page + 1) * meta.page_bytes}: "
                "it was cut short. Nothing was changed; restore the file from a backup"
            )


def begin_with_zeros(path: Path) -> bool:
    """Whether there is no first page, although there is a file."""
    try:
        with path.open("rb") as file:
            data = file.read(MIN_PAGE_BYTES)
    except OSError:
        return False
    return bool(data) and not any(data)


def hold_only_zeros(path: Path) -> bool:
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            if any(data):
                return False
    return True


def read_meta(descriptor: int, path: Path) -> FileMeta:
    """The current one of the two meta pages."""
    first, second = read_metas(descriptor, path)
    return first if first.transaction >= second.transaction else second


def read_metas(descriptor: int, path: Path) -> tuple[FileMeta, FileMeta]:
    """Both: the other one is what was current before."""
    first = _meta_at(descriptor, 0, 0, path)
    return first, _meta_at(descriptor, 1, first.page_bytes, path)


def tree_at(data: bytes, at: int) -> Tree:
    """Raises struct.error where the record is cut short."""
    _, flags, depth, branch_pages, leaf_pages, overflow_pages, entries, root = TREE.unpack_from(data, at)
    return Tree(flags, depth, branch_pages, leaf_pages, overflow_pages, entries, root)


def _meta_at(descriptor: int, page: int, page_bytes: int, path: Path) -> FileMeta:
    data = os.pread(descriptor, _META_BYTES, page * page_bytes)
    if len(data) < _META_BYTES:
        raise StoreDamaged(f"{path} ends within its first two pages: it was cut short. Restore it from a backup")
    number, _, flags, _, _ = PAGE.unpack_from(data, 0)
    magic, version, _, _ = _META.unpack_from(data, PAGE.size)
    if number != page or not flags & _IS_META or magic != _MAGIC:
        raise StoreDamaged(f"{path} is not a messaging store, or its first pages are damaged")
    if version != _DATA_VERSION:
        raise StoreDamaged(f"{path} was written by another version ({version}) of the LMDB file format")
    at = PAGE.size + _META.size
    (page_bytes,) = struct.unpack_from("=I", data, at)
    last_page, transaction = _META_END.unpack_from(data, at + 2 * TREE.size)
    if not MIN_PAGE_BYTES <= page_bytes <= MAX_PAGE_BYTES:
        raise StoreDamaged(f"{path} claims pages of {page_bytes} bytes: its first pages are damaged")
    return FileMeta(page_bytes, tree_at(data, at), tree_at(data, at + TREE.size), last_page, transaction)


def _free_pages(descriptor: int, meta: FileMeta, present: int, path: Path) -> set[int]:
    free: set[int] = set()
    if meta.free.root != NO_PAGE:
        try:
            _collect_free(_FreeList(descriptor, meta.page_bytes, present), meta.free.root, 0, free)
        except (ValueError, struct.error) as error:
            raise StoreDamaged(f"{path} was cut short, and its list of free pages cannot be read") from error
    return free


@dataclass(frozen=True, slots=True)
class _FreeList:
    descriptor: int
    page_bytes: int
    present: int

    def read(self, page: int, length: int) -> bytes:
        data = os.pread(self.descriptor, length, page * self.page_bytes)
        if page >= self.present or len(data) < length:
            raise ValueError("a page of the list is missing")
        return data


def _collect_free(free_list: _FreeList, page: int, depth: int, free: set[int]) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("the list is nested too deep")
    data = free_list.read(page, free_list.page_bytes)
    _, _, flags, lower, _ = PAGE.unpack_from(data, 0)
    for (at,) in struct.iter_unpack("=H", data[PAGE.size : lower]):
        low, high, node_flags, key_bytes = NODE.unpack_from(data, at)
        if flags & IS_BRANCH:
            _collect_free(free_list, low | high << 16 | node_flags << 32, depth + 1, free)
        elif flags & IS_LEAF:
            value_at = at + NODE.size + key_bytes
            value = data[value_at : value_at + (low | high << 16)]
            if node_flags & HAS_OVERFLOW:
                (overflow,) = struct.unpack_from("=Q", data, value_at)
                value = free_list.read(overflow, PAGE.size + (low | high << 16))[PAGE.size :]
            (count,) = struct.unpack_from("=Q", value, 0)
            free.update(struct.unpack_from(f"={count}Q", value, 8))
        else:
            raise ValueError("a page of the list is of another kind")
