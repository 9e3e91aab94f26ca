"""What front ends refuse: counted, and logged once a minute for each kind and entity.

Some SDKs keep the reason to themselves, so people look for it here. Clients choose the names, and how often they are
refused: what is remembered, and what is logged in a minute, has a bound.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Final, final

from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityNotFound,
    MessageLockLost,
    MessageNotFound,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
    Unauthorized,
)

log = logging.getLogger("tandembus.refusals")

AMQP: Final = "amqp"
HTTP: Final = "http"
LOGGED_EVERY_S: Final = 60.0
MAX_REMEMBERED: Final = 100
"""Kinds of refusals, each of one entity, that are logged within `LOGGED_EVERY_S`."""
MAX_CHARACTERS: Final = 300
"""Of a name, and of a reason."""
_ORDINARY: Final = (
    EntityAlreadyExists,
    MessageLockLost,
    MessageNotFound,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
"""What clients that do nothing wrong are refused every day."""
_BACKLOG: Final = "/x-servicebus-transfer/"
"""A syphon learns which backlog queues there are by asking for one more than it knows."""
_COUNTED_FROM_0: Final = (Unauthorized, EntityNotFound)
"""Their counters are there before the first refusal, so that the first one shows as an increase."""
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def reason_of(kind: type[BusError]) -> str:
    """Its label among the metrics."""
    return _WORDS.sub("_", kind.__name__).lower()


@final
class Refusals:
    """Of one process, over all its connections."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Final = Counter({(one, reason_of(kind)): 0 for one in (AMQP, HTTP) for kind in _COUNTED_FROM_0})
        """By protocol and reason."""
        self._clock: Final = clock
        self._logged_at: Final[dict[tuple[str, str], float]] = {}
        """What was logged within the last minute, the oldest first."""

    def add(self, protocol: str, error: BusError, what: str, connection: dict[str, str], text: str = "") -> None:
        """`what` was refused, such as "a link to 'orders'". `text` is logged in the place of the error's own."""
        is_end_of_backlog = isinstance(error, EntityNotFound) and _BACKLOG in what
        if not isinstance(error, _ORDINARY) and not is_end_of_backlog:
            reason, why = reason_of(type(error)), str(error)[:MAX_CHARACTERS]
            what = what[:MAX_CHARACTERS]
            self.counts[protocol, reason] += 1
            # One policy's wrong key must not hide another's.
            if self._is_due((what, why if isinstance(error, Unauthorized) else reason)):
                log.warning("refused: %s: %s", what, text or why, extra=connection)
                if len(self._logged_at) == MAX_REMEMBERED:
                    log.warning("refused: so much within a minute that no more of it is logged for now")

    def _is_due(self, kind: tuple[str, str]) -> bool:
        now, logged_at = self._clock.monotonic(), self._logged_at
        while logged_at and now - logged_at[oldest := next(iter(logged_at))] >= LOGGED_EVERY_S:
            del logged_at[oldest]
        if kind in logged_at or len(logged_at) >= MAX_REMEMBERED:
            return False
        logged_at[kind] = now
        return True
