"""What the heads of body records say, without the bodies being read: for whoever only watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import lmdb

from tandembus.store.embedded.environment import OpenedStore
from tandembus.store.embedded.keys import body_key
from tandembus.store.embedded.records import BODY_HEAD_BYTES
from tandembus.store.messaging_store import Place

_ENQUEUED_AT: Final = 16
_ENQUEUED_END: Final = 24


def read_enqueued_times(txn: lmdb.Transaction[memoryview], opened: OpenedStore, places: Sequence[Place]) -> list[int]:
    """0 for one that is not there. No checksum is looked at: it covers the whole body."""
    times: list[int] = []
    for place in places:
        value = txn.get(body_key(place.fragment, place.lane, place.number), db=opened.body)
        is_there = value is not None and len(value) >= BODY_HEAD_BYTES
        times.append(int.from_bytes(value[_ENQUEUED_AT:_ENQUEUED_END], "big") if value and is_there else 0)
    return times
