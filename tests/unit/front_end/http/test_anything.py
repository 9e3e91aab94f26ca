"""Whatever strangers write into paths and headers is understood or refused, and never a fault of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.amqp.encoding import codec
from tandembus.errors import BusError
from tandembus.front_end.http.broker_properties import KEYS, read_broker_properties
from tandembus.front_end.http.message_paths import parse_message_path
from tandembus.front_end.http.policies import parse_policy_path, read_policy
from tandembus.front_end.http.property_headers import read_property_headers, write_property_headers
from tandembus.front_end.http.resource_paths import parse_resource_path
from tandembus.front_end.http.rest_message import encode_sent, present_received, read_batch
from tandembus.front_end.http.upkeep import parse_upkeep_path
from tandembus.message import Message, parse_message
from tandembus.message_encoding import encode_delivery
from tandembus.namespace.paths import decode_http_path
from tests.covers import covers

WORDS = """
    orders messages MESSAGES head $purge $resubmit $policies regenerate subscriptions rules $DeadLetterQueue $Transfer
    $management 1 99999999999999999999 00000000-0000-0000-0000-000000000007 %2F %00 %FF %25 .. . %2e%2e \u00e9
"""
SEGMENTS = st.sampled_from(WORDS.split())
PATHS = st.lists(SEGMENTS | st.text(max_size=8), max_size=8).map("/".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), inner),
    max_leaves=8,
)


T = TypeVar("T")


def taken(read: Callable[[], T]) -> T | None:
    """What was read, or None where it was refused in words that fit on a screen."""
    text = ""
    try:
        return read()
    except BusError as error:
        text = str(error)
    assert 5 < len(text) < 500
    return None


def _policy_path(path: str) -> object:
    return parse_policy_path(decode_http_path(path))


def _resource_path(path: str) -> object:
    return parse_resource_path(decode_http_path(path))


@covers("M15")
@pytest.mark.parametrize("parse", [parse_message_path, parse_upkeep_path, _policy_path, _resource_path])
@given(path=PATHS)
def test_any_path(parse: Callable[[str], object], path: str) -> None:
    taken(lambda: parse("/" + path))


def _message(properties: object, headers: dict[str, str], body: bytes) -> Message:
    broker = read_broker_properties(json.dumps(properties))
    return parse_message(encode_sent(body, broker, read_property_headers(headers.items()), 1_700_000_000_000))


@covers("B1")
@given(JSON, st.dictionaries(st.text("abcDEF-_", min_size=1), st.text()), st.binary(max_size=100))
def test_any_message_that_is_taken_comes_out_as_it_went_in(
    properties: object, headers: dict[str, str], body: bytes
) -> None:
    message = taken(lambda: _message(properties, headers, body))
    if message is None:
        return
    received = present_received(encode_delivery(message, 1, 0, 0), None, None)
    assert received.body == body
    assert all(name.isascii() and name.isprintable() for name in received.headers)
    assert all(value.isascii() and value.isprintable() for value in received.headers.values())
    told = json.loads(received.headers["BrokerProperties"])
    assert isinstance(properties, dict)
    for name in ("MessageId", "Label", "To", "ReplyTo", "CorrelationId", "SessionId", "ReplyToSessionId"):
        if isinstance(properties.get(name), str):
            assert told[name] == properties[name]


@covers("B1")
@given(JSON | st.lists(st.dictionaries(st.sampled_from(["Body", "BrokerProperties", "UserProperties"]), JSON)))
def test_any_batch(batch: object) -> None:
    payloads = taken(lambda: read_batch(json.dumps(batch).encode(), 100, 0))
    if payloads is not None:
        assert isinstance(batch, list)
        assert len(payloads) == len(batch)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_batch_or_one(body: bytes) -> None:
    taken(lambda: read_batch(body, 100, 0))


@covers("M15")
@given(JSON)
def test_any_policy(document: object) -> None:
    rule = taken(lambda: read_policy("worker", document))
    if rule is not None:
        assert isinstance(document, dict)
        assert rule.rights == frozenset(document["rights"])


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.binary()))
def test_any_properties_become_headers_that_cannot_break_out(properties: dict[str, object]) -> None:
    if taken(lambda: codec.encode(properties)) is None:
        return  # no message can have them
    sent: dict[object, object] = dict(list(properties.items()))
    headers = write_property_headers(sent)
    assert all(name.isascii() and name.isprintable() and ":" not in name for name in headers)
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    others = json.loads(headers.get("UserProperties", "{}"))
    assert len(headers) - ("UserProperties" in headers) + len(others) == len(properties)
