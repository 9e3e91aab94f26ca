"""How much is in each fragment of an entity, as far as that can be told soon."""

from __future__ import annotations

import asyncio

from tandembus.errors import BusError
from tandembus.interconnect.requests import Counts
from tandembus.namespace.entity import Entity


async def fragment_counts(entity: Entity, within_s: float) -> list[Counts | None]:
    """In the order of their index; None for one that is out of reach, or does not answer in time."""
    asked = {
        index: asyncio.ensure_future(requests.counts())
        for index, (traffic, requests) in enumerate(entity.fragments)
        if not traffic.is_out()
    }
    try:
        if asked:
            await asyncio.wait(asked.values(), timeout=within_s)
        return [_answer(asked.get(index)) for index in range(len(entity.fragments))]
    finally:
        for task in asked.values():
            task.cancel()


def total_of(counts: list[Counts | None]) -> Counts | None:
    """What those have together that could be asked; None where none could."""
    known = [one for one in counts if one is not None]
    return sum(known, Counts(missing_fragments=len(counts) - len(known))) if known else None


def _answer(asked: asyncio.Future[Counts] | None) -> Counts | None:
    if asked is None or not asked.done():
        return None
    error = asked.exception()
    if error is None:
        return asked.result()
    if isinstance(error, BusError):
        return None
    raise error
