"""A queue of which no fragment can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tandembus.client.administration import Administration
from tandembus.client.faults import Faults


@contextmanager
def unreachable_queue(connection_string: str, name: str) -> Iterator[None]:
    """Made, put out of reach, and deleted at the end."""
    asyncio.run(_make(connection_string, name))
    yield
    asyncio.run(_remove(connection_string, name))


async def _make(connection_string: str, name: str) -> None:
    async with Administration(connection_string) as administration:
        await administration.create_queue(name)
        await Faults(administration.requests).put("out", f"entity/{name}", "unavailable")


async def _remove(connection_string: str, name: str) -> None:
    async with Administration(connection_string) as administration:
        await Faults(administration.requests).remove("out")
        await administration.delete_queue(name)
