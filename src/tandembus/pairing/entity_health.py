"""Decides, for one entity of the primary, where its senders send. It reads a clock and leaves acting to others.

```
            send fails                interval passes without an answer
 HEALTHY ────────────────▶ FAILING ─────────────────────────────────────▶ FAILED_OVER
    ▲  ▲    the entity answers │                                               │
    │  └───────────────────────┘        a ping succeeds, or marked healthy     │
    └──────────────────────────────────────────────────────────────────────────┘
```
"""

from __future__ import annotations

from enum import Enum
from typing import final

from tandembus.clock import Clock


class EntityState(Enum):
    """How pairing judges an entity of the primary."""

    HEALTHY = "healthy"
    FAILING = "failing"
    """A send has failed, and the entity has not answered since. Sends still go to the primary."""
    FAILED_OVER = "failed over"
    """Everything goes to the backlog until a ping succeeds."""


@final
class EntityHealth:
    """Only time without an answer counts (N5): one failure in a working minute changes nothing, and a refusal that
    proves that the entity answers counts as a success. After a failover the outcome of an earlier send changes nothing;
    only a ping brings the senders back (N6), so they never flap.
    """

    def __init__(self, failover_interval_s: float, clock: Clock) -> None:
        self._failover_interval_s = failover_interval_s
        self._clock = clock
        self._failing_since: float | None = None
        self.state = EntityState.HEALTHY

    def entity_answered(self) -> bool:
        """Returns whether this ended a spell of failures: then the timer is cancelled."""
        if self.state is not EntityState.FAILING:
            return False
        self._become_healthy()
        return True

    def send_failed(self) -> bool:
        """Returns whether this is the first failure of a spell: then the timer starts. Many sends that fail together
        are one spell."""
        if self.state is not EntityState.HEALTHY:
            return False
        self.state = EntityState.FAILING
        self._failing_since = self._clock.monotonic()
        return True

    def due_in_s(self) -> float | None:
        """Seconds until `interval_elapsed` is due: the timer engages failover, not the next send."""
        if self.state is not EntityState.FAILING or self._failing_since is None:
            return None
        return max(self._failing_since + self._failover_interval_s - self._clock.monotonic(), 0.0)

    def interval_elapsed(self) -> bool:
        """Returns whether failover engages now. A timer that fires too early, or after a recovery, engages nothing."""
        if self.due_in_s() != 0.0:
            return False
        self.state = EntityState.FAILED_OVER
        return True

    def failing_for_s(self) -> float:
        """Seconds since the first failure of this spell."""
        return 0.0 if self._failing_since is None else self._clock.monotonic() - self._failing_since

    def recovered(self) -> bool:
        """A ping was accepted, or the application marked the entity healthy. Returns whether that changed anything."""
        if self.state is EntityState.HEALTHY:
            return False
        self._become_healthy()
        return True

    def _become_healthy(self) -> None:
        self.state = EntityState.HEALTHY
        self._failing_since = None
