"""Tasks that must live as long as the process: one that ends by itself is a fault nobody would notice otherwise. And
work that must come to its end, whoever waits for it; and waiting that ends when it must."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
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


async def within(work: Awaitable[T], seconds: float | None) -> T:
    """As `asyncio.wait_for`, and cancelled whenever it is cancelled. Before Python 3.12 that returns as if nothing had
    happened if the work ends in the same moment: a task that goes on for ever then goes on for ever."""
    future = asyncio.ensure_future(work)
    try:
        await asyncio.wait((future,), timeout=seconds)
    except asyncio.CancelledError:
        await _given_up(future)
        raise
    if not future.done():
        await _given_up(future)
        if future.cancelled():
            raise TimeoutError
    return future.result()


async def _given_up(future: asyncio.Future[T]) -> None:
    """Until it has ended. Whatever it ended with is no fault of anybody's."""
    future.cancel()
    await asyncio.wait((future,))
    if not future.cancelled():
        future.exception()


def carry_on(_error: BaseException) -> None:
    """For parts that are used alone: the log has said it."""
