"""Where the catalog is durable: a small LMDB environment of its own, plain records under plain keys.

It knows nothing of queues. Every record carries its format version and a CRC over key and value, so that a
record that rotted, or stands under another's key, is reported and not believed.

    value      format version u8, CRC-32 u32 (of key, version, document), document (JSON, UTF-8)
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import lmdb

from tandembus.durability import make_folder, sync_folder
from tandembus.errors import StoreDamaged, StoreFull, StoreUnavailable
from tandembus.store.embedded.environment import disk_free_bytes
from tandembus.store.embedded.lmdb_file import DATA_FILE, check_length
from tandembus.store.embedded.lmdb_pages import check_catalog_pages
from tandembus.store.folder_lock import FolderLock

FORMAT_VERSION: Final = 3
LEAST_ROOM_BYTES: Final = 1 << 20
"""A commit that failed with less free on the volume failed for lack of room, whatever the error says."""
MAX_READERS: Final = 16
"""The process that owns it needs one; others may look at it, or copy it."""
_HEAD: Final = struct.Struct(">BI")

Document = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that is there and cannot be believed."""

    key: bytes
    reason: str


@final
class CatalogStore:
    """All records are read once, at open; after that it only commits. Belongs to one process."""

    def __init__(self, folder: Path, map_size_bytes: int) -> None:
        """Raises StoreUnavailable where another process holds it, StoreDamaged where it cannot be used."""
        self._folder = folder
        self._map_size_bytes = map_size_bytes
        try:
            make_folder(folder)
        except OSError as error:
            raise StoreUnavailable(f"the catalog's folder {folder} cannot be made: {error}") from error
        self.is_of_newer_format = False
        """Known once something of it was read: it is no damage, and not to be mended."""
        self._lock = FolderLock(folder)
        try:
            self._environment: lmdb.Environment | None = self._open()
        except BaseException:
            self._lock.release()
            raise

    def read_all(self) -> tuple[dict[bytes, Document], list[DamagedRecord]]:
        """Everything, and what of it is damaged. Raises StoreDamaged for a record of a newer format."""
        documents: dict[bytes, Document] = {}
        damaged: list[DamagedRecord] = []
        for key, value in self._records():
            document = self._decoded(key, value)
            if isinstance(document, DamagedRecord):
                damaged.append(document)
            else:
                documents[key] = document
        return documents, damaged

    def is_sound(self) -> bool:
        """Whether all records can be believed: much less work than reading them."""
        return not any(isinstance(self._checked(key, value), DamagedRecord) for key, value in self._records())

    def _records(self) -> list[tuple[bytes, bytes]]:
        try:
            with self._opened().begin() as txn:
                return [(bytes(key), bytes(value)) for key, value in txn.cursor()]
        except lmdb.Error as error:
            raise StoreDamaged(f"the catalog in {self._folder} cannot be read: {error}") from error

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Document]:
        """Those of these records that are there and sound. Raises StoreDamaged for a record of a newer format."""
        try:
            with self._opened().begin() as txn:
                records = [(key, bytes(value)) for key in keys if (value := txn.get(key)) is not None]
        except lmdb.Error as error:
            raise StoreDamaged(f"the catalog in {self._folder} cannot be read: {error}") from error
        decoded = [(key, self._decoded(key, value)) for key, value in records]
        return {key: document for key, document in decoded if not isinstance(document, DamagedRecord)}

    def commit(self, puts: Mapping[bytes, Document], drops: Iterable[bytes] = ()) -> None:
        """All of it becomes durable, or none.

        Raises StoreFull or StoreUnavailable; after either, what is durable is unknown until `reopen` and
        `read_all` have said so.
        """
        encoded = [(key, encode_record(key, document)) for key, document in puts.items()]
        try:
            with self._opened().begin(write=True) as txn:
                for key in drops:
                    txn.delete(key)
                for key, value in encoded:
                    txn.put(key, value)
        except lmdb.Error as error:
            is_full = isinstance(error, lmdb.MapFullError) or disk_free_bytes(self._folder) < LEAST_ROOM_BYTES
            kind = StoreFull if is_full else StoreUnavailable
            raise kind(f"the catalog could not be written: {error}") from error

    def reopen(self) -> None:
        """After a failed commit LMDB's own view may be dead: only a new one can be asked what is true."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None
        self._environment = self._open()

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
            self._environment = None
        self._lock.release()

    def _open(self) -> lmdb.Environment:
        check_length(self._folder / DATA_FILE)
        check_catalog_pages(self._folder / DATA_FILE)
        try:
            environment = lmdb.open(
                str(self._folder), map_size=self._map_size_bytes, mode=0o600, max_readers=MAX_READERS
            )
            environment.reader_check()
        except lmdb.Error as error:
            raise StoreDamaged(f"the catalog in {self._folder} cannot be opened: {error}") from error
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        return environment

    def _opened(self) -> lmdb.Environment:
        if self._environment is None:
            raise StoreUnavailable("the catalog is closed")
        return self._environment

    def _decoded(self, key: bytes, value: bytes) -> Document | DamagedRecord:
        checked = self._checked(key, value)
        return checked if isinstance(checked, DamagedRecord) else _document(key, checked)

    def _checked(self, key: bytes, value: bytes) -> bytes | DamagedRecord:
        """The document as it is written, once it is known to be what was written."""
        checked = check_record(key, value)
        if not isinstance(checked, DamagedRecord) and value[0] > FORMAT_VERSION:
            self.is_of_newer_format = True
            raise StoreDamaged(
                f"the catalog in {self._folder} has format {value[0]}, and this version knows formats up to "
                f"{FORMAT_VERSION}: use the newer version that wrote it. Nothing was changed"
            )
        return checked


def decode_record(key: bytes, value: bytes) -> Document | DamagedRecord:
    """For those who only look; one of a newer format cannot be judged, and counts as damaged."""
    checked = check_record(key, value)
    if isinstance(checked, DamagedRecord):
        return checked
    if value[0] > FORMAT_VERSION:
        return DamagedRecord(key, f"it has the newer format {value[0]}")
    return _document(key, checked)


def check_record(key: bytes, value: bytes) -> bytes | DamagedRecord:
    """The document as it is written, whatever its format, once it is known to be what was written."""
    if len(value) <= _HEAD.size:
        return DamagedRecord(key, "the record is cut short")
    _, crc = _HEAD.unpack_from(value)
    if zlib.crc32(value[_HEAD.size :], zlib.crc32(key + value[:1])) != crc:
        return DamagedRecord(key, "its checksum is wrong")
    return value[_HEAD.size :]


def _document(key: bytes, content: bytes) -> Document | DamagedRecord:
    document = json.loads(content)
    return document if isinstance(document, dict) else DamagedRecord(key, "it is no document")


def encode_record(key: bytes, document: Document, version: int = FORMAT_VERSION) -> bytes:
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    # The version is under the checksum, too: a flipped bit there must not look like a newer format.
    crc = zlib.crc32(body, zlib.crc32(key + bytes([version])))
    return _HEAD.pack(version, crc) + body
