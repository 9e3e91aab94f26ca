"""Decides, for one primary entity, where its senders should send. Time is asked of a clock; acting is left to others.

```
            send fails                interval passes without an answer
 HEALTHY ────────────────▶ FAILING ─────────────────────────────────────▶ FAILED_OVER
    ▲  ▲    the entity answers │                                               │
    │  └───────────────────────┘        a ping succeeds, or somebody says so   │
    └──────────────────────────────────────────────────────────────────────────┘
```
"""

from __future__ import annotations

from enum import Enum
from typing import final

from tandembus.clock import Clock


class EntityState(Enum):
    """How pairing sees an entity of the primary."""

    HEALTHY = "healthy"
    FAILING = "failing"
    """A send has failed, and the entity has not answered since: still sent to the primary, but not for long."""
    FAILED_OVER = "failed over"
    """Everything goes to the backlog until a ping succeeds."""


@final
class EntityHealth:
    """Only time without an answer counts (N5): one failure in a working minute moves nobody, and a refusal that proves
    that the entity answers is as good as a success. Once failed over, the outcome of an old send changes nothing; only
    a ping brings the senders back (N6), so they never flap.
    """

    def __init__(self, failover_interval_s: float, clock: Clock) -> None:
        self._failover_interval_s = failover_interval_s
        self._clock = clock
        self._failing_since: float | None = None
        self.state = EntityState.HEALTHY

    def entity_answered(self) -> bool:
        """Whether this ended a spell of failures, so that no timer is needed any more."""
        if self.state is not EntityState.FAILING:
            return False
        self._become_healthy()
        return True

    def send_failed(self) -> bool:
        """Whether this is the first failure of a spell: then the timer is to be started, once. Many sends that fail
        together are one spell."""
        if self.state is not EntityState.HEALTHY:
            return False
        self.state = EntityState.FAILING
        self._failing_since = self._clock.monotonic()
        return True

    def due_in_s(self) -> float | None:
        """When to call `interval_elapsed`: the timer engages failover, not the next send."""
        if self.state is not EntityState.FAILING or self._failing_since is None:
            return None
        return max(self._failing_since + self._failover_interval_s - self._clock.monotonic(), 0.0)

    def interval_elapsed(self) -> bool:
        """Whether failover engages now. A timer that comes too early, or too late to matter, engages nothing."""
        if self.due_in_s() != 0.0:
            return False
        self.state = EntityState.FAILED_OVER
        return True

    def failing_for_s(self) -> float:
        """How long ago the first failure of this spell was."""
        return 0.0 if self._failing_since is None else self._clock.monotonic() - self._failing_since

    def recovered(self) -> bool:
        """A ping was accepted, or somebody knows better. Whether that changed anything."""
        if self.state is EntityState.HEALTHY:
            return False
        self._become_healthy()
        return True

    def _become_healthy(self) -> None:
        self.state = EntityState.HEALTHY
        self._failing_since = None
