"""Rows on their way out: checked columns, encoded messages, grouped by what must stay in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tandembus.client.messages import as_new
from tandembus.clock import Clock
from tandembus.errors import InvalidArgument
from tandembus.spark.source.decoding import Rows, add_message
from tandembus.spark.source.encoding import encode_message, properties_of
from tandembus.spark.source.message_ids import IdMaker
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.schema import COLUMNS, PAYLOAD, WHERE_FROM

if TYPE_CHECKING:
    import pyarrow as pa

DESTINATION: Final = "destination"
BODY: Final = "body"
TEXTS: Final = ("session_id", "partition_key", "subject", "content_type", "correlation_id", "reply_to", "to")
"""In the order in which `encode_message` takes them."""
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("string",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "int": ("tinyint", "smallint", "int", "bigint"),
    "long": ("tinyint", "smallint", "int", "bigint"),
    "binary": ("binary", "string"),
    "map<string,string>": ("map<string,string>",),
}
_GIVEN_BY_THE_SERVICE: Final = b"x-opt-sequence-number"
Groups = dict[str, dict[str | None, list[bytes]]]
"""Destination -> session or partition key -> encoded messages, in the order of the rows."""


def check_columns(columns: Mapping[str, str], options: SourceOptions) -> None:
    """`columns`: name -> type, as Spark calls it. Raises InvalidArgument before anything is sent."""
    allowed = {**COLUMNS, PAYLOAD: "binary", DESTINATION: "string"}
    unknown = [name for name in columns if name not in allowed and name not in options.key_columns]
    if unknown:
        raise InvalidArgument(
            f"servicebus has no column {', '.join(map(repr, unknown))}: leave it out, or put it into properties; "
            f"there are: {', '.join(allowed)}"
        )
    for name, kind in columns.items():
        if name in allowed and not kind.startswith(_KINDS[allowed[name]]):
            raise InvalidArgument(f"the column {name!r} must be of type {allowed[name]}, not {kind}: cast it")
    if BODY not in columns and PAYLOAD not in columns:
        raise InvalidArgument("rows need a column 'body' (binary or string), or 'payload' with whole encoded messages")
    if DESTINATION not in columns and options.destination is None:
        raise InvalidArgument("where to? Give the option entity, or a column 'destination'")
    missing = [name for name in options.key_columns if name not in columns]
    if missing:
        raise InvalidArgument(f"the option keyColumns names {', '.join(missing)}, which the rows do not have")


class RowEncoder:
    """Turns the rows of one task into messages."""

    def __init__(self, options: SourceOptions, ids: IdMaker, clock: Clock) -> None:
        self._options: Final = options
        self._ids: Final = ids
        self._clock: Final = clock
        self._place = 0

    def groups_of(self, batch: pa.RecordBatch) -> Groups:
        rows = _Columns(batch)
        groups: Groups = {}
        for index in range(batch.num_rows):
            destination = rows.text(DESTINATION, index) or self._options.destination
            if destination is None:
                raise InvalidArgument(
                    f"row {self._place} has no destination: fill the column 'destination', or give the option entity"
                )
            key, payload = self._message(rows, index, destination)
            groups.setdefault(destination, {}).setdefault(key, []).append(payload)
            self._place += 1
        return groups

    def _message(self, rows: _Columns, index: int, destination: str) -> tuple[str | None, bytes]:
        payload = rows.value(PAYLOAD, index)
        if payload is not None:
            return _key_of(rows, index, payload), as_new(payload) if _GIVEN_BY_THE_SERVICE in payload else payload
        body = rows.value(BODY, index)
        if body is None:
            raise InvalidArgument(f"row {self._place} has no body: an empty message has an empty body, not null")
        content: bytes = body.encode() if isinstance(body, str) else body
        session_id, partition_key, *others = texts = tuple(rows.text(name, index) for name in TEXTS)
        pairs, types = rows.value("properties", index), rows.value("property_types", index)
        message_id = rows.text("message_id", index)
        if message_id is None:
            message_id = self._id(rows, index, destination, (*texts, pairs), content)
        return session_id or partition_key, encode_message(
            content,
            message_id,
            session_id,
            partition_key,
            tuple(others),
            self._ttl_ms(rows, index),
            properties_of(pairs, types),
        )

    def _id(self, rows: _Columns, index: int, destination: str, fields: tuple[object, ...], body: bytes) -> str:
        if self._options.key_columns:
            return self._ids.from_keys(destination, rows.values(self._options.key_columns, index))
        origin = rows.values(WHERE_FROM, index)
        if None not in origin:
            return self._ids.from_origin(destination, origin, body)
        return self._ids.from_place(destination, self._place, fields, body)

    def _ttl_ms(self, rows: _Columns, index: int) -> int | None:
        """A message that was read keeps the time to live that it had at first; any other lives until `expires_at`."""
        expires_at: datetime | None = rows.value("expires_at", index)
        if expires_at is None:
            return None
        enqueued: datetime | None = rows.value("enqueued_time", index)
        since = self._clock.now() if enqueued is None else enqueued.timestamp()
        return round((expires_at.timestamp() - since) * 1000)


class _Columns:
    """A batch as Python values, column by column; a column that is not there is null."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._values: Final[dict[str, list[Any]]] = {
            name: _in_utc(batch.column(place)).to_pylist() for place, name in enumerate(batch.schema.names)
        }

    def value(self, name: str, index: int) -> Any:
        values = self._values.get(name)
        return None if values is None else values[index]

    def values(self, names: Sequence[str], index: int) -> tuple[Any, ...]:
        return tuple(self.value(name, index) for name in names)

    def text(self, name: str, index: int) -> str | None:
        values = self._values.get(name)
        return None if values is None else values[index]


def _in_utc(column: pa.Array) -> pa.Array:
    """A time without a zone is one in UTC."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz="UTC"))
    return column


def _key_of(rows: _Columns, index: int, payload: bytes) -> str | None:
    """Session or partition key, from the columns where they are given, else from the message itself."""
    given = rows.text("session_id", index) or rows.text("partition_key", index)
    if given is not None:
        return given
    parsed = Rows()
    add_message(parsed, payload)
    return parsed.session_ids[0] or parsed.partition_keys[0]


def slices(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
