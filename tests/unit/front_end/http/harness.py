"""An HTTP front end on a real port, before a namespace that lives in memory."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
from yarl import URL

from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock, SystemClock
from tandembus.descriptions import AuthorizationRule, QueueDescription
from tandembus.front_end.http.connection import HttpConnection, HttpTimings
from tandembus.front_end.http.server import build_application, build_runner, http_protocol_factory
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.listener import Doors, Listener, Speaker, listen
from tandembus.limits import Limits
from tandembus.metering import Meter
from tandembus.namespace.catalog import Catalog, QueueEntry
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entity import Entity, EntityCounts
from tandembus.namespace.local_namespace import LocalNamespace
from tandembus.namespace.policies import entity_policies, policy_of
from tandembus.security.claims import Authorizer, Policy, Right
from tandembus.security.one_time_codes import OneTimeCodes
from tandembus.security.sas import make_token
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MessagingStore
from tests.unit.namespace.namespace_lives import Power, Records

CREATED_AT = 1_600_000_000.0
KEY = "dGhlIGtleSBvZiB0aGUgdGVzdHM="
ROOT = "RootManageSharedAccessKey"


class FailingNamespace(LocalNamespace):
    """A namespace over memory that fails when the test says so."""

    failure: BaseException | None = None
    counting_failure: BaseException | None = None
    asked_for: list[str]
    """Entities that were opened, or found open."""

    async def create_queue(self, description: QueueDescription) -> QueueEntry:
        self._fail()
        return await super().create_queue(description)

    async def update_queue(self, description: QueueDescription) -> QueueEntry:
        self._fail()
        return await super().update_queue(description)

    async def delete_queue(self, name: str) -> None:
        self._fail()
        await super().delete_queue(name)

    async def entity(self, path: str) -> Entity:
        self.asked_for.append(path)
        return await super().entity(path)

    async def counts(self, path: str) -> EntityCounts:
        if self.counting_failure is not None:
            raise self.counting_failure
        return await super().counts(path)

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def policies_in(catalog: CatalogView, key: str) -> list[Policy]:
    if not key:
        return [policy_of(rule) for rule in catalog.policies()]
    entry = catalog.find_queue(key) or catalog.find_topic(key)
    return entity_policies(entry.description) if entry is not None else []


def memory_namespace(clock: Clock, limits: Limits) -> FailingNamespace:
    disk = MemoryDisk()

    async def open_store() -> MessagingStore:
        return MemoryStore(disk)

    catalog = Catalog(Records(Power()), CREATED_AT)
    namespace = FailingNamespace("contoso", catalog, [MessageBroker(open_store, clock)], limits, clock)
    namespace.asked_for = []
    namespace.fixed_policies = [AuthorizationRule(ROOT, KEY, "", frozenset(["Manage"]))]
    return namespace


def _no_amqp(claimed: Callable[[], None]) -> Speaker:
    raise AssertionError("these tests speak HTTP only")


@dataclass
class RunningFrontEnd:
    """What a test needs to talk to the front end, and to look behind it."""

    namespace: FailingNamespace
    authorizer: Authorizer
    meter: Meter
    clock: Clock
    timings: HttpTimings
    surroundings: Surroundings
    port: int = 0
    is_ready: bool = True
    serves_a_store: bool = True
    claims_shown: int = 0

    async def start(self, tls: ssl.SSLContext | None) -> Listener:
        application = build_application(
            self.namespace,
            self.authorizer,
            self.meter,
            self.clock,
            lambda: self.is_ready,
            surroundings=replace(self.surroundings, serves_a_store=lambda: self.serves_a_store),
        )
        self.runner = build_runner(application)
        await self.runner.setup()
        self.hand_over = http_protocol_factory(self.runner, self.timings)
        self.doors = Doors(_no_amqp, self._hand_over, tls, self.namespace.limits)
        listening = listen("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        return Listener(self.doors, listening)

    def _hand_over(self, transport: asyncio.Transport, data: bytes, claimed: Callable[[], None]) -> HttpConnection:
        def counted() -> None:
            self.claims_shown += 1
            claimed()

        return self.hand_over(transport, data, counted)

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
    surroundings: Surroundings | None = None,
) -> AsyncIterator[RunningFrontEnd]:
    clock = clock or SystemClock()
    everything = frozenset([Right.MANAGE])
    policies = [
        Policy(ROOT, KEY, "", everything),
        Policy("sender", "c2VuZA==", "", frozenset([Right.SEND, Right.LISTEN])),
    ]
    namespace = memory_namespace(clock, limits or Limits())
    running = RunningFrontEnd(
        namespace,
        Authorizer(policies, entity_policies=functools.partial(policies_in, namespace.catalog)),
        Meter(clock, folder / "meter", "contoso"),
        clock,
        timings or HttpTimings(),
        surroundings or Surroundings(codes=OneTimeCodes(folder)),
    )
    await namespace.brokers[0].start()
    await namespace.start()
    server = await running.start(tls)
    try:
        yield running
    finally:
        server.close()
        await running.runner.cleanup()
        await namespace.stop()
        await namespace.brokers[0].stop()
        running.meter.close()
