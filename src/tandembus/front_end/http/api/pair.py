"""`/$api/pair`: the failover timeline of every entity, what waits in the backlog, and how fast it goes home.

The partner is asked for its own view only (`/$api/pair/view`): two partners that asked each other for the whole would
never come to an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.routes import Route, told_beside
from tandembus.front_end.http.surroundings import AskPartner, Surroundings
from tandembus.front_end.http.values import format_time
from tandembus.namespace.backlogs import Backlogs
from tandembus.namespace.namespace import Namespace
from tandembus.pair_view.picture import Answer, EntityPicture, PairPicture, picture
from tandembus.pair_view.timeline import Segment
from tandembus.pair_view.view import BacklogQueue, PairView, counts_document, view_from_document, view_to_document
from tandembus.security.claims import Right

VIEW_PATH: Final = "/$api/pair/view"
KEPT_S: Final = 0.5
"""How long a view is good for everybody who asks: many who look at once cost as much as one."""
PATIENCE_S: Final = 0.3
"""How long somebody who looks waits for the partner."""
STALE_S: Final = 5.0
"""What the partner said longer ago says nothing any more."""
NOT_YET: Final = "It has not answered yet."
_ROLES: Final = {(False, False): "none", (True, False): "primary", (False, True): "secondary", (True, True): "both"}


@dataclass(frozen=True, slots=True)
class Partner:
    answer: Answer | None = None
    reason: str | None = None
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Both namespaces at one time."""

    at: float
    own: PairView
    partner: Partner | None
    """None where none is set."""
    partner_name: str | None
    """As far as that is known without asking it."""
    picture: PairPicture


class PartnerWatch:
    """Asks the partner while somebody looks. Nobody waits for one that hangs: it is asked behind their back, and what
    it said a moment ago has to do meanwhile."""

    def __init__(self, ask: AskPartner, clock: Clock) -> None:
        self._ask_partner = ask
        self._clock = clock
        self._last = Partner(reason=NOT_YET)
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    async def look(self) -> Partner:
        now = self._clock.monotonic()
        if self._asking is None or (self._asking.done() and now - self._asked_at >= KEPT_S):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask())
        await asyncio.wait([self._asking], timeout=PATIENCE_S)
        answer = self._last.answer
        is_stale = answer is not None and self._clock.now() - answer.answered_at > STALE_S
        return Partner(reason=NOT_YET) if is_stale else self._last

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        asked_at = self._clock.now()
        try:
            document = await self._ask_partner(VIEW_PATH)
            answered_at = max(self._clock.now(), asked_at)
            view = await asyncio.to_thread(view_from_document, document)
        except BusError as error:
            self._last = Partner(reason=str(error))
        else:
            self._last = Partner(Answer(view, asked_at, answered_at))


class PairWatch:
    """Looks at both namespaces when somebody wants to know, and never otherwise."""

    def __init__(self, namespace: Namespace, surroundings: Surroundings) -> None:
        self._namespace = namespace
        self._surroundings = surroundings
        ask = surroundings.ask_partner
        self._partner = None if ask is None else PartnerWatch(ask, namespace.clock)
        self._backlogs = Backlogs(namespace)
        self._looking = asyncio.Lock()
        self._view: PairView | None = None
        self._looked_at = 0.0
        self._drawing = asyncio.Lock()
        self._drawn: Looked | None = None

    async def view(self) -> PairView:
        async with self._looking:
            now = self._namespace.clock.monotonic()
            if self._view is None or now - self._looked_at >= KEPT_S:
                self._view = await self._look()
                self._looked_at = now
            return self._view

    async def _look(self) -> PairView:
        source = self._surroundings.pair
        seen = self._backlogs.seen() if source is None else await source()
        queues, is_whole = await self._backlogs.look(seen.receivers)
        if not is_whole:
            seen = replace(seen, is_complete=False)
        return PairView(self._namespace.name, self._namespace.clock.now(), seen, queues)

    async def look(self) -> Looked:
        own, partner = await asyncio.gather(self.view(), self._look_at_partner())
        async with self._drawing:
            drawn = self._drawn
            if drawn is None or drawn.own is not own or drawn.partner is not partner:
                drawn = self._drawn = await self._draw(own, partner)
            return drawn

    async def _draw(self, own: PairView, partner: Partner | None) -> Looked:
        """Beside the loop: when a thousand entities fail over, this takes a while, and the loop has much to do."""
        now = self._namespace.clock.now()
        answer = None if partner is None else partner.answer
        found = await asyncio.to_thread(picture, own, answer, now)
        return Looked(now, own, partner, self._surroundings.partner_name(), found)

    async def _look_at_partner(self) -> Partner | None:
        return None if self._partner is None else await self._partner.look()

    async def stop(self) -> None:
        if self._partner is not None:
            await self._partner.stop()


