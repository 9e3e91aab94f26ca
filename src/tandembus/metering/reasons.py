"""Why traffic is there, told by the entity it is with: the meter keeps what an outage costs apart from the rest.

Only the path is looked at, never who connects: clients of a pair are plain clients of whichever service they use.
"""

from __future__ import annotations

from typing import Final

from tandembus.metering.slot import FAILOVER, LONGPOLL, NORMAL, SYPHON

BACKLOG_SEGMENT: Final = "x-servicebus-transfer"


def reason_to_send(entity: str) -> str:
    """Senders of a backlog queue have failed over."""
    return FAILOVER if _is_backlog(entity) else NORMAL


def reason_to_receive(entity: str) -> str:
    """Receivers of a backlog queue bring its messages home."""
    return SYPHON if _is_backlog(entity) else NORMAL


def reason_to_wait(entity: str) -> str:
    """Of a receive that came to nothing. Those of a backlog queue are what a syphon costs while there is no outage."""
    return LONGPOLL if _is_backlog(entity) else NORMAL


def _is_backlog(entity: str) -> bool:
    return BACKLOG_SEGMENT in entity.lower().split("/")
