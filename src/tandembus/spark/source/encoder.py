"""Encodes rows as messages, the innermost step of writing, compiled where possible; and application properties as texts
and back: every AMQP type has a name and a form, so that nothing is changed."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable
from typing import Final

from tandembus.amqp.encoding import values
from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.descriptors import HEADER
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    message_annotations_section,
    properties_section,
    section,
)
from tandembus.amqp.encoding.time_to_live import header_ttl, times_of
from tandembus.amqp.encoding.values import Typed, uint
from tandembus.errors import BusError, InvalidArgument

PARTITION_KEY: Final = "x-opt-partition-key"
NAMES: Final = {
    values.UBYTE: "ubyte",
    values.USHORT: "ushort",
    values.UINT: "uint",
    values.ULONG: "ulong",
    values.BYTE: "byte",
    values.SHORT: "short",
    values.INT: "int",
    values.LONG: "long",
    values.FLOAT: "float",
    values.DOUBLE: "double",
    values.DECIMAL32: "decimal32",
    values.DECIMAL64: "decimal64",
    values.DECIMAL128: "decimal128",
    values.CHAR: "char",
    values.TIMESTAMP: "timestamp",
    values.SHORT_SYMBOL: "symbol",
    values.BOOLEAN: "boolean",
    values.UUID: "uuid",
    values.BINARY: "binary",
    values.STRING: "string",
}
CODES: Final = {name: code for code, name in NAMES.items()}
_INTEGERS: Final = frozenset(
    ("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "timestamp")  # a long is Python's own int
)
_DECIMAL_BYTES: Final = {"decimal32": 4, "decimal64": 8, "decimal128": 16}
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


def to_text(value: object) -> tuple[str | None, str]:
    """The text of a value as the codec's typed decoding returns it, and the name of its type."""
    if isinstance(value, str):
        return value, "string"
    if value is None:
        return None, "null"
    if isinstance(value, bool):
        return ("true" if value else "false"), "boolean"
    if isinstance(value, int):
        return str(value), "long"
    if isinstance(value, float):
        return repr(value), "double"
    if isinstance(value, uuid.UUID):
        return str(value), "uuid"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode(), "binary"
    if isinstance(value, Typed) and value.code in NAMES and not _is_half_a_character(value.value):
        name = NAMES[value.code]
        return (value.value.hex() if isinstance(value.value, bytes) else str(value.value)), name
    return base64.b64encode(encode(value)).decode(), "amqp"  # lists, maps, arrays and described values


def _is_half_a_character(value: object) -> bool:
    """A char may hold a surrogate, which a text cannot."""
    return isinstance(value, str) and len(value) == 1 and 0xD800 <= ord(value) <= 0xDFFF


def from_text(text: str | None, name: str | None) -> object:
    """The inverse of `to_text`; without a type it is a string. Raises InvalidArgument, which does not repeat the text:
    it may be a secret."""
    if name is None or name == "string":
        return text
    if text is None or name == "null":
        return None
    read = _READERS.get(name)
    if read is None:
        raise InvalidArgument(f"there is no property type {name!r}; there are: null, {', '.join(_READERS)}")
    try:
        value = read(text)
        encode(value)  # knows the range of each type
    except (BusError, ValueError, KeyError, OverflowError, binascii.Error):
        raise InvalidArgument(f"its text is no property value of type {name!r}") from None
    return value


def _boolean(text: str) -> object:
    return {"true": True, "false": False}[text.strip().lower()]


def _encoded(text: str) -> object:
    content = base64.b64decode(text, validate=True)
    value, end = decode(content, 0, True)
    if end != len(content):
        raise ValueError(text)
    return value


def _integer_of(name: str) -> Callable[[str], object]:
    return lambda text: Typed(CODES[name], int(text))


def _decimal_of(name: str) -> Callable[[str], object]:
    return lambda text: Typed(CODES[name], bytes.fromhex(text))


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "string": str,
    "boolean": _boolean,
    "long": int,
    "double": float,
    "float": lambda text: Typed(values.FLOAT, float(text)),
    "char": lambda text: Typed(values.CHAR, text),
    "symbol": lambda text: Typed(values.SHORT_SYMBOL, text),
    "uuid": uuid.UUID,
    "binary": lambda text: base64.b64decode(text, validate=True),
    "amqp": _encoded,
    **{name: _integer_of(name) for name in sorted(_INTEGERS)},
    **{name: _decimal_of(name) for name in _DECIMAL_BYTES},
}
