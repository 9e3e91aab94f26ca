"""Which processes make up the namespace, and which fragment is where: asked for by people, tools and the dashboard."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tandembus.errors import InvalidArgument
from tandembus.front_end.http.values import parse_integer

TOPOLOGY_PATH: Final = "$topology"
MAX_ENTITIES: Final = 1_000
"""In one answer; more are asked for with `skip`."""


@dataclass(frozen=True, slots=True)
class TopologyQuery:
    entity: str | None = None
    """Only this one, by its path."""
    skip: int = 0
    top: int = MAX_ENTITIES


TopologySource = Callable[[TopologyQuery], Awaitable[Mapping[str, object]]]


def parse_topology_query(query: Mapping[str, str]) -> TopologyQuery:
    """Raises InvalidArgument."""
    skip = parse_integer(query.get("skip", "0"), "skip")
    top = parse_integer(query.get("top", str(MAX_ENTITIES)), "top")
    if skip < 0 or top < 0:
        raise InvalidArgument("skip and top must not be negative.")
    return TopologyQuery(query.get("entity"), skip, min(top, MAX_ENTITIES))


async def topology_answer(source: TopologySource, query: Mapping[str, str]) -> bytes:
    return json.dumps(await source(parse_topology_query(query)), separators=(",", ":")).encode()
