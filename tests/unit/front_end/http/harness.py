"""An HTTP front end on a real port, before a namespace that only remembers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import aiohttp
from yarl import URL

from tandembus.clock import Clock, SystemClock
from tandembus.descriptions import QueueDescription, check_supported, check_update
from tandembus.errors import EntityAlreadyExists, EntityNotFound
from tandembus.front_end.http.connection import HttpTimings
from tandembus.front_end.http.server import build_application, build_runner, http_protocol_factory
from tandembus.limits import Limits
from tandembus.metering import Meter
from tandembus.namespace.paths import SubQueue
from tandembus.namespace.policies import entity_policies
from tandembus.security.claims import Authorizer, Policy, Right
from tandembus.security.sas import make_token

KEY = "dGhlIGtleSBvZiB0aGUgdGVzdHM="
ROOT = "RootManageSharedAccessKey"


@dataclass(frozen=True)
class MemoryCounts:
    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class MemoryQueue:
    description: QueueDescription
    created_at: float
    updated_at: float


@dataclass
class MemoryNamespace:
    """The namespace's side of the contract with nothing behind it; also its own catalog."""

    clock: Clock = field(default_factory=SystemClock)
    name: str = "contoso"
    created_at: float = 1_600_000_000.0
    limits: Limits = field(default_factory=Limits)
    by_key: dict[str, MemoryQueue] = field(default_factory=dict)
    counts_of: dict[str, MemoryCounts] = field(default_factory=dict)
    purged: list[tuple[str, SubQueue]] = field(default_factory=list)
    failure: BaseException | None = None
    counting_failure: BaseException | None = None

    @property
    def catalog(self) -> MemoryNamespace:
        return self

    def find_queue(self, name: str) -> MemoryQueue | None:
        return self.by_key.get(name.lower())

    def queues(self, skip: int, top: int) -> Sequence[MemoryQueue]:
        return [self.by_key[key] for key in sorted(self.by_key)][skip : skip + top]

    def accessed_at(self, name: str) -> float:
        return self.by_key[name.lower()].created_at

    def policies_of(self, name: str) -> list[Policy]:
        queue = self.find_queue(name)
        return entity_policies(queue.description) if queue is not None else []

    async def create_queue(self, description: QueueDescription) -> MemoryQueue:
        self._fail()
        checked = description.validated(self.limits)
        check_supported(checked)
        if checked.name.lower() in self.by_key:
            raise EntityAlreadyExists(f"The messaging entity '{checked.name}' already exists.")
        return self._keep(MemoryQueue(checked, self.clock.now(), self.clock.now()))

    async def update_queue(self, description: QueueDescription) -> MemoryQueue:
        self._fail()
        known = self.by_key[description.name.lower()]
        checked = description.validated(self.limits)
        check_update(known.description, checked)
        return self._keep(MemoryQueue(checked, known.created_at, self.clock.now()))

    async def delete_queue(self, name: str) -> None:
        self._fail()
        del self.by_key[name.lower()]

    async def counts(self, name: str) -> MemoryCounts:
        if self.counting_failure is not None:
            raise self.counting_failure
        if name.lower() not in self.by_key:
            raise EntityNotFound(name)
        return self.counts_of.get(name, MemoryCounts())

    async def purge(self, name: str, sub_queue: SubQueue) -> int:
        self.purged.append((name, sub_queue))
        return 7

    def _keep(self, queue: MemoryQueue) -> MemoryQueue:
        self.by_key[queue.description.name.lower()] = queue
        return queue

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class Sniffer(asyncio.Protocol):
    """Stands in for the listener: reads the first bytes, then hands the connection over with them."""

    def __init__(self, running: RunningFrontEnd) -> None:
        self._running = running
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are of no common class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._running.hand_over(self._transport, data, self._running.claimed)


@dataclass
class RunningFrontEnd:
    """What a test needs to talk to the front end, and to look behind it."""

    namespace: MemoryNamespace
    authorizer: Authorizer
    meter: Meter
    clock: Clock
    timings: HttpTimings
    port: int = 0
    is_ready: bool = True
    claims_shown: int = 0

    async def start(self, tls: ssl.SSLContext | None) -> asyncio.AbstractServer:
        application = build_application(self.namespace, self.authorizer, self.meter, self.clock, lambda: self.is_ready)
        self.runner = build_runner(application)
        await self.runner.setup()
        self.hand_over = http_protocol_factory(self.runner, self.timings)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Sniffer(self), "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def claimed(self) -> None:
        self.claims_shown += 1

    def token(self, path: str = "", policy: str = ROOT, key: str = KEY, lifetime_s: float = 300.0) -> str:
        uri = f"https://127.0.0.1:{self.port}/{path}"
        return make_token(uri, policy, key, self.clock.now() + lifetime_s)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = "",
    ) -> Reply:
        """One request with a valid token; another one, or None for none, if the test says so."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = token or self.token()
        if body is not None:
            sent.setdefault("Content-Type", "application/atom+xml")
        url = f"http://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession(requote_redirect_url=False) as session,
            session.request(method, URL(url, encoded=True), data=body, headers=sent) as response,
        ):
            return Reply(response.status, dict(response.headers), await response.read())

    async def raw(self, data: bytes, timeout_s: float = 10.0) -> bytes:
        """Whatever comes back until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), timeout_s)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@asynccontextmanager
async def running_front_end(
    folder: Path,
    *,
    limits: Limits | None = None,
    timings: HttpTimings | None = None,
    tls: ssl.SSLContext | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[RunningFrontEnd]:
    clock = clock or SystemClock()
    everything = frozenset([Right.MANAGE])
    policies = [
        Policy(ROOT, KEY, "", everything),
        Policy("sender", "c2VuZA==", "", frozenset([Right.SEND, Right.LISTEN])),
    ]
    namespace = MemoryNamespace(clock, limits=limits or Limits())
    running = RunningFrontEnd(
        namespace,
        Authorizer(policies, entity_policies=namespace.policies_of),
        Meter(clock, folder / "meter", "contoso"),
        clock,
        timings or HttpTimings(),
    )
    server = await running.start(tls)
    try:
        yield running
    finally:
        server.close()
        await running.runner.cleanup()
        running.meter.close()
