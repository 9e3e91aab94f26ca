"""Application properties as texts and back: every AMQP type has a name and a form, so that nothing is changed."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable
from typing import Final

from tandembus.amqp.encoding import values
from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.values import Typed
from tandembus.errors import BusError, InvalidArgument

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


def to_text(value: object) -> tuple[str | None, str]:
    """Text and name of the type, of a value as the codec's typed decoding gives it."""
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
    """A char may hold a surrogate, which no text can."""
    return isinstance(value, str) and len(value) == 1 and 0xD800 <= ord(value) <= 0xDFFF


def from_text(text: str | None, name: str | None) -> object:
    """The value that `to_text` made this of; without a type it is a string. Raises InvalidArgument,
    which does not repeat the text: that may be somebody's secret."""
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
