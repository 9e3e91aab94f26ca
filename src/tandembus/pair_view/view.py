"""One namespace's view of a pair as plain data: told by each process to the next, and by each namespace to its partner.

What comes from elsewhere is checked: a partner may be another version, or no namespace at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, TypeVar

from tandembus.errors import MalformedData
from tandembus.pair_view.sightings import MAX_ENTITIES, Sightings
from tandembus.pair_view.signs import MAX_RUNS, EntitySigns, Run, Sign, summed_signs

MAX_QUEUES: Final = 100
"""Backlog queues that are looked at; of more, only the first are."""
MAX_TEXT: Final = 1_100
_COUNTS: Final = ("active", "dead_letter", "scheduled", "size_bytes")
_SIGNS: Final = {sign.value: sign for sign in Sign}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one process has seen, or all of a namespace together."""

    since: float
    """When it began to look."""
    entities: Sequence[EntitySigns] = ()
    receivers: Mapping[str, int] = field(default_factory=dict)
    """Of backlog queues, by their path in lower case."""
    syphon_senders: int = 0
    is_complete: bool = True
    """Nothing had to be forgotten, and everybody was heard."""


@dataclass(frozen=True, slots=True)
class BacklogCounts:
    active: int
    dead_letter: int
    scheduled: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BacklogQueue:
    path: str
    primary: str
    counts: BacklogCounts | None
    """None while the queue is out of reach as a whole."""
    oldest_at: float | None
    """When the message that has waited the longest came; None where there is none, or it could not be looked at."""
    receivers: int
    is_limited: bool = False
    """Whether a part of the queue is out of reach, and its messages are not counted."""


@dataclass(frozen=True, slots=True)
class PairView:
    name: str
    at: float
    """By the namespace's own clock, as all its times."""
    seen: Seen
    queues: Sequence[BacklogQueue] = ()

    def queues_of(self, primary: str) -> list[BacklogQueue]:
        return [queue for queue in self.queues if queue.primary.lower() == primary.lower()]


def seen_by(sightings: Sightings, receivers: Mapping[str, int]) -> Seen:
    return Seen(
        sightings.since, sightings.signs(), receivers, sightings.syphon_senders, is_complete=not sightings.is_cut_short
    )


def summed_seen(parts: Iterable[Seen]) -> Seen:
    """As if one process had seen everything; what the youngest of them has missed is missing."""
    known = list(parts)
    receivers: dict[str, int] = {}
    for part in known:
        for queue, count in part.receivers.items():
            receivers[queue] = receivers.get(queue, 0) + count
    entities = summed_signs([signs for part in known for signs in part.entities])
    return Seen(
        max(part.since for part in known),
        entities[-MAX_ENTITIES:],
        receivers,
        sum([part.syphon_senders for part in known]),
        all(part.is_complete for part in known) and len(entities) <= MAX_ENTITIES,
    )


def shifted(view: PairView, by_s: float) -> PairView:
    """The same by a clock that is so much ahead."""
    seen = replace(
        view.seen, since=view.seen.since + by_s, entities=[_shifted(signs, by_s) for signs in view.seen.entities]
    )
    queues = [
        replace(queue, oldest_at=None if queue.oldest_at is None else queue.oldest_at + by_s) for queue in view.queues
    ]
    return PairView(view.name, view.at + by_s, seen, queues)


def _shifted(signs: EntitySigns, by_s: float) -> EntitySigns:
    runs = {
        sign: [Run(run.first_at + by_s, run.last_at + by_s, run.count) for run in each]
        for sign, each in signs.runs.items()
    }
    return replace(signs, runs=runs)


# As a document.


def seen_to_document(part: Seen) -> dict[object, object]:
    return {
        "since": part.since,
        "entities": [_signs_to_document(signs) for signs in part.entities],
        "receivers": dict(part.receivers),
        "syphon_senders": part.syphon_senders,
        "is_complete": part.is_complete,
    }


def _signs_to_document(signs: EntitySigns) -> dict[object, object]:
    return {
        "primary": signs.primary,
        "path": signs.path,
        "totals": {sign.value: count for sign, count in signs.totals.items()},
        "recent": {sign.value: count for sign, count in signs.recent.items()},
        "runs": {
            sign.value: [[run.first_at, run.last_at, run.count] for run in runs] for sign, runs in signs.runs.items()
        },
    }


def view_to_document(view: PairView) -> dict[str, object]:
    return {
        "name": view.name,
        "at": view.at,
        "seen": seen_to_document(view.seen),
        "queues": [
            {
                "path": queue.path,
                "primary": queue.primary,
                **counts_document(queue.counts),
                "oldest_at": queue.oldest_at,
                "receivers": queue.receivers,
                "is_limited": queue.is_limited,
            }
            for queue in view.queues
        ],
    }


def counts_document(counts: BacklogCounts | None) -> dict[str, object]:
    return dict.fromkeys(_COUNTS) if counts is None else asdict(counts)


def seen_from_document(value: object) -> Seen:
    """Raises MalformedData."""
    document = _map(value)
    return Seen(
        _number(document.get("since")),
        [_signs_from_document(one) for one in _list(document.get("entities"), MAX_ENTITIES)],
        {_text(queue): _count(count) for queue, count in _map(document.get("receivers")).items()},
        _count(document.get("syphon_senders")),
        document.get("is_complete") is True,
    )


def _signs_from_document(value: object) -> EntitySigns:
    document = _map(value)
    return EntitySigns(
        _text(document.get("primary")),
        _text(document.get("path")),
        _by_sign(document.get("totals"), _count),
        _by_sign(document.get("recent"), _count),
        _by_sign(document.get("runs"), _runs),
    )


def view_from_document(value: object) -> PairView:
    """Raises MalformedData."""
    document = _map(value)
    return PairView(
        _text(document.get("name")),
        _number(document.get("at")),
        seen_from_document(document.get("seen")),
        [_queue(one) for one in _list(document.get("queues"), MAX_QUEUES)],
    )


def _queue(value: object) -> BacklogQueue:
    document = _map(value)
    oldest_at = document.get("oldest_at")
    return BacklogQueue(
        path=_text(document.get("path")),
        primary=_text(document.get("primary")),
        counts=None
        if document.get("active") is None
        else BacklogCounts(*[_count(document.get(name)) for name in _COUNTS]),
        oldest_at=None if oldest_at is None else _number(oldest_at),
        receivers=_count(document.get("receivers")),
        is_limited=document.get("is_limited") is True,
    )


def _by_sign(value: object, read: Callable[[object], T]) -> dict[Sign, T]:
    """Signs that another version may know are passed over."""
    return {_SIGNS[name]: read(one) for name, one in _map(value).items() if isinstance(name, str) and name in _SIGNS}


def _runs(value: object) -> list[Run]:
    runs = []
    for one in _list(value, MAX_RUNS):
        first, last, count = _list(one, 3) if isinstance(one, list) and len(one) == 3 else (None, None, None)
        runs.append(Run(_number(first), _number(last), _count(count)))
    return runs


def _map(value: object) -> Mapping[object, object]:
    if not isinstance(value, dict):
        raise MalformedData("no map where a view of a pair has one")
    return value


def _list(value: object, most: int) -> list[object]:
    if not isinstance(value, list) or len(value) > most:
        raise MalformedData("no list, or too long a list, where a view of a pair has one")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise MalformedData("no text, or too long a text, where a view of a pair has one")
    return value


def _number(value: object) -> float:
    """A time; any that no calendar has would only make trouble later."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 253_402_300_799.0:
        raise MalformedData("no time where a view of a pair has one")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise MalformedData("no count where a view of a pair has one")
    return value
