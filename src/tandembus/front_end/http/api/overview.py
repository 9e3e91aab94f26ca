"""The namespace at one glance, and the other one of its pair."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.census import CensusTaker
from tandembus.front_end.http.api.counters import Counters, Moved
from tandembus.front_end.http.api.routes import Document, Route, told
from tandembus.front_end.http.surroundings import AskPartner, Surroundings
from tandembus.front_end.http.topology import TopologyQuery
from tandembus.front_end.http.values import format_time
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Claims, Right

WHOLE_NAMESPACE: Final = ""
ALONE: Final = "alone"
"""A query parameter: two partners that looked at each other's partner would never come to an end."""
PARTNER_PATH: Final = f"/$api/overview?{ALONE}=1"
ASK_EVERY_S: Final = 0.9
FIRST_ANSWER_S: Final = 0.3
AVAILABLE: Final = "available"
LIMITED: Final = "limited"
UNREACHABLE: Final = "unreachable"
_READY: Final = ("ready", AVAILABLE)


class PartnerView:
    """What the partner last told, asked for anew while somebody looks."""

    def __init__(self, ask: AskPartner, name: Callable[[], str | None], clock: Clock) -> None:
        self._ask_partner = ask
        self._name = name
        self._clock = clock
        self._view = unreachable(name(), "It has not answered yet.")
        self._asked_at: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def look(self) -> Document:
        now = self._clock.monotonic()
        is_due = self._asked_at is None or now - self._asked_at >= ASK_EVERY_S
        if is_due and (self._asking is None or self._asking.done()):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=FIRST_ANSWER_S)
        return self._view

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        try:
            self._view = self._known((await self._ask_partner(PARTNER_PATH)).get("namespace"))
        except BusError as error:
            self._view = unreachable(self._name(), str(error))

    def _known(self, view: object) -> Document:
        """The fields of a view and no others, whatever it may have told beside them."""
        shape = unreachable(self._name(), "Its answer is not one of a namespace.")
        if not isinstance(view, Mapping) or not set(shape) <= set(view):
            return shape
        return {name: view[name] for name in shape}


class Overview:
    def __init__(
        self,
        namespace: Namespace,
        access: Access,
        counters: Counters,
        census: CensusTaker,
        surroundings: Surroundings,
        clock: Clock,
    ) -> None:
        self._namespace = namespace
        self._access = access
        self._counters = counters
        self._census = census
        self._topology = surroundings.topology
        ask = surroundings.ask_partner
        self._partner = None if ask is None else PartnerView(ask, surroundings.partner_name, clock)

    def routes(self) -> list[Route]:
        return [Route("GET", "overview", self._tell, is_about_itself=True)]

    async def stop(self) -> None:
        await self._census.stop()
        if self._partner is not None:
            await self._partner.stop()

    async def _tell(self, request: web.Request) -> web.Response:
        claims = self._access.check_one_of(request, tuple(Right), WHOLE_NAMESPACE)
        is_pair_shown = ALONE not in request.query and self._access.allows(claims, Right.MANAGE, WHOLE_NAMESPACE)
        partner = self._partner if is_pair_shown else None
        own, other = await asyncio.gather(self._view(claims), _look(partner))
        return told({"at": format_time(self._namespace.clock.now()), "namespace": own, "partner": other})

    async def _view(self, claims: Claims) -> Document:
        counted, census, document = await asyncio.gather(self._counters.now(), self._census.look(), self._parts())
        catalog = self._namespace.catalog
        is_managed = self._access.allows(claims, Right.MANAGE, WHOLE_NAMESPACE)
        entities = catalog.queue_count() + catalog.topic_count() + catalog.total_subscription_count()
        is_known = entities == 0 or census.known_entities > 0
        may_count = is_known and self._access.allows(claims, Right.LISTEN, WHOLE_NAMESPACE)
        brokers, stores = (_records(document, name) for name in ("brokers", "stores"))
        state, reason = self._state(brokers, stores)
        return {
            "name": self._namespace.name,
            "state": state,
            "reason": reason if is_managed else None,
            "started_at": format_time(counted.started_at),
            "queues": catalog.queue_count(),
            "topics": catalog.topic_count(),
            "subscriptions": catalog.total_subscription_count(),
            "counted_entities": census.counted_entities,
            "active": census.active if may_count else None,
            "scheduled": census.scheduled if may_count else None,
            "dead_letter": census.dead_letter if may_count else None,
            "size_bytes": census.size_bytes if may_count else None,
            "connections": sum(_int(one.get("connections")) for one in _records(document, "front_ends")),
            "counters": _counters(counted.total),
            "brokers": [{"index": one.get("index"), "state": one.get("state")} for one in brokers],
            "stores": [
                {
                    "index": one.get("index"),
                    "state": one.get("state"),
                    "reason": one.get("reason") if is_managed else None,
                }
                for one in stores
            ],
            "faults": len(self._namespace.faults.standing()),
        }

    async def _parts(self) -> Mapping[str, object]:
        return {} if self._topology is None else await self._topology(TopologyQuery(top=0))

    def _state(
        self, brokers: Sequence[Mapping[str, object]], stores: Sequence[Mapping[str, object]]
    ) -> tuple[str, str | None]:
        outage = self._namespace.faults.namespace_outage()
        if outage is not None:
            return UNREACHABLE, str(outage)
        for kind, parts in (("Messaging store", stores), ("Message broker", brokers)):
            for part in parts:
                if part.get("state") not in _READY:
                    reason = part.get("reason") or f"it is {part.get('state')}"
                    return LIMITED, f"{kind} {part.get('index')}: {reason}"
        return AVAILABLE, None


def unreachable(name: str | None, reason: str) -> Document:
    """A namespace of which nothing is known: the same fields as ever."""
    unknown = ("started_at", "queues", "topics", "subscriptions", "counted_entities", "active", "scheduled")
    return {
        "name": name,
        "state": UNREACHABLE,
        "reason": reason,
        **dict.fromkeys((*unknown, "dead_letter", "size_bytes", "connections")),
        "counters": {"sent": None, "received": None, "completed": None, "operations": None},
        "brokers": [],
        "stores": [],
        "faults": None,
    }


async def _look(partner: PartnerView | None) -> Document | None:
    return None if partner is None else await partner.look()


def _counters(moved: Moved) -> dict[str, int]:
    return {
        "sent": moved.sent,
        "received": moved.received,
        "completed": moved.completed,
        "operations": moved.operations,
    }


def _records(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = document.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
