"""Changes of the catalog, and entries, as values that travel over a control connection.

Documents travel as the JSON that they are stored as: a copy holds to the byte what the catalog holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, cast, final

from tandembus.errors import MalformedData
from tandembus.namespace import catalog_records as records
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.namespace.entries import Entry
from tandembus.store.embedded.catalog_store import DamagedRecord, Document

SNAPSHOT: Final = "snapshot"
PART: Final = "part of the catalog"
PART_BYTES: Final = 256 * 1024
"""Of records in one part of a change: little enough that neither end is busy with it for long."""


def change_to_wire(change: CatalogChange) -> dict[object, object]:
    """All at once: for one commit's changes."""
    return _to_wire(change, [part for key, document in change.puts.items() for part in (key, _encoded(document))])


def parts_to_wire(changes: Iterable[CatalogChange]) -> Iterator[dict[object, object]]:
    """In parts, each made when it is asked for: a whole catalog may be more than one frame can hold."""
    for change in changes:
        puts: list[object] = []
        size = 0
        for key, document in change.puts.items():
            if size >= PART_BYTES:
                yield {"puts": puts}
                puts, size = [], 0
            encoded = _encoded(document)
            puts += (key, encoded)
            size += len(key) + len(encoded)
        yield _to_wire(change, puts)


def _to_wire(change: CatalogChange, puts: list[object]) -> dict[object, object]:
    return {
        "version": change.version,
        "puts": puts,
        "drops": list(change.drops),
        "is_whole": change.is_whole,
        "damaged": [part for one in change.damaged for part in (one.key, one.reason)],
    }


@final
class ChangeParts:
    """Puts together what `parts_to_wire` took apart."""

    def __init__(self) -> None:
        self._puts: dict[bytes, Document] = {}

    def add(self, value: object) -> CatalogChange | None:
        """The change that this part completes; it is the one that says the version."""
        if "version" not in fields_of(value):
            self._puts.update(_documents(fields_of(value)))
            return None
        last = change_from_wire(value)
        puts, self._puts = {**self._puts, **last.puts}, {}
        return replace(last, puts=puts)


def change_from_wire(value: object) -> CatalogChange:
    fields = fields_of(value)
    version, is_whole = fields.get("version"), fields.get("is_whole")
    if not isinstance(version, int) or not isinstance(is_whole, bool):
        raise MalformedData("a change of the catalog without its version")
    damaged = _pairs(fields.get("damaged"))
    return CatalogChange(
        version,
        _documents(fields),
        [_key(key) for key in _list(fields.get("drops"))],
        is_whole,
        tuple([DamagedRecord(_key(key), str(reason)) for key, reason in damaged]),
    )


def _documents(fields: Mapping[str, object]) -> dict[bytes, Document]:
    return {_key(key): _decoded(document) for key, document in _pairs(fields.get("puts"))}


def entry_to_wire(entry: Entry) -> list[object]:
    return [records.entry_key(entry), _encoded(records.entry_document(entry))]


def entry_from_wire(value: object) -> Entry:
    pair = _list(value)
    if len(pair) != 2:
        raise MalformedData("no entry where one must be")
    kind, document = _key(pair[0])[:1], _decoded(pair[1])
    if kind == records.QUEUE:
        return records.queue_entry(document)
    return records.topic_entry(document) if kind == records.TOPIC else records.subscription_entry(document)


def fields_of(value: object) -> Mapping[str, object]:
    """A map with names; what is none is malformed."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise MalformedData("no fields where fields must be")
    return cast("dict[str, object]", value)


def _encoded(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _decoded(value: object) -> Document:
    document = json.loads(value) if isinstance(value, bytes) else None
    if not isinstance(document, dict):
        raise MalformedData("no document where one must be")
    return document


def _key(value: object) -> bytes:
    if not isinstance(value, bytes) or not value:
        raise MalformedData("no key where one must be")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise MalformedData("no list where one must be")
    return value


def _pairs(value: object) -> list[tuple[object, object]]:
    flat = _list(value)
    return list(zip(flat[::2], flat[1::2], strict=True)) if len(flat) % 2 == 0 else []
