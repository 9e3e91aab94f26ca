"""Both namespaces' views made into one picture: which entities are where in their story, what waits, how fast it moves.

Pure. Each side tells what it has seen, and neither has seen it all: the one that counts more of something that both see
has missed less of it, so the larger figure is taken. Without the partner the own view has to do, and the picture says
that it is partial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tandembus.pair_view.signs import RECENT_S, EntitySigns, Sign
from tandembus.pair_view.timeline import Segment, State, timeline
from tandembus.pair_view.view import BacklogQueue, PairView, shifted

CLOCKS_AGREE_S: Final = 0.25
"""Clocks that differ by no more are not worth setting right: the figures would only tremble."""
OFFSET_STEP_S: Final = 0.1
BEFORE_S: Final = 1.0
"""A message that came so shortly before somebody began to look may have been counted."""
_TROUBLE: Final = (State.FAILED_OVER, State.PINGING, State.SYPHONING)
PAUSE_S: Final = 60.0
"""Troubles of entities that are no further apart are one failover."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The partner's view, and when it was asked for and came by the asking namespace's clock."""

    view: PairView
    asked_at: float
    answered_at: float

    @property
    def offset_s(self) -> float:
        """How far the partner's clock is behind: as if it had looked half-way between question and answer."""
        offset_s = (self.asked_at + self.answered_at) / 2 - self.view.at
        in_doubt_s = max(CLOCKS_AGREE_S, self.answered_at - self.asked_at)
        return 0.0 if abs(offset_s) <= in_doubt_s else round(offset_s / OFFSET_STEP_S) * OFFSET_STEP_S

    def by_our_clock(self) -> PairView:
        return shifted(self.view, self.offset_s)


@dataclass(frozen=True, slots=True)
class EntityPicture:
    primary: str
    path: str
    segments: Sequence[Segment]
    diverted: int
    moved: int
    waiting: int | None
    pings_accepted: int
    pings_refused: int
    pinged_at: float | None

    @property
    def state(self) -> State:
        return self.segments[-1].state if self.segments else State.HEALTHY


@dataclass(frozen=True, slots=True)
class SyphonPicture:
    links: int
    moved: int
    rate_per_s: float
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class PairPicture:
    is_primary: bool
    is_secondary: bool
    entities: Sequence[EntityPicture]
    queues: Sequence[BacklogQueue]
    syphon: SyphonPicture
    is_partial: bool


def picture(own: PairView, answer: Answer | None, now: float) -> PairPicture:
    """`answer`: None where there is no partner, or it cannot be asked."""
    partner = None if answer is None else answer.by_our_clock()
    stories = [_entity(signs, secondary, now) for signs, secondary in _evidence(own, partner)]
    queues = [*own.queues, *([] if partner is None else partner.queues_of(own.name))]
    entities = sorted(stories, key=lambda one: (one.state is State.HEALTHY, one.primary.lower(), one.path.lower()))
    is_primary = len(queues) > len(own.queues) or any(_is_paired(signs) for signs in own.seen.entities)
    is_secondary = bool(own.queues)
    views = [own] if partner is None else [own, partner]
    return PairPicture(
        is_primary,
        is_secondary,
        entities,
        queues,
        _syphon(own, partner, queues),
        is_partial=(partner is None and (is_primary or is_secondary))
        or not all(view.seen.is_complete for view in views)
        or any(one.waiting is None for one in entities if one.diverted),
    )


def last_failover(entities: Iterable[EntityPicture]) -> tuple[float, float | None] | None:
    """From when to when the last failover was, over all entities; None for its end while it lasts."""
    spans = sorted([span for one in entities for span in _troubles(one.segments)], key=lambda span: span[0])
    together: list[tuple[float, float | None]] = []
    for first_at, last_at in spans:
        end = together[-1][1] if together else 0.0
        if together and (end is None or first_at - end <= PAUSE_S):
            until = None if end is None or last_at is None else max(end, last_at)
            together[-1] = (together[-1][0], until)
        else:
            together.append((first_at, last_at))
    return together[-1] if together else None


def _troubles(segments: Sequence[Segment]) -> list[tuple[float, float | None]]:
    """Stretches between two times of health that had more to them than sends that failed."""
    found: list[tuple[float, float | None]] = []
    begun: float | None = None
    is_trouble = False
    for segment in segments:
        if segment.state is State.HEALTHY:
            if begun is not None and is_trouble:
                found.append((begun, segment.from_at))
            begun, is_trouble = None, False
            continue
        begun = segment.from_at if begun is None else begun
        is_trouble = is_trouble or segment.state in _TROUBLE
    if begun is not None and is_trouble:
        found.append((begun, None))
    return found


# Which signs belong together.


