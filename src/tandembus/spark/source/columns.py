"""Messages as Arrow batches: some hundreds to thousands of rows each, and never many bytes at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from tandembus.spark.source.decoding import NUMBER_BITS, UNREADABLE, Rows, add_message
from tandembus.spark.source.marks import sequence_number_of
from tandembus.spark.source.schema import arrow_schema

log = logging.getLogger("tandembus.spark")

BATCH_ROWS: Final = 2_000
BATCH_BYTES: Final = 8 * 1024 * 1024


def batches_of(
    entity: str,
    pages: Iterable[list[bytes]],
    payload: str = "none",
    max_bytes: int = BATCH_BYTES,
    state: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of encoded messages of one entity, in their order. Pages stay whole where they fit. `state`: the one that
    each row shows in place of the message's present state."""
    limit = min(BATCH_BYTES, max_bytes)
    chunk: list[bytes] = []
    size = 0
    for part, part_size in _parts(pages, limit):
        if chunk and (len(chunk) + len(part) > BATCH_ROWS or size + part_size > limit):
            yield batch_of(entity, chunk, payload, state)
            chunk, size = [], 0
        chunk += part
        size += part_size
    if chunk:
        yield batch_of(entity, chunk, payload, state)


def _parts(pages: Iterable[list[bytes]], limit: int) -> Iterator[tuple[list[bytes], int]]:
    """Pages with their sizes; of one that is larger than a batch, each message by itself."""
    for page in pages:
        size = sum(map(len, page))
        if len(page) <= BATCH_ROWS and size <= limit:
            yield page, size
        else:
            for message in page:
                yield [message], len(message)


def batch_of(entity: str, messages: list[bytes], payload: str = "none", state: str | None = None) -> pa.RecordBatch:
    schema = arrow_schema(payload)
    if payload == "only":
        numbers = [sequence_number_of(message) for message in messages]
        arrays = [*_where_from(entity, numbers), pa.array(messages, pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    rows = Rows()
    for message in messages:
        add_message(rows, message)
    if rows.unreadable:
        log.warning(
            "%s: %d messages cannot be read (%s), and are rows with the property %s and all bytes as the body",
            entity,
            len(rows.unreadable),
            ", ".join(sorted(set(rows.unreadable))),
            UNREADABLE,
        )
    arrays = _arrays(entity, rows, state)
    if payload == "also":
        arrays.append(pa.array(messages, pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _where_from(entity: str, numbers: list[int]) -> list[pa.Array]:
    return [
        pa.repeat(pa.scalar(entity, pa.string()), len(numbers)),
        pa.array([number >> NUMBER_BITS for number in numbers], pa.int32()),
        pa.array(numbers, pa.int64()),
    ]


def _arrays(entity: str, rows: Rows, state: str | None) -> list[pa.Array]:
    text, time = pa.string(), pa.timestamp("us", tz="UTC")
    ends, names = pa.array(rows.map_ends, pa.int32()), pa.array(rows.map_names, text)
    return [
        *_where_from(entity, rows.numbers),
        _texts(rows.message_ids),
        _texts(rows.session_ids),
        _texts(rows.partition_keys),
        _texts(rows.subjects),
        _texts(rows.content_types),
        _texts(rows.correlation_ids),
        _texts(rows.reply_tos),
        _texts(rows.tos),
        pa.array(rows.enqueued, pa.int64()).cast(time),
        pa.array(rows.expires, pa.int64()).cast(time),
        pa.array(rows.delivery_counts, pa.int32()),
        pa.array(rows.states, text) if state is None else pa.repeat(pa.scalar(state, text), len(rows.numbers)),
        _texts(rows.reasons),
        pa.MapArray.from_arrays(ends, names, pa.array(rows.map_values, text)),
        pa.MapArray.from_arrays(ends, names, pa.array(rows.map_types, text)),
        pa.array(rows.bodies, pa.binary()),
    ]


def _texts(values: list[str | None]) -> pa.Array:
    """Most messages have few of them: a column of nothing is made at once."""
    if values and values[0] is None and values.count(None) == len(values):
        return pa.nulls(len(values), pa.string())
    return pa.array(values, pa.string())
