"""Values survive the way to bytes and back with their types, and nobody's bytes do harm."""

from __future__ import annotations

import math
import time
import tracemalloc
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.amqp.encoding import (
    MAX_DEPTH,
    Array,
    Described,
    Encoded,
    Typed,
    decode,
    encode,
    float_,
    int_,
    skip,
    symbol,
    symbols,
    timestamp,
    ubyte,
    uint,
    ulong,
)
from tandembus.errors import InvalidArgument, MalformedData
from tests.covers import covers
from tests.unit.amqp.encoding.amqp_values import EDGES, values


@given(values)
def test_a_value_comes_back_with_its_types(value: object) -> None:
    encoded = encode(value)
    decoded, end = decode(encoded, 0, typed=True)
    assert decoded == value
    assert type(decoded) is type(value)
    assert end == len(encoded)


@given(values)
def test_skipping_ends_where_decoding_ends(value: object) -> None:
    encoded = b"\x40" + encode(value) + b"\x41\x41"
    assert skip(encoded, 1, len(encoded)) == decode(encoded, 1)[1] == len(encoded) - 2


@given(values, st.data())
def test_a_value_that_is_cut_short_is_refused(value: object, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(MalformedData):
        decode(encoded[:cut])
    with pytest.raises(MalformedData):
        skip(encoded[:cut], 0, cut)


@given(values)
def test_plain_and_typed_decoding_read_the_same_bytes(value: object) -> None:
    encoded = encode(value)
    assert decode(encoded)[1] == decode(encoded, 0, typed=True)[1]


@pytest.mark.parametrize("number", [edge for edge in EDGES if 0 <= edge < 2**64])
def test_an_unsigned_long_has_all_of_its_64_bits(number: int) -> None:
    assert decode(encode(ulong(number)))[0] == number


@pytest.mark.parametrize("number", [edge for edge in EDGES if edge < 2**63] + [-(2**63), -(2**31), -129, -128])
def test_a_long_keeps_its_sign_at_every_width(number: int) -> None:
    assert decode(encode(number))[0] == number


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, b"\x40"),
        (True, b"\x41"),
        (False, b"\x42"),
        (uint(0), b"\x43"),
        (ulong(0), b"\x44"),
        ([], b"\x45"),
        (uint(255), b"\x52\xff"),
        (uint(256), b"\x70\x00\x00\x01\x00"),
        (ulong(0x24), b"\x53\x24"),
        (ubyte(1), b"\x50\x01"),
        (int_(-1), b"\x54\xff"),
        (5, b"\x55\x05"),
        (2**62, b"\x81\x40" + bytes(7)),
        (timestamp(-1), b"\x83" + b"\xff" * 8),
        ("ä", b"\xa1\x02\xc3\xa4"),
        (b"ab", b"\xa0\x02ab"),
        (symbol("ab"), b"\xa3\x02ab"),
        ({"a": 1}, b"\xc1\x06\x02\xa1\x01a\x55\x01"),
        (Described(0x24, []), b"\x00\x53\x24\x45"),
        (symbols(["A", "BC"]), b"\xe0\x07\x02\xa3\x01A\x02BC"),
        (uuid.UUID(int=1), b"\x98" + bytes(15) + b"\x01"),
        (Encoded(b"\x41"), b"\x41"),
    ],
)
def test_values_have_their_shortest_encoding(value: object, encoded: bytes) -> None:
    assert encode(value) == encoded


def test_a_list_too_large_for_the_short_form_takes_the_long_one() -> None:
    encoded = encode([None] * 256)
    assert encoded[:1] == b"\xd0"
    assert decode(encoded)[0] == [None] * 256


def test_a_plain_array_is_a_list_and_a_described_one_a_list_of_described() -> None:
    assert decode(encode(symbols(["A", "B"])))[0] == ["A", "B"]
    assert decode(encode(Array(0x70, [1], "x")))[0] == [Described("x", 1)]


