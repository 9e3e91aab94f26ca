"""Reservations over the lives of a namespace: processes killed, more and fewer of them, the extension switched off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandembus.client import OutgoingMessage, ServiceBus, connect
from tandembus.client.entities import QueueSettings
from tandembus.client.reservations import Ranges
from tandembus.errors import NotSupported, StaleEpoch
from tests.covers import covers
from tests.integration.processes import Processes
from tests.integration.serving import RunningNamespace

COUNT = 200
MOST = 1 << 40
QUEUES = {"plain": False, "parted": True}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path / "data", "--brokers", "2", "--front-ends", "2")
    yield processes
    processes.running.stop()


async def connected(processes: Processes) -> ServiceBus:
    return await connect(processes.connection_string)


def count_of(ranges: Ranges) -> int:
    return sum(last - first + 1 for pairs in ranges.values() for first, last in pairs)


@covers("D1")
async def test_reservations_outlive_every_process(processes: Processes) -> None:
    async with processes.administration() as administration:
        for name, partitioning in QUEUES.items():
            await administration.create_queue(name, QueueSettings(partitioning=partitioning))
    kept: dict[str, tuple[int, Ranges]] = {}
    async with await connected(processes) as client:
        for name in QUEUES:
            sender = await client.sender(name)
            await sender.send_many([OutgoingMessage(str(number)) for number in range(COUNT)])
            reservations = await client.reservations(name)
            epoch = await reservations.open_owner("query")
            kept[name] = epoch, (await reservations.reserve("query", epoch, 1, COUNT // 2, MOST)).ranges
    for options in (("--brokers", "1"), ("--brokers", "0"), ("--brokers", "2", "--front-ends", "2")):
        processes.restart(*options, end=RunningNamespace.kill)
        async with await connected(processes) as client:
            for name, (epoch, ranges) in kept.items():
                reservations = await client.reservations(name)
                assert await reservations.reserved("query", epoch) == ranges
                assert (await reservations.reserve("query", epoch, 1, COUNT, MOST)).ranges == ranges
    async with await connected(processes) as client, await connected(processes) as other:
        for name, (epoch, ranges) in kept.items():
            reservations, elsewhere = await client.reservations(name), await other.reservations(name)
            newer = await elsewhere.open_owner("query")
            with pytest.raises(StaleEpoch):
                await reservations.complete_ranges("query", epoch, ranges)
            assert await elsewhere.complete_ranges("query", newer, ranges) == COUNT // 2
            assert count_of((await elsewhere.reserve("query", newer, 1, COUNT, MOST)).ranges) == COUNT // 2


@covers("D1")
async def test_without_reservations_it_answers_as_other_services_do(tmp_path: Path) -> None:
    processes = Processes(tmp_path / "data")
    try:
        async with processes.administration() as administration:
            await administration.create_queue("orders")
        async with await connected(processes) as client:
            await (await client.sender("orders")).send(OutgoingMessage("one"))
            reservations = await client.reservations("orders")
            epoch = await reservations.open_owner("query")
            ranges = (await reservations.reserve("query", epoch, 1, 1, MOST)).ranges
        processes.restart("--no-reservations")
        async with await connected(processes) as client:
            reservations = await client.reservations("orders")
            with pytest.raises(NotSupported):
                await reservations.open_owner("query")
            assert len(await (await client.management("orders")).peek()) == 1
        processes.restart()
        async with await connected(processes) as client:
            assert await (await client.reservations("orders")).complete_ranges("query", epoch, ranges) == 1
    finally:
        processes.running.stop()
