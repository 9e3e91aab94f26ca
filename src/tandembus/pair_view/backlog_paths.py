"""Backlog queues and the messages in them, as far as a namespace has to know them: whose they are, and where they were
sent to. The clients' own rules, which are stricter, stand in `tandembus.pairing.aliases`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tandembus.amqp.encoding.codec import skip_value
from tandembus.errors import MalformedData
from tandembus.message import Message
from tandembus.message_sections import compound_count, first_element, text

MAX_PATH_BYTES: Final = 1_040
"""Of the path that a message names: 260 characters of UTF-8. What is longer is none."""
_BACKLOG: Final = re.compile(r"(?P<primary>.+)/x-servicebus-transfer/(?:0|[1-9]\d{0,8})", re.IGNORECASE | re.ASCII)
_PATH: Final = b"x-ms-path"
_SECTION_HEAD: Final = 3


@lru_cache(maxsize=1024)
def primary_of(queue: str) -> str | None:
    """Whose backlog is in this queue; None if it is none. Asked for with every link."""
    match = _BACKLOG.fullmatch(queue)
    return None if match is None else match["primary"]


def destination_in(message: Message) -> str | None:
    """Where a message of a backlog queue belongs; None if it does not say so. Only these are ever looked into."""
    data, end = message.sections, int(message.application_end)
    at = int(message.properties_end) + _SECTION_HEAD
    if at >= end:
        return None
    try:
        position = first_element(data, at, end, 0xC1, 0xD1, "application-properties")
        for _ in range(compound_count(data, at, 0xC1) // 2):
            behind_key = skip_value(data, position, end)
            behind = skip_value(data, behind_key, end)
            if text(data, position, behind_key) == _PATH:
                return _path(text(data, behind_key, behind))
            position = behind
    except MalformedData:
        return None
    return None


def _path(written: bytes) -> str | None:
    if not 0 < len(written) <= MAX_PATH_BYTES:
        return None
    try:
        path = written.decode()
    except UnicodeDecodeError:
        return None
    return path.strip("/") or None
