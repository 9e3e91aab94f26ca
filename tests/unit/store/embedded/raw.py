"""Looks into, and changes, a closed store behind its back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb

from tandembus.store.embedded.keys import BODY_TREE, LOG_TREE, STATE_TREE

PAGE_BYTES = 4096
TREES = (BODY_TREE, STATE_TREE, LOG_TREE)


def records_of(folder: Path, tree: bytes) -> dict[bytes, bytes]:
    with lmdb.open(str(folder), map_size=1 << 30, max_dbs=3) as environment:
        database = environment.open_db(tree)
        with environment.begin(db=database) as txn, txn.cursor() as cursor:
            return dict(cursor.iternext())


def change(folder: Path, tree: bytes, key: bytes, new_value: Callable[[bytes], bytes | None]) -> None:
    """Replace a value; None removes the record."""
    with lmdb.open(str(folder), map_size=1 << 30, max_dbs=3) as environment:
        database = environment.open_db(tree)
        with environment.begin(write=True, db=database) as txn:
            old = txn.get(key)
            assert old is not None
            value = new_value(old)
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)


def flipped(value: bytes, bit: int) -> bytes:
    changed = bytearray(value)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def flip(folder: Path, tree: bytes, key: bytes, bit: int) -> None:
    change(folder, tree, key, lambda value: flipped(value, bit))


def harmed_pages(path: Path) -> Iterator[str]:
    """Damages one page after the other, in every way in which disks do, and puts each back; yields what it has done."""
    whole = path.read_bytes()
    chance = random.Random(6)
    pages = [whole[at : at + PAGE_BYTES] for at in range(0, len(whole), PAGE_BYTES)]
    for number, page in enumerate(pages):
        other = (number + 1) % len(pages)
        for name, changes in (
            ("zeroed", {number: bytes(PAGE_BYTES)}),
            ("garbled", {number: chance.randbytes(PAGE_BYTES)}),
            ("garbled behind its head", {number: page[:16] + chance.randbytes(PAGE_BYTES - 16)}),
            ("swapped", {number: pages[other], other: page}),
        ):
            path.write_bytes(b"".join([changes.get(index, one) for index, one in enumerate(pages)]))
            yield f"page {number} is {name}"
    path.write_bytes(whole)
