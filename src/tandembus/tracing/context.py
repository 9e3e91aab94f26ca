"""The trace that a message belongs to, as its properties say (W3C Trace Context)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tandembus.amqp.encoding.sections import decode_message
from tandembus.errors import BusError
from tandembus.message import Message, parse_message

TRACEPARENT: Final = "traceparent"
DIAGNOSTIC_ID: Final = "Diagnostic-Id"
"""What the SDKs called it before there was a standard."""
TRACESTATE: Final = "tracestate"
MAX_STATE_CHARACTERS: Final = 512
"""More need not be carried on, says the standard."""
_MARKS: Final = (TRACEPARENT.encode(), DIAGNOSTIC_ID.encode())
_IDS: Final = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf]"
_SAMPLED: Final = re.compile(rf"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(-.*)?", re.ASCII)
_MAX_KEY_CHARACTERS: Final = 65_536


def sampled_context(message: Message) -> Mapping[str, str] | None:
    """Its `traceparent` and `tracestate`; None where it has none, or its sender does not want it to be sampled."""
    section = message.application_properties or message.sections[message.properties_end : message.application_end]
    if not any(mark in section for mark in _MARKS):
        return None
    try:
        properties = decode_message(section).application_properties or {}
    except BusError:
        return None
    parent = properties.get(TRACEPARENT) or properties.get(DIAGNOSTIC_ID)
    if not isinstance(parent, str) or _SAMPLED.fullmatch(parent) is None:
        return None
    state = properties.get(TRACESTATE)
    if not isinstance(state, str) or len(state) > MAX_STATE_CHARACTERS:
        return {TRACEPARENT: parent}
    return {TRACEPARENT: parent, TRACESTATE: state}


def sampled_context_of_payload(payload: bytes) -> Mapping[str, str] | None:
    if not any(mark in payload for mark in _MARKS):
        return None
    try:
        return sampled_context(parse_message(payload, _MAX_KEY_CHARACTERS))
    except BusError:
        return None
