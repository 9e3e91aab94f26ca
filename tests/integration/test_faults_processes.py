"""Faults in a namespace of several processes: every front end and every broker feels what one of them acknowledged."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.faults import Faults
from tandembus.client.messages import OutgoingMessage
from tandembus.client.sender import Sender
from tandembus.client.service_bus import ServiceBus
from tandembus.errors import EntityNotFound, InvalidArgument, ServerBusy, StoreUnavailable
from tandembus.namespace.partitioning import fragment_of_key
from tests.covers import covers
from tests.integration.processes import Processes

CONNECTIONS = 8
NOTICED_WITHIN_S = 2.0


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("faults") / "data", "--brokers", "2", "--front-ends", "3")
    yield processes
    assert processes.running.stop() == 0, "".join(processes.running.log)


@asynccontextmanager
async def faults(processes: Processes) -> AsyncIterator[Faults]:
    """Healed at the end; each with a connection of its own, and so perhaps another front end."""
    async with processes.administration() as administration:
        faults = Faults(administration.requests)
        try:
            yield faults
        finally:
            await faults.clear()


@asynccontextmanager
async def connections(processes: Processes) -> AsyncIterator[list[ServiceBus]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(processes.client()) for _ in range(CONNECTIONS)]


@covers("B3")
async def test_what_one_front_end_acknowledged_all_of_them_feel_at_once(processes: Processes) -> None:
    await processes.make_queues("felt")
    async with connections(processes) as clients, faults(processes) as asked:
        senders = [await client.sender("felt") for client in clients]
        for number in range(3):
            async with faults(processes) as elsewhere:
                await elsewhere.put(f"f{number}", "entity/felt", "throttled")
                for sender in senders:
                    with pytest.raises(ServerBusy):
                        await sender.send(OutgoingMessage(b"x"))
                assert [each.id for each in await asked.all()] == [f"f{number}"]
            for sender in senders:
                await sender.send(OutgoingMessage(b"x"))
    assert await processes.counts("felt") == 3 * CONNECTIONS


@covers("B3")
async def test_every_front_end_refuses_what_is_no_fault(processes: Processes) -> None:
    for _ in range(6):
        async with faults(processes) as asked:
            with pytest.raises(InvalidArgument, match="0 to 1"):
                await asked.put("a", "broker/2", "unavailable")
            with pytest.raises(EntityNotFound, match="no fault 'b'"):
                await asked.remove("b")
            assert await asked.clear() == 0


@covers("B3", "P3", "P13", "P14", "P19")
@pytest.mark.parametrize("target", ["store/0", "store/1", "broker/0", "broker/1"])
async def test_a_broker_or_store_that_is_out_takes_just_its_share(processes: Processes, target: str) -> None:
    name = f"share-{target.replace('/', '-')}"
    await processes.make_queues(name, partitioning=True)
    index = int(target[-1])
    stores = await processes.stores_of(name)
    async with faults(processes) as asked, processes.client() as bus, processes.administration() as administration:
        sender = await bus.sender(name)
        began_at = time.monotonic()
        await asked.put("f", target, "unavailable")
        while (await administration.get_queue(name)).availability_status != "Limited":
            assert time.monotonic() - began_at < NOTICED_WITHIN_S
        sent = 0
        for number in range(32):
            await sender.send(OutgoingMessage(b"without a key"))
            key = str(number)
            is_hit = stores[fragment_of_key(key)] == index
            message = OutgoingMessage(b"with a key", partition_key=key)
            if is_hit:
                with pytest.raises(StoreUnavailable):
                    await sender.send(message)
            else:
                await sender.send(message)
            sent += 1 if is_hit else 2
        with pytest.raises(StoreUnavailable):
            await administration.update_queue(name, QueueSettings(max_delivery_count=3))
        await asked.clear()
        await processes.until_ready()
        await sender.send(OutgoingMessage(b"with a key", partition_key=_key_of(stores, index)))
        await _until_available(administration, name)
        assert (await administration.get_queue(name)).counts.active == sent + 1
    assert len(await processes.receive_all(name, sent + 1)) == sent + 1


async def _until_available(administration: Administration, name: str) -> None:
    began_at = time.monotonic()
    while (await administration.get_queue(name)).availability_status != "Available":
        assert time.monotonic() - began_at < NOTICED_WITHIN_S


def _key_of(stores: list[int], store: int) -> str:
    return next(key for key in map(str, range(1000)) if stores[fragment_of_key(key)] == store)


@covers("B3", "P3", "P6")
@pytest.mark.parametrize("target", ["store/0", "store/1", "broker/0", "broker/1"])
@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
async def test_a_receiver_that_waits_gets_what_comes_after_the_outage(
    processes: Processes, is_partitioned: bool, target: str
) -> None:
    name, store = f"waiting-{target}-{is_partitioned}".replace("/", "-"), int(target[-1])
    await processes.make_queues(name, partitioning=is_partitioned)
    while store not in (stores := await processes.stores_of(name)):  # a plain one where the outage is
        name += "x"
        await processes.make_queues(name)
    async with faults(processes) as asked, processes.client() as bus:
        receiver = await bus.receiver(name)
        waiting = asyncio.create_task(receiver.receive(1, 30.0))
        await asked.put("f", target, "unavailable")
        await processes.until(
            lambda found: any((one["path"], one["availability"]) == (name, "Limited") for one in found.entities)
        )
        assert not waiting.done(), "it has credit there, and must not forget it"
        await asked.clear()
        await processes.until_ready()
        key = _key_of(stores, store) if is_partitioned else "any"
        sender = await bus.sender(name)
        await _until_sent(sender, partition_key=key)
        assert [message.body for message in await waiting] == [b"x"]


@covers("B3", "P3")
@pytest.mark.parametrize("index", [0, 1])
async def test_a_broker_that_is_started_again_learns_of_the_faults_there_are(processes: Processes, index: int) -> None:
    name = f"again-{index}"
    await processes.make_queues(name, partitioning=True)
    async with faults(processes) as asked:
        await asked.put("f", f"store/{index}", "unavailable")
        await processes.signal_broker(index, signal.SIGKILL)
        found = await processes.until(
            lambda topology: (
                topology.brokers[index]["state"] == "ready" and topology.stores[index]["state"] == "unavailable"
            )
        )
        assert "injected fault 'f'" in str(found.stores[index]["reason"])
        await asked.remove("f")
        await processes.until_ready()
    await processes.send(name, [str(number) for number in range(32)])
    assert sorted(await processes.receive_all(name, 32), key=int) == [str(number) for number in range(32)]


@covers("B3")
async def test_a_fault_ends_by_itself_in_every_process(processes: Processes) -> None:
    await processes.make_queues("brief")
    async with connections(processes) as clients, faults(processes) as asked:
        senders = [await client.sender("brief") for client in clients]
        put = await asked.put("f", "entity/brief", "unavailable", for_s=0.5)
        assert put.ends_in_s is not None
        for sender in senders:
            await _until_sent(sender)
        assert await asked.all() == []


async def _until_sent(sender: Sender, partition_key: str | None = None) -> None:
    give_up_at = time.monotonic() + 10.0
    while True:
        try:
            await sender.send(OutgoingMessage(b"x", partition_key=partition_key))
            return
        except StoreUnavailable:
            assert time.monotonic() < give_up_at
            await asyncio.sleep(0.02)


@covers("B3")
async def test_a_namespace_that_is_out_is_out_at_every_front_end_and_healed_at_any(processes: Processes) -> None:
    await processes.make_queues("gone")
    async with connections(processes) as clients, faults(processes) as asked:
        senders = [await client.sender("gone") for client in clients]
        await asked.put("drill", "namespace", "unavailable")
        for sender in senders:
            with pytest.raises(ConnectionError):
                await sender.send(OutgoingMessage(b"x"))
        for _ in range(CONNECTIONS):
            async with processes.administration() as administration:
                with pytest.raises(StoreUnavailable, match="injected fault 'drill'"):
                    await administration.get_queue("gone")
        async with processes.administration() as administration:
            await Faults(administration.requests).remove("drill")
    await processes.send("gone", ["x"])
    assert await processes.receive_all("gone", 1) == ["x"]
