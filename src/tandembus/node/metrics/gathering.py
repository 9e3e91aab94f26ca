"""What one process tells, and what all of them tell together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, final

from tandembus.errors import BusError, MalformedData
from tandembus.node.metrics import families
from tandembus.node.supervisor import Role
from tandembus.prometheus import Exposition, document

METRICS: Final = "metrics"
"""The call that asks a process, or the one that knows all of them, for what it tells."""
ANSWERS_WITHIN_S: Final = 2.0
"""A process that takes longer is left out: a scraper waits ten seconds at most."""
FRESH_S: Final = 1.0
"""Whoever asks more often gets the same again: asking costs nobody else anything."""

Teller = Callable[[Exposition], Awaitable[None] | None]


@final
class ProcessScrape:
    """All that one process tells of itself, by family."""

    def __init__(self, process: str, parts: Sequence[Teller]) -> None:
        self._process = process
        self._parts = parts

    async def blocks(self) -> dict[str, str]:
        out = Exposition({"process": self._process})
        out.add(families.PROCESS_UP, 1)
        for part in self._parts:
            told = part(out)
            if told is not None:
                await told
            await asyncio.sleep(0)
        return out.blocks()


@final
class Scrapes:
    """One at a time, whoever asks."""

    def __init__(self, gather: Callable[[], Awaitable[str]]) -> None:
        self._gather = gather
        self._task: asyncio.Task[str] | None = None
        self._began_at = 0.0

    async def text(self) -> str:
        loop = asyncio.get_running_loop()
        if self._task is None or (self._task.done() and loop.time() - self._began_at >= FRESH_S):
            self._began_at = loop.time()
            self._task = loop.create_task(self._tell())
        return await asyncio.shield(self._task)

    async def _tell(self) -> str:
        return await self._gather()


def process_label(role: Role, index: int) -> str:
    return f"{role.value}-{index}"


async def asked(process: str, ask: Callable[[], Awaitable[object]]) -> Mapping[str, str]:
    """What another process tells; that it does not, if so."""
    try:
        return blocks_from_wire(await ask())
    except BusError:
        return down(process)


def down(process: str) -> Mapping[str, str]:
    out = Exposition({"process": process})
    out.add(families.PROCESS_UP, 0)
    return out.blocks()


def restarts(process: str, count: int) -> Mapping[str, str]:
    """What only its supervisor knows."""
    out = Exposition({"process": process})
    out.add(families.PROCESS_RESTARTS, count)
    return out.blocks()


def blocks_from_wire(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise MalformedData("no metrics where metrics must be")
    return {str(name): text for name, text in value.items()}


def told_by(parts: Sequence[Mapping[str, str]]) -> str:
    return document(families.FAMILIES, parts)
