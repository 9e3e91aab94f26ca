"""Application properties as texts and back."""

from __future__ import annotations

import math
import uuid

import pytest

from tandembus.amqp.encoding import values
from tandembus.amqp.encoding.codec import decode, encode
from tandembus.amqp.encoding.values import Array, Described, Typed
from tandembus.errors import InvalidArgument
from tandembus.spark.source.encoding import properties_of
from tandembus.spark.source.property_values import from_text, to_text
from tests.covers import covers

VALUES = [
    (None, None, "null"),
    ("", "", "string"),
    ("grün", "grün", "string"),
    (True, "true", "boolean"),
    (False, "false", "boolean"),
    (-(1 << 63), "-9223372036854775808", "long"),
    (0.1, "0.1", "double"),
    (math.inf, "inf", "double"),
    (-0.0, "-0.0", "double"),
    (values.float_(0.5), "0.5", "float"),
    (values.ubyte(255), "255", "ubyte"),
    (values.ushort(65535), "65535", "ushort"),
    (values.uint(4294967295), "4294967295", "uint"),
    (values.ulong((1 << 64) - 1), "18446744073709551615", "ulong"),
    (values.byte_(-128), "-128", "byte"),
    (values.short(-32768), "-32768", "short"),
    (values.int_(7), "7", "int"),
    (values.timestamp(-1), "-1", "timestamp"),
    (values.char("é"), "é", "char"),
    (values.symbol("amqp"), "amqp", "symbol"),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005", "uuid"),
    (b"\x00\xff", "AP8=", "binary"),
    (Typed(values.DECIMAL32, b"\x01\x02\x03\x04"), "01020304", "decimal32"),
    (Typed(values.DECIMAL64, bytes(8)), "0000000000000000", "decimal64"),
    (Typed(values.DECIMAL128, bytes(16)), "00" * 16, "decimal128"),
]


@covers("D1")
@pytest.mark.parametrize(("value", "text", "name"), VALUES, ids=[f"{one[2]} {one[1]}" for one in VALUES])
def test_every_type_comes_back_as_it_was(value: object, text: str | None, name: str) -> None:
    decoded, _ = decode(encode(value), 0, True)
    assert to_text(decoded) == (text, name)
    assert encode(from_text(text, name)) == encode(value)


def test_not_a_number_stays_what_it_is() -> None:
    text, name = to_text(math.nan)
    back = from_text(text, name)
    assert isinstance(back, float)
    assert math.isnan(back)


@pytest.mark.parametrize("value", [["a", 1], {"a": None}, Array(values.INT, [1, 2]), Described("x:y", "z")])
def test_values_that_have_no_text_of_their_own_travel_encoded(value: object) -> None:
    text, name = to_text(value)
    assert name == "amqp"
    assert encode(from_text(text, name)) == encode(value)


def test_a_property_without_a_type_is_a_string() -> None:
    assert from_text("7", None) == "7"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x", "int"),
        ("256", "ubyte"),
        ("yes", "boolean"),
        ("!", "binary"),
        ("ab", "char"),
        ("0102", "decimal32"),
        ("", "amqp"),
    ],
)
def test_a_text_that_is_no_value_of_its_type_is_refused(text: str, name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"no property value of type '{name}'"):
        from_text(text, name)


@covers("D1")
def test_an_error_names_the_property_and_not_its_text() -> None:
    with pytest.raises(InvalidArgument, match=r"'card' cannot be sent: its text is no .* type 'int'") as refusal:
        properties_of([("card", "4111-secret")], [("card", "int")])
    assert "4111" not in str(refusal.value)


def test_an_unknown_type_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidArgument, match="there are: null, string"):
        from_text("1", "integer")
