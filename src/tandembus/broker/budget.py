"""What all fragments of a broker share: how much may wait for a commit, and how many operations a second may come.

Passing a limit is throttling, and said so: the client waits and comes again. It is never the answer to an outage.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.clock import Clock
from tandembus.errors import ServerBusy
from tandembus.large_messages import LargeMemory, counted

_BUSY: Final = "The namespace is busy. Please wait 10 seconds and retry."
_TOO_MANY_IDS: Final = (
    "The namespace is busy: it remembers as many message ids for duplicate detection as it can. "
    "Please wait 10 seconds and retry."
)

NO_ROOM: Final = "The messaging store has no room left; receiving and settling go on."


@final
class Budget:
    __slots__ = (
        "_allowance",
        "_clock",
        "_refilled_at",
        "large",
        "max_recent_ids",
        "max_uncommitted_bytes",
        "operations_per_second",
        "recent_ids",
        "uncommitted_bytes",
    )

    def __init__(
        self,
        clock: Clock,
        max_uncommitted_bytes: i64 = 64 << 20,
        operations_per_second: float = 0.0,
        max_recent_ids: i64 = 2_000_000,
        large: LargeMemory | None = None,
    ) -> None:
        self._clock: Final = clock
        self.max_uncommitted_bytes: i64 = max_uncommitted_bytes
        self.uncommitted_bytes: i64 = 0
        """Of large messages only the first 1 MiB: `large` bounds the rest."""
        self.large: LargeMemory = large if large is not None else LargeMemory()
        self.operations_per_second: float = operations_per_second
        """0: no limit."""
        self._allowance: float = operations_per_second
        self._refilled_at: float = clock.monotonic()
        self.max_recent_ids: i64 = max_recent_ids
        self.recent_ids: i64 = 0
        """Message ids that all fragments together remember, to detect duplicates."""

    def check_ids(self, count: i64) -> None:
        """Raises ServerBusy when so many more message ids could not be remembered: none is ever forgotten early."""
        if self.recent_ids > 0 and self.recent_ids + count > self.max_recent_ids:
            raise ServerBusy(_TOO_MANY_IDS)

    def check(self, size_bytes: i64) -> None:
        """Raises ServerBusy when taking this on would pass a limit. A single large operation always fits."""
        if self.uncommitted_bytes > 0 and self.uncommitted_bytes + counted(size_bytes) > self.max_uncommitted_bytes:
            raise ServerBusy(_BUSY)
        if self.operations_per_second > 0.0:
            self._refill()
            if self._allowance < 1.0:
                raise ServerBusy(_BUSY)
            self._allowance -= 1.0

    def _refill(self) -> None:
        now = self._clock.monotonic()
        gained = (now - self._refilled_at) * self.operations_per_second
        self._refilled_at = now
        self._allowance = min(self._allowance + gained, self.operations_per_second)
