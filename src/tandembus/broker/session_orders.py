"""Two orders of a lane's sessions: who waits for one, first come first served, and which lock lapses next."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.session import SessionAccept, SessionLock

LEAST_OVER: Final = 64
"""Entries that are over, before it is worth the while to clear them away."""


@final
class AcceptQueue:
    """Who waits for the next available session. Those who gave up are passed over, and cleared away in time."""

    def __init__(self) -> None:
        self._accepts: deque[SessionAccept] = deque()
        self._given_up_count: i64 = 0

    def __len__(self) -> int:
        return len(self._accepts)

    def add(self, accept: SessionAccept) -> None:
        self._accepts.append(accept)

    def gave_up(self, accept: SessionAccept) -> None:
        if accept.is_over:
            return
        accept.is_over = True
        self._given_up_count += 1
        if self._given_up_count > i64(len(self._accepts)) // 2 + LEAST_OVER:
            self._accepts = deque([one for one in self._accepts if not one.is_over])
            self._given_up_count = 0

    def has_next(self) -> bool:
        while self._accepts:
            if not self._accepts[0].is_over:
                return True
            self._accepts.popleft()
            self._given_up_count = max(self._given_up_count - 1, i64(0))
        return False

    def take(self) -> SessionAccept:
        """The next one; its waiting is over."""
        accept = self._accepts.popleft()
        accept.is_over = True
        return accept


@final
class LapseOrder:
    """The live session locks by the time they lapse. Every delivery renews a lock, so a renewal leaves the entry where
    it is; the lock moves on to its new time when the entry comes up."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, SessionLock]] = []
        self._count: int = 0
        self._least_size: int = LEAST_OVER

    def add(self, lock: SessionLock) -> None:
        self._count += 1
        lock.listed_until = lock.locked_until
        heapq.heappush(self._entries, (lock.locked_until, self._count, lock))
        if len(self._entries) > self._least_size:
            self._entries = [entry for entry in self._entries if _is_current(entry)]
            heapq.heapify(self._entries)
            self._least_size = 2 * len(self._entries) + LEAST_OVER

    def take_lapsed(self, now: float) -> list[SessionLock]:
        found: list[SessionLock] = []
        while self._entries and (self._entries[0][0] <= now or not _is_current(self._entries[0])):
            entry = heapq.heappop(self._entries)
            if not _is_current(entry):
                continue
            if entry[2].is_live(now):
                self.add(entry[2])
            else:
                found.append(entry[2])
        return found

    def next_lapse(self) -> float:
        """When the earliest entry comes up; 0 where there is none."""
        return self._entries[0][0] if self._entries else 0.0

    def locks(self) -> list[SessionLock]:
        return [entry[2] for entry in self._entries if _is_current(entry)]


def _is_current(entry: tuple[float, int, SessionLock]) -> bool:
    return not entry[2].is_over and entry[2].listed_until == entry[0]
