"""A further front end of a namespace, in a process of its own, on the same ports as the others.

It keeps nothing: when it is cut off from the process that has the catalog it ends, and is started again. Its clients
connect to another front end meanwhile, and what it had kept ready for them goes back to the brokers at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final, final

from tandembus.clock import SystemClock
from tandembus.errors import MalformedData
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.http.topology import TopologyQuery
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Peer
from tandembus.metering.meter import Meter, MeterTotals
from tandembus.namespace.backlogs import Backlogs
from tandembus.namespace.catalog_change import CatalogEvent
from tandembus.node.catalog_copy import CatalogCopies
from tandembus.node.channels import Channels
from tandembus.node.control_link import ControlLink
from tandembus.node.doors import bind
from tandembus.node.fault_wire import FAULTS, take_faults
from tandembus.node.front_door import FrontDoor
from tandembus.node.front_end_namespace import FrontEndNamespace
from tandembus.node.metering import METER, forget_ended, meter_from_wire, meter_settings, meter_to_wire
from tandembus.node.metrics.front_end_metrics import tell_front_end, tell_meter
from tandembus.node.metrics.gathering import METRICS, ProcessScrape, Scrapes, Teller, process_label
from tandembus.node.metrics.process_metrics import ProcessMetrics
from tandembus.node.orders import Orders
from tandembus.node.stores import build_faults
from tandembus.node.supervisor import Role
from tandembus.node.tracing import start_tracing, trace
from tandembus.node.waiting import first_of
from tandembus.pair_view.view import Seen, seen_from_document, seen_to_document
from tandembus.prometheus import Exposition
from tandembus.security.tls import certificate_names, ensure_certificate
from tandembus.tasks import essential

log = logging.getLogger("tandembus.node")

CUT_OFF: Final = 71
"""Exit code of a front end that must not serve any more."""
ROOT_KEY: Final = "root key"
TOPOLOGY: Final = "topology"
PAIR: Final = "pair"
"""The call that asks what was seen of a pair."""
RECEIVERS: Final = "receivers"
"""The call that asks how many receive from an entity."""


@final
class FrontEndProcess:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._settings = orders.settings
        self._clock = SystemClock()
        self.broken = asyncio.Event()
        self._root_key: str | None = None
        self._door: FrontDoor | None = None

    def _when_broken(self, _error: BaseException) -> None:
        self.broken.set()

    async def run(self) -> int:
        """Returns the exit code, once it was asked to stop or has broken down."""
        self._build()
        meter_stop = asyncio.Event()
        tasks = [
            essential(self._process_metrics.watch(), "metrics", self._when_broken),
            essential(self._link.run(), "control connection", self._when_broken),
            essential(self._meter.run(meter_stop), "meter", self._when_broken),
            essential(self._faults.run(), "faults", self._when_broken),
        ]
        await first_of(self._link.stop_asked, self.broken)
        await self._stop()
        meter_stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._meter.close()
        if self._tracing is not None:
            await self._tracing.stop()
        return 1 if self.broken.is_set() else 0

    def _build(self) -> None:
        orders, settings = self._orders, self._settings
        self._copies = CatalogCopies()
        self._link = self._build_link()
        folder = settings.data / "meter" / f"front-end-{orders.index}"
        self._meter = Meter(self._clock, folder, settings.name, meter_settings(settings.limits))
        party = Party(Role.FRONT_END.value, {"index": orders.index})
        self._channels = Channels(orders.run, orders.install_key, party, settings, self._clock)
        source = self._channels.open(range(orders.store_count), self._when_broken)
        self._faults = build_faults(settings, orders.store_count, self._clock)
        self._namespace = FrontEndNamespace(
            settings.name, self._copies, source, self._link, settings.limits, self._clock, self._faults
        )
        self._namespace.when_broken = self._when_broken
        self._backlogs = Backlogs(self._namespace)
        self._channels.on_turn_end(self._namespace.turn_ended)
        self._copies.on_changed = self._changed
        self._tracing = start_tracing(settings, process_label(Role.FRONT_END, orders.index))
        self._process_metrics = ProcessMetrics(self._clock)
        parts: list[Teller] = [self._process_metrics.tell, self._tell_door, lambda out: tell_meter(self._meter, out)]
        self._scrape = ProcessScrape(process_label(Role.FRONT_END, orders.index), parts)

    def _build_link(self) -> ControlLink:
        orders = self._orders
        link = ControlLink(
            orders.run.control_socket,
            orders.install_key,
            Role.FRONT_END,
            orders.index,
            self._copies,
            self._settings.heartbeat_timeout_s,
        )
        link.on_told = self._hear
        link.on_serving = self._serve
        link.on_cut_off = self._cut_off
        link.status = self._status
        link.handlers.calls.update(
            {
                METER: self._tell_meter,
                METRICS: self._tell_metrics,
                PAIR: self._tell_pair,
                RECEIVERS: self._tell_receivers,
                "accesses": self._tell_accesses,
            }
        )
        return link

    # What it is told.

    async def _hear(self, name: str, value: object) -> None:
        if name == FAULTS:
            take_faults(self._faults, value)
        if name == ROOT_KEY:
            if not isinstance(value, str):
                raise MalformedData("a root key that is no text")
            self._root_key = value
            if self._door is not None:
                self._door.take_key(value)

    async def _changed(self, events: Sequence[CatalogEvent]) -> None:
        self._namespace.apply(events)
        forget_ended(self._meter, events)

    # Serving.

    async def _serve(self) -> None:
        settings = self._settings
        if self._root_key is None:
            raise MalformedData("no root key was told")
        await self._channels.until_up(1.0)
        names = certificate_names(settings.host, (*settings.hosts, *settings.tls_names))
        tls = ensure_certificate(
            settings.data / "tls", names, self._clock.now(), settings.tls_certificate, settings.tls_private_key
        )
        door = FrontDoor(
            settings,
            self._namespace,
            self._meter,
            self._root_key,
            self._clock,
            Surroundings(
                self._topology,
                self._meter_totals,
                pair=self._seen_of_pair,
                metrics=Scrapes(self._metrics).text,
                has_open_metrics=settings.open_metrics,
                serves_a_store=self._channels.is_any_up,
            ),
            self._when_broken,
        )
        await self._namespace.start()
        if settings.key is None:
            self._namespace.renew_root_key = self._namespace.renew_key
        await door.start(tls)
        if self._tracing is not None:
            trace(self._tracing.spans, door.front_end)
        assert self._orders.ports is not None
        door.take_key(self._root_key)  # it may be another one by now
        self._door = door
        door.open(bind(settings, self._orders.ports, is_shared=True))
        door.is_ready = True

    def _cut_off(self) -> None:
        """At once: nobody may meet a front end that does not know what others have acknowledged."""
        log.warning("this front end ends, to be started again")
        os._exit(CUT_OFF)

    async def _topology(self, query: TopologyQuery) -> Mapping[str, object]:
        answer = await self._link.call(TOPOLOGY, [query.entity, query.skip, query.top])
        if not isinstance(answer, dict):
            raise MalformedData("no topology where one must be")
        return answer

    async def _meter_totals(self) -> MeterTotals:
        return meter_from_wire(await self._link.call(METER))

    async def _metrics(self) -> str:
        return str(await self._link.call(METRICS))

    async def _tell_door(self, out: Exposition) -> None:
        if self._door is not None:
            await tell_front_end(self._door, self._meter, out)

    async def _tell_metrics(self, _peer: Peer, _value: object) -> object:
        return await self._scrape.blocks()

    async def _seen_of_pair(self) -> Seen:
        return await asyncio.to_thread(seen_from_document, await self._link.call(PAIR))

    async def _tell_pair(self, _peer: Peer, _value: object) -> object:
        return seen_to_document(self._backlogs.seen())

    def _status(self) -> dict[object, object]:
        return {"connections": 0 if self._door is None else self._door.connection_count}

    async def _tell_meter(self, _peer: Peer, _value: object) -> object:
        return await asyncio.to_thread(meter_to_wire, await self._meter.look())

    async def _tell_receivers(self, _peer: Peer, value: object) -> object:
        if not isinstance(value, str):
            raise MalformedData("a path that is no text")
        return self._namespace.receiver_count(value)

    async def _tell_accesses(self, _peer: Peer, _value: object) -> object:
        return self._namespace.accesses()

    # The end.

    async def _stop(self) -> None:
        self._link.stop_serving()
        if self._door is not None:
            self._door.close()
            await self._channels.until_answered()
            await self._door.stop()
            await self._namespace.stop()
        await self._channels.stop()
