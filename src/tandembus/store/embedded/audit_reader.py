"""Reads what the audit noted. A damaged page is missing by its number, which whoever reads the records notices."""

from __future__ import annotations

import lmdb

from tandembus.store.embedded.environment import OpenedStore
from tandembus.store.embedded.keys import AUDIT, MAX_I64, audit_key
from tandembus.store.embedded.lane_reader import DamagedRecord, Report, items
from tandembus.store.embedded.records import decode_audit_page
from tandembus.store.messaging_store import AuditPage

_REMEDY = "passed over: the audit has a gap there"


def read_pages(
    txn: lmdb.Transaction[bytes], opened: OpenedStore, first: int, max_bytes: int, report: Report
) -> list[AuditPage]:
    pages: list[AuditPage] = []
    size_bytes = 0
    for key, value in items(txn, opened.log, audit_key(first), audit_key(MAX_I64)):
        page = decode_audit_page(key, value)
        if page is None:
            report(DamagedRecord("audit page", 0, 0, int.from_bytes(key[1:], "big"), _REMEDY))
            continue
        pages.append(page)
        size_bytes += len(value)
        if size_bytes > max_bytes:
            break
    return pages


def read_newest(txn: lmdb.Transaction[bytes], opened: OpenedStore, report: Report) -> AuditPage | None:
    """The next number goes on behind it, so one that is damaged still counts."""
    with txn.cursor(opened.log) as cursor:
        is_behind = cursor.set_range(bytes([AUDIT + 1]))
        if not (cursor.prev() if is_behind else cursor.last()):
            return None
        key, value = cursor.item()
    if key[0] != AUDIT:
        return None
    page = decode_audit_page(key, value)
    if page is None:
        number = int.from_bytes(key[1:], "big")
        report(DamagedRecord("audit page", 0, 0, number, _REMEDY))
        return AuditPage(number, 0, 0, b"")
    return page