class PairRoutes:
    def __init__(self, watch: PairWatch, access: Access) -> None:
        self._watch = watch
        self._access = access

    def routes(self) -> list[Route]:
        return [
            Route("GET", "pair", self._tell, is_about_itself=True),
            Route("GET", "pair/view", self._tell_view, is_about_itself=True),
        ]

    async def _tell(self, request: web.Request) -> web.Response:
        self._access.check(request, Right.MANAGE, "")
        return await told_beside(partial(pair_document, await self._watch.look()))

    async def _tell_view(self, request: web.Request) -> web.Response:
        self._access.check(request, Right.MANAGE, "")
        return await told_beside(partial(view_to_document, await self._watch.view()))


def pair_document(looked: Looked) -> dict[str, object]:
    found = looked.picture
    return {
        "at": format_time(looked.at),
        "name": looked.own.name,
        "role": _ROLES[found.is_primary, found.is_secondary],
        "partner": _partner(looked),
        "entities": [_entity(one, looked.own.seen.since) for one in found.entities],
        "backlog": _backlog(found, looked.at),
        "syphon": {
            "links": found.syphon.links,
            "moved": found.syphon.moved,
            "rate_per_s": found.syphon.rate_per_s,
            "eta_s": found.syphon.eta_s,
        },
        "is_partial": found.is_partial,
    }


def _partner(looked: Looked) -> Mapping[str, object] | None:
    partner = looked.partner
    if partner is None:
        return None
    if partner.answer is None:
        return {"name": looked.partner_name, "state": "unreachable", "reason": partner.reason}
    return {"name": partner.answer.view.name, "state": "available", "reason": None}


def _entity(one: EntityPicture, since: float) -> Mapping[str, object]:
    return {
        "primary": one.primary,
        "path": one.path,
        "state": one.state.value,
        "since": format_time(one.segments[-1].from_at if one.segments else since),
        "segments": [_segment(segment) for segment in one.segments],
        "diverted": one.diverted,
        "moved": one.moved,
        "waiting": one.waiting,
        "pings": {
            "accepted": one.pings_accepted,
            "refused": one.pings_refused,
            "last_at": _time(one.pinged_at),
        },
    }


def _segment(segment: Segment) -> Mapping[str, object]:
    return {"state": segment.state.value, "from": format_time(segment.from_at), "to": _time(segment.to_at)}


def _backlog(found: PairPicture, now: float) -> Mapping[str, object]:
    oldest_at = min([queue.oldest_at for queue in found.queues if queue.oldest_at is not None], default=None)
    known = [queue.counts for queue in found.queues if queue.counts is not None]
    is_known = bool(known) or not found.queues
    return {
        "queues": [_queue(queue) for queue in found.queues],
        "active": sum([counts.active for counts in known]) if is_known else None,
        "dead_letter": sum([counts.dead_letter for counts in known]) if is_known else None,
        "is_limited": any(queue.is_limited for queue in found.queues),
        "oldest_at": _time(oldest_at),
        "age_s": None if oldest_at is None else max(now - oldest_at, 0.0),
    }


def _queue(queue: BacklogQueue) -> Mapping[str, object]:
    return {
        "path": queue.path,
        **counts_document(queue.counts),
        "is_limited": queue.is_limited,
        "oldest_at": _time(queue.oldest_at),
        "receivers": queue.receivers,
    }


def _time(at: float | None) -> str | None:
    return None if at is None else format_time(at)
