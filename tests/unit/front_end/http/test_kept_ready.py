"""A connection that stays open keeps its place in line at a partitioned entity, and gives it up in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tandembus.descriptions import QueueDescription
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.front_end.http import kept_ready
from tandembus.limits import Limits
from tandembus.namespace.entity import Entity
from tandembus.namespace.partitioned_traffic import PartitionedTraffic
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.namespace.partitioned_queue import until


@pytest.fixture
async def front_end(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path) as running:
        yield running


class Client:
    """One connection, kept alive until the test closes it."""

    def __init__(self, running: RunningFrontEnd) -> None:
        self._running = running
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1))

    async def receive(self, queue: str, method: str = "DELETE", **headers: str) -> tuple[int, bytes]:
        url = f"http://127.0.0.1:{self._running.port}/{queue}/messages/head?timeout=5"
        sent = {"Authorization": self._running.token(), **headers}
        async with self._session.request(method, url, headers=sent) as response:
            return response.status, await response.read()

    async def close(self) -> None:
        await self._session.close()


async def filled(running: RunningFrontEnd, name: str, count: int = FRAGMENT_COUNT) -> Entity:
    await running.namespace.create_queue(QueueDescription(name, enable_partitioning=True))
    for number in range(count):
        assert (await running.request("POST", f"/{name}/messages", str(number))).status == 201
    return await running.namespace.entity(name)


def kept_count(entity: Entity) -> int:
    assert isinstance(entity.traffic, PartitionedTraffic)
    cache = entity.traffic.cache(MAIN)
    return 0 if cache is None else len(cache)


@covers("P21")
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_what_the_other_fragments_answered_with_is_ready_for_the_next_request(
    front_end: RunningFrontEnd, method: str
) -> None:
    entity = await filled(front_end, "orders")
    client = Client(front_end)
    bodies = [(await client.receive("orders", method))[1]]
    await until(lambda: kept_count(entity) == FRAGMENT_COUNT - 1)
    for left in range(FRAGMENT_COUNT - 2, -1, -1):
        bodies.append((await client.receive("orders", method))[1])
        assert kept_count(entity) == left
    assert sorted(map(int, bodies)) == list(range(FRAGMENT_COUNT))
    await client.close()


@covers("P21", "P6")
async def test_nothing_is_kept_for_a_connection_that_has_closed(front_end: RunningFrontEnd) -> None:
    entity = await filled(front_end, "orders")
    client = Client(front_end)
    await client.receive("orders")
    await until(lambda: kept_count(entity) > 0)
    await client.close()
    await until(lambda: kept_count(entity) == 0 and not entity.links)
    other = Client(front_end)
    for _ in range(FRAGMENT_COUNT - 1):
        assert (await other.receive("orders"))[0] == 200
    await other.close()


@covers("P21")
async def test_nothing_is_kept_for_a_request_that_wants_the_connection_closed(front_end: RunningFrontEnd) -> None:
    entity = await filled(front_end, "orders")
    client = Client(front_end)
    await client.receive("orders", Connection="close")
    await until(lambda: kept_count(entity) == 0 and not entity.links)
    await client.close()


@covers("P21")
async def test_the_place_is_given_up_with_what_was_kept_when_no_other_request_comes(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, limits=Limits(receive_cache_s=0.05)) as front_end:
        entity = await filled(front_end, "orders")
        client = Client(front_end)
        await client.receive("orders")
        await asyncio.wait_for(until(lambda: kept_count(entity) == 0 and not entity.links), 5.0)
        assert (await client.receive("orders"))[0] == 200
        await client.close()


async def test_a_connection_that_asks_everywhere_keeps_its_last_places(
    front_end: RunningFrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_ready, "MOST_ENTITIES", 2)
    entities = [await filled(front_end, name, 2) for name in ("one", "two", "three")]
    client = Client(front_end)
    for name in ("one", "two", "one", "three"):
        assert (await client.receive(name))[0] == 200
    await until(lambda: [len(entity.links) for entity in entities] == [1, 0, 1])
    await client.close()


async def test_a_place_ends_with_its_entity(front_end: RunningFrontEnd) -> None:
    entity = await filled(front_end, "orders")
    client = Client(front_end)
    await client.receive("orders")
    await front_end.namespace.delete_queue("orders")
    assert not entity.links
    assert (await client.receive("orders"))[0] == 404
    await client.close()


async def test_a_plain_entity_needs_no_place(front_end: RunningFrontEnd) -> None:
    await front_end.namespace.create_queue(QueueDescription("plain"))
    await front_end.request("POST", "/plain/messages", b"one")
    client = Client(front_end)
    assert await client.receive("plain") == (200, b"one")
    entity = await front_end.namespace.entity("plain")
    await until(lambda: not entity.links)
    await client.close()
