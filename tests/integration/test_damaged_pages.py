"""Pages of LMDB that a disk has damaged: a namespace starts, serves what is sound, and names what is not."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.client.topology import Topology
from tandembus.errors import BusError, StoreDamaged
from tandembus.store.embedded.keys import PLACE_BYTES
from tandembus.store.embedded.lmdb_file import HAS_OVERFLOW, IS_LEAF, NODE, PAGE
from tandembus.store.embedded.lmdb_pages import check_catalog_pages, find_store_damage
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.processes import Processes
from tests.integration.serving import STOPS_WITHIN_S, RunningNamespace, serving

PAGE_BYTES = 4096
SHAPES = (("--stores", "2"), ("--brokers", "2"))
STORE = "stores/0/data.mdb"
BODIES = [f"{number}" * 1_000 for number in range(10, 40)] + [f"{number}" * 4_000 for number in range(10, 20)]


def queues_of(namespace: RunningNamespace) -> set[str]:
    bus = Bus(namespace)
    try:
        return {queue.name for queue in bus.admin.list_queues()}
    finally:
        bus.close()


def pages_in_use(path: Path) -> list[int]:
    """Of a catalog: where damage matters."""
    whole, found = path.read_bytes(), []
    for number in range(len(whole) // PAGE_BYTES):
        damage(path, number, bytes(PAGE_BYTES))
        try:
            check_catalog_pages(path)
        except StoreDamaged:
            found.append(number)
        path.write_bytes(whole)
    return found


def damage(path: Path, number: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(number * PAGE_BYTES)
        file.write(content)


@covers("F6", "P1")
def test_a_damaged_page_of_the_catalog_or_of_a_copy_keeps_no_namespace_from_starting(tmp_path: Path) -> None:
    sound = tmp_path / "sound"
    with serving(sound, *SHAPES[0]) as namespace:
        bus = Bus(namespace)
        for number in range(6):
            bus.admin.create_queue(f"queue-{number}")
        bus.close()
        names = queues_of(namespace)
    catalog, copy = "catalog/data.mdb", "stores/1/catalog/data.mdb"
    pages = {name: pages_in_use(sound / name) for name in (catalog, copy)}
    chance = random.Random(8)
    for turn in range(5):
        data = tmp_path / f"data-{turn}"
        shutil.copytree(sound, data)
        for name in (catalog, copy):
            content = chance.choice((bytes(PAGE_BYTES), chance.randbytes(PAGE_BYTES)))
            damage(data / name, pages[name][turn % len(pages[name])], content)
        with serving(data, *SHAPES[turn % 2]) as namespace:
            assert queues_of(namespace) == names
        for name in (catalog, copy):
            check_catalog_pages(data / name)
            assert (data / name).parent.with_name("catalog.damaged-1").is_dir()


def body_pages(data: bytes) -> Iterator[tuple[int, list[int]]]:
    """Pages that hold bodies, also those that are not in use any more, and where the nodes of each are."""
    for start in range(2 * PAGE_BYTES, len(data), PAGE_BYTES):
        number, _, kind, lower, _ = PAGE.unpack_from(data, start)
        if number * PAGE_BYTES == start and kind == IS_LEAF:
            places = struct.iter_unpack("=H", data[start + PAGE.size : start + lower])
            nodes = [start + at for (at,) in places if NODE.unpack_from(data, start + at)[3] == PLACE_BYTES]
            if nodes:
                yield start, nodes


def zero_a_page(path: Path) -> None:
    """One that is in use."""
    whole = path.read_bytes()
    for start, _ in body_pages(whole):
        damage(path, start // PAGE_BYTES, bytes(PAGE_BYTES))
        if find_store_damage(path):
            return
        path.write_bytes(whole)
    raise AssertionError("there are no bodies")


def prolong_bodies(path: Path) -> None:
    """Bodies that are larger than a page reach far behind the end of the file: whoever reads one ends by a signal."""
    whole = bytearray(path.read_bytes())
    for _, nodes in body_pages(bytes(whole)):
        for at in nodes:
            if NODE.unpack_from(whole, at)[2] == HAS_OVERFLOW:
                whole[at : at + 4] = (0x7FFFFFFF).to_bytes(4, "little")
    path.write_bytes(whole)


@contextlib.contextmanager
def ended_at_last(processes: Processes) -> Iterator[Processes]:
    try:
        yield processes
    finally:
        processes.running.kill()


async def filled(data: Path, shape: tuple[str, ...]) -> Processes:
    """Stopped, with messages in two queues, each in a store of its own."""
    processes = Processes(data, *shape)
    await processes.make_queues("a", "b")
    assert (await processes.stores_of("a"), await processes.stores_of("b")) == ([0], [1])
    for name in ("a", "b"):
        await processes.send(name, BODIES)
    assert processes.running.stop() == 0
    return processes


async def receive(processes: Processes) -> None:
    """What comes of the damaged store is not the question."""
    with contextlib.suppress(BusError, OSError):
        await processes.receive_all("a", len(BODIES), 1.0)


async def assert_the_other_store_is_served(processes: Processes) -> None:
    assert await processes.receive_all("b", len(BODIES)) == BODIES
    await processes.send("b", BODIES)
    async with processes.administration() as administration:
        availability = {queue.name: queue.availability_status async for queue in administration.queues()}
    assert availability == {"a": "Limited", "b": "Available"}


def is_named(topology: Topology) -> bool:
    reason = str(topology.stores[0]["reason"])
    return "stores/0/data.mdb is damaged: tree 'body': page" in reason


@covers("F6")
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_zeroed_page_of_bodies_takes_out_its_store_only(tmp_path: Path, shape: tuple[str, ...]) -> None:
    processes = await filled(tmp_path / "data", shape)
    zero_a_page(processes.data / STORE)
    before = (processes.data / STORE).stat().st_size
    processes.restart(*shape)
    with ended_at_last(processes):
        await receive(processes)
        found = await processes.until(is_named)
        assert [one["state"] for one in found.stores] == ["unavailable", "available"]
        assert all(one["restarts"] in (0, 1, 2) for one in found.brokers)
        await assert_the_other_store_is_served(processes)
        assert processes.running.stop() == 0
    assert (processes.data / STORE).stat().st_size == before


@covers("F6")
async def test_a_store_that_ends_its_broker_by_a_signal_twice_is_fenced(tmp_path: Path) -> None:
    processes = await filled(tmp_path / "data", SHAPES[1])
    prolong_bodies(processes.data / STORE)
    processes.restart(*SHAPES[1])
    with ended_at_last(processes):
        for crashes in (1, 2):
            await receive(processes)
            await processes.until(lambda found: found.brokers[0]["restarts"] == crashes)  # noqa: B023
            await processes.until(lambda found: found.brokers[0]["state"] == "ready")
        found = await processes.until(is_named)
        assert [one["restarts"] for one in found.brokers] == [2, 0]
        await receive(processes)
        await assert_the_other_store_is_served(processes)
        assert (await processes.broker(0))["restarts"] == 2
        assert processes.running.stop() == 0


@covers("F6", "F2")
async def test_a_store_that_ends_its_namespace_by_a_signal_twice_is_fenced(tmp_path: Path) -> None:
    processes = await filled(tmp_path / "data", SHAPES[0])
    prolong_bodies(processes.data / STORE)
    for _ in range(2):
        processes.restart(*SHAPES[0])
        with ended_at_last(processes):
            assert (await processes.topology()).stores[0]["state"] == "available", "a single unclean stop opens at once"
            await receive(processes)
            assert processes.running.process.wait(STOPS_WITHIN_S) in (-signal.SIGBUS, -signal.SIGSEGV)
    for _ in range(2):
        processes.restart(*SHAPES[0])
        with ended_at_last(processes):
            assert is_named(await processes.topology())
            await receive(processes)
            await assert_the_other_store_is_served(processes)
            assert processes.running.stop() == 0
