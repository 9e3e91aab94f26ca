"""The story of one entity, out of what was seen of it: pure, and the same whoever asks.

Two things go on at once. *Senders* fail, fail over, ask and return; the *syphon* moves what they left behind. A segment
is called `syphoning` while messages move, and else after the senders:

```
             refused                    diverted                 ping refused
 HEALTHY ──────────────▶ FAILING ──────────────────▶ FAILED_OVER ────────────▶ PINGING
    ▲  ▲     accepted, or   │                             │  all came home       │
    │  └── nobody tries ────┘                             ▼                      │
    └─────────── nothing for a while ────────────────── BACK ◀───────────────────┘
                                                             ping accepted
```

Either side may be missing, for a while or for ever: a primary that is down sees nothing, and whoever is restarted has
forgotten. So every state can follow on every other, and silence ends what nobody has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandembus.pair_view.signs import RECENT_S, EntitySigns, Run, Sign

MAX_SEGMENTS: Final = 50
"""Of one entity; the oldest go first."""
FAILING_FOR_S: Final = 60.0
"""So long after the last refusal nobody tries any more."""
FAILED_OVER_FOR_S: Final = 31 * 60.0
"""Longer than two pings can be apart (N10): by then nobody is left who would ping."""
BACK_FOR_S: Final = 10.0
"""So long after the last sign of an outage it is over."""
IN_FLIGHT_S: Final = 2.0
"""What was on its way to the backlog when a ping was accepted arrives within this."""


class State(Enum):
    HEALTHY = "healthy"
    FAILING = "failing"
    FAILED_OVER = "failed-over"
    PINGING = "pinging"
    SYPHONING = "syphoning"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Segment:
    state: State
    from_at: float
    to_at: float | None
    """None for the one that goes on."""


@dataclass(frozen=True, slots=True)
class _Mark:
    at: float
    sign: Sign
    is_end: bool


_MOVES: Final = (Sign.HOME, Sign.TAKEN)
_FAILED_OVER: Final = (State.FAILED_OVER, State.PINGING)
_NEXT: Final[Mapping[Sign, Mapping[State, State]]] = {
    Sign.REFUSED: {State.HEALTHY: State.FAILING, State.BACK: State.FAILING},
    Sign.ACCEPTED: {State.FAILING: State.HEALTHY},
    Sign.DIVERTED: dict.fromkeys((State.HEALTHY, State.FAILING, State.BACK), State.FAILED_OVER),
    Sign.PING_REFUSED: dict.fromkeys((State.HEALTHY, State.FAILING, State.FAILED_OVER, State.BACK), State.PINGING),
    Sign.PING_ACCEPTED: dict.fromkeys((State.HEALTHY, State.FAILING, State.FAILED_OVER, State.PINGING), State.BACK),
    Sign.HOME: {State.HEALTHY: State.BACK},
    Sign.TAKEN: {State.HEALTHY: State.BACK},
}
"""What a sign makes of the senders' state; where nothing stands, nothing."""


def timeline(signs: EntitySigns, waiting: int | None, now: float) -> list[Segment]:
    """From the first sign of trouble on, without gaps; empty where there was none. `waiting`: messages in the backlog,
    where that is known. All times are by one clock."""
    senders = _Senders(signs, waiting, now).story()
    moves = _moves(signs, waiting, now)
    segments = _laid_over(senders, moves, now)
    return segments[-MAX_SEGMENTS:]


