"""The first steps of a namespace of several processes: its brokers are started before this process has loaded all that
it needs itself, so that they load at the same time. Imports little, on purpose."""

from __future__ import annotations

from typing import final

from tandembus.clock import Clock, SystemClock
from tandembus.config import ServeSettings
from tandembus.node.child_process import ChildProcess, start_child
from tandembus.node.doors import Ports
from tandembus.node.orders import Orders
from tandembus.node.run_folder import RunFolder, ensure_install_key, private_folder
from tandembus.node.store_folders import store_count
from tandembus.node.supervisor import ProcessId, Role, Supervisor


@final
class Launch:
    """Whoever goes on from here ends the processes, too (`Supervisor.let_go`)."""

    def __init__(self, settings: ServeSettings, clock: Clock | None = None) -> None:
        """Raises OSError, StoreUnavailable or StoreDamaged for a data folder that cannot be used."""
        self._settings = settings
        private_folder(settings.data)
        self.run = RunFolder(settings.data)
        self.install_key = ensure_install_key(settings.data)
        self.store_count = store_count(settings)
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
        ports = self.ports if process.role is Role.FRONT_END else None
        orders = Orders(self._settings, self.install_key, process.index, self.store_count, ports)
        return start_child(process.role.value, process.index, self._settings.name, orders.document())

    def start_brokers(self) -> None:
        self.supervisor.start(self.supervisor.of(Role.BROKER))

    def start_front_ends(self, ports: Ports) -> None:
        self.ports = ports
        self.supervisor.start(self.supervisor.of(Role.FRONT_END))
