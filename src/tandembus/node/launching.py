"""The first steps of a namespace of several processes: its brokers are started before this process has loaded all that
it needs itself, so that they open their stores at the same time. Imports little, on purpose."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import final

from tandembus.clock import Clock, SystemClock
from tandembus.config import ServeSettings
from tandembus.node.child_process import ChildProcess, start_child
from tandembus.node.doors import Ports
from tandembus.node.forking import fork_child, may_fork
from tandembus.node.orders import Orders
from tandembus.node.run_folder import RunFolder, ensure_install_key, private_folder
from tandembus.node.store_folders import catalog_folder, require_whole, store_count
from tandembus.node.supervisor import ProcessId, Role, Supervisor
from tandembus.store.folder_lock import FolderLock

log = logging.getLogger("tandembus.node")


@final
class Launch:
    """Whoever goes on from here ends the processes, too (`Supervisor.let_go`)."""

    def __init__(self, settings: ServeSettings, clock: Clock | None = None) -> None:
        """Raises OSError, StoreUnavailable or StoreDamaged for a data folder that cannot be used."""
        self._settings = settings
        private_folder(settings.data)
        require_whole(settings.data)
        self.run = RunFolder(settings.data)
        self.install_key = ensure_install_key(settings.data)
        self.store_count = store_count(settings)
        self._spares: list[ChildProcess] = []
        self.ports: Ports | None = None
        """To be known before a front end is started."""
        brokers = [ProcessId(Role.BROKER, index) for index in range(settings.brokers)]
        front_ends = [ProcessId(Role.FRONT_END, index) for index in range(1, settings.front_ends)]
        self.supervisor = Supervisor(
            brokers + front_ends,
            self._start_child,
            clock or SystemClock(),
            settings.restart_delay_s,
            settings.heartbeat_timeout_s,
        )

    def _start_child(self, process: ProcessId) -> ChildProcess:
        child = self._spare() if process.role is Role.BROKER else None
        if child is None:
            child = start_child(process.role.value, str(process.index), self._settings.name)
        ports = self.ports if process.role is Role.FRONT_END else None
        is_suspect = self.supervisor.processes[process].lives.is_suspect
        orders = Orders(self._settings, self.install_key, process.index, self.store_count, ports, is_suspect)
        child.give(orders.document())
        return child

    # Spares: loading takes longer than all else, and while a broker is started again its entities are out.

    def _spare(self) -> ChildProcess | None:
        """One that is there still, if there is any: the oldest has had the most time to load."""
        self._forget_dead_spares()
        return self._spares.pop(0) if self._spares else None

    def keep_spares(self) -> None:
        """Start those that are missing. They own nothing and do nothing until they are given orders."""
        self._forget_dead_spares()
        try:
            while len(self._spares) < self._settings.spare_brokers:
                self._spares.append(start_child(Role.BROKER.value, "spare", self._settings.name))
        except OSError as error:
            log.warning("no process can be kept as a spare: %s", error)

    async def look_after_spares(self, every_s: float, may_start: Callable[[], bool]) -> None:
        """Replace those that end by themselves, when there is nothing more urgent to start."""
        while True:
            await asyncio.sleep(every_s)
            if may_start():
                self.keep_spares()

    def _forget_dead_spares(self) -> None:
        for spare in [one for one in self._spares if not one.is_alive()]:
            self._spares.remove(spare)
            spare.let_go()

    async def end_spares(self) -> None:
        spares, self._spares = self._spares, []
        for spare in spares:
            spare.kill()
        await asyncio.gather(*[spare.wait() for spare in spares])

    def start_brokers(self) -> None:
        """Raises StoreUnavailable where another process serves this folder: brokers of ours would wait for its stores,
        and take one whose broker it is just starting again."""
        catalog = catalog_folder(self._settings.data)
        if catalog.is_dir():
            FolderLock(catalog).release()
        brokers = self.supervisor.of(Role.BROKER)
        start = fork_child if may_fork() else start_child
        self._spares = [start(one.role.value, str(one.index), self._settings.name) for one in brokers]
        self.supervisor.start(brokers)

    def start_front_ends(self, ports: Ports) -> None:
        self.ports = ports
        self.supervisor.start(self.supervisor.of(Role.FRONT_END))
