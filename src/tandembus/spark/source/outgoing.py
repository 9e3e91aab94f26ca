"""Rows on their way out: checked columns, encoded messages, grouped by what must stay in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tandembus.client.messages import as_new, with_message_id
from tandembus.clock import Clock
from tandembus.errors import InvalidArgument, MalformedData
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
MAX_MESSAGE_ID_LENGTH: Final = 128
MAX_PART_BYTES: Final = 8 * 1024 * 1024
Groups = dict[str, dict[str | None, list[bytes]]]
"""Destination -> session or partition key -> encoded messages, in the order of the rows."""


def check_columns(columns: Sequence[tuple[str, str]], options: SourceOptions) -> None:
    """`columns`: name and type, as Spark calls it. Raises InvalidArgument before anything is sent."""
    names = [name for name, _ in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(
            f"the rows have more than one column {', '.join(map(repr, twice))}: rename or drop one of them"
        )
    allowed = {**COLUMNS, PAYLOAD: "binary", DESTINATION: "string"}
    unknown = [name for name in names if name not in allowed and name not in options.key_columns]
    if unknown:
        raise InvalidArgument(
            f"servicebus has no column {', '.join(map(repr, unknown))}: leave it out, or put it into properties; "
            f"there are: {', '.join(allowed)}"
        )
    for name, kind in columns:
        if name in allowed and kind not in _KINDS[allowed[name]] and not _is_text(kind, _KINDS[allowed[name]]):
            wanted = f"{allowed[name]} or string" if allowed[name] == "binary" else allowed[name]
            raise InvalidArgument(f"the column {name!r} must be of type {wanted}, not {kind}: cast it")
    if BODY not in names and PAYLOAD not in names:
        raise InvalidArgument("rows need a column 'body' (binary or string), or 'payload' with whole encoded messages")
    if DESTINATION not in names and options.destination is None:
        raise InvalidArgument("where to? Give the option entity, or a column 'destination'")
    missing = [name for name in options.key_columns if name not in names]
    if missing:
        raise InvalidArgument(f"the option keyColumns names {', '.join(missing)}, which the rows do not have")


def _is_text(kind: str, kinds: tuple[str, ...]) -> bool:
    """A text with a collation, or of a bounded length, is one, too."""
    return "string" in kinds and kind.startswith(("string ", "char(", "varchar("))


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
        for index, named in enumerate(rows.column(DESTINATION)):
            destination = named or self._options.destination
            if destination is None:
                raise InvalidArgument(
                    f"row {self._place} has no destination: fill the column 'destination', or give the option entity"
                )
            key, payload = self._message(rows, index, destination)
            groups.setdefault(destination, {}).setdefault(key, []).append(payload)
            self._place += 1
        return groups

    def _message(self, rows: _Columns, index: int, destination: str) -> tuple[str | None, bytes]:
        payload = rows.column(PAYLOAD)[index]
        if payload is not None:
            return self._whole_message(rows, index, destination, payload)
        body = rows.column(BODY)[index]
        if body is None:
            raise InvalidArgument(f"row {self._place} has no body: an empty message has an empty body, not null")
        content: bytes = body.encode() if isinstance(body, str) else body
        texts = rows.texts[index]
        session_id, partition_key = texts[0], texts[1]
        pairs, types = rows.column("properties")[index], rows.column("property_types")[index]
        message_id = rows.column("message_id")[index]
        if not message_id:  # an empty one would make all such rows duplicates of the first
            message_id = self._id(rows, index, destination, (*texts, pairs), content)
        if len(message_id) > MAX_MESSAGE_ID_LENGTH:
            raise InvalidArgument(
                f"the message_id of row {self._place} has {len(message_id):,} characters, and {MAX_MESSAGE_ID_LENGTH} "
                "is the most that a service takes"
            )
        return key_of(session_id, partition_key), encode_message(
            content,
            message_id,
            session_id,
            partition_key,
            texts[2:],
            self._ttl_ms(rows, index),
            self._clock.now(),
            self._properties(pairs, types),
        )

    def _properties(
        self, texts: list[tuple[str, str | None]] | None, types: list[tuple[str, str | None]] | None
    ) -> dict[str, object] | None:
        try:
            return properties_of(texts, types)
        except InvalidArgument as error:
            raise InvalidArgument(f"row {self._place}: {error}") from None

    def _whole_message(self, rows: _Columns, index: int, destination: str, payload: bytes) -> tuple[str | None, bytes]:
        """As it is. Only what it needs to arrive once is added: the id, if it has none."""
        parsed = Rows()
        try:
            add_message(parsed, payload)
            message = as_new(payload) if _GIVEN_BY_THE_SERVICE in payload else payload
            if not parsed.message_ids[0]:
                given = rows.column("message_id")[index]
                message = with_message_id(message, given or self._id(rows, index, destination, (), message))
        except MalformedData as error:
            raise InvalidArgument(f"the payload of row {self._place} is no encoded message: {error}") from None
        return key_of(parsed.session_ids[0], parsed.partition_keys[0]), message

    def _id(self, rows: _Columns, index: int, destination: str, fields: tuple[object, ...], body: bytes) -> str:
        if self._options.key_columns:
            return self._ids.from_keys(destination, rows.values(self._options.key_columns, index))
        origin = rows.values(WHERE_FROM, index)
        if None not in origin:
            # A queue that is deleted and made anew, or one of another namespace, counts from 1 as well.
            known_by = (*origin, rows.column("enqueued_time")[index])
            return self._ids.from_origin(destination, known_by, fields, body)
        return self._ids.from_place(destination, self._place, fields, body)

    def _ttl_ms(self, rows: _Columns, index: int) -> int | None:
        """A message that was read keeps the time to live that it had at first; any other lives until `expires_at`."""
        expires_at: int | None = rows.column("expires_at")[index]
        if expires_at is None:
            return None
        enqueued: int | None = rows.column("enqueued_time")[index]
        return (expires_at - (round(self._clock.now() * 1_000_000) if enqueued is None else enqueued)) // 1000


class _Columns:
    """A batch as Python values, column by column as they are asked for; one that is not there is null. Times are
    microseconds, and those without a zone are in UTC."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch: Final = batch
        self._nulls: Final = [None] * batch.num_rows
        self._values: Final[dict[str, list[Any]]] = {}
        self.texts: Final = list(zip(*(self.column(name) for name in TEXTS), strict=True))

    def column(self, name: str) -> list[Any]:
        values = self._values.get(name)
        if values is None:
            values = self._values[name] = self._converted(name)
        return values

    def values(self, names: Sequence[str], index: int) -> tuple[Any, ...]:
        return tuple(self.column(name)[index] for name in names)

    def _converted(self, name: str) -> list[Any]:
        import pyarrow as pa

        place = self._batch.schema.get_field_index(name)
        if place < 0:
            return self._nulls
        column = self._batch.column(place)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        converted: list[Any] = column.to_pylist()
        return converted


def key_of(session_id: str | None, partition_key: str | None) -> str | None:
    """What pins a message to a fragment, and keeps it in order with others."""
    return session_id if session_id is not None else partition_key


def slices(batch: pa.RecordBatch, size: int, limit_bytes: int = MAX_PART_BYTES) -> Iterator[pa.RecordBatch]:
    """Parts of at most `size` rows and `limit_bytes`, but for a row that alone has more."""
    for start in range(0, batch.num_rows, size):
        yield from _halves(batch.slice(start, size), limit_bytes)


def _halves(part: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    if part.num_rows < 2 or part.nbytes <= limit_bytes:
        yield part
        return
    middle = part.num_rows // 2
    yield from _halves(part.slice(0, middle), limit_bytes)
    yield from _halves(part.slice(middle), limit_bytes)
