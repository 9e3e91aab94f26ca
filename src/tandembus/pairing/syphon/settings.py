"""How a syphon works: its intervals and sizes, and how many messages it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONG_POLL_S: Final = 15 * 60.0
MIN_RETRY_INTERVAL_S: Final = 1.0
MAX_RETRY_INTERVAL_S: Final = 120.0
LONGEST_RETRY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class SyphonSettings:
    """Raises ValueError for a setting out of range."""

    retry_interval_s: float = 1.0
    """How long to wait before a destination that takes nothing is tried again. Doubles up to `LONGEST_RETRY_S`."""
    poll_s: float = LONG_POLL_S
    window: int = 500
    """The most messages of a backlog queue that are held at a time."""
    window_bytes: int = 8 * 1024 * 1024
    """The same in bytes, estimated from the messages that came last."""
    batch_size: int = 250
    batch_bytes: int = 240 * 1024
    quiet_s: float = 1.0
    """After messages came, an empty receive of this length shows that the queue is empty."""
    others_wait_s: float = 90.0
    """How long a syphon that runs once waits for messages that others hold: longer than a lock lasts."""
    max_dead_destinations: int = 1_000
    """Destinations that are probed at a time. Messages for any more are deferred and tried again now and then."""

    def __post_init__(self) -> None:
        if not MIN_RETRY_INTERVAL_S <= self.retry_interval_s <= MAX_RETRY_INTERVAL_S:
            raise ValueError(f"the syphon's retry interval must be 1 s to 2 min, and is {self.retry_interval_s:g} s")
        if self.window < 1 or self.batch_size < 1:
            raise ValueError("the syphon needs room for a message")

    def doubled(self, interval_s: float) -> float:
        """The next retry interval."""
        return min(2 * interval_s, max(self.retry_interval_s, LONGEST_RETRY_S))


class Window:
    """How many messages to ask for. Starts at 1 and doubles while messages come and go, up to what the bytes allow.

    So a destination that takes nothing is noticed with one message in hand, and none has to be received twice.
    """

    def __init__(self, settings: SyphonSettings) -> None:
        self._settings: Final = settings
        self.count = 1

    def reset(self) -> None:
        self.count = 1

    def received(self, largest_bytes: int, count: int) -> None:
        fitting = max(1, self._settings.window_bytes // max(1, largest_bytes))
        grown = self.count * 2 if count >= self.count else self.count
        self.count = min(grown, fitting, self._settings.window)
