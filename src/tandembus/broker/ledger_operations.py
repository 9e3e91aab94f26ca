"""What is asked of a lane's ledger, as plain data: carried out in a commit, and answered when that is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.errors import BusError

OPEN_OWNER: Final = 0
RESERVE: Final = 1
LOOK: Final = 2
"""What is reserved: answered after a commit as well, so that it tells nothing that a crash could undo."""
COMPLETE: Final = 3
RELEASE: Final = 4
GIVE_UP: Final = 5
"""The owner goes, if it has nothing reserved any more; else whoever uses it is refused, and `count` is what is left."""

OPERATOR: Final = -1
"""In the place of an epoch: whoever may release what an owner has left behind."""


@final
class LedgerOperation:
    __slots__ = (
        "count",
        "epoch",
        "error",
        "hashes",
        "is_closing",
        "is_fencing",
        "is_going_on",
        "is_open",
        "kind",
        "lane",
        "max_owners",
        "numbers",
        "overlaid",
        "owner",
        "passed",
        "ranges",
        "reply",
        "request",
        "sizes",
    )

    def __init__(self, kind: i64, lane: i64, owner: str, epoch: i64) -> None:
        self.kind: i64 = kind
        self.lane: i64 = lane
        self.owner: Final = owner
        self.epoch: i64 = epoch
        """Of OPEN_OWNER: the one wanted, or OPERATOR for a new one; then the one it has."""
        self.request: i64 = 0
        self.max_owners: i64 = 0
        self.is_going_on: bool = False
        """Of RESERVE: it adds to what the same call has begun."""
        self.is_closing: bool = False
        """Of RESERVE: the request is remembered even if it got nothing, and gets nothing more."""
        self.is_open: bool = False
        """Of RESERVE: whether the call may go on adding."""
        self.is_fencing: bool = False
        """Of RELEASE: nobody goes on under the epoch of before."""
        self.numbers: list[int] = []
        """Candidates, ascending: what happened to them meanwhile decides."""
        self.hashes: dict[int, bytes] = {}
        """Of the sessions they belong to, where messages are received session by session."""
        self.passed: list[bytes] = []
        """Of those sessions the ones that somebody has got meanwhile."""
        self.sizes: list[int] = []
        self.overlaid: dict[int, int] = {}
        """The delivery counts of those that have an overlay."""
        self.ranges: list[tuple[int, int]] = []
        self.count: i64 = 0
        self.error: BusError | None = None
        self.reply: Callable[[LedgerOperation, BusError | None], None] | None = None

    def answer(self, error: BusError | None) -> None:
        reply = self.reply
        if reply is not None:
            reply(self, error)
