"""Messages of more than 1 MiB: how many bytes of them a process holds at a time.

Nobody is refused for want of room: who sends is not read, and what is to be delivered stays in the store, until
something is given back. One message in each direction always goes on, however large it is and whatever the other
direction holds, so receivers that do not read cannot keep senders waiting for ever, nor the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

LARGE_BYTES: Final = 1 << 20
"""Messages up to this size are bounded by the limits of connections, fragments and channels."""

SLOW_BYTES_PER_S: Final = 8 << 20
PATIENT_BYTES: Final = 16 << 20


def patience_s(size_bytes: i64) -> float:
    """How much longer than otherwise an answer is waited for, where so much is under way: what a slow disk needs."""
    return 0.0 if size_bytes <= PATIENT_BYTES else float(size_bytes) / float(SLOW_BYTES_PER_S)


def counted(size_bytes: i64) -> i64:
    """What a message counts where many small ones are bounded: the rest of a large one is bounded here."""
    return size_bytes if size_bytes < LARGE_BYTES else LARGE_BYTES


@final
class LargeMemory:
    __slots__ = ("_is_awake", "_waiting", "given_bytes", "max_bytes", "taken_bytes")

    def __init__(self, max_bytes: i64 = 256 << 20) -> None:
        self.max_bytes: i64 = max_bytes
        self.taken_bytes: i64 = 0
        """On their way into a store."""
        self.given_bytes: i64 = 0
        """On their way to receivers."""
        self._waiting: dict[object, Callable[[], None]] = {}
        self._is_awake: bool = False

    def can_take(self, size_bytes: i64) -> bool:
        """Whether there is room for a message that somebody sends."""
        return self.taken_bytes == 0 or self.taken_bytes + self.given_bytes + size_bytes <= self.max_bytes

    def can_give(self, size_bytes: i64) -> bool:
        """Whether there is room for a message that somebody is to receive."""
        return self.given_bytes == 0 or self.taken_bytes + self.given_bytes + size_bytes <= self.max_bytes

    def take(self, size_bytes: i64) -> None:
        self.taken_bytes += size_bytes

    def give(self, size_bytes: i64) -> None:
        self.given_bytes += size_bytes

    def end_taking(self, size_bytes: i64) -> None:
        self.taken_bytes -= size_bytes
        self._wake()

    def end_giving(self, size_bytes: i64) -> None:
        self.given_bytes -= size_bytes
        self._wake()

    def wait(self, who: object, again: Callable[[], None]) -> None:
        """Call `again` when something was given back; whoever finds no room then waits again, behind the others."""
        self._waiting[who] = again

    def leave(self, who: object) -> None:
        self._waiting.pop(who, None)

    def is_awaited(self) -> bool:
        return len(self._waiting) > 0

    def _wake(self) -> None:
        if self._waiting and not self._is_awake:
            self._is_awake = True
            asyncio.get_running_loop().call_soon(self._ask_again)

    def _ask_again(self) -> None:
        self._is_awake = False
        waiting = self._waiting
        self._waiting = {}
        for again in waiting.values():
            again()
