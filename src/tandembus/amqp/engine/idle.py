"""Who was last heard from, and when: heartbeats for the peer, and a limit to its silence."""

from __future__ import annotations

from typing import Final, final

SILENCE_GRACE: Final = 1.5
"""A peer counts as gone after this many of the idle time-outs it was told."""


@final
class IdleWatch:
    """Has no clock: what happened between two ticks is dated by the second one."""

    __slots__ = ("_last_heard", "_last_sent", "_started", "has_heard", "has_sent", "heartbeat_s")

    def __init__(self, now: float) -> None:
        self._started: Final = now
        self._last_heard: float = now
        self._last_sent: float = now
        self.has_heard: bool = False
        self.has_sent: bool = False
        self.heartbeat_s: float = 0.0
        """How often the peer must hear something; zero if it does not care."""

    def tick(self, now: float) -> None:
        if self.has_heard:
            self.has_heard = False
            self._last_heard = now
        if self.has_sent:
            self.has_sent = False
            self._last_sent = now

    def set_peer_timeout(self, milliseconds: int) -> None:
        """Half of what the peer waits, since a heartbeat needs its time too."""
        self.heartbeat_s = float(milliseconds) / 2000.0

    def heartbeat_is_due(self, now: float) -> bool:
        return self.heartbeat_s > 0.0 and now - self._last_sent >= self.heartbeat_s

    def is_silent(self, now: float, idle_timeout_ms: int) -> bool:
        patience_s = float(idle_timeout_ms) / 1000.0 * SILENCE_GRACE
        return idle_timeout_ms > 0 and now - self._last_heard > patience_s

    def is_late(self, now: float, open_timeout_s: float) -> bool:
        """Whether a connection that is still not open has had its time."""
        return now - self._started > open_timeout_s
