"""Room for large messages, for whoever can wait for it in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tandembus.large_messages import LARGE_BYTES, LargeMemory


@asynccontextmanager
async def room_to_take(memory: LargeMemory, size_bytes: int) -> AsyncIterator[None]:
    """Room for a message that somebody sends, of up to so many bytes."""
    if size_bytes <= LARGE_BYTES:
        yield
        return
    while not memory.can_take(size_bytes):
        await _change(memory)
    memory.take(size_bytes)
    try:
        yield
    finally:
        memory.end_taking(size_bytes)


@asynccontextmanager
async def room_to_give(memory: LargeMemory, size_bytes: int) -> AsyncIterator[None]:
    """Room for a message that somebody receives, of up to so many bytes."""
    if size_bytes <= LARGE_BYTES:
        yield
        return
    while not memory.can_give(size_bytes):
        await _change(memory)
    memory.give(size_bytes)
    try:
        yield
    finally:
        memory.end_giving(size_bytes)


async def _change(memory: LargeMemory) -> None:
    """Returns when something was given back."""
    came = asyncio.Event()
    memory.wait(came, came.set)
    try:
        await came.wait()
    finally:
        memory.leave(came)
