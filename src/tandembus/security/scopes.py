"""Which part of a namespace a claim covers, and whether a path lies in it.

A scope is a path in lower case, "" for the whole namespace. Everything behind an entity's path
(`$management`, `$DeadLetterQueue`, `Subscriptions/...`) lies below it, so whole segments are compared: 'a' covers
'a/$management' and never 'ab'. A scope also covers other entities below it ('a' covers the queue 'a/b'); an entity's
own policy does not (`is_part`).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

MAX_SCOPE_LENGTH: Final = 1024
"""Longer than any path with its suffixes; looking at more would only cost time, before anybody is known."""

_ANY_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_SCHEME: Final = re.compile(r"(sb|amqps?|https?|wss?)://", re.ASCII | re.IGNORECASE)
_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", re.ASCII)
_HOST_WITHOUT_SCHEME: Final = re.compile(
    r"([A-Za-z0-9._-]+:\d{1,5}|[A-Za-z0-9-]+\.servicebus\.windows\.net)", re.ASCII | re.IGNORECASE
)


def fold(path: str) -> str:
    """Letters made lower-case, ASCII only: Unicode has other letters that become an ASCII one (the Kelvin
    sign)."""
    return path.lower() if path.isascii() else path


def strip_host(address: str) -> str:
    """The path of an address or URI, without slashes around it. Scheme and host say nothing here: ignored."""
    scheme = _ANY_SCHEME.match(address)
    if scheme is None:
        return address.strip("/")
    return address[scheme.end() :].partition("/")[2].strip("/")


def path_of_uri(address: str) -> str:
    """The same, percent-decoded. Raises UnicodeError."""
    return unquote_to_bytes(strip_host(address)).decode("utf-8").strip("/")


def scope_of_uri(uri: str) -> str | None:
    """The scope that a token's resource URI (already form-decoded) names; None where it makes no sense.

    Doubt always narrows: a host that cannot be one must not leave an empty path behind, which would mean
    everything, and a URI without a scheme is a path unless it clearly begins with a host.
    """
    resource = uri.split("?", 1)[0].split("#", 1)[0]
    scheme = _SCHEME.match(resource)
    first, _, rest = resource[scheme.end() if scheme is not None else 0 :].partition("/")
    if scheme is not None:
        return _decoded(rest) if _HOST.fullmatch(first) else None
    if _HOST_WITHOUT_SCHEME.fullmatch(first):
        return _decoded(rest)
    return _decoded(resource) or None


def _decoded(path: str) -> str | None:
    try:
        decoded = fold(unquote_to_bytes(path).decode("utf-8").strip("/"))
    except UnicodeError:
        return None
    return decoded if len(decoded) <= MAX_SCOPE_LENGTH else None


def covers(scope: str, path: str) -> bool:
    """Whether `path` is the scope itself or lies below it. Dot segments mean nothing here and are never
    covered."""
    folded = fold(path.strip("/"))
    segments = folded.split("/")
    if "." in segments or ".." in segments:
        return False
    return not scope or folded == scope or folded.startswith(scope + "/")


def is_part(entity: str, path: str) -> bool:
    """Whether `path` is this entity (a path in lower case) or a part of it: what begins with '$', and a topic's
    subscriptions. The queue 'a/b' is no part of the queue 'a'."""
    folded = fold(path.strip("/"))
    if not folded.startswith(entity + "/"):
        return folded == entity
    first = folded[len(entity) + 1 :].partition("/")[0]
    return first.startswith("$") or first == "subscriptions"
