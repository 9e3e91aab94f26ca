"""A messaging store of another process, for administration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tandembus.errors import BusError, StoreUnavailable
from tandembus.namespace.entries import Entry
from tandembus.node.catalog_wire import entry_to_wire
from tandembus.node.control_server import ControlledProcess, ControlServer
from tandembus.node.supervisor import ProcessId, Role

MAKE: Final = "make"
CHECK: Final = "check"
ASK_TIMEOUT_S: Final = 10.0


@final
class RemoteStore:
    """Implements `StorePort` over the control connection of the broker that owns the store."""

    def __init__(self, index: int, broker: int, control: ControlServer) -> None:
        self.index = index
        self.broker = ProcessId(Role.BROKER, broker)
        self._control = control

    @property
    def newest_key(self) -> int:
        newest = self.status().get("newest_key")
        return newest if isinstance(newest, int) else 0

    def status(self) -> Mapping[object, object]:
        """What its owner last said of it; nothing, while it has no owner."""
        owner = self._owner()
        stores = owner.status.get("stores") if owner is not None else None
        status = stores.get(self.index) if isinstance(stores, dict) else None
        return status if isinstance(status, dict) else {}

    def failure(self) -> BusError | None:
        owner = self._owner()
        if owner is None:
            return StoreUnavailable(f"Messaging store {self.index} is out of reach: its {self.broker} is down.")
        failure = self.status().get("failure")
        if failure is None:
            return None
        return StoreUnavailable(f"Messaging store {self.index} is out of reach: {failure}")

    def _owner(self) -> ControlledProcess | None:
        process = self._control.find(self.broker)
        return process if process is not None and process.is_serving else None

    async def make(self, entry: Entry) -> None:
        await self._ask(MAKE, entry)

    async def check(self, entry: Entry) -> None:
        await self._ask(CHECK, entry)

    async def _ask(self, name: str, entry: Entry) -> None:
        owner = self._owner()
        if owner is None:
            failure = self.failure()
            raise failure if failure is not None else StoreUnavailable("The message broker is gone.")
        await owner.peer.call(name, [self.index, entry_to_wire(entry)], ASK_TIMEOUT_S)
