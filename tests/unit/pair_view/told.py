"""Views of a pair as tests write them down: what was seen, from when to when, how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tandembus.pair_view.signs import EntitySigns, Run, Sign
from tandembus.pair_view.timeline import Segment
from tandembus.pair_view.view import BacklogCounts, BacklogQueue, PairView, Seen

START = 1_700_000_000.0
"""The second 0 of every story."""
Runs = Mapping[Sign, Sequence[tuple[float, float, int]]]
"""Runs: from second, to second, how often."""


def signs(path: str, seen: Runs, primary: str = "", recent: Mapping[Sign, int] | None = None) -> EntitySigns:
    return EntitySigns(
        primary,
        path,
        {sign: sum([count for _, _, count in runs]) for sign, runs in seen.items()},
        recent or {},
        {sign: [Run(START + first, START + last, count) for first, last, count in runs] for sign, runs in seen.items()},
    )


def queue(
    primary: str, active: int = 0, oldest: float | None = None, receivers: int = 0, index: int = 0
) -> BacklogQueue:
    path = f"{primary}/x-servicebus-transfer/{index}"
    counts = BacklogCounts(active, 0, 0, 0)
    return BacklogQueue(path, primary, counts, None if oldest is None else START + oldest, receivers)


def view(
    name: str, at: float, *entities: EntitySigns, queues: Sequence[BacklogQueue] = (), since: float = -1000.0
) -> PairView:
    return PairView(name, START + at, Seen(START + since, list(entities)), list(queues))


def story(segments: Sequence[Segment]) -> list[tuple[str, float, float | None]]:
    """States with the seconds from and to which they were."""
    return [
        (one.state.value, round(one.from_at - START, 3), None if one.to_at is None else round(one.to_at - START, 3))
        for one in segments
    ]


def states(segments: Sequence[Segment]) -> list[str]:
    return [one.state.value for one in segments]
