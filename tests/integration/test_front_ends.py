"""Several front ends on one port: all honour what one has acknowledged, and what a dead one had ready goes back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime

import pytest

from tandembus.amqp.encoding.values import Array
from tandembus.client import SubQueue
from tandembus.client.access_policies import AccessPolicy
from tandembus.client.entities import QueueSettings
from tandembus.client.messages import OutgoingMessage, ReceivedMessage
from tandembus.client.meter import since_start
from tandembus.client.policies import NamespacePolicies
from tandembus.client.service_bus import ServiceBus, connect
from tandembus.client.topology import Topology, topology_of
from tandembus.descriptions import RuleDescription, SqlFilter
from tandembus.errors import EntityNotFound, Unauthorized
from tests.covers import covers
from tests.integration.processes import Processes, is_ready
from tests.integration.raw_amqp import RECEIVER, RawAmqp

FRONT_ENDS = 3
KEPT_S = 5.0
"""How long a front end keeps messages ready that nobody there takes: a quarter of their lock duration."""
CONNECTIONS = 12
"""So many that it would take bad luck for any front end to have none of them."""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("front-ends")
    config = folder / "config.toml"
    config.write_text("[limits]\ntoken_check_interval_s = 0.2\nmin_auto_delete_on_idle_s = 1.0\n")
    options = ("--brokers", "2", "--front-ends", str(FRONT_ENDS), "--config", str(config))
    processes = Processes(folder / "data", *options)
    yield processes
    assert processes.running.stop() == 0, "".join(processes.running.log)


@asynccontextmanager
async def connections(processes: Processes, count: int = CONNECTIONS) -> AsyncIterator[list[ServiceBus]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(processes.client()) for _ in range(count)]


@covers("P1")
async def test_connections_are_shared_out_over_all_front_ends(processes: Processes) -> None:
    async with connections(processes, 30):
        found = await processes.until(
            lambda topology: all(int(str(one["connections"])) > 0 for one in topology.front_ends)
        )
    assert [one["index"] for one in found.front_ends] == list(range(FRONT_ENDS))
    assert len({one["pid"] for one in found.front_ends}) == FRONT_ENDS
    assert is_ready(found)


@covers("P1", "P18")
async def test_an_entity_that_was_created_is_there_at_every_front_end_and_gone_at_each_when_deleted(
    processes: Processes,
) -> None:
    async with connections(processes) as clients:
        for number in range(5):
            name = f"made-{number}"
            await processes.make_queues(name)
            for client in clients:
                sender = await client.sender(name)
                await sender.send(OutgoingMessage(b"x"))
                await sender.close()
            assert await processes.counts(name) == CONNECTIONS
            async with processes.administration() as administration:
                await administration.delete_queue(name)
            for client in clients:
                with pytest.raises(EntityNotFound):
                    await client.sender(name)


@covers("P1", "P18")
async def test_every_front_end_administers(processes: Processes) -> None:
    names = [f"administered-{number}" for number in range(CONNECTIONS)]
    for name in names:  # each with a connection of its own
        await processes.make_queues(name, lock_duration_s=30.0)
    for name in names:
        async with processes.administration() as administration:
            await administration.update_queue(name, QueueSettings(max_delivery_count=3))
    for name in names:
        async with processes.administration() as administration:
            settings = (await administration.get_queue(name)).settings
            assert (settings.max_delivery_count, settings.lock_duration_s) == (3, 30.0)
    async with processes.administration() as administration:
        listed = [one.name async for one in administration.queues()]
    assert set(names) <= set(listed)


@covers("P1", "P23")
async def test_a_rule_holds_for_what_is_sent_through_any_front_end(processes: Processes) -> None:
    await processes.make_topic("news", "all")
    async with connections(processes) as clients:
        senders = [await client.sender("news") for client in clients]
        for word in ("red", "green", "blue"):
            async with processes.administration() as administration:
                await administration.create_subscription("news", word)
            async with processes.administration() as administration:
                rule = RuleDescription("$Default", SqlFilter(f"colour = '{word}'"))
                await administration.update_rule("news", word, rule)
            for sender in senders:
                await sender.send(OutgoingMessage(b"x", properties={"colour": word}))
                await sender.send(OutgoingMessage(b"y", properties={"colour": "none"}))
            async with processes.administration() as administration:
                found = await administration.get_subscription("news", word)
                assert found.counts.active == CONNECTIONS


@covers("P1", "M15")
async def test_a_policy_and_its_keys_hold_at_every_front_end(processes: Processes) -> None:
    await processes.make_queues("guarded")
    async with processes.administration() as administration:
        made = await NamespacePolicies(administration.requests).create(AccessPolicy("till", ("Send",)))
    for _ in range(CONNECTIONS):
        assert await _can_send(processes, "till", made.primary_key)
    async with processes.administration() as administration:
        renewed = await NamespacePolicies(administration.requests).regenerate("till", False)
    for _ in range(CONNECTIONS):
        assert not await _can_send(processes, "till", made.primary_key)
        assert await _can_send(processes, "till", renewed.primary_key)


@covers("P1")
async def test_who_receives_is_told_over_all_front_ends(processes: Processes) -> None:
    await processes.make_queues("received")
    async with connections(processes) as clients:
        for client in clients:
            await client.receiver("received")
            await client.receiver("received", sub_queue=SubQueue.DEAD_LETTER)
        for _ in range(FRONT_ENDS):  # whoever is asked
            async with processes.administration() as administration:
                found = await topology_of(administration.requests, "received")
            assert found.entities[0]["receivers"] == CONNECTIONS


@covers("P28")
async def test_what_is_counted_is_the_sum_over_all_front_ends(processes: Processes) -> None:
    await processes.make_queues("counted")
    async with connections(processes) as clients:
        for client in clients:
            sender = await client.sender("counted")
            await sender.send(OutgoingMessage(b"x"))
    for _ in range(FRONT_ENDS):  # whoever is asked
        async with processes.administration() as administration:
            found = [one async for one in since_start(administration.requests, "counted")]
        sends = [one.messages for one in found if one.operation == "send"]
        assert sends == [CONNECTIONS]


@covers("P21")
async def test_what_one_front_end_has_ready_is_not_returned_by_another_until_it_goes_back(processes: Processes) -> None:
    """Whoever asks elsewhere has to ask again. The first receiver stays, and takes nothing more."""
    await processes.make_queues("low-volume", lock_duration_s=4 * KEPT_S, partitioning=True)
    bodies = [str(number) for number in range(16)]
    await processes.send("low-volume", bodies)
    await processes.until_ready()
    async with AsyncExitStack() as stack:
        first, index = await _client_of_another_process(processes, stack)
        second = await _client_elsewhere(processes, stack, index)
        receiver, other = await first.receiver("low-volume"), await second.receiver("low-volume")
        began = time.monotonic()
        (held,) = await receiver.receive(1, 10.0)
        found = await other.receive(len(bodies), 0.5)
        if time.monotonic() - began < KEPT_S:
            assert len(found) < len(bodies) - 1, "the rest is kept ready where it was asked for first"
        give_up_at = time.monotonic() + 60.0
        while len(found) < len(bodies) - 1:
            assert time.monotonic() < give_up_at, f"{len(found)} came"
            found += await other.receive(len(bodies), 1.0)
        assert {one.delivery_count for one in found} == {0}, "nobody has seen them before"
        assert sorted(str(one.body) for one in [held, *found]) == sorted(str(body.encode()) for body in bodies)


@covers("P6")
async def test_what_a_killed_front_end_had_ready_is_received_elsewhere_at_once(processes: Processes) -> None:
    await processes.make_queues("ready", requires_session=False, lock_duration_s=300.0, partitioning=True)
    bodies = [str(number) for number in range(64)]
    await processes.send("ready", bodies)
    await processes.until_ready()
    async with AsyncExitStack() as stack:
        client, index = await _client_of_another_process(processes, stack)
        receiver = await client.receiver("ready")
        (held,) = await receiver.receive(1, 10.0)
        before = datetime.now()
        pid = int(str((await processes.front_end(index))["pid"]))
        os.kill(pid, signal.SIGKILL)
        await processes.until(lambda found: found.front_ends[index]["pid"] != pid)  # nobody comes to it any more
        elsewhere = await stack.enter_async_context(processes.client())
        other = await elsewhere.receiver("ready")
        found: list[ReceivedMessage] = []
        while len(found) < len(bodies) - 1 and (came := await other.receive(len(bodies), 20.0)):
            found += came
    assert (datetime.now() - before).total_seconds() < 30.0
    assert sorted(str(one.body) for one in [held, *found]) == sorted(str(body.encode()) for body in bodies)
    assert {one.delivery_count for one in found} == {0}, "nobody has seen them before"
    await processes.until_ready()


def receive_and_leave(port: int, queue: str, count: int) -> list[uuid.UUID]:
    """The lock tokens of so many messages."""
    tokens = []
    with RawAmqp(port) as raw:
        raw.log_in()
        raw.attach_receiver(RECEIVER, queue)
        raw.flow(RECEIVER, count)
        for _ in range(count):
            tag = raw.receive_message()[0].plain(2)
            assert isinstance(tag, bytes)
            tokens.append(uuid.UUID(bytes_le=tag))
    return tokens


def renew_and_complete(port: int, queue: str, token: uuid.UUID) -> list[int]:
    """Over a connection of its own; returns the statuses."""
    tokens = Array(0x98, [token])
    with RawAmqp(port) as raw:
        raw.log_in()
        node = raw.attach_node(f"{queue}/$management")
        renewed = node.manage("com.microsoft:renew-lock", {"lock-tokens": tokens})[0]
        completed = {"disposition-status": "completed", "lock-tokens": tokens}
        return [renewed, node.manage("com.microsoft:update-disposition", completed)[0]]


@covers("M2")
@pytest.mark.parametrize("partitioning", [False, True])
async def test_a_lock_whose_receiver_is_gone_is_settled_at_any_front_end(
    processes: Processes, partitioning: bool
) -> None:
    queue = f"left-{partitioning}"
    await processes.make_queues(queue, partitioning=partitioning)
    await processes.send(queue, [str(number) for number in range(CONNECTIONS)])
    port = processes.running.port
    tokens = await asyncio.to_thread(receive_and_leave, port, queue, CONNECTIONS)
    for token in tokens:
        assert await asyncio.to_thread(renew_and_complete, port, queue, token) == [200, 200]
    assert await processes.counts(queue) == 0


@covers("P1", "M7")
async def test_what_is_used_at_any_front_end_is_not_idle(processes: Processes) -> None:
    """Deleted by the first process, which sees nothing of the traffic of the others."""
    async with connections(processes) as clients:
        await processes.make_queues("used", auto_delete_on_idle_s=2.0)
        senders = [await client.sender("used") for client in clients]
        await processes.make_queues("unused", auto_delete_on_idle_s=2.0)
        await _until_gone(processes, "unused")
        for sender in senders:
            await sender.send(OutgoingMessage(b"x"))
        assert await processes.counts("used") == CONNECTIONS


@covers("P1")
async def test_a_front_end_that_is_killed_comes_back(processes: Processes) -> None:
    before = await processes.until_ready()
    os.kill(int(str(before.front_ends[1]["pid"])), signal.SIGKILL)
    restarts = int(str(before.front_ends[1]["restarts"])) + 1
    after = await processes.until(lambda found: is_ready(found) and found.front_ends[1]["restarts"] == restarts)
    assert after.front_ends[1]["pid"] != before.front_ends[1]["pid"]
    assert [one["pid"] for one in after.brokers] == [one["pid"] for one in before.brokers]
    async with connections(processes, 30):
        await processes.until(lambda topology: int(str(topology.front_ends[1]["connections"])) > 0)


async def _client_of_another_process(processes: Processes, stack: AsyncExitStack) -> tuple[ServiceBus, int]:
    """A connection that is known to be at a front end other than the first, and which that is."""
    for _ in range(50):
        await processes.until(lambda found: sum(_connections(found)) == 0)
        client = await connect(processes.connection_string)
        found = await processes.until(lambda found: sum(_connections(found)) == 1)
        index = _connections(found).index(1)
        if index > 0:
            return await stack.enter_async_context(client), index
        await client.close()
    raise AssertionError("all connections went to the first front end")


async def _client_elsewhere(processes: Processes, stack: AsyncExitStack, index: int) -> ServiceBus:
    """A second connection, at another front end than this one."""
    for _ in range(50):
        await processes.until(lambda found: sum(_connections(found)) == 1)
        client = await connect(processes.connection_string)
        found = await processes.until(lambda found: sum(_connections(found)) == 2)
        if _connections(found)[index] == 1:
            return await stack.enter_async_context(client)
        await client.close()
    raise AssertionError("all connections went to one front end")


def _connections(topology: Topology) -> list[int]:
    return [int(str(one["connections"])) for one in topology.front_ends]


async def _can_send(processes: Processes, policy: str, key: str) -> bool:
    endpoint = f"Endpoint=sb://localhost:{processes.running.port}/"
    connection_string = f"{endpoint};SharedAccessKeyName={policy};SharedAccessKey={key};UseDevelopmentEmulator=true"
    try:
        async with await connect(connection_string) as client:
            await client.sender("guarded")
    except Unauthorized:
        return False
    return True


async def _until_gone(processes: Processes, queue: str) -> None:
    for _ in range(600):
        async with processes.administration() as administration:
            try:
                await administration.get_queue(queue)
            except EntityNotFound:
                return
        await asyncio.sleep(0.05)
    raise AssertionError(f"'{queue}' is still there")