def test_not_a_number_survives() -> None:
    number, _ = decode(encode(math.nan))
    assert isinstance(number, float)
    assert math.isnan(number)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        uint(-1),
        uint(2**32),
        ulong(2**64),
        ubyte(256),
        Typed(0x51, 128),
        Typed(0x60, 65536),
        Typed(0x61, -32769),
        int_(2**31),
        timestamp(2**63),
        float_(1e39),
        Typed(0xA3, 5),
        Typed(0x73, "ab"),
        Typed(0x74, b"abc"),
        Typed(0x98, b"no uuid"),
        Typed(0x99, 1),
        "\ud800",
        Ellipsis,
        Array(0x70, ["text"]),
        Array(0xD0, [5]),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_its_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument):
        encode(value)


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\x00",
        b"\x00\x53",
        b"\x3f",
        b"\x46",
        b"\x57\x00",
        b"\x62\x00\x00",
        b"\x99" + bytes(16),
        b"\xa2\x00",
        b"\xc2\x01\x00",
        b"\xe1\x02\x00\x40",
        b"\x56\x02",
        b"\xa1\x02\xc3\x28",
        b"\xa3\x01\xff",
        b"\x73\x00\x11\x00\x00",
        b"\xc0\x00\x00",
        b"\xc0\x01\x01",
        b"\xc0\x02\x00\x40",
        b"\xc1\x03\x01\x40\x40",
        b"\xc1\x03\x02\x45\x40",
        b"\xe0\x01\x00",
        b"\xe0\x02\x01\x99",
        b"\xe0\x03\x01\x70\x00",
    ],
    ids=bytes.hex,
)
@covers("F12")
def test_malformed_data_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedData):
        decode(encoded)
    with pytest.raises(MalformedData):
        decode(encoded, 0, typed=True)


def nested(depth: int, opening: bytes, innermost: bytes, closing: bytes = b"") -> bytes:
    """Values within values in the four-byte form, `depth` times."""
    value = innermost
    for _ in range(depth):
        if opening == b"\x00":
            value = b"\x00\x53\x01" + value
        elif opening == b"\xf0":
            value = b"\xf0" + (len(value) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + value
        else:
            count = 2 if opening == b"\xd1" else 1
            content = b"\x40" + value if count == 2 else value
            value = opening + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content
    return value


@pytest.mark.parametrize("opening", [b"\xd0", b"\xd1", b"\x00"], ids=["list", "map", "described"])
@covers("F13")
def test_values_may_be_nested_64_deep_and_no_deeper(opening: bytes) -> None:
    value, _ = decode(nested(MAX_DEPTH, opening, b"\x40"))
    assert value is not None
    for depth in (MAX_DEPTH + 1, 1_000, 20_000):
        with pytest.raises(MalformedData):
            decode(nested(depth, opening, b"\x40"))


@covers("F13")
def test_arrays_of_arrays_have_the_same_depth_limit() -> None:
    for depth in (MAX_DEPTH + 1, 1_000):
        with pytest.raises(MalformedData):
            decode(nested(depth, b"\xf0", b"\x40"))


@covers("F13")
def test_descriptors_of_descriptors_have_the_same_depth_limit() -> None:
    with pytest.raises(MalformedData):
        decode(b"\x00" * 100_000)
    with pytest.raises(MalformedData):
        skip(b"\x00" * 100_000, 0, 100_000)


def test_what_we_write_is_nested_64_deep_at_most() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert decode(encode(value))[1] > 0
    with pytest.raises(InvalidArgument):
        encode([value])
    with pytest.raises(InvalidArgument):
        encode(Described(1, value))


SIZES = [0, 1, 3, 4, 5, 2**8, 2**16, 2**31 - 1, 2**31, 2**32 - 1]


@pytest.mark.parametrize("constructor", [0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0], ids=hex)
@covers("F13")
def test_sizes_and_counts_beyond_the_data_are_refused_before_anything_is_allocated(constructor: int) -> None:
    tracemalloc.start()
    try:
        for size in SIZES:
            for count in SIZES:
                bomb = bytes((constructor,)) + size.to_bytes(4, "big") + count.to_bytes(4, "big") + b"\x40" * 3
                _decode_or_refuse(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def _decode_or_refuse(data: bytes) -> None:
    try:
        decode(data, 0, typed=True)
    except MalformedData:
        pass


@covers("F13")
def test_an_array_of_four_billion_items_without_bytes_is_refused_at_once() -> None:
    began = time.perf_counter()
    for constructor in range(0x40, 0x46):
        bomb = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff" + bytes((constructor,))
        with pytest.raises(MalformedData):
            decode(bomb)
    assert time.perf_counter() - began < 0.5  # microseconds each, on a machine that may be busy


@covers("F13")
def test_many_arrays_of_items_without_bytes_share_one_allowance() -> None:
    array = b"\xf0\x00\x00\x00\x05\x00\x00\x00\xff\x45"
    content = array * 6_000
    bomb = b"\xd0" + (len(content) + 4).to_bytes(4, "big") + (6_000).to_bytes(4, "big") + content
    with pytest.raises(MalformedData):
        decode(bomb)
    assert decode(array)[0] == [[]] * 255
