"""Where links of a queue lead: the queue, one of its sub-queues, or a node that answers questions about either."""

from __future__ import annotations

from enum import Enum
from typing import Final

MANAGEMENT_NODE: Final = "$management"
TOKEN_NODE: Final = "$cbs"


class SubQueue(Enum):
    """A queue inside a queue, holding what could not be delivered or forwarded."""

    DEAD_LETTER = "dead-letter"
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"


_SUFFIXES: Final = {
    SubQueue.DEAD_LETTER: "/$DeadLetterQueue",
    SubQueue.TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
}


def address_of(entity: str, sub_queue: SubQueue | None = None) -> str:
    return entity if sub_queue is None else entity + _SUFFIXES[sub_queue]
