"""What a scrape reads from stores, which may be slow or hang: that is when somebody wants to know how the rest does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

PATIENCE_S: Final = 0.5

_T = TypeVar("_T")


async def patiently(work: Awaitable[_T]) -> _T | None:
    """None if it was not done in time. What it has noted until then stays, and the next scrape goes on from there."""
    try:
        return await asyncio.wait_for(work, PATIENCE_S)
    except TimeoutError:
        return None
