"""All that answers below `/$api/`, put together."""

from __future__ import annotations

from tandembus.clock import Clock
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.acting import Acting
from tandembus.front_end.http.api.browsing import Browsing
from tandembus.front_end.http.api.census import CensusTaker
from tandembus.front_end.http.api.cost import CostRoutes
from tandembus.front_end.http.api.cost_watch import CostWatch
from tandembus.front_end.http.api.counters import Counters
from tandembus.front_end.http.api.entities import EntityRoutes
from tandembus.front_end.http.api.entity_changes import EntityChanges
from tandembus.front_end.http.api.entity_documents import EntityDocuments
from tandembus.front_end.http.api.exporting import Exporting
from tandembus.front_end.http.api.overview import Overview
from tandembus.front_end.http.api.pair import PairRoutes, PairWatch
from tandembus.front_end.http.api.resending import Resending
from tandembus.front_end.http.api.routes import Routes
from tandembus.front_end.http.api.rules import Rules
from tandembus.front_end.http.api.sending import Sending
from tandembus.front_end.http.api.session import SessionRoutes
from tandembus.front_end.http.cookies import TokenCookie
from tandembus.front_end.http.surroundings import MeterSource, Surroundings
from tandembus.metering import Meter
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Authorizer


class JsonApi:
    def __init__(
        self,
        namespace: Namespace,
        authorizer: Authorizer,
        access: Access,
        cookie: TokenCookie,
        meter: Meter,
        totals: MeterSource,
        clock: Clock,
        surroundings: Surroundings,
    ) -> None:
        """`totals`: what the meters of all processes have counted. `clock`: of tokens; the namespace has its own."""
        counters = Counters(totals, clock)
        documents = EntityDocuments(namespace, access, counters, surroundings.topology)
        census = CensusTaker(namespace, documents.counts_of, clock)
        self._overview = Overview(namespace, access, counters, census, surroundings, clock)
        browsing = Browsing(namespace, access, meter)
        sending = Sending(namespace, access, meter, namespace.clock)
        self._pair = PairWatch(namespace, surroundings)
        parts = (
            SessionRoutes(namespace, authorizer, access, cookie, clock, surroundings),
            self._overview,
            EntityRoutes(namespace, access, documents),
            EntityChanges(namespace, access, meter, documents),
            browsing,
            sending,
            Exporting(browsing, access, namespace.limits),
            Acting(namespace, access, meter),
            Resending(namespace, access, meter, browsing, sending),
            Rules(namespace, access, meter, namespace.clock),
            PairRoutes(self._pair, access),
            CostRoutes(namespace, access, totals, CostWatch(namespace, surroundings, self._pair)),
        )
        self.routes = Routes([route for part in parts for route in part.routes()])

    async def stop(self) -> None:
        await self._overview.stop()
        await self._pair.stop()
