"""Random AMQP values of every type, as encoding takes them and typed decoding gives them back."""

from __future__ import annotations

from hypothesis import strategies as st

from tandembus.amqp.encoding import (
    Array,
    Described,
    byte_,
    char,
    float_,
    int_,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from tandembus.amqp.encoding.values import Typed

INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = [bound + step for bound in (0, 2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**63, 2**64) for step in (-1, 0, 1)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.just("ä" * 300)
ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40) | st.just("s" * 300)
BINARY = st.binary(max_size=40) | st.just(b"\xff" * 300)
FLOATS = st.floats(allow_nan=False, width=32)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1) | st.sampled_from([edge for edge in EDGES if 0 <= edge < 2**bits])


def signed(bits: int) -> st.SearchStrategy[int]:
    half = 2 ** (bits - 1)
    return st.integers(-half, half - 1) | st.sampled_from([edge for edge in EDGES if edge < half])


numbers = st.one_of(
    signed(64),
    unsigned(8).map(ubyte),
    unsigned(16).map(ushort),
    unsigned(32).map(uint),
    unsigned(64).map(ulong),
    signed(8).map(byte_),
    signed(16).map(short),
    signed(32).map(int_),
    signed(64).map(timestamp),
    st.floats(allow_nan=False),
    FLOATS.map(float_),
)
simple = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    TEXT,
    BINARY,
    ASCII.map(symbol),
    st.uuids(),
    st.characters().map(char),
    st.binary(min_size=4, max_size=4).map(lambda content: Typed(0x74, content)),
    st.binary(min_size=8, max_size=8).map(lambda content: Typed(0x84, content)),
    st.binary(min_size=16, max_size=16).map(lambda content: Typed(0x94, content)),
)
"""Booleans and numbers that are equal in Python would share a place in a map, so keys are of fewer kinds."""
keys = st.one_of(TEXT, ASCII.map(symbol), unsigned(64).map(ulong), st.uuids(), BINARY)


def arrays_of(code: int, items: st.SearchStrategy[object]) -> st.SearchStrategy[Array]:
    return st.lists(items, max_size=6).map(lambda values: Array(code, values))


arrays = st.one_of(
    arrays_of(0xB0, BINARY),
    arrays_of(0xB1, TEXT),
    arrays_of(0xA3, ASCII),
    arrays_of(0x50, unsigned(8)),
    arrays_of(0x60, unsigned(16)),
    arrays_of(0x70, unsigned(32)),
    arrays_of(0x80, unsigned(64)),
    arrays_of(0x51, signed(8)),
    arrays_of(0x61, signed(16)),
    arrays_of(0x71, signed(32)),
    arrays_of(0x81, signed(64)),
    arrays_of(0x83, signed(64)),
    arrays_of(0x82, st.floats(allow_nan=False)),
    arrays_of(0x72, FLOATS),
    arrays_of(0x98, st.uuids()),
    arrays_of(0x56, st.booleans()),
    arrays_of(0x40, st.none()),
    arrays_of(0xD0, st.lists(simple, max_size=3)),
    arrays_of(0xD1, st.dictionaries(keys, simple, max_size=3)),
    arrays_of(0xF0, arrays_of(0x70, unsigned(32))),
    st.builds(Array, st.just(0xB1), st.lists(TEXT, max_size=3), st.just("com.example:thing")),
)
descriptors = st.one_of(unsigned(64), ASCII, signed(64).map(lambda number: Typed(0x81, number)))


def _compounds(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(keys, inner, max_size=5),
        st.builds(Described, descriptors, inner),
    )


values: st.SearchStrategy[object] = st.recursive(simple | arrays, _compounds, max_leaves=20)
