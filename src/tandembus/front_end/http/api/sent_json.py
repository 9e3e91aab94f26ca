"""A message that somebody sends as JSON: from the document to the encoded sections.

It has the form in which messages are shown, so that what was exported can be sent again. What is the broker's to say
(number, times, counts) is skipped then; any other key that is not known is a mistake and refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tandembus.amqp.encoding.codec import skip_value
from tandembus.amqp.encoding.descriptors import DATA, DELIVERY_ANNOTATIONS, FOOTER
from tandembus.amqp.encoding.sections import data_section
from tandembus.errors import InvalidArgument
from tandembus.front_end.http.api.typed_values import MAX_SHOWN, from_base64, read_values
from tandembus.front_end.http.broker_properties import BrokerProperties, checked_text, time_to_live_ms
from tandembus.front_end.http.rest_message import encode_head
from tandembus.front_end.http.values import parse_http_time

MAX_PROPERTIES: Final = 1_000
"""Of one message: far more than their bytes leave room for in earnest."""

_TEXTS: Final[Mapping[str, str]] = {
    "message_id": "message_id",
    "session_id": "session_id",
    "partition_key": "partition_key",
    "subject": "label",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "correlation_id": "correlation_id",
    "to": "to",
    "reply_to": "reply_to",
    "reply_to_session_id": "reply_to_session_id",
}
"""By the key: the field of `BrokerProperties`."""
_OTHERS: Final = ("body", "user_id", "time_to_live_s", "scheduled_for", "properties", "annotations")
_BROKERS_OWN: Final = (
    "sequence_number",
    "fragment",
    "state",
    "enqueued_at",
    "expires_at",
    "delivery_count",
    "priority",
    "dead_letter_reason",
    "dead_letter_description",
    "dead_letter_source",
    "size_bytes",
)
_KEYS: Final = frozenset((*_TEXTS, *_OTHERS, *_BROKERS_OWN))
_BODY_KEYS: Final = frozenset(("kind", "size_bytes", "text", "base64", "is_truncated", "encoded"))
_BODY_SECTIONS: Final = frozenset((*range(DATA, FOOTER + 1), DELIVERY_ANNOTATIONS))
_SAID_BY_FIELDS: Final = ("x-opt-partition-key", "x-opt-scheduled-enqueue-time")


def encode_document(document: Mapping[str, object], now_ms: int, original_body: bytes | None = None) -> bytes:
    """The encoded message. `original_body`: the body's sections for a document that has none. Raises InvalidArgument
    with the key that is wrong."""
    unknown = document.keys() - _KEYS
    if unknown:
        raise InvalidArgument(f"A message has no '{min(unknown)[:MAX_SHOWN]}'; known are {', '.join(sorted(_KEYS))}.")
    body = document.get("body")
    sections = original_body if body is None and original_body is not None else _body(body)
    properties = read_values(document.get("properties"), "properties", MAX_PROPERTIES)
    annotations = read_values(document.get("annotations"), "annotations", MAX_PROPERTIES)
    others = {name: value for name, value in annotations.items() if name not in _SAID_BY_FIELDS}
    return encode_head(_fields(document), properties, now_ms, others) + sections


def _fields(document: Mapping[str, object]) -> BrokerProperties:
    texts: dict[str, str | None] = {field: _text(document, key) for key, field in _TEXTS.items()}
    user_id = document.get("user_id")
    return BrokerProperties(
        **texts,
        time_to_live_ms=_time_to_live(document.get("time_to_live_s")),
        scheduled_at_ms=_scheduled_time(document.get("scheduled_for")),
        user_id=None if user_id is None else from_base64(user_id, "user_id"),
    )


def _text(document: Mapping[str, object], key: str) -> str | None:
    value = document.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{key} must be a text.")
    return checked_text(value, key)


def _time_to_live(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise InvalidArgument("time_to_live_s must be a number of seconds above 0, or null.")
    return time_to_live_ms(value)


def _scheduled_time(value: object) -> int | None:
    if value is None:
        return None
    at_ms = parse_http_time(value) if isinstance(value, str) else None
    if at_ms is None:
        raise InvalidArgument(f"scheduled_for: '{str(value)[:MAX_SHOWN]}' is no time such as 2044-11-06T08:49:37Z.")
    return at_ms


def _body(body: object) -> bytes:
    """Its sections. `encoded` says all there is to say; else a text, or bytes in base64, is sent as data."""
    if body is None:
        return data_section(b"")
    if not isinstance(body, dict) or not body.keys() <= _BODY_KEYS:
        raise InvalidArgument("body must be an object with text, base64 or encoded.")
    if body.get("encoded") is not None:
        return _checked_sections(from_base64(body["encoded"], "body: encoded"))
    _check_is_whole(body)
    text, base64 = body.get("text"), body.get("base64")
    if (text is None) == (base64 is None):
        raise InvalidArgument("body needs either text or base64.")
    if base64 is not None:
        return data_section(from_base64(base64, "body: base64"))
    if not isinstance(text, str):
        raise InvalidArgument("body: text must be a text.")
    return data_section(checked_text(text, "body: text").encode())


def _check_is_whole(body: Mapping[str, object]) -> None:
    if body.get("is_truncated"):
        raise InvalidArgument("The body was cut when it was shown; export has whole bodies.")
    if body.get("kind", "data") != "data":
        raise InvalidArgument(
            "A body that is no data is sent by its 'encoded'; without a 'kind', text is sent as data."
        )


def _checked_sections(data: bytes) -> bytes:
    """Whatever they hold, they are sections of a body, or what goes with it."""
    at, end = 0, len(data)
    while at < end:
        if end - at < 4 or data[at : at + 2] != b"\x00\x53" or data[at + 2] not in _BODY_SECTIONS:
            raise InvalidArgument("body: encoded must be the sections of a body.")
        at = int(skip_value(data, at + 3, end))
    return data
