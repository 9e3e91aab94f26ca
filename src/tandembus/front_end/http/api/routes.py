"""Which function answers a request below `/$api/`, and what its JSON looks like coming in and going out.

Paths of entities are parameters of the query, not parts of the route: they may hold anything. Sequence numbers are
texts, since a number of JavaScript has 53 bits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import web

from tandembus.errors import InvalidArgument
from tandembus.front_end.http.broker_properties import read_json
from tandembus.front_end.http.metrics import JSON_CONTENT_TYPE
from tandembus.front_end.http.request import HttpRefusal, check_encoding, read_body

PREFIX: Final = "$api/"
API_PATHS: Final = ("/$api/", "/%24api/")
"""How a path begins as it comes, in lower case: also one that cannot be decoded is refused in JSON."""
Document: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    name: str
    """What stands behind the prefix."""
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    is_about_itself: bool = False
    """Answered also while a fault says that the whole namespace is out: it could not be healed else."""


class Routes:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_name: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._by_name.setdefault(route.name, {})[route.method] = route

    def find(self, path: str, method: str) -> Route | None:
        """From a decoded path; None where a request is about something else."""
        if not is_api_path(path):
            return None
        methods = self._by_name.get(path[len(PREFIX) :].lower().rstrip("/"))
        if methods is None:
            raise HttpRefusal(404, "There is no such route below /$api/.")
        if method not in methods:
            allowed = ", ".join(sorted(methods))
            raise HttpRefusal(405, f"{method} is not possible here; {allowed} is.", {"Allow": allowed})
        return methods[method]

    def all(self) -> list[Route]:
        return [route for methods in self._by_name.values() for route in methods.values()]


def is_api_path(path: str) -> bool:
    return path[: len(PREFIX)].lower() == PREFIX


def told(document: Document, status: int = 200) -> web.Response:
    return _answer(_encoded(document), status)


async def told_beside(make: Callable[[], Document]) -> web.Response:
    """One that is large, or costs much to make: beside the loop, which has messages to carry meanwhile."""
    return _answer(await asyncio.to_thread(lambda: _encoded(make())), 200)


def _encoded(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _answer(body: bytes, status: int) -> web.Response:
    return web.Response(status=status, body=body, headers={"Content-Type": JSON_CONTENT_TYPE})


async def read_document(request: web.Request, max_bytes: int, too_large: str = "") -> dict[str, object]:
    """The JSON object of a request's body. Raises what is wrong with it before anything is kept of more than that.
    `too_large`: what to say then."""
    check_encoding(request)
    if request.content_type != "application/json":
        raise HttpRefusal(415, f"The content type must be application/json, not {request.content_type[:64]}.")
    body = await read_body(request, max_bytes)
    if body is None:
        size_bytes = request.content_length
        size = f"more than {max_bytes}" if size_bytes is None else str(size_bytes)
        raise HttpRefusal(413, f"{too_large} The body has {size} bytes.".lstrip())
    document = read_json(body, "The body")
    if not isinstance(document, dict):
        raise InvalidArgument("The body must be a JSON object.")
    return document


def asked(request: web.Request, name: str) -> str:
    """A parameter of the query that must be there."""
    value = request.query.get(name, "")
    if not value:
        raise InvalidArgument(f"The parameter '{name}' is missing.")
    return value
