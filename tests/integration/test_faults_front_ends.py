"""Two front ends and two brokers: a fault that one front end has acknowledged holds at the other at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TypeVar

import pytest

from tandembus.client.errors import ConnectionLost
from tandembus.client.faults import Faults
from tandembus.client.messages import OutgoingMessage
from tandembus.client.service_bus import ServiceBus
from tandembus.errors import BusError, ServerBusy, StoreUnavailable
from tests.covers import covers
from tests.integration.processes import Processes
from tests.integration.served import connections_at

T = TypeVar("T")
FRONT_ENDS = 2
AT_ONCE_S = 5.0
"""On a busy machine; it would be ten minutes otherwise."""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    options = ("--brokers", "2", "--front-ends", str(FRONT_ENDS))
    processes = Processes(tmp_path_factory.mktemp("two-and-two") / "data", *options)
    yield processes
    assert processes.running.stop() == 0, "".join(processes.running.log)


async def one_at_each(
    processes: Processes, stack: AsyncExitStack, connect: Callable[[], AbstractAsyncContextManager[T]]
) -> list[T]:
    """A connection to each front end, in their order: the system shares them out as it likes, so as many are opened as
    that takes."""
    pids = [int(str(one["pid"])) for one in (await processes.until_ready()).front_ends]
    ports = (processes.running.port, processes.running.http_port)
    found: dict[int, T] = {}
    for _ in range(100):
        before = [connections_at(pid, ports) for pid in pids]
        made = await stack.enter_async_context(connect())
        (index,) = [index for index, pid in enumerate(pids) if connections_at(pid, ports) - before[index]]
        found.setdefault(index, made)
        if len(found) == len(pids):
            return [found[index] for index in range(len(pids))]
    raise AssertionError(f"all connections went to the front ends {sorted(found)}")


@asynccontextmanager
async def faults_of(processes: Processes) -> AsyncIterator[Faults]:
    async with processes.administration() as administration:
        faults = Faults(administration.requests)
        await faults.all()  # connected, and stays so
        yield faults


@asynccontextmanager
async def both(processes: Processes) -> AsyncIterator[tuple[list[Faults], list[ServiceBus]]]:
    """Those who ask for faults, and clients; the first of each at the first front end."""
    async with AsyncExitStack() as stack:
        asking = await one_at_each(processes, stack, lambda: faults_of(processes))
        clients = await one_at_each(processes, stack, processes.client)
        try:
            yield asking, clients
        finally:
            await asking[0].clear()


each_way = pytest.mark.parametrize(("asked", "other"), [(0, 1), (1, 0)], ids=["0 to 1", "1 to 0"])


@covers("B3")
@each_way
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
@pytest.mark.parametrize(("kind", "error"), [("throttled", ServerBusy), ("unavailable", StoreUnavailable)])
async def test_a_fault_set_at_one_front_end_holds_at_the_other_and_is_healed_there(
    processes: Processes, asked: int, other: int, is_partitioned: bool, kind: str, error: type[BusError]
) -> None:
    name = f"{kind}-{is_partitioned}-{asked}"
    await processes.make_queues(name, partitioning=is_partitioned)
    async with both(processes) as (asking, clients):
        senders = [await client.sender(name) for client in clients]
        for sender in senders:
            await sender.send(OutgoingMessage(b"before"))
        await asking[asked].put("f", f"entity/{name}", kind)
        for sender in (senders[other], senders[asked]):
            with pytest.raises(error, match="injected fault 'f'"):
                await sender.send(OutgoingMessage(b"during"))
        assert [each.id for each in await asking[other].all()] == ["f"]
        await asking[other].remove("f")
        for sender in (senders[asked], senders[other]):
            await sender.send(OutgoingMessage(b"after"))
    assert await processes.counts(name) == 2 * FRONT_ENDS


@covers("B3")
@each_way
async def test_a_receiver_at_the_other_front_end_gets_nothing_more_and_everything_when_healed(
    processes: Processes, asked: int, other: int
) -> None:
    name = f"receiver-{asked}"
    await processes.make_queues(name)
    async with both(processes) as (asking, clients):
        receiver = await clients[other].receiver(name)
        waiting = asyncio.create_task(receiver.receive(1, 30.0))
        await asking[asked].put("f", f"entity/{name}", "slow", latency_ms=600_000)
        sender = await clients[asked].sender(name)
        sending = asyncio.create_task(sender.send(OutgoingMessage(b"x")))
        await asking[asked].all()
        assert not sending.done()
        healed_at = time.monotonic()
        await asking[other].clear()
        await sending
        assert [message.body for message in await waiting] == [b"x"]
        assert time.monotonic() - healed_at < AT_ONCE_S


@covers("B3")
@each_way
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
async def test_what_was_completed_before_its_receiver_was_closed_is_completed_however_slow(
    processes: Processes, asked: int, other: int, is_partitioned: bool
) -> None:
    name = f"completed-{is_partitioned}-{asked}"
    await processes.make_queues(name, partitioning=is_partitioned)
    await processes.send(name, ["x"])
    async with both(processes) as (asking, clients):
        receiver = await clients[other].receiver(name)
        (message,) = await receiver.receive(1, 10.0)
        await asking[asked].put("f", f"entity/{name}", "slow", latency_ms=500)
        completing = asyncio.create_task(receiver.complete(message))
        await asyncio.sleep(0)  # it is written, and the answer is not waited for
        await receiver.close()
        with suppress(ConnectionLost):
            await completing
        give_up_at = time.monotonic() + 10.0
        while await processes.counts(name) > 0:
            assert time.monotonic() < give_up_at, "it came back, or is still locked"


@covers("B3")
@each_way
async def test_a_namespace_that_is_taken_out_at_one_front_end_answers_nobody_at_the_other(
    processes: Processes, asked: int, other: int
) -> None:
    name = f"out-{asked}"
    await processes.make_queues(name)
    async with both(processes) as (asking, clients):
        sender = await clients[other].sender(name)
        await asking[asked].put("f", "namespace", "unavailable")
        with pytest.raises(ConnectionLost):
            await sender.send(OutgoingMessage(b"x"))
        await asking[other].clear()
    assert await processes.counts(name) == 0
