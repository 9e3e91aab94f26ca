"""The messages of one backlog queue for one destination that does not take them (N12)."""

from __future__ import annotations

from typing import Final

from tandembus.pairing.syphon_messages import Held
from tandembus.pairing.syphon_rules import Followers, Verdict

TRY_S: Final = 1.0
"""How soon one looks what became of a lead that is tried."""


class Sent:
    """How far a row of messages came."""

    __slots__ = ("accepted", "error", "refused", "rest", "verdict")

    def __init__(self) -> None:
        self.accepted: Final[list[Held]] = []
        self.refused: Final[list[tuple[Held, str, str]]] = []
        self.rest: list[Held] = []
        """Not taken now, the first of them for `error`; or not tried, for lack of time, if there is none."""
        self.error: Exception | None = None
        self.verdict = Verdict.LATER


class Lane:
    """Keeps the order behind a dead destination.

    The first message that was not taken, the lead, stays in our hands and is tried again; those behind it are
    deferred, so that they are in nobody's way. When the lead is home the others follow, and the lead is settled last of
    all: if we die before, it comes back to whoever is there then, and tells that deferred ones may be behind it.
    If its lock is lost we wait for it to come back, and if it was home it is not sent again.
    A lane without a lead brings home deferred messages whose lead somebody removed.
    """

    __slots__ = (
        "_last_lead",
        "check_at",
        "followers",
        "is_flowing",
        "is_stuck",
        "is_trying",
        "is_untried",
        "lead",
        "outcome",
        "path",
        "retry_at",
        "waits_until",
    )

    def __init__(self, path: str, lead: Held | None, retry_at: float) -> None:
        self.path: Final = path
        self.lead = lead
        self._last_lead = lead
        self.followers: Final = Followers()
        self.retry_at = retry_at
        self.waits_until = 0.0
        """For a lead whose lock was lost."""
        self.check_at = 0.0
        """When one looks next whether that is still there."""
        self.is_trying = False
        self.is_untried = True
        self.is_stuck = False
        """The destination refused to take messages since the lane is there."""
        self.is_flowing = False
        """The destination took the last ones, so it is offered many at a time."""
        self.outcome: Sent | None = None if lead is not None else Sent()
        """What became of the lead: accepted or refused, and to be settled so. None as long as nobody took it."""

    @property
    def is_moving(self) -> bool:
        """The lead is through, and the others follow."""
        return self.outcome is not None

    @property
    def is_through(self) -> bool:
        """The destination has said what becomes of the lead."""
        return self.outcome is not None and bool(self.outcome.accepted or self.outcome.refused)

    @property
    def is_home(self) -> bool:
        """The lead is, so it must not be sent again."""
        return self.outcome is not None and bool(self.outcome.accepted)

    @property
    def has_followers(self) -> bool:
        """As far as one knows."""
        return bool(self.followers) or self.followers.look_from is not None

    @property
    def first_number(self) -> int:
        """Its followers are behind it, unless the queue is partitioned."""
        return 0 if self._last_lead is None else self._last_lead.sequence_number

    def is_waiting(self, now: float) -> bool:
        """For the lead to come back."""
        return self.lead is None and now < self.waits_until

    def is_busy(self, now: float) -> bool:
        """Something will become of it without anybody's help."""
        return self.is_moving or self.is_trying or self.is_untried or self.is_waiting(now)

    def is_going(self, now: float) -> bool:
        """It can go on at once."""
        return self.is_moving and self.retry_at <= now and not (self.is_waiting(now) and not self.followers)

    def due_at(self, now: float) -> float:
        if self.is_trying:
            return now + TRY_S
        return max(self.retry_at, self.waits_until) if self.lead is None and not self.followers else self.retry_at

    def must_look_from(self, now: float) -> int | None:
        """Where it has to be looked for more of its followers, now that it goes on; None if nowhere."""
        return self.followers.look_from if self.is_moving and self.retry_at <= now and not self.followers else None

    def wait_until(self, time: float) -> None:
        if self.lead is None and self._last_lead is not None:
            self.waits_until = time

    def is_lead(self, arrived: Held) -> bool:
        """Whether this is our lead, once more: its lock was lost, if we know it or not. The bytes are compared, too: a
        queue that was deleted and made again counts from 1."""
        last = self._last_lead
        return last is not None and arrived.sequence_number == last.sequence_number and arrived.payload == last.payload

    def queue_up(self, arrived: Held) -> list[Held]:
        """One more for this destination. Returns what has to be deferred: not what leads from now on."""
        former = self.lead
        if self.is_lead(arrived):
            self.lead = arrived
            if not self.is_through:
                self.outcome = None  # Nobody waited for it any more, so it was taken for gone.
            return []
        if self.is_moving or self.is_trying or not self._is_older(arrived):
            return [arrived]
        self.lead = self._last_lead = arrived
        return [] if former is None else [former]

    def _is_older(self, arrived: Held) -> bool:
        return self._last_lead is not None and arrived.sequence_number < self._last_lead.sequence_number
