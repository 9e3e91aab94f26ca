"""Sends rows as messages. `write` returns when the service has accepted all of them. A send cannot be undone, so
message ids are the same in every attempt: copies are duplicates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tandembus.client.groups import Group
from tandembus.client.messages import as_new, with_message_id
from tandembus.clock import Clock, SystemClock
from tandembus.errors import InvalidArgument, MalformedData
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.decoder import Rows, add_message
from tandembus.spark.source.encoder import encode_message, properties_of
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.schema import COLUMNS, PAYLOAD, WHERE_FROM

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

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
ID_PREFIX: Final = "spark-"
DIGEST_BYTES: Final = 16
REMEMBERED_BYTES: Final = 8
REMEMBERED: Final = 1_000_000
"""The number of recent rows among which equal rows of one message are counted, at about 90 bytes each. Equal rows
further apart would be taken for duplicates."""
SENT_TOGETHER: Final = 2_000
BATCH_MESSAGES: Final = 1_000
WINDOW: Final = 64
"""Transfers under way at once, each of a different session or key."""


@dataclass
class Sent(WriterCommitMessage):
    """How many messages one task sent to each destination."""

    counts: dict[str, int]


def check_append(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgument("messages cannot be overwritten: write with mode('append')")


def columns_of(schema: StructType) -> list[tuple[str, str]]:
    return [(each.name, each.dataType.simpleString()) for each in schema.fields]


def write_batches(options: SourceOptions, scope: str, batches: Iterator[pa.RecordBatch]) -> Sent:
    """Runs in the task. One part is sent while the next is encoded, and never two at once, so the order is kept."""
    counts: dict[str, int] = {}
    encoder = RowEncoder(options, IdMaker(scope), SystemClock())
    with LoopThread() as loop:
        link = Link(options)
        under_way: Future[None] | None = None
        try:
            for batch in batches:
                for part in slices(batch, SENT_TOGETHER):
                    groups = encoder.groups_of(part)
                    if under_way is not None:
                        under_way.result()
                    under_way = loop.begin(_send(link, groups, counts))
            if under_way is not None:
                under_way.result()
        finally:
            loop.call(link.drop())
    return Sent(counts)


async def _send(link: Link, groups: Groups, counts: dict[str, int]) -> None:
    """After a failure only messages that were not accepted yet are sent again."""
    for destination, by_key in groups.items():
        waiting = [Group(messages) for messages in by_key.values()]

        async def send(destination: str = destination, waiting: list[Group] = waiting) -> None:
            sender = await link.sender(destination)
            await sender.send_groups(waiting, BATCH_MESSAGES, WINDOW)

        await link.patiently(send)
        counts[destination] = counts.get(destination, 0) + sum([len(group) for group in waiting])


def scope_of_task() -> str:
    """Query, batch and partition: the same for every attempt of a task, and different for every other task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return ""
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    return f"{query or ''}/{batch or ''}/{context.partitionId()}"


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        check_columns(columns_of(schema), options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return write_batches(self._options, scope_of_task(), iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        check_columns(columns_of(schema), options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return write_batches(self._options, scope_of_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: all messages have been accepted."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A send cannot be undone; the next attempt sends the same message ids."""


# Rows on their way out.


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
    """A text may have a collation or a bounded length."""
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
        """The encoded message of the column `payload`, unchanged but for a message id if it has none."""
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
            # A queue that is deleted and created again, or one of another namespace, counts from 1 as well.
            known_by = (*origin, rows.column("enqueued_time")[index])
            return self._ids.from_origin(destination, known_by, fields, body)
        return self._ids.from_place(destination, self._place, fields, body)

    def _ttl_ms(self, rows: _Columns, index: int) -> int | None:
        """A message that was read keeps its original time to live; any other lives until `expires_at`."""
        expires_at: int | None = rows.column("expires_at")[index]
        if expires_at is None:
            return None
        enqueued: int | None = rows.column("enqueued_time")[index]
        return (expires_at - (round(self._clock.now() * 1_000_000) if enqueued is None else enqueued)) // 1000


class _Columns:
    """A batch as Python values, converted column by column when a column is first used. A missing column is null. Times
    are microseconds, and times without a zone are in UTC."""

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
    """The key that assigns a message to a fragment and keeps it in order."""
    return session_id if session_id is not None else partition_key


def slices(batch: pa.RecordBatch, size: int, limit_bytes: int = MAX_PART_BYTES) -> Iterator[pa.RecordBatch]:
    """Parts of at most `size` rows and `limit_bytes`; a single larger row is a part of its own."""
    for start in range(0, batch.num_rows, size):
        yield from _halves(batch.slice(start, size), limit_bytes)


def _halves(part: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    if part.num_rows < 2 or part.nbytes <= limit_bytes:
        yield part
        return
    middle = part.num_rows // 2
    yield from _halves(part.slice(0, middle), limit_bytes)
    yield from _halves(part.slice(middle), limit_bytes)


class IdMaker:
    """Makes message ids for the rows of one task: the same row always gets the same id.

    A row that was read from an entity is identified by its place there and its content, wherever it is computed; a row
    with key columns by these; any other by its content and its place in the task, which Spark computes again in the
    same order.
    """

    def __init__(self, scope: str) -> None:
        """`scope` identifies the task: query, batch and partition."""
        self._scope: Final = scope.encode()
        self._turns: Final[dict[bytes, int]] = {}

    def from_origin(self, destination: str, origin: tuple[object, ...], fields: tuple[object, ...], body: bytes) -> str:
        """Equal rows of one message are numbered, whatever rows are between them."""
        name = repr((destination, origin, fields)).encode()
        known = hashlib.blake2b(name + body, digest_size=REMEMBERED_BYTES).digest()
        turn = self._turns.pop(known, -1) + 1
        self._turns[known] = turn
        if len(self._turns) > REMEMBERED:
            del self._turns[next(iter(self._turns))]
        return _id_of(b"origin", name, body, str(turn).encode())

    def from_keys(self, destination: str, keys: tuple[object, ...]) -> str:
        return _id_of(b"keys", repr((destination, *keys)).encode())

    def from_place(self, destination: str, place: int, fields: tuple[object, ...], body: bytes) -> str:
        return _id_of(b"place", self._scope, repr((destination, place, *fields)).encode(), body)


def _id_of(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return ID_PREFIX + digest.hexdigest()
