"""A whole namespace in a thread of the test process, for tests that block and for those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType

from tandembus.config import Limits
from tandembus.loop_thread import LoopThread
from tandembus.namespace.entity import EntityCounts
from tandembus.testing.asked import Setting
from tandembus.testing.asynchronous import AsyncEmbeddedNamespace, FaultKind, StoreKind


class NamespaceClock:
    """The namespace's time: runs with the machine's, and can be put forward."""

    def __init__(self, namespace: EmbeddedNamespace) -> None:
        self._namespace = namespace

    def now(self) -> datetime:
        """What the namespace takes for the time, in UTC."""
        return self._namespace._inner.clock.now()

    def advance(self, by: float | timedelta) -> None:
        """Let so many seconds pass at once. When this returns, locks have lapsed, messages have expired or become
        active, and idle entities are gone, as they would be then. Connections and tokens do not age."""
        namespace = self._namespace
        namespace._call_thread().call(namespace._inner.clock.advance(by))


class EmbeddedNamespace:
    """`with EmbeddedNamespace() as namespace:` starts one; nothing of it is left behind.

    The arguments are those of `AsyncEmbeddedNamespace`. It can be used from any thread, and from any event loop for
    calls as short as these.
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
        self._inner = AsyncEmbeddedNamespace(
            store=store, config=config, limits=limits, name=name, stores=stores, reservations=reservations
        )
        self._thread: LoopThread | None = None
        self.clock = NamespaceClock(self)

    # Life.

    def start(self) -> None:
        """Returns when connections are accepted."""
        if self._thread is not None:
            raise RuntimeError("the namespace is running already")
        thread = LoopThread("tandembus namespace")
        try:
            thread.call(self._inner.start())
        except BaseException:
            thread.stop()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Clients are told; what was sent is gone."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        try:
            thread.call(self._inner.stop())
        finally:
            thread.stop()

    def __enter__(self) -> EmbeddedNamespace:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _call_thread(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError("the namespace is not running")
        return self._thread

    # Where it is.

    @property
    def connection_string(self) -> str:
        """For the SDKs' clients, without TLS. The administration clients insist on TLS: see `ca_path`."""
        return self._inner.connection_string

    @property
    def tls_connection_string(self) -> str:
        """The form without `UseDevelopmentEmulator`, for clients that trust `ca_path`."""
        return self._inner.tls_connection_string

    @property
    def port(self) -> int:
        """AMQP, WebSockets and HTTP, plain and in TLS."""
        return self._inner.port

    @property
    def ca_path(self) -> Path:
        """The certificate of the authority to trust (`connection_verify`, `NODE_EXTRA_CA_CERTS`)."""
        return self._inner.ca_path

    # Entities.

    def create_queue(self, name: str, **settings: Setting) -> str:
        """Settings are those of the SDK's `create_queue`, durations also as seconds. Returns the name."""
        return self._call_thread().call(self._inner.create_queue(name, **settings))

    def create_topic(self, name: str, **settings: Setting) -> str:
        """As `create_queue`."""
        return self._call_thread().call(self._inner.create_topic(name, **settings))

    def create_subscription(self, topic: str, name: str, *, sql: str | None = None, **settings: Setting) -> str:
        """`sql`: only messages that this filter picks; without it all of them. Returns the path for `counts`."""
        return self._call_thread().call(self._inner.create_subscription(topic, name, sql=sql, **settings))

    def create_rule(self, topic: str, subscription: str, name: str, sql: str, action: str | None = None) -> None:
        """One more rule of a subscription; messages that it picks are changed by the action, if there is one."""
        self._call_thread().call(self._inner.create_rule(topic, subscription, name, sql, action))

    def counts(self, path: str) -> EntityCounts:
        """How many messages are where: `active`, `scheduled`, `dead_letter` and so on."""
        return self._call_thread().call(self._inner.counts(path))

    def availability(self, path: str) -> str:
        """`Available`, or `Limited` while a part of it is out of reach."""
        return self._call_thread().call(self._inner.availability(path))

    # Faults.

    def inject_fault(
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
        slow one, in seconds. `duration`: it ends by itself when so much time has passed on the namespace's clock."""
        injecting = self._inner.inject_fault(
            target, kind, latency=latency, probability=probability, duration=duration, id=id
        )
        return self._call_thread().call(injecting)

    def heal(self, id: str | None = None) -> None:
        """What this fault broke; without an id, everything."""
        self._call_thread().call(self._inner.heal(id))

    @contextmanager
    def fault(
        self,
        target: str,
        kind: FaultKind,
        *,
        latency: float | timedelta | None = None,
        probability: float = 1.0,
    ) -> Iterator[str]:
        """`with namespace.fault("entity/orders", "unavailable"):` heals it at the end."""
        during = self._inner.fault(target, kind, latency=latency, probability=probability)
        thread = self._call_thread()
        injected = thread.call(during.__aenter__())
        try:
            yield injected
        finally:
            thread.call(during.__aexit__(None, None, None))

    def reset(self) -> None:
        """As it was after the start: no entities but those of `config`, no messages, no faults, the machine's time."""
        self._call_thread().call(self._inner.reset())
