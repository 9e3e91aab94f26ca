"""`python -m tandembus.node.child ROLE INDEX NAME`: a process that a supervisor starts, and nobody else.

The lifeline comes first of all; what takes long to import follows.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine
from typing import Any

from tandembus.node.lifeline import Lifeline

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s [{who}]: %(message)s"


def main() -> None:
    lifeline = Lifeline()
    role, index = sys.argv[1], sys.argv[2]
    sys.exit(_run(_live(lifeline, role, f"{role} {index}")))


async def _live(lifeline: Lifeline, role: str, who: str) -> int:
    lifeline.watch()
    from tandembus.node.orders import orders_from_document
    from tandembus.node.tuning import tune_process

    orders = orders_from_document(lifeline.orders)
    logging.basicConfig(level=orders.settings.log_level.upper(), format=LOG_FORMAT.format(who=who))
    if role == "broker":
        from tandembus.node.broker_process import BrokerProcess

        tune_process(orders.settings.limits.max_connections)
        return await BrokerProcess(orders).run()
    from tandembus.node.front_end_process import FrontEndProcess

    tune_process(orders.settings.limits.max_connections)
    return await FrontEndProcess(orders).run()


def _run(work: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    main()