def _evidence(own: PairView, partner: PairView | None) -> list[tuple[EntitySigns, PairView | None]]:
    """Of each entity all that was seen of it, and the view of who holds its backlog, where that is known."""
    found: list[tuple[EntitySigns, PairView | None]] = []
    theirs = {} if partner is None else _as_primary(partner)
    for signs in own.seen.entities:
        if signs.primary == "":
            continue
        is_partners = partner is not None and signs.primary.lower() == partner.name.lower()
        at_home = theirs.pop(signs.path.lower(), None) if is_partners else None
        found.append((_both(at_home, signs), own))
    if partner is not None and own.queues_of(partner.name):
        found += [(_named(signs, partner.name), own) for signs in theirs.values()]
    ours = _as_primary(own)
    if partner is not None:
        for signs in partner.seen.entities:
            if signs.primary.lower() == own.name.lower():
                found.append((_both(ours.pop(signs.path.lower(), None), signs), partner))
    holder = partner if partner is not None and partner.queues_of(own.name) else None
    return found + [(_named(signs, own.name), holder) for signs in ours.values()]


def _as_primary(view: PairView) -> dict[str, EntitySigns]:
    return {signs.path.lower(): signs for signs in view.seen.entities if signs.primary == ""}


def _named(signs: EntitySigns, primary: str) -> EntitySigns:
    return replace(signs, primary=primary)


def _both(at_home: EntitySigns | None, in_backlog: EntitySigns) -> EntitySigns:
    """The primary's part and the secondary's of one entity: they see different things."""
    if at_home is None:
        return in_backlog
    return EntitySigns(
        in_backlog.primary,
        at_home.path,
        {**at_home.totals, **in_backlog.totals},
        {**at_home.recent, **in_backlog.recent},
        {**at_home.runs, **in_backlog.runs},
    )


def _is_paired(signs: EntitySigns) -> bool:
    """An own entity of which more was seen than refused sends: only clients of a pair ping, and only a syphon brings
    home."""
    return signs.primary == "" and any(signs.total(sign) for sign in (Sign.PING_ACCEPTED, Sign.PING_REFUSED, Sign.HOME))


# What they say.


def _entity(signs: EntitySigns, secondary: PairView | None, now: float) -> EntityPicture:
    moved = max(signs.total(Sign.HOME), signs.total(Sign.TAKEN))
    diverted = signs.total(Sign.DIVERTED) if secondary is not None else moved
    waiting = None if secondary is None else _waiting(signs, secondary, moved)
    pings = [run.last_at for sign in (Sign.PING_ACCEPTED, Sign.PING_REFUSED) for run in signs.runs.get(sign, ())]
    return EntityPicture(
        signs.primary,
        signs.path,
        timeline(signs, waiting, now),
        max(diverted, moved),
        moved,
        waiting,
        signs.total(Sign.PING_ACCEPTED),
        signs.total(Sign.PING_REFUSED),
        max(pings, default=None),
    )


def _waiting(signs: EntitySigns, secondary: PairView, moved: int) -> int | None:
    """None where the backlog holds messages that came before the secondary began to look: nobody knows whose they
    are, or where a part of the backlog is out of reach."""
    queues = secondary.queues_of(signs.primary)
    if any(queue.is_limited for queue in queues):
        return None
    active = _active(queues)
    if active == 0:
        return 0
    oldest_at = min([queue.oldest_at for queue in queues if queue.oldest_at is not None], default=secondary.at)
    if oldest_at < secondary.seen.since - BEFORE_S:
        return None
    return min(max(signs.total(Sign.DIVERTED) - moved - signs.total(Sign.DEAD), 0), active)


def _syphon(own: PairView, partner: PairView | None, queues: Sequence[BacklogQueue]) -> SyphonPicture:
    backlog = [signs for signs in own.seen.entities if signs.primary != ""]
    sent = [signs for signs in own.seen.entities if signs.primary == ""]
    if partner is not None:
        backlog += [signs for signs in partner.seen.entities if signs.primary.lower() == own.name.lower()]
        sent += [signs for signs in partner.seen.entities if signs.primary == ""]
    out = max(_recent(backlog, Sign.TAKEN), _recent(sent, Sign.HOME)) / RECENT_S
    into = _recent(backlog, Sign.DIVERTED) / RECENT_S
    active = _active(queues)
    is_whole = not any(queue.is_limited for queue in queues)
    senders = own.seen.syphon_senders + (0 if partner is None else partner.seen.syphon_senders)
    return SyphonPicture(
        links=sum([queue.receivers for queue in queues]) if queues else senders,
        moved=max(_total(backlog, Sign.TAKEN), _total(sent, Sign.HOME)),
        rate_per_s=out,
        eta_s=_eta(active, out - into) if is_whole else None,
    )


def _active(queues: Iterable[BacklogQueue]) -> int:
    """Active messages in the queues that can be counted."""
    return sum([queue.counts.active for queue in queues if queue.counts is not None])


def _eta(active: int, per_s: float) -> float | None:
    """None while it grows or stands still."""
    if active == 0:
        return None
    return active / per_s if per_s > 0 else None


def _recent(signs: Iterable[EntitySigns], sign: Sign) -> int:
    return sum([one.recent.get(sign, 0) for one in signs])


def _total(signs: Iterable[EntitySigns], sign: Sign) -> int:
    return sum([one.total(sign) for one in signs])
