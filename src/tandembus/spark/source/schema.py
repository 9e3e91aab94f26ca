"""The columns of a message, as Spark declares them and as Arrow carries them: both name the same, in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = {
    "entity": "string",
    "fragment": "int",
    "sequence_number": "long",
    "message_id": "string",
    "session_id": "string",
    "partition_key": "string",
    "subject": "string",
    "content_type": "string",
    "correlation_id": "string",
    "reply_to": "string",
    "to": "string",
    "enqueued_time": "timestamp",
    "expires_at": "timestamp",
    "delivery_count": "int",
    "state": "string",
    "dead_letter_reason": "string",
    "properties": "map<string,string>",
    "property_types": "map<string,string>",
    "body": "binary",
}
PAYLOAD: Final = "payload"
WHERE_FROM: Final = ("entity", "fragment", "sequence_number")
"""What names a message for good, also where only its payload is read."""


def columns_with(payload: str) -> dict[str, str]:
    """The columns that a reader gives, by the option `payload`: `none`, `also` or `only`."""
    if payload == "only":
        return {**{name: COLUMNS[name] for name in WHERE_FROM}, PAYLOAD: "binary"}
    return {**COLUMNS, PAYLOAD: "binary"} if payload == "also" else dict(COLUMNS)


def spark_schema(payload: str = "none") -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns_with(payload).items())


def arrow_schema(payload: str = "none") -> pa.Schema:
    """Exactly what Spark expects for `spark_schema`: it checks the first batch and trusts the others."""
    import pyarrow as pa

    texts = pa.map_(pa.string(), pa.string())
    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        "map<string,string>": texts,
    }
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns_with(payload).items()])
