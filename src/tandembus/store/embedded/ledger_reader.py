"""What is read of reservations, and the sizes of bodies that nobody reads for them."""

from __future__ import annotations

from collections.abc import Sequence

import lmdb

from tandembus.store.embedded.environment import OpenedStore
from tandembus.store.embedded.keys import MAX_NUMBER, OWNER, RESERVED, body_keys, place_at, place_key
from tandembus.store.embedded.lane_reader import DamagedRecord, Report, items
from tandembus.store.embedded.ledger_records import decode_owner, decode_reserved
from tandembus.store.embedded.records import BODY_HEAD_BYTES
from tandembus.store.owner_records import OwnerRecord, ReservedRecord


def read_sizes(
    txn: lmdb.Transaction[memoryview], opened: OpenedStore, fragment: int, lane: int, numbers: Sequence[int]
) -> list[int]:
    keys = body_keys(fragment, lane, list(numbers))
    with txn.cursor(opened.body) as cursor:
        found = cursor.getmulti(keys)
    if len(found) == len(keys):
        return [len(value) - BODY_HEAD_BYTES for _, value in found]
    sizes = {bytes(key): max(len(value) - BODY_HEAD_BYTES, 0) for key, value in found}
    return [sizes.get(key, 0) for key in keys]


def read_owners(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, lane: int, report: Report
) -> list[OwnerRecord]:
    owners: list[OwnerRecord] = []
    first, last = place_key(OWNER, fragment, lane, 0), place_key(OWNER, fragment, lane, MAX_NUMBER)
    for key, value in items(txn, opened.state, first, last):
        owner = decode_owner(key, value)
        if owner is None:
            slot = place_at(key, 1).number
            report(DamagedRecord("owner", fragment, lane, slot, "passed over: its reservations have lost their name"))
        else:
            owners.append(owner)
    return owners


def read_reserved(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, lane: int, report: Report
) -> list[ReservedRecord]:
    found: list[ReservedRecord] = []
    first, last = place_key(RESERVED, fragment, lane, 0), place_key(RESERVED, fragment, lane, MAX_NUMBER)
    for key, value in items(txn, opened.state, first, last):
        reserved = decode_reserved(key, value)
        if reserved is None:
            number = place_at(key, 1).number
            report(DamagedRecord("reservation", fragment, lane, number, "passed over: its messages are deferred ones"))
        else:
            found.append(reserved)
    return found
