"""What other processes must be able to ask after a crash: which of their operations were carried out, and up to where
what they forward was taken. A damaged record costs that knowledge, never messages."""

from __future__ import annotations

import lmdb

from tandembus.store.embedded.environment import OpenedStore
from tandembus.store.embedded.keys import MARK, fragment_at, high_waters_bound
from tandembus.store.embedded.lane_reader import DamagedRecord, Report, items
from tandembus.store.embedded.records import decode_high_water, decode_mark
from tandembus.store.messaging_store import CHANNEL_BYTES, HighWater, Mark


def read_marks(txn: lmdb.Transaction[bytes], opened: OpenedStore, report: Report) -> list[Mark]:
    marks: list[Mark] = []
    for key, value in items(txn, opened.state, bytes([MARK]), bytes([MARK]) + b"\xff" * CHANNEL_BYTES):
        mark = decode_mark(key, value)
        if mark is None:
            report(DamagedRecord("mark", 0, 0, 0, "passed over: what it knew counts as not carried out"))
        else:
            marks.append(mark)
    return marks


def read_high_waters(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, fragment: int, report: Report
) -> list[HighWater]:
    found: list[HighWater] = []
    bound = high_waters_bound(fragment)
    for key, value in items(txn, opened.state, bound, bound + b"\xff" * 5):
        high_water = decode_high_water(key, value)
        if high_water is None:
            remedy = f"passed over: messages from fragment {fragment_at(key, 5)} may come twice"
            report(DamagedRecord("high water", fragment, 0, 0, remedy))
        else:
            found.append(high_water)
    return found
