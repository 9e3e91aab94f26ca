"""Forwarding between brokers in processes of their own, which are killed while messages are on their way."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator

import pytest

from tandembus.errors import StoreUnavailable
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.processes import Processes, is_ready
from tests.scale import scaled

BROKERS = 3
COUNT = scaled(2_000, 10_000, 10_000)
COMES_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("brokers") / "data", "--brokers", str(BROKERS))
    yield processes
    assert processes.running.stop() == 0, "".join(processes.running.log)


async def make_chain(processes: Processes, prefix: str) -> tuple[str, str, str]:
    """Three queues, each in a store of its own; each forwards to the next."""
    first, middle, last = f"{prefix}-a", f"{prefix}-b", f"{prefix}-c"
    await processes.make_queues(last)
    await processes.make_queues(middle, forward_to=last)
    await processes.make_queues(first, forward_to=middle)
    return first, middle, last


async def kill(processes: Processes, broker: int) -> None:
    """And wait for its return."""
    restarts = (await processes.broker(broker))["restarts"]
    await processes.signal_broker(broker, signal.SIGKILL)
    await processes.until(lambda found: is_ready(found) and found.brokers[broker]["restarts"] != restarts)


async def _has_arrived(processes: Processes, queue: str, count: int) -> bool:
    try:
        return await processes.counts(queue) >= count
    except StoreUnavailable:
        return False  # its broker is not back yet


async def until_arrived(processes: Processes, queue: str, count: int) -> None:
    give_up_at = time.monotonic() + COMES_WITHIN_S
    while not await _has_arrived(processes, queue, count):
        assert time.monotonic() < give_up_at, "they did not arrive"
        await asyncio.sleep(0.05)


@covers("P17", "P28")
async def test_messages_go_from_broker_to_broker_in_order(processes: Processes) -> None:
    first, middle, last = await make_chain(processes, "plain")
    stores = {(await processes.stores_of(name))[0] for name in (first, middle, last)}
    assert len(stores) == BROKERS
    bodies = [str(number) for number in range(COUNT)]
    await processes.send(first, bodies)
    assert await processes.receive_all(last, COUNT) == bodies
    assert await processes.counts(first) == await processes.counts(middle) == 0


@covers("P17")
async def test_messages_go_through_a_partitioned_queue_all_and_once(processes: Processes) -> None:
    bus = Bus(processes.running)
    last = bus.make_queue()
    middle = bus.make_queue(forward_to=last, enable_partitioning=True)
    first = bus.make_queue(forward_to=middle)
    bus.close()
    assert len(set(await processes.stores_of(middle))) == BROKERS
    bodies = [str(number) for number in range(COUNT)]
    await processes.send(first, bodies)
    found = await processes.receive_all(last, COUNT)
    assert sorted(found, key=int) == bodies
    assert await processes.counts(first) == await processes.counts(middle) == 0


@covers("P17", "M1", "F1")
@pytest.mark.parametrize("index", range(BROKERS))
async def test_a_broker_of_the_chain_is_killed_and_nothing_is_lost_or_doubled(processes: Processes, index: int) -> None:
    first, middle, last = await make_chain(processes, f"killed-{index}")
    bodies = [str(number) for number in range(COUNT)]
    (store,) = await processes.stores_of((first, middle, last)[index])
    half = COUNT // 2
    await processes.send(first, bodies[:half])
    await kill(processes, store)
    await processes.send(first, bodies[half:])
    await kill(processes, store)
    await until_arrived(processes, last, COUNT)
    assert await processes.counts(first) == await processes.counts(middle) == 0
    assert await processes.counts(last) == COUNT
    assert await processes.receive_all(last, COUNT) == bodies
