"""Looks into, and changes, a closed store behind its back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lmdb

from tandembus.store.embedded.keys import BODY_TREE, LOG_TREE, STATE_TREE

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
