"""Application properties as headers, both ways."""

from __future__ import annotations

import json
import uuid

import pytest

from tandembus.amqp.encoding import codec
from tandembus.amqp.encoding.values import Array, Described, Typed, int_, symbol, timestamp
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.property_headers import (
    USER_PROPERTIES,
    properties_of_json,
    read_property_headers,
    read_value,
    write_property_headers,
    write_value,
)
from tests.covers import covers

MOMENT_MS = 2_362_034_977_000
MOMENT = "Sun, 06 Nov 2044 08:49:37 GMT"


@covers("B1")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"High"', "High"),
        ("High", "High"),
        ('"12"', "12"),
        ('"true"', "true"),
        ('""', ""),
        ('"', '"'),
        ("", ""),
        ('"a \\"b\\" c"', 'a "b" c'),
        ('"a "b" c"', 'a "b" c'),
        ('"C:\\path"', "C:\\path"),
        ('"\\u00e9"', "é"),
        ("12", int_(12)),
        ("-12", int_(-12)),
        ("2147483647", int_(2147483647)),
        ("2147483648", 2147483648),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", "9223372036854775808"),
        ("12345678901234567890123456789012345", "12345678901234567890123456789012345"),
        ("007", "007"),
        ("1.5", 1.5),
        ("-1e3", -1000.0),
        ("1e999", "1e999"),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("\u0661", "\u0661"),
        ("true", True),
        ("False", False),
        ("null", None),
        (MOMENT, timestamp(MOMENT_MS)),
        (f'"{MOMENT}"', MOMENT),
        ("2044-11-06T08:49:37Z", timestamp(MOMENT_MS)),
        ("2044-11-06T09:49:37.0+01:00", timestamp(MOMENT_MS)),
        ("Sun, 31 Feb 2044 08:49:37 GMT", "Sun, 31 Feb 2044 08:49:37 GMT"),
        ("06", "06"),
    ],
)
def test_a_header_s_value_has_the_type_that_it_is_written_in(text: str, value: object) -> None:
    read = read_value(text, "Property")
    assert read == value
    assert type(read) is type(value)
    codec.encode(read)


def test_headers_of_http_itself_are_no_properties() -> None:
    own = (
        "Host Authorization BrokerProperties Content-Type Content-Length Content-Encoding Transfer-Encoding Connection "
        "Accept Accept-Encoding User-Agent Expect Cookie Origin Referer Keep-Alive TE Trailer Upgrade Via Forwarded "
        "X-Forwarded-For X-Real-IP Proxy-Authorization If-Match Date Sec-Fetch-Mode x-ms-client-request-id "
        "ServiceBusSupplementaryAuthorization ServiceBusDlqSupplementaryAuthorization"
    )
    headers = [(name, "x") for name in own.split()]
    assert read_property_headers([*headers, ("Priority", "High")]) == {"Priority": "High"}


def test_a_header_that_stands_twice_has_no_one_value() -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        read_property_headers([("Customer", "1"), ("CUSTOMER", "2")])


@pytest.mark.parametrize("value", ["a\udc80b", '"\\ud800"'])
def test_half_characters_are_refused(value: str) -> None:
    with pytest.raises(InvalidArgument):
        read_property_headers([("Customer", value)])


@pytest.mark.parametrize(
    "value",
    [
        "text",
        'with "quotes" and \\ and é \u0000\r\nX-Evil: 1',
        "12",
        MOMENT,
        int_(5),
        2**40,
        -1.25,
        True,
        False,
        None,
        timestamp(MOMENT_MS),
    ],
)
def test_what_is_written_is_read_again_as_the_same(value: object) -> None:
    text = write_value(value)
    assert text.isascii()
    assert text.isprintable()
    assert read_value(text, "Property") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (symbol("s"), '"s"'),
        (b"\x00\xff", '"AP8="'),
        (uuid.UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        (float("nan"), '"nan"'),
        (Described("com.microsoft:timespan", 5), "5"),
        (Typed(0x80, 2**64 - 1), str(2**64 - 1)),
        (timestamp(2**62), "Fri, 31 Dec 9999 23:59:59 GMT"),
        (timestamp(-(2**62)), "Mon, 01 Jan 0001 00:00:00 GMT"),
        (Array(0x71, [1, 2]), "[1, 2]"),
        ([1, {"a": b"x"}], '[1, {"a": "eA=="}]'),
    ],
)
def test_other_types_are_written_as_what_comes_closest(value: object, text: str) -> None:
    assert write_value(value) == text


@covers("M15")
def test_no_property_becomes_a_header_that_changes_the_answer() -> None:
    properties: dict[object, object] = {
        "Customer": "12",
        "Transfer-Encoding": "chunked",
        "content-length": 0,
        "Set-Cookie": "a=b",
        "Location": "elsewhere",
        "BrokerProperties": "{}",
        "UserProperties": "{}",
        "X: 1\r\nEvil": "1",
        "mit Leerzeichen": "é",
        "": "empty",
        "CUSTOMER": 13,
        "x" * 300: "long",
    }
    headers = write_property_headers(properties)
    assert set(headers) == {"Customer", USER_PROPERTIES}
    assert headers["Customer"] == '"12"'
    assert set(json.loads(headers[USER_PROPERTIES])) == {str(name) for name in properties} - {"Customer"}
    assert all(value.isascii() and value.isprintable() for value in headers.values())


def test_the_properties_of_a_batched_message_keep_their_json_types() -> None:
    properties = {"a": "x", "b": 1, "c": 2**40, "d": 1.5, "e": True, "f": None}
    assert properties_of_json(properties) == {"a": "x", "b": int_(1), "c": 2**40, "d": 1.5, "e": True, "f": None}
    assert properties_of_json(None) == {}


@pytest.mark.parametrize("value", [[], "x", 1, {"a": []}, {"a": {}}, {"a": 2**63}, {"a": "\ud800"}, {"\ud800": 1}])
def test_other_json_is_no_property(value: object) -> None:
    with pytest.raises(InvalidArgument):
        properties_of_json(value)
