"""What a request's head says before any of it is carried out: method, sizes, kind of body, where it reached us."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from aiohttp import HttpVersion10, web

from tandembus.errors import InvalidArgument
from tandembus.front_end.error_texts import HOST
from tandembus.front_end.http.atom import Origin
from tandembus.front_end.http.connection import HttpConnection
from tandembus.large_messages import LARGE_BYTES
from tandembus.limits import Limits

XML_TYPES: Final = ("application/atom+xml", "application/xml", "text/xml")
NEWEST_VERSION: Final = "2024-05"

_SECONDS: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_API_VERSION: Final = re.compile(r"[0-9A-Za-z.-]{1,32}", re.ASCII)


class HttpRefusal(Exception):
    """What only HTTP can be refused for: method, size, type. The namespace has no word for those."""

    def __init__(self, code: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.code: Final = code
        self.headers: Final = headers or {}


def connection_of(request: web.Request) -> HttpConnection:
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    return connection


def check_is_there(request: web.Request) -> None:
    """Raises when the client has left: for long work that writes nothing for a while."""
    if connection_of(request).is_lost:
        raise ConnectionResetError("the client left while it waited")


def origin_of(request: web.Request, namespace_name: str) -> Origin:
    host = request.headers.get("Host", namespace_name)
    if HOST.fullmatch(host) is None:
        raise InvalidArgument("The Host header is not a host name or address, with or without a port.")
    version = request.query.get("api-version", NEWEST_VERSION)
    if _API_VERSION.fullmatch(version) is None:
        raise InvalidArgument("api-version must be a version such as 2021-05.")
    return Origin(request.scheme, host, version, namespace_name)


def allow(request: web.Request, *methods: str) -> None:
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise HttpRefusal(405, f"{request.method} is not possible here; {allowed} is.", {"Allow": allowed})


def is_update(request: web.Request) -> bool:
    """`If-Match: *` means that the client expects the entity to be there; there are no versions to match."""
    match = request.headers.get("If-Match")
    if match is None:
        return False
    if match.strip() != "*":
        raise InvalidArgument("If-Match can only be '*' here: entities have no versions.")
    return True


def check_head(request: web.Request, limits: Limits) -> None:
    if request.version < HttpVersion10:
        raise HttpRefusal(400, "The request is of an HTTP version before 1.0.")
    size_bytes = sum([len(name) + len(value) for name, value in request.raw_headers])
    if size_bytes > limits.max_http_header_bytes:
        raise HttpRefusal(431, f"The headers have {size_bytes} bytes; at most {limits.max_http_header_bytes} may be.")


def seconds_of(request: web.Request, name: str, default_s: float) -> float:
    """A duration of the query, in seconds."""
    text = request.query.get(name)
    if text is None:
        return default_s
    if _SECONDS.fullmatch(text) is None:
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a number of seconds.")
    return float(text)


async def read_xml_body(request: web.Request, limits: Limits) -> bytes:
    max_bytes = limits.max_management_body_bytes
    if request.content_length is not None and request.content_length > max_bytes:
        raise _too_large(request.content_length, max_bytes)
    check_encoding(request)
    if "Content-Type" in request.headers and request.content_type not in XML_TYPES:
        raise HttpRefusal(415, f"The content type must be {XML_TYPES[0]}, not {request.content_type[:64]}.")
    if (request.charset or "utf-8").lower() != "utf-8":
        raise HttpRefusal(415, "The body must be in UTF-8.")
    body = await read_body(request, max_bytes)
    if body is None:
        raise _too_large(max_bytes + 1, max_bytes)
    return body


def _too_large(size_bytes: int, max_bytes: int) -> HttpRefusal:
    return HttpRefusal(413, f"The body has {size_bytes} bytes or more; at most {max_bytes} are allowed.")


def check_encoding(request: web.Request) -> None:
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "A compressed body is not accepted.")


async def read_body(request: web.Request, max_bytes: int) -> bytes | None:
    """All of the body; None as soon as it is more than that, and nothing is kept of it."""
    if request.content_length is not None and request.content_length > max_bytes:
        return None
    try:
        patience_s = connection_of(request).timings.body_s + max_bytes // LARGE_BYTES
        return await asyncio.wait_for(_read(request, max_bytes), patience_s)
    except TimeoutError:
        raise HttpRefusal(408, "The body of the request did not come in time.") from None


async def _read(request: web.Request, max_bytes: int) -> bytes | None:
    parts: list[bytes] = []
    size_bytes = 0
    while part := await request.content.readany():
        size_bytes += len(part)
        if size_bytes > max_bytes:
            return None
        parts.append(part)
    return b"".join(parts)
