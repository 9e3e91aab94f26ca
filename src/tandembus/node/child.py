"""`python -m tandembus.node.child ROLE LABEL NAME`: a process that a supervisor starts, and nobody else.

The lifeline comes first of all, unless everything is loaded already (`forking.py`). What the role needs is loaded
before the orders are read: a spare waits for them with everything loaded.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from tandembus import logs
from tandembus.node.lifeline import Lifeline
from tandembus.node.tuning import loading, tune_process

if TYPE_CHECKING:
    from tandembus.node.orders import Orders

BROKER: Final = "broker"

Live = Callable[[dict[str, object]], Awaitable[int]]
"""The life of a process with these orders; returns its exit code."""
Run = Callable[[Coroutine[Any, Any, int]], int]
Life = Callable[[Lifeline], int]
"""From the orders, which are waited for, to the exit code."""


def main() -> None:
    lifeline = Lifeline()
    life = load(sys.argv[1])
    sys.exit(life(lifeline))


def load(role: str) -> Life:
    """Everything that a process in this role needs."""
    with loading():
        live, run = _load(role), _load_loop()
    return lambda lifeline: run(_live(lifeline, live, lifeline.orders()))


async def _live(lifeline: Lifeline, live: Live, orders: dict[str, object]) -> int:
    lifeline.watch()
    return await live(orders)


def _load(role: str) -> Live:
    from tandembus.node.orders import orders_from_document

    process = _load_process(role)

    async def live(document: dict[str, object]) -> int:
        orders = orders_from_document(document)
        logs.set_up(orders.settings.log_level, orders.settings.log_format, f"{role}-{orders.index}")
        tune_process(orders.settings.limits.max_connections)
        return await process(orders)

    return live


def _load_process(role: str) -> Callable[[Orders], Awaitable[int]]:
    if role == BROKER:
        from tandembus.node.broker_process import BrokerProcess

        return lambda orders: BrokerProcess(orders).run()
    from tandembus.node.front_end_process import FrontEndProcess

    return lambda orders: FrontEndProcess(orders).run()


def _load_loop() -> Run:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


if __name__ == "__main__":
    main()
