"""A whole namespace in the caller's event loop: real sockets, real protocol, time that can be put forward."""

from __future__ import annotations

import math
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal

from tandembus.clock import JumpingClock, SystemClock
from tandembus.config import Limits, ServeSettings, emulator_limits
from tandembus.descriptions import (
    DEFAULT_RULE_NAME,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.faults.fault import check_is_there, read_fault
from tandembus.faults.faulty_store import StoreFaults
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.namespace import Namespace
from tandembus.node.emulator import EmulatorConfig, provision, read_emulator_config
from tandembus.node.waiting import comes_true
from tandembus.node.wiring import NamespaceNode
from tandembus.security.sas import ROOT_POLICY, make_connection_string
from tandembus.testing.asked import Setting, asked_for, seconds_of

StoreKind = Literal["memory", "lmdb"]
FaultKind = Literal["unavailable", "slow", "throttled", "disk-full"]
MAX_STORES = 64
NOTICED_WITHIN_S = 10.0
HOST = "127.0.0.1"


class AsyncNamespaceClock:
    """The namespace's time: runs with the machine's, and can be put forward."""

    def __init__(self, clock: JumpingClock) -> None:
        self._clock = clock
        self._node: NamespaceNode | None = None

    def now(self) -> datetime:
        """What the namespace takes for the time, in UTC."""
        return datetime.fromtimestamp(self._clock.now(), UTC)

    async def advance(self, by: float | timedelta) -> None:
        """Let so many seconds pass at once. When this returns, locks have lapsed, messages have expired or become
        active, and idle entities are gone, as they would be then. Connections and tokens do not age."""
        node = self._running()
        await node.between_commits(lambda: self._clock.jump(seconds_of(by)))
        node.faults.tick()
        await _stores_have_noticed(node)
        await node.catch_up()
        await node.namespace.keep_house()
        await node.catch_up()

    def _running(self) -> NamespaceNode:
        if self._node is None:
            raise RuntimeError("the namespace is not running")
        return self._node


class AsyncEmbeddedNamespace:
    """`async with AsyncEmbeddedNamespace() as namespace:` starts one; nothing of it is left behind.

    `store`: "memory", or "lmdb" for the real one in a temporary folder. `config`: a Config.json of the Service Bus
    emulator, whose entities are there from the start. `limits`: other limits than a namespace has by default.
    `stores`: how many messaging stores there are, each with a broker of its own; partitioned entities are spread over
    them. `reservations`: whether it offers them; without, it is like any other service.
    """

    def __init__(
        self,
        *,
        store: StoreKind = "memory",
        config: Path | str | None = None,
        limits: Limits | None = None,
        name: str = "tandembus",
        stores: int = 1,
        reservations: bool = True,
    ) -> None:
        if store not in ("memory", "lmdb"):
            raise ValueError(f"store must be 'memory' or 'lmdb', not {store!r}")
        if not 1 <= stores <= MAX_STORES:
            raise ValueError(f"stores must be 1 to {MAX_STORES}, not {stores!r}")
        self._stores = stores
        self._has_reservations = reservations
        self._fault_count = 0
        self._is_in_memory = store == "memory"
        self._limits = limits or (Limits() if config is None else emulator_limits(Limits()))
        self._name = name
        self._config_path = None if config is None else Path(config)
        self._emulator = self._read_config()
        self._jumping = JumpingClock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._node: NamespaceNode | None = None
        self.clock = AsyncNamespaceClock(self._jumping)

    def _read_config(self) -> EmulatorConfig | None:
        return None if self._config_path is None else read_emulator_config(self._config_path, self._limits)

    # Life.

    async def start(self) -> None:
        """Returns when connections are accepted."""
        if self._node is not None:
            raise RuntimeError("the namespace is running already")
        self._folder = tempfile.TemporaryDirectory(prefix="tandembus-", ignore_cleanup_errors=True)
        node = NamespaceNode(
            self._settings(Path(self._folder.name)),
            self._jumping,
            self._emulator,
            connection_clock=SystemClock(),
            is_in_memory=self._is_in_memory,
        )
        try:
            await node.start()
        except BaseException:
            self._folder.cleanup()
            raise
        self._node = self.clock._node = node

    def _settings(self, folder: Path) -> ServeSettings:
        return ServeSettings(
            name=self._name,
            data=folder / "data",
            host=HOST,
            amqp_port=0,
            amqps_port=None,
            http_port=0,
            emulator_config=self._config_path,
            limits=self._limits,
            stores=self._stores,
            reservations=self._has_reservations,
        )

    async def stop(self) -> None:
        """Clients are told; what was sent is gone."""
        if self._node is None or self._folder is None:
            return
        node, self._node = self._node, None
        self.clock._node = None
        try:
            await node.stop()
        finally:
            self._folder.cleanup()

    async def __aenter__(self) -> AsyncEmbeddedNamespace:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Where it is.

    @property
    def node(self) -> NamespaceNode:
        return self.clock._running()

    @property
    def namespace(self) -> Namespace:
        return self.node.namespace

    @property
    def connection_string(self) -> str:
        """For the SDKs' clients, without TLS. The administration clients insist on TLS: see `ca_path`."""
        return self.node.connection_string

    @property
    def tls_connection_string(self) -> str:
        """The form without `UseDevelopmentEmulator`, for clients that trust `ca_path`."""
        return make_connection_string("localhost", self.port, ROOT_POLICY, self.node.key, use_emulator=False)

    @property
    def port(self) -> int:
        """AMQP, WebSockets and HTTP, plain and in TLS."""
        return self.node.ports.amqp

    @property
    def ca_path(self) -> Path:
        """The certificate of the authority to trust (`connection_verify`, `NODE_EXTRA_CA_CERTS`)."""
        path = self.node.tls.ca_path
        assert path is not None
        return path

    # Entities.

    async def create_queue(self, name: str, **settings: Setting) -> str:
        """Settings are those of the SDK's `create_queue`, durations also as seconds. Returns the name."""
        await self.namespace.create_queue(QueueDescription(name, **asked_for(QueueDescription, settings)))  # type: ignore[arg-type]
        return name

    async def create_topic(self, name: str, **settings: Setting) -> str:
        """As `create_queue`."""
        await self.namespace.create_topic(TopicDescription(name, **asked_for(TopicDescription, settings)))  # type: ignore[arg-type]
        return name

    async def create_subscription(self, topic: str, name: str, *, sql: str | None = None, **settings: Setting) -> str:
        """`sql`: only messages that this filter picks; without it all of them. Returns the path for `counts`."""
        fields = asked_for(SubscriptionDescription, settings)
        description = SubscriptionDescription(topic, name, **fields)  # type: ignore[arg-type]
        rule = None if sql is None else RuleDescription(DEFAULT_RULE_NAME, SqlFilter(sql))
        await self.namespace.create_subscription(description, rule)
        return description.path

    async def create_rule(self, topic: str, subscription: str, name: str, sql: str, action: str | None = None) -> None:
        """One more rule of a subscription; messages that it picks are changed by the action, if there is one."""
        rule = RuleDescription(name, SqlFilter(sql), None if action is None else SqlAction(action))
        await self.namespace.create_rule(topic, subscription, rule)

    async def counts(self, path: str) -> EntityCounts:
        """How many messages are where: `active`, `scheduled`, `dead_letter` and so on."""
        return await self.namespace.counts(path)

    async def availability(self, path: str) -> str:
        """`Available`, or `Limited` while a part of it is out of reach."""
        return "Limited" if (await self.namespace.condition(path)).is_limited else "Available"

    # Faults.

    async def inject_fault(
        self,
        target: str,
        kind: FaultKind,
        *,
        latency: float | timedelta | None = None,
        probability: float = 1.0,
        duration: float | timedelta | None = None,
        id: str | None = None,
    ) -> str:
        """Make a part of the namespace fail from now on (docs/faults.md); returns the id of the fault. `latency`: of a
        slow one, in seconds. `duration`: it ends by itself when so many have passed on the namespace's clock."""
        self._fault_count += 1
        document = {
            "target": target,
            "kind": kind,
            "latency_ms": None if latency is None else _milliseconds(seconds_of(latency)),
            "probability": probability,
            "for_s": None if duration is None else seconds_of(duration),
        }
        fault = read_fault(f"fault-{self._fault_count}" if id is None else id, document)
        namespace = self.namespace
        check_is_there(fault.target, namespace.faults.topology, self._fragments_of)
        await namespace.fault_desk.put(fault)
        await _stores_have_noticed(self.node)
        return fault.id

    def _fragments_of(self, path: str) -> int | None:
        entry = self.namespace.catalog.find(path)
        return None if entry is None else len(entry.stores)

    async def heal(self, id: str | None = None) -> None:
        """What this fault broke; without an id, everything."""
        if id is None:
            await self.namespace.fault_desk.clear()
        else:
            await self.namespace.fault_desk.remove(id)
        await _stores_have_noticed(self.node)

    @asynccontextmanager
    async def fault(
        self,
        target: str,
        kind: FaultKind,
        *,
        latency: float | timedelta | None = None,
        probability: float = 1.0,
    ) -> AsyncIterator[str]:
        """`async with namespace.fault("entity/orders", "unavailable"):` heals it at the end."""
        injected = await self.inject_fault(target, kind, latency=latency, probability=probability)
        try:
            yield injected
        finally:
            if self._node is not None and injected in [each.fault.id for each in self.namespace.faults.standing()]:
                await self.heal(injected)

    async def reset(self) -> None:
        """As it was after the start: no entities but those of `config`, no messages, no faults, the machine's time."""
        namespace = self.namespace
        await self.heal()
        for topic in namespace.catalog.topics():
            await namespace.delete_topic(topic.key)
        for queue in namespace.catalog.queues():
            await namespace.delete_queue(queue.key)
        for policy in namespace.catalog.policies():
            await namespace.remove_policy(policy.key_name)
        self._jumping.set_right()
        if self._emulator is not None:
            await provision(namespace, self._emulator)


def _milliseconds(seconds: float) -> int:
    """A moment shorter than one is one; none, or less than none, is left to be refused."""
    return round(seconds * 1000) or math.ceil(seconds * 1000)


async def _stores_have_noticed(node: NamespaceNode) -> None:
    """A store that is out is given up, and one that is healed is open again: both take a moment."""
    await comes_true(lambda: all(_has_noticed(node, store) for store in range(len(node.brokers))), NOTICED_WITHIN_S)


def _has_noticed(node: NamespaceNode, store: int) -> bool:
    is_out = StoreFaults(node.faults, store).outage() is not None
    return is_out == (node.brokers[store].failure is not None)
