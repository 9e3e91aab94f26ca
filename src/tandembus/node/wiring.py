"""The only place that picks concrete classes: settings in, a running namespace out."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

from tandembus.broker.budget import Budget
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock, SystemClock
from tandembus.config import EMULATOR_KEY, ServeSettings
from tandembus.descriptions import AuthorizationRule
from tandembus.front_end.amqp.front_end import AmqpFrontEnd
from tandembus.front_end.http.server import build_application, build_runner, http_protocol_factory
from tandembus.front_end.listener import Doors, Listener, listen
from tandembus.limits import Limits
from tandembus.metering.files import MeterSettings
from tandembus.metering.meter import Meter
from tandembus.metering.slot import FORWARD, NORMAL
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.local_namespace import LocalNamespace
from tandembus.namespace.policies import build_authorizer, fixed_policies, policy_of
from tandembus.node.emulator import EmulatorConfig, provision
from tandembus.node.stores import build_broker, build_budget, store_count, stores_for_new_entities
from tandembus.security.claims import Authorizer
from tandembus.security.key_file import ensure_key, renew_key
from tandembus.security.sas import ROOT_POLICY, make_connection_string
from tandembus.security.scopes import fold
from tandembus.security.tls import TlsFiles, certificate_names, ensure_certificate, server_context
from tandembus.store.memory import MemoryDisk
from tandembus.store.memory_records import MemoryRecords
from tandembus.tasks import essential

log = logging.getLogger("tandembus")

FACTS_FILE = "namespace.json"


class NamespaceNode:
    """One namespace in one process: started, ready, stopped."""

    def __init__(
        self,
        settings: ServeSettings,
        clock: Clock | None = None,
        emulator: EmulatorConfig | None = None,
        *,
        connection_clock: Clock | None = None,
        is_in_memory: bool = False,
    ) -> None:
        """`emulator`: what its Config.json asks for, read already. `connection_clock`: for tokens and time-outs of
        connections, where `clock` is moved and the clients' clocks are not. `is_in_memory`: no message and no entity
        outlives this object."""
        self.settings = settings
        self._emulator = emulator
        self.clock: Clock = clock or SystemClock()
        self._connection_clock = connection_clock or self.clock
        self._is_in_memory = is_in_memory
        self._disks: dict[int, MemoryDisk] = {}
        self.key = ""
        self.tls: TlsFiles
        self.namespace: LocalNamespace
        self.brokers: list[MessageBroker] = []
        """One for each store."""
        self.meter: Meter
        self.front_end: AmqpFrontEnd
        self.amqp_port = 0
        self.amqps_port: int | None = None
        self.http_port = 0
        self._catalog: Catalog
        self._listeners: list[Listener] = []
        self._meter_stop = asyncio.Event()
        self._meter_task: asyncio.Task[None] | None = None
        self._is_ready = False
        self.broken = asyncio.Event()
        """Set when a part ended that must not: the process cannot be relied on any more and should stop."""

    def _when_broken(self, _error: BaseException) -> None:
        self._is_ready = False
        self.broken.set()

    @property
    def connection_string(self) -> str:
        """For AMQP clients and administration alike: every port serves both."""
        return make_connection_string(
            _reachable(self.settings.host), self.amqp_port, ROOT_POLICY, self.key, use_emulator=True
        )

    async def start(self) -> None:
        """Or, if that fails, nothing of it remains."""
        # First what fails most often, and before anything is opened that would have to be closed again.
        sockets = self._listen()
        async with contextlib.AsyncExitStack() as opened:
            for one in sockets:
                opened.callback(one.close)
            await self._start(sockets, opened)
            opened.pop_all()

    async def _start(self, sockets: list[socket.socket], opened: contextlib.AsyncExitStack) -> None:
        settings, limits = self.settings, self.settings.limits
        data = settings.data
        _make_private(data)
        self.key = ensure_key(data, settings.key)
        names = certificate_names(settings.host, settings.tls_names)
        self.tls = ensure_certificate(
            data / "tls", names, self.clock.now(), settings.tls_certificate, settings.tls_private_key
        )
        self._catalog = self._open_catalog()
        opened.callback(self._catalog.close)
        budget = build_budget(limits, self.clock)
        self.brokers = [self._build_broker(store, budget) for store in range(store_count(settings))]
        for broker in self.brokers:
            broker.when_broken = self._when_broken
            await broker.start()
            opened.push_async_callback(broker.stop)
        self.meter = Meter(self.clock, data / "meter", settings.name, _meter_settings(limits))
        opened.callback(self.meter.close)
        self.namespace = LocalNamespace(
            settings.name, self._catalog, self.brokers, limits, self.clock, stores_for_new_entities(settings)
        )
        self.namespace.on_deleted = self.meter.forget
        for broker in self.brokers:
            broker.forwarding.on_forwarded = self._count_forwarded
        self.namespace.when_broken = self._when_broken
        opened.push_async_callback(self.namespace.stop)
        await self.namespace.start()
        if self._emulator is not None:
            await self._bring_about(self._emulator)
        await self._open_doors(sockets)
        self._meter_task = essential(self.meter.run(self._meter_stop), "meter", self._when_broken)
        self._write_facts()
        self._is_ready = True

    async def _bring_about(self, emulator: EmulatorConfig) -> None:
        done = await provision(self.namespace, emulator)
        log.info("%s: %s", emulator.place.file, done)
        for word, paths in (("created", done.created), ("updated", done.updated)):
            for path in paths:
                log.debug("%s '%s'", word, path)
        if self.settings.accepts_emulator_key:
            log.warning("the key %s, which everybody knows, is accepted from this machine", EMULATOR_KEY)
        else:
            log.info("the key %s is not accepted: %s is not a loopback address", EMULATOR_KEY, self.settings.host)

    def _open_catalog(self) -> Catalog:
        if self._is_in_memory:
            return Catalog(MemoryRecords(), self.clock.now())
        return Catalog.open(self.settings.data / "catalog", self.settings.limits, self.clock.now())

    def _count_forwarded(self, path: str, messages: int, operations: int, size_bytes: int) -> None:
        self.meter.count(fold(path), FORWARD, NORMAL, messages, operations, size_bytes)

    def _build_broker(self, store: int, budget: Budget) -> MessageBroker:
        disk = self._disks.setdefault(store, MemoryDisk()) if self._is_in_memory else None
        return build_broker(self.settings, store, self.clock, budget, disk)

    async def between_commits(self, act: Callable[[], None]) -> None:
        """Something that no commit of any broker may see happen."""
        async with contextlib.AsyncExitStack() as held:
            for broker in self.brokers:
                await held.enter_async_context(broker.commit_lock)
            act()

    async def catch_up(self) -> None:
        """Returns when all that is due by the clock as it is now is done; what one broker does may be another's to go
        on with, so twice."""
        for _ in range(2 if len(self.brokers) > 1 else 1):
            for broker in self.brokers:
                await broker.catch_up()

    def _listen(self) -> list[socket.socket]:
        settings = self.settings
        sockets = [listen(settings.host, settings.amqp_port), listen(settings.host, settings.http_port)]
        self.amqp_port, self.http_port = (one.getsockname()[1] for one in sockets)
        if settings.amqps_port is not None:
            sockets.append(listen(settings.host, settings.amqps_port))
            self.amqps_port = sockets[-1].getsockname()[1]
        return sockets

    async def _open_doors(self, sockets: list[socket.socket]) -> None:
        settings, limits = self.settings, self.settings.limits
        authorizer = build_authorizer(settings, self.key, self._catalog)
        self.namespace.fixed_policies = fixed_policies(settings, self.key)
        if settings.key is None:
            self.namespace.renew_root_key = functools.partial(self._renew_root_key, authorizer)
        self.front_end = AmqpFrontEnd(self.namespace, authorizer, self.meter, self._connection_clock)
        self.front_end.when_broken = self._when_broken
        self.front_end.start()
        application = build_application(
            self.namespace,
            authorizer,
            self.meter,
            self._connection_clock,
            lambda: self._is_ready,
            self.front_end.connection,
        )
        self._runner = build_runner(application)
        await self._runner.setup()
        doors = Doors(
            self.front_end.connection,
            http_protocol_factory(self._runner),
            server_context(self.tls),
            limits,
        )
        self._listeners = [Listener(doors, one) for one in sockets]

    def _renew_root_key(self, authorizer: Authorizer) -> list[AuthorizationRule]:
        self.key = renew_key(self.settings.data)
        fixed = fixed_policies(self.settings, self.key)
        authorizer.set_policies("", [policy_of(rule) for rule in fixed])
        return fixed

    def _write_facts(self) -> None:
        """What the command line needs to find this namespace again; the key stands in a file of its own."""
        facts = {
            "name": self.settings.name,
            "host": _reachable(self.settings.host),
            "amqp_port": self.amqp_port,
            "amqps_port": self.amqps_port,
            "http_port": self.http_port,
            "pid": os.getpid(),
        }
        path = self.settings.data / FACTS_FILE
        path.write_text(json.dumps(facts, indent=2) + "\n")

    async def stop(self) -> None:
        """Commit what was accepted, tell the clients, close."""
        self._is_ready = False
        for listener in self._listeners:
            listener.close()
        self.front_end.stop_reading()
        for broker in self.brokers:
            await broker.stop_forwarding()
        for broker in self.brokers:
            await broker.finish_staged()
        await self.front_end.stop()
        await self._runner.cleanup()
        await self.namespace.stop()
        for broker in self.brokers:
            await broker.stop()
        self._meter_stop.set()
        if self._meter_task is not None:
            await asyncio.gather(self._meter_task, return_exceptions=True)
        self.meter.close()
        self._catalog.close()


def _make_private(data: Path) -> None:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)


def _reachable(host: str) -> str:
    """A wildcard address is one to listen on, not one to connect to."""
    return "localhost" if host in ("0.0.0.0", "::", "127.0.0.1", "::1") else host


def _meter_settings(limits: Limits) -> MeterSettings:
    return MeterSettings(
        roll_size_bytes=limits.meter_file_bytes, total_size_bytes=limits.meter_file_bytes * limits.meter_files
    )
