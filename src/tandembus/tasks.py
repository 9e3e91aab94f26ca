"""Tasks that must live as long as the process: one that ends by itself is a fault nobody would notice otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

log = logging.getLogger("tandembus")

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


def carry_on(_error: BaseException) -> None:
    """For parts that are used alone: the log has said it."""
