"""From a row to an encoded message: the innermost step of writing, and compiled where possible."""

from __future__ import annotations

from typing import Final

from tandembus.amqp.encoding.descriptors import HEADER
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.amqp.encoding.time_to_live import header_ttl, times_of
from tandembus.amqp.encoding.values import uint
from tandembus.errors import InvalidArgument
from tandembus.spark.source.property_values import from_text

PARTITION_KEY: Final = "x-opt-partition-key"
_DURABLE: Final = section(HEADER, [True])


def encode_message(
    body: bytes,
    message_id: str,
    session_id: str | None,
    partition_key: str | None,
    texts: tuple[str | None, ...],
    ttl_ms: int | None,
    now_s: float,
    properties: dict[str, object] | None,
) -> bytes:
    """`texts`: subject, content type, correlation id, reply to, to."""
    created_at, expires_at = times_of(ttl_ms, now_s)
    parts: list[bytes] = []
    if ttl_ms is None:
        parts.append(_DURABLE)
    else:
        parts.append(section(HEADER, [True, None, uint(max(1, header_ttl(ttl_ms)))]))
    if partition_key is not None:
        parts.append(message_annotations_section({PARTITION_KEY: partition_key}))
    parts.append(
        properties_section(
            message_id=message_id,
            to=texts[4],
            subject=texts[0],
            reply_to=texts[3],
            correlation_id=texts[2],
            content_type=texts[1],
            absolute_expiry_time=expires_at,
            creation_time=created_at,
            group_id=session_id,
        )
    )
    if properties:
        parts.append(application_properties_section(properties))
    parts.append(data_section(body))
    return b"".join(parts)


def properties_of(
    texts: list[tuple[str, str | None]] | None, types: list[tuple[str, str | None]] | None
) -> dict[str, object] | None:
    """Typed properties of a row's two maps. Raises InvalidArgument."""
    if not texts:
        return None
    names = dict(types) if types else {}
    properties: dict[str, object] = {}
    for name, text in texts:
        try:
            properties[name] = from_text(text, names.get(name))
        except InvalidArgument as error:
            raise InvalidArgument(f"the property {name!r} cannot be sent: {error}") from None
    return properties
