"""Application properties as HTTP headers: strings in quotes, numbers, booleans and times bare.

A header's name and value come from strangers on both ways. On the way in every header that is not HTTP's own is a
property; on the way out only what cannot change the answer's meaning becomes a header, and the rest goes together, as
JSON, into one.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from tandembus.amqp.encoding.values import TIMESTAMP, Array, Described, Typed, int_, timestamp
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.broker_properties import checked_text
from tandembus.front_end.http.values import format_http_time, parse_http_time

USER_PROPERTIES: Final = "UserProperties"
"""Where the properties are that cannot be headers of their own."""
MAX_DEPTH: Final = 32
INT32: Final = 2**31
INT64: Final = 2**63

_OF_REQUESTS: Final = frozenset(
    (
        "accept",
        "authorization",
        "brokerproperties",
        "cache-control",
        "connection",
        "cookie",
        "date",
        "dnt",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "max-forwards",
        "origin",
        "pragma",
        "range",
        "referer",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "upgrade-insecure-requests",
        "user-agent",
        "via",
        "x-real-ip",
    )
)
_OF_ANSWERS: Final = frozenset(
    (
        "age",
        "allow",
        "alt-svc",
        "clear-site-data",
        "etag",
        "expires",
        "last-modified",
        "link",
        "location",
        "refresh",
        "retry-after",
        "server",
        "set-cookie",
        "strict-transport-security",
        "userproperties",
        "vary",
        "warning",
        "www-authenticate",
        "x-content-type-options",
        "x-frame-options",
    )
)
_BEGIN_OF_BOTH: Final = (
    "accept-",
    "access-control-",
    "content-",
    "cross-origin-",
    "if-",
    "proxy-",
    "sec-",
    "servicebusauthorization",
    "servicebussupplementary",
    "servicebusdlqsupplementary",
    "x-forwarded-",
    "x-ms-",
)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}", re.ASCII)
_INTEGER: Final = re.compile(r"-?(?:0|[1-9]\d{0,18})", re.ASCII)
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30}(?:[eE][+-]?\d{1,3})?|[eE][+-]?\d{1,3})", re.ASCII)


def is_property(name: str) -> bool:
    """Whether a header of a request is a property of the message, and none of HTTP's own."""
    folded = name.lower()
    return folded not in _OF_REQUESTS and not folded.startswith(_BEGIN_OF_BOTH)


def read_property_headers(headers: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Application properties with their AMQP types. A name that stands twice has no one value: refused."""
    properties: dict[str, object] = {}
    seen: set[str] = set()
    for name, value in headers:
        if not is_property(name):
            continue
        if name.lower() in seen:
            raise InvalidArgument(f"The header '{name[:64]}' stands twice; a property has one value.")
        seen.add(name.lower())
        properties[name] = read_value(value, name)
    return properties


def read_value(text: str, name: str) -> object:
    """What a header's value means; what is no other type is a string, with or without quotes."""
    text = checked_text(text.strip(), f"The header '{name[:64]}'")
    folded = text.lower()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _unquoted(text)
    if folded in ("true", "false"):
        return folded == "true"
    if folded == "null":
        return None
    if _INTEGER.fullmatch(text) and -INT64 <= int(text) < INT64:
        return integer(int(text))
    if _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    at_ms = parse_http_time(text)
    return timestamp(at_ms) if at_ms is not None else text


def _unquoted(text: str) -> str:
    """A JSON string, which is what we write; a sender that knows nothing of escapes gets what stands in its quotes."""
    try:
        value = json.loads(text)
    except ValueError:
        return text[1:-1]
    return checked_text(value, "A header") if isinstance(value, str) else text[1:-1]


def integer(number: int) -> object:
    """An int where it fits, as C# would take it; else a long."""
    return int_(number) if -INT32 <= number < INT32 else number


def properties_of_json(value: object) -> dict[str, object]:
    """The `UserProperties` of one message of a batch."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{USER_PROPERTIES} must be a JSON object.")
    return {checked_text(name, USER_PROPERTIES): _typed(name, one) for name, one in value.items()}


def _typed(name: str, value: object) -> object:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return checked_text(value, f"{USER_PROPERTIES}: '{name[:64]}'")
    if isinstance(value, int) and -INT64 <= value < INT64:
        return integer(value)
    raise InvalidArgument(f"{USER_PROPERTIES}: '{name[:64]}' must be a string, a number, true, false or null.")


def write_property_headers(properties: Mapping[object, object]) -> dict[str, str]:
    """One header each; those whose name cannot be a header, or would be one of HTTP's own, together in one."""
    headers: dict[str, str] = {}
    others: dict[str, object] = {}
    taken = set(_OF_ANSWERS)
    for key, value in properties.items():
        name = str(plain(key))
        if _NAME.fullmatch(name) and is_property(name) and name.lower() not in taken:
            taken.add(name.lower())
            headers[name] = write_value(value)
        else:
            others[name] = json_value(value)
    if others:
        headers[USER_PROPERTIES] = json.dumps(others, separators=(",", ":"))
    return headers


def write_value(value: object) -> str:
    """As `read_value` reads it; in ASCII, so that nothing in it can end the header."""
    if isinstance(value, Typed) and value.code == TIMESTAMP and isinstance(value.value, int):
        return format_http_time(value.value)
    return json.dumps(json_value(value))


def json_value(value: object, depth: int = 0) -> object:
    """Any AMQP value as JSON has it; what JSON has no word for as text."""
    value = plain(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Array):
        value = value.items
    if isinstance(value, list) and depth < MAX_DEPTH:
        return [json_value(item, depth + 1) for item in value]
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return {str(plain(key)): json_value(item, depth + 1) for key, item in value.items()}
    return str(value)


def plain(value: object) -> object:
    while isinstance(value, Typed | Described):
        value = value.value
    return value
