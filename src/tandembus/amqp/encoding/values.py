"""AMQP values that Python's own types cannot say.

The natural mapping needs no class: None, bool, str (string), bytes (binary), int (long), float (double),
uuid.UUID, list and dict (map). Everything else travels as one of the classes here, so that what was read can be
written again with the same type.
"""

from __future__ import annotations

from typing import Final, final

NULL: Final = 0x40
BOOLEAN: Final = 0x56
UBYTE: Final = 0x50
USHORT: Final = 0x60
UINT: Final = 0x70
ULONG: Final = 0x80
BYTE: Final = 0x51
SHORT: Final = 0x61
INT: Final = 0x71
LONG: Final = 0x81
FLOAT: Final = 0x72
DOUBLE: Final = 0x82
DECIMAL32: Final = 0x74
DECIMAL64: Final = 0x84
DECIMAL128: Final = 0x94
CHAR: Final = 0x73
TIMESTAMP: Final = 0x83
UUID: Final = 0x98
BINARY: Final = 0xB0
STRING: Final = 0xB1
SYMBOL: Final = 0xB3
SHORT_SYMBOL: Final = 0xA3
LIST: Final = 0xD0
MAP: Final = 0xD1
ARRAY: Final = 0xF0


@final
class Typed:
    """A value with its AMQP type, which is named by its widest constructor (but symbol by 0xA3)."""

    __slots__ = ("code", "value")

    def __init__(self, code: int, value: object) -> None:
        self.code: Final = code
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Typed):
            return False
        return self.code == other.code and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.code, self.value))

    def __repr__(self) -> str:
        return f"Typed(0x{self.code:02X}, {self.value!r})"


@final
class Described:
    """A value with a descriptor: an int one is a ulong, a str one a symbol, any other is `Typed`."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: object, value: object) -> None:
        self.descriptor: Final = descriptor
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return False
        return self.descriptor == other.descriptor and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


@final
class Array:
    """Values of one type. `code` is the element type's widest constructor; the items are plain values."""

    __slots__ = ("code", "descriptor", "items")

    def __init__(self, code: int, items: list[object], descriptor: object = None) -> None:
        self.code: Final = code
        self.items: Final = items
        self.descriptor: Final = descriptor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return False
        return self.code == other.code and self.items == other.items and self.descriptor == other.descriptor

    def __hash__(self) -> int:
        return hash((self.code, len(self.items)))

    def __repr__(self) -> str:
        return f"Array(0x{self.code:02X}, {self.items!r})"


@final
class Encoded:
    """Bytes that already are one encoded value; written as they stand."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data: Final = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoded) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Encoded({self.data!r})"


def symbol(text: str) -> Typed:
    return Typed(SHORT_SYMBOL, text)


def ubyte(number: int) -> Typed:
    return Typed(UBYTE, number)


def ushort(number: int) -> Typed:
    return Typed(USHORT, number)


def uint(number: int) -> Typed:
    return Typed(UINT, number)


def ulong(number: int) -> Typed:
    return Typed(ULONG, number)


def byte_(number: int) -> Typed:
    return Typed(BYTE, number)


def short(number: int) -> Typed:
    return Typed(SHORT, number)


def int_(number: int) -> Typed:
    return Typed(INT, number)


def timestamp(milliseconds: int) -> Typed:
    return Typed(TIMESTAMP, milliseconds)


def float_(number: float) -> Typed:
    return Typed(FLOAT, number)


def char(character: str) -> Typed:
    return Typed(CHAR, character)


def symbols(texts: list[str]) -> Array:
    """An array of symbols, as capabilities and mechanisms are written."""
    return Array(SHORT_SYMBOL, list[object](texts))


def symbol_map(fields: dict[str, object]) -> dict[object, object]:
    """A map of the protocol's type `fields`: keys are symbols."""
    return {symbol(key): value for key, value in fields.items()}
