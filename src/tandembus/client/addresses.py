"""Where links lead: an entity, one of its sub-queues, or a node that answers questions about either."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tandembus.descriptions import subscription_path

__all__ = [
    "MANAGEMENT_NODE",
    "TOKEN_NODE",
    "SubQueue",
    "address_of",
    "rule_path",
    "subscription_of",
    "subscription_path",
]

MANAGEMENT_NODE: Final = "$management"
TOKEN_NODE: Final = "$cbs"


class SubQueue(Enum):
    """A queue inside a queue or subscription, holding what could not be delivered or forwarded."""

    DEAD_LETTER = "dead-letter"
    TRANSFER_DEAD_LETTER = "transfer-dead-letter"


_SUFFIXES: Final = {
    SubQueue.DEAD_LETTER: "/$DeadLetterQueue",
    SubQueue.TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
}


_SUBSCRIPTIONS: Final = "/subscriptions/"


def address_of(entity: str, sub_queue: SubQueue | None = None) -> str:
    return entity if sub_queue is None else entity + _SUFFIXES[sub_queue]


def rule_path(topic: str, subscription: str, name: str) -> str:
    return f"{subscription_path(topic, subscription)}/Rules/{name}"


def subscription_of(path: str) -> tuple[str, str] | None:
    """Topic and name of the subscription that a path names; None if it names no subscription."""
    at = path.lower().rfind(_SUBSCRIPTIONS)
    topic, name = path[:at], path[at + len(_SUBSCRIPTIONS) :]
    return (topic, name) if at > 0 and name and "/" not in name else None