class _Senders:
    """Follows the senders of one entity through all that was seen."""

    def __init__(self, signs: EntitySigns, waiting: int | None, now: float) -> None:
        self._signs = signs
        self._waiting = waiting
        self._now = now
        self._state = State.HEALTHY
        self._since = 0.0
        self._last_at = 0.0
        self._changes: list[tuple[float, State]] = []

    def story(self) -> list[tuple[float, State]]:
        """Each state and from when on."""
        for mark in _marks(self._signs):
            at = min(mark.at, self._now)
            self._lapse(at, is_last=False)
            self._take(mark, at)
            self._last_at = max(self._last_at, at)
        self._lapse(self._now, is_last=True)
        return self._changes

    def _take(self, mark: _Mark, at: float) -> None:
        if mark.sign is Sign.DIVERTED and self._state is State.BACK and at - self._since <= IN_FLIGHT_S:
            return
        if mark.sign in _MOVES and mark.is_end and self._state in _FAILED_OVER:
            if self._is_drained(mark.at):
                self._change(at, State.BACK)
            return
        following = _NEXT.get(mark.sign, {}).get(self._state)
        if following is not None:
            self._change(at, following)

    def _is_drained(self, at: float) -> bool:
        """Whether all that was diverted until then had come home: who has seen only a part counts too few."""
        diverted = self._until(Sign.DIVERTED, at)
        return max(self._until(sign, at) for sign in _MOVES) + self._until(Sign.DEAD, at) >= diverted

    def _until(self, sign: Sign, at: float) -> int:
        later = [run.count for run in self._signs.runs.get(sign, ()) if run.first_at > at]
        return self._signs.total(sign) - sum(later)

    def _lapse(self, at: float, is_last: bool) -> None:
        """What silence has ended by then."""
        after_s = _SILENCE_S.get(self._state)
        is_waited_for = is_last and bool(self._waiting) and self._state is not State.FAILING
        if after_s is not None and not is_waited_for and at - self._last_at > after_s:
            self._change(self._last_at + after_s, State.HEALTHY)

    def _change(self, at: float, state: State) -> None:
        self._state, self._since = state, at
        self._changes.append((at, state))


_SILENCE_S: Final[Mapping[State, float]] = {
    State.FAILING: FAILING_FOR_S,
    State.FAILED_OVER: FAILED_OVER_FOR_S,
    State.PINGING: FAILED_OVER_FOR_S,
    State.BACK: BACK_FOR_S,
}
_ORDER: Final = {sign: place for place, sign in enumerate(Sign)}


def _marks(signs: EntitySigns) -> list[_Mark]:
    """Where runs begin and end, in order of time."""
    marks: list[_Mark] = []
    for sign, runs in signs.runs.items():
        for run in runs:
            marks += [_Mark(run.first_at, sign, False), _Mark(run.last_at, sign, True)]
    return sorted(marks, key=lambda mark: (mark.at, mark.is_end, _ORDER[mark.sign]))


def _moves(signs: EntitySigns, waiting: int | None, now: float) -> list[tuple[float, float | None]]:
    """When messages were on their way home; the last goes on while there is more to come."""
    runs = sorted([run for sign in _MOVES for run in signs.runs.get(sign, ())], key=lambda run: run.first_at)
    moves: list[tuple[float, float | None]] = []
    for first_at, last_at in _united(runs):
        goes_on = waiting != 0 and now - last_at <= RECENT_S
        moves.append((min(first_at, now), None if goes_on else min(last_at, now)))
    return moves


def _united(runs: Iterable[Run]) -> list[tuple[float, float]]:
    united: list[tuple[float, float]] = []
    for run in runs:
        if united and run.first_at - united[-1][1] <= RECENT_S:
            united[-1] = (united[-1][0], max(united[-1][1], run.last_at))
        else:
            united.append((run.first_at, run.last_at))
    return united


def _laid_over(
    senders: Sequence[tuple[float, State]], moves: Sequence[tuple[float, float | None]], now: float
) -> list[Segment]:
    """The senders' states, covered by the moves."""
    changes: list[tuple[float, State]] = []
    times = sorted({at for at, _ in senders} | {from_at for from_at, _ in moves} | {to or now for _, to in moves})
    state, place = State.HEALTHY, 0
    for at in times:
        if any(from_at == at == to for from_at, to in moves):
            changes.append((at, State.SYPHONING))  # over as soon as it began, and worth a word all the same
        while place < len(senders) and senders[place][0] <= at:
            state = senders[place][1]
            place += 1
        is_moving = any(from_at <= at and (to is None or at < to) for from_at, to in moves)
        changes.append((at, State.SYPHONING if is_moving else state))
    return _segments(changes)


def _segments(changes: Iterable[tuple[float, State]]) -> list[Segment]:
    distinct: list[tuple[float, State]] = []
    for at, state in changes:
        previous = distinct[-1][1] if distinct else State.HEALTHY
        if state is not previous:
            distinct.append((at, state))
    ends: list[float | None] = [at for at, _ in distinct[1:]]
    return [Segment(state, at, to) for (at, state), to in zip(distinct, [*ends, None], strict=False)]
