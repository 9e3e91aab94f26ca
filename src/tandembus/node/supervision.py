"""When a process of the namespace counts as silent, and when one that ended is started again. Decides; acts on nothing.

A process that ends at once, again and again, must not take the machine's time from the others: it is started ever
later. One that has served for a while before it ended is started at once: a crash loop is about its beginning.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, final

LONGEST_DELAY_S: Final = 30.0
SHORTEST_BACK_OFF_S: Final = 0.25
"""After the second end in a row; doubled with each further one."""
HEALTHY_AFTER_S: Final = 3.0
"""A process that has served so long was no part of a crash loop."""
START_TIMEOUT_S: Final = 60.0
"""A process that has never said anything is still being loaded, or opens its stores, which may take long on a busy
machine."""
SUSPECT_WITHIN_S: Final = 60.0
"""A process that crashed twice within this time may be killed by what it reads."""
MOST_SLEEPS: Final = 2
"""So many in a row excuse the silence of others."""


class ProcessState(Enum):
    """What is known of one process from outside."""

    STARTING = "starting"
    READY = "ready"
    ENDING = "ending"
    DOWN = "down"
    STOPPED = "stopped"


@final
class ProcessLives:
    """The lives of one process of the namespace, one after another."""

    def __init__(self, restart_delay_s: float, heartbeat_timeout_s: float) -> None:
        self._restart_delay_s = restart_delay_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self.state = ProcessState.DOWN
        self.pid: int | None = None
        self.start_count = 0
        self.state_since = 0.0
        """On the monotonic clock."""
        self._heard_at: float | None = None
        self._ordered_at: float | None = None
        """When it was given its orders, loaded as it was, while it has not read them."""
        self._sleeps = 0
        """Of the supervisor's, since it was heard."""
        self._ready_since: float | None = None
        self.short_lives = 0
        """How many in a row ended before they were of use."""
        self.is_suspect = False
        """Whether its last two lives crashed within a minute, for whoever starts the next one."""
        self._crashed_at: float | None = None

    @property
    def restart_count(self) -> int:
        return max(0, self.start_count - 1)

    def started(self, pid: int, now: float, is_loaded: bool = False) -> None:
        """`is_loaded`: all that it has to do is to read its orders, which takes no time."""
        self.pid = pid
        self.start_count += 1
        self._heard_at = None
        self._ordered_at = now if is_loaded else None
        self._sleeps = 0
        self._ready_since = None
        self.is_suspect = False
        self._turn(ProcessState.STARTING, now)

    def has_orders(self) -> None:
        """It has read them. What it does then may take long and be silent again: it opens its stores."""
        self._ordered_at = None

    def heard(self, now: float) -> None:
        """It said something, whatever it was."""
        self._heard_at = now
        self._sleeps = 0

    def became_ready(self, now: float) -> None:
        self.heard(now)
        if self.state is ProcessState.STARTING:
            self._ready_since = now if self._ready_since is None else self._ready_since
            self._turn(ProcessState.READY, now)

    def resyncs(self, now: float) -> None:
        """It is not relied on until it is ready again."""
        if self.state is ProcessState.READY:
            self._turn(ProcessState.STARTING, now)

    def silent_until(self) -> float:
        """When it has to be given up unless it is heard before."""
        since = self._heard_at if self._heard_at is not None else self._ordered_at
        if since is None:
            return self.state_since + START_TIMEOUT_S
        return since + self._heartbeat_timeout_s

    def look_again_at(self, now: float) -> float:
        """What is allowed to be silent for long now may have to be heard soon by then."""
        return min(self.silent_until(), now + self._heartbeat_timeout_s)

    def we_slept(self, now: float) -> bool:
        """The supervisor itself did not run for a while: what was said meanwhile has yet to be read. Whether it may be
        waited for: a supervisor that always comes late must give up somebody at last, too."""
        self._sleeps += 1
        if self._sleeps > MOST_SLEEPS:
            return False
        if self._heard_at is not None:
            self._heard_at = now
        if self._ordered_at is not None:
            self._ordered_at = now
        return True

    def given_up(self, now: float) -> None:
        """It is being killed: it is nobody's owner any more once its exit is known, and not before."""
        self._turn(ProcessState.ENDING, now)

    def ended(self, now: float) -> float:
        """Its exit is known, or that it could not be started; returns when it is to be started again."""
        has_served = self._ready_since is not None and now - self._ready_since >= HEALTHY_AFTER_S
        self.short_lives = 0 if has_served else self.short_lives + 1
        self._ready_since = None
        self.pid = None
        self._turn(ProcessState.DOWN, now)
        return now + self._delay_s()

    def crashed(self, now: float) -> None:
        """It was ended by a signal that a process gets for what it does itself, such as following a damaged page."""
        self.is_suspect = self._crashed_at is not None and now - self._crashed_at <= SUSPECT_WITHIN_S
        self._crashed_at = now

    def stopped(self, now: float) -> None:
        """It ended because it was asked to, and is not started again."""
        self.pid = None
        self._turn(ProcessState.STOPPED, now)

    def _delay_s(self) -> float:
        if self.short_lives < 2:
            return self._restart_delay_s
        doubled = max(self._restart_delay_s, SHORTEST_BACK_OFF_S) * 2.0 ** min(self.short_lives - 2, 16)
        return max(self._restart_delay_s, min(doubled, LONGEST_DELAY_S))

    def _turn(self, state: ProcessState, now: float) -> None:
        self.state = state
        self.state_since = now
