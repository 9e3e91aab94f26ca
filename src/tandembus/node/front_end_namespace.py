"""A namespace in a process that is only a front end: it knows a copy of the catalog, and asks for changes elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tandembus.clock import Clock
from tandembus.descriptions import AuthorizationRule
from tandembus.errors import EntityNotFound, MalformedData
from tandembus.faults.board import FaultBoard
from tandembus.limits import Limits
from tandembus.namespace.entity import Entity
from tandembus.namespace.fragment_source import FragmentSource
from tandembus.namespace.namespace import Namespace
from tandembus.node.catalog_copy import CatalogCopies
from tandembus.node.control_link import ControlLink
from tandembus.node.describing import RemoteDescribing
from tandembus.node.fault_wire import RemoteDesk
from tandembus.node.remote_administration import RemoteAdministration

VERSION: Final = "version"
RENEW_KEY: Final = "renew the root key"


@final
class FrontEndNamespace(Namespace):
    def __init__(
        self,
        name: str,
        copies: CatalogCopies,
        source: FragmentSource,
        link: ControlLink,
        limits: Limits,
        clock: Clock,
        faults: FaultBoard,
    ) -> None:
        super().__init__(name, copies.view, source, RemoteAdministration(link.call), limits, clock, faults)
        self.fault_desk = RemoteDesk(link.call)
        self.describing = RemoteDescribing(link.call)
        self._copies = copies
        self._link = link

    async def entity(self, path: str) -> Entity:
        """Nobody is told that something is not there unless the catalog says so."""
        try:
            return await super().entity(path)
        except EntityNotFound:
            await self.refresh()
            return await super().entity(path)

    async def refresh(self) -> None:
        version = await self._link.call(VERSION)
        if not isinstance(version, int):
            raise MalformedData("a catalog without a version")
        await self._copies.until(version)

    async def renew_key(self) -> Sequence[AuthorizationRule]:
        """All front ends have the new one when this returns, this one included."""
        await self._link.call(RENEW_KEY)
        return self.fixed_policies
