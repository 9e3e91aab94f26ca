"""What can be seen of a pair, entity by entity: not each message, but the times during which something went on.

Every sign has a few *runs*: from when to when it was seen without a break, and how often. A run goes on while the
next sign comes soon, or nothing to the contrary has been seen: pings may be half an hour apart. So an entity takes as
much memory after a million messages as after ten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

RECENT_S: Final = 10
"""What counts as recent, for rates."""
MAX_RUNS: Final = 20
"""Of one sign of one entity; the oldest go first. The total stays."""


class Sign(Enum):
    # Seen by the primary, of its own entities.
    REFUSED = "refused"
    """A send failed as it does in an outage."""
    ACCEPTED = "accepted"
    """The first send that did not, behind one that did."""
    PING_REFUSED = "ping-refused"
    PING_ACCEPTED = "ping-accepted"
    HOME = "home"
    """The syphon's sends: messages that came home."""
    # Seen by the secondary, of entities of the primary.
    DIVERTED = "diverted"
    """Messages that arrived in a backlog queue."""
    TAKEN = "taken"
    """Completed there: they are at home."""
    DEAD = "dead"
    """Dead-lettered there: nobody could bring them home."""


BREAK_S: Final[Mapping[Sign, float]] = {
    Sign.REFUSED: 5.0,
    Sign.ACCEPTED: 5.0,
    Sign.PING_REFUSED: 5.0,
    Sign.PING_ACCEPTED: 5.0,
    Sign.HOME: float(RECENT_S),
    Sign.DIVERTED: 60.0,
    Sign.TAKEN: float(RECENT_S),
    Sign.DEAD: 60.0,
}
"""How long nothing may be seen within a run."""
CONTRARY: Final[Mapping[Sign, tuple[Sign, ...]]] = {
    Sign.REFUSED: (Sign.ACCEPTED, Sign.PING_ACCEPTED),
    Sign.ACCEPTED: (Sign.REFUSED,),
    Sign.PING_REFUSED: (Sign.PING_ACCEPTED,),
    Sign.PING_ACCEPTED: (Sign.PING_REFUSED, Sign.REFUSED),
}
"""Where a run goes on however long nothing is seen, unless one of these is seen meanwhile."""


@dataclass(slots=True)
class Run:
    first_at: float
    last_at: float
    count: int


@dataclass(frozen=True, slots=True)
class EntitySigns:
    """All that was seen of one entity."""

    primary: str
    """Whose entity it is, as its backlog queues name it; empty for one of the namespace's own."""
    path: str
    totals: Mapping[Sign, int] = field(default_factory=dict)
    recent: Mapping[Sign, int] = field(default_factory=dict)
    """In the last `RECENT_S`."""
    runs: Mapping[Sign, Sequence[Run]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.primary.lower(), self.path.lower()

    def total(self, sign: Sign) -> int:
        return self.totals.get(sign, 0)


class _Kept:
    """One sign of one entity while it is being seen."""

    __slots__ = ("_break_s", "_seconds", "runs", "total")

    def __init__(self, sign: Sign) -> None:
        self.total = 0
        self.runs: deque[Run] = deque(maxlen=MAX_RUNS)
        self._break_s = BREAK_S[sign]
        self._seconds: deque[list[int]] = deque(maxlen=RECENT_S + 1)

    def add(self, count: int, now: float) -> bool:
        """Whether the last run goes on, since it was seen a moment ago."""
        self.total += count
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += count
        else:
            self._seconds.append([second, count])
        if self.runs and now - self.runs[-1].last_at <= self._break_s:
            self.go_on(count, now)
            return True
        return False

    def go_on(self, count: int, now: float) -> None:
        run = self.runs[-1]
        run.count += count
        if now > run.last_at:  # a wall clock that was set back makes no run that ends before it began
            run.last_at = now

    def recent(self, now: float) -> int:
        return sum([count for second, count in self._seconds if now - RECENT_S < second <= now])


class EntityRecord:
    """The signs of one entity while they are being seen."""

    def __init__(self, primary: str, path: str) -> None:
        self.primary: Final = primary
        self.path: Final = path
        self._kept: dict[Sign, _Kept] = {}

    def note(self, sign: Sign, count: int, now: float) -> None:
        kept = self._kept.get(sign)
        if kept is None:
            kept = self._kept[sign] = _Kept(sign)
        if kept.add(count, now):
            return
        if kept.runs and self._has_seen_nothing_to_the_contrary(sign, kept.runs[-1]):
            kept.go_on(count, now)
        else:
            kept.runs.append(Run(now, now, count))

    def _has_seen_nothing_to_the_contrary(self, sign: Sign, run: Run) -> bool:
        contrary = CONTRARY.get(sign)
        if contrary is None:
            return False
        others = [self._kept[other].runs[-1].last_at for other in contrary if other in self._kept]
        return all(at < run.last_at for at in others)

    def signs(self, now: float) -> EntitySigns:
        recent = {sign: kept.recent(now) for sign, kept in self._kept.items()}
        return EntitySigns(
            self.primary,
            self.path,
            {sign: kept.total for sign, kept in self._kept.items()},
            {sign: count for sign, count in recent.items() if count},
            {
                sign: [Run(run.first_at, run.last_at, run.count) for run in kept.runs]
                for sign, kept in self._kept.items()
            },
        )


def summed_signs(parts: Iterable[EntitySigns]) -> list[EntitySigns]:
    """As if one had seen it all."""
    found: dict[tuple[str, str], list[EntitySigns]] = {}
    for part in parts:
        found.setdefault(part.key, []).append(part)
    return [same[0] if len(same) == 1 else _as_one(same) for same in found.values()]


def _as_one(same: Sequence[EntitySigns]) -> EntitySigns:
    return EntitySigns(
        same[0].primary,
        same[0].path,
        _added([one.totals for one in same]),
        _added([one.recent for one in same]),
        {sign: joined(sign, [run for one in same for run in one.runs.get(sign, ())]) for sign in _known(same)},
    )


def _known(same: Iterable[EntitySigns]) -> list[Sign]:
    return [sign for sign in Sign if any(sign in one.runs for one in same)]


def _added(parts: Iterable[Mapping[Sign, int]]) -> dict[Sign, int]:
    sums: dict[Sign, int] = {}
    for part in parts:
        for sign, count in part.items():
            sums[sign] = sums.get(sign, 0) + count
    return sums


def joined(sign: Sign, runs: Iterable[Run]) -> list[Run]:
    """Those of several processes: what overlaps, or follows soon, is one run. At most `MAX_RUNS`, the latest."""
    together: list[Run] = []
    for run in sorted(runs, key=lambda each: each.first_at):
        if together and run.first_at - together[-1].last_at <= BREAK_S[sign]:
            last = together[-1]
            together[-1] = Run(last.first_at, max(last.last_at, run.last_at), last.count + run.count)
        else:
            together.append(run)
    return together[-MAX_RUNS:]
