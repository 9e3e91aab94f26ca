"""The metrics of all processes of a namespace, gathered by the one that has the catalog and supervises the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, final

from tandembus.clock import Clock
from tandembus.errors import FragmentUnavailable
from tandembus.metering.meter import Meter
from tandembus.namespace.catalog_view import CatalogView
from tandembus.node.control_server import ControlServer
from tandembus.node.front_door import FrontDoor
from tandembus.node.metrics.entity_metrics import tell_catalog
from tandembus.node.metrics.front_end_metrics import tell_front_end, tell_meter
from tandembus.node.metrics.gathering import (
    ANSWERS_WITHIN_S,
    METRICS,
    ProcessScrape,
    Scrapes,
    Teller,
    asked,
    process_label,
    restarts,
    told_by,
)
from tandembus.node.metrics.process_metrics import ProcessMetrics
from tandembus.node.supervisor import ProcessId, Role, Supervisor

OWN_LABEL: Final = process_label(Role.FRONT_END, 0)


@final
class SupervisedMetrics:
    def __init__(
        self, control: ControlServer, supervisor: Supervisor, view: CatalogView, meter: Meter, clock: Clock
    ) -> None:
        self._control = control
        self._supervisor = supervisor
        self._meter = meter
        self.process = ProcessMetrics(clock)
        self.door: FrontDoor | None = None
        """Once there is one."""
        parts: list[Teller] = [
            self.process.tell,
            lambda out: None if self.door is None else tell_front_end(self.door, self._meter, out),
            lambda out: tell_meter(self._meter, out),
            lambda out: tell_catalog(view, out),
        ]
        self._scrape = ProcessScrape(OWN_LABEL, parts)
        self.scrapes = Scrapes(self._gather)

    async def _gather(self) -> str:
        others = [*self._supervisor.of(Role.BROKER), *self._supervisor.of(Role.FRONT_END)]
        told = await asyncio.gather(self._scrape.blocks(), *[self._of(one) for one in others])
        lives = [restarts(label_of(one), self._supervisor.processes[one].lives.restart_count) for one in others]
        return told_by([*told, *lives])

    async def _of(self, process_id: ProcessId) -> Mapping[str, str]:
        return await asked(label_of(process_id), lambda: self._ask(process_id))

    async def _ask(self, process_id: ProcessId) -> object:
        process = self._control.find(process_id)
        if process is None:
            raise FragmentUnavailable(f"{process_id} is not connected.")
        return await process.peer.call(METRICS, None, ANSWERS_WITHIN_S)


def label_of(process_id: ProcessId) -> str:
    return process_label(process_id.role, process_id.index)
