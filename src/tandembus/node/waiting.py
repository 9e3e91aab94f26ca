"""Waiting for what nobody tells: a condition is looked at again and again, for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LOOK_AGAIN_S: Final = 0.02


async def comes_true(condition: Callable[[], bool], within_s: float) -> bool:
    """Whether it does within this time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        if condition():
            return True
        left_s = deadline - loop.time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(LOOK_AGAIN_S, left_s))


async def first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
