"""Tasks that must live as long as the process: one that ends by itself is a fault nobody would notice otherwise. And
work that must come to its end, whoever waits for it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger("tandembus")

T = TypeVar("T")
P = ParamSpec("P")

WhenBroken = Callable[[BaseException], None]


def essential(work: Coroutine[object, object, None], name: str, when_broken: WhenBroken) -> asyncio.Task[None]:
    """Start `work`; if it ends by an exception, say so loudly and tell who can stop the process in order."""
    task = asyncio.create_task(work, name=name)

    def ended(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            log.critical("'%s' came to an end that it must not have", name, exc_info=error)
            when_broken(error)

    task.add_done_callback(ended)
    return task


def uninterrupted(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Once begun it is carried through when its caller goes away: memory must not miss what is durable, nor the next
    step the one before it."""

    @functools.wraps(work)
    async def carried_through(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.shield(asyncio.ensure_future(work(*args, **kwargs)))

    return carried_through


def carry_on(_error: BaseException) -> None:
    """For parts that are used alone: the log has said it."""
