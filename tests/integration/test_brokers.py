"""Message brokers in processes of their own: what they store, who starts them again, and how all of them end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from tandembus.client.entities import QueueSettings
from tandembus.client.messages import OutgoingMessage
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import BusError, OperationTimeout, StoreUnavailable
from tandembus.namespace.partitioning import fragment_of_key
from tandembus.store.messaging_store import NUMBER_BITS
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.command_line import command_line, one
from tests.integration.conftest import Connect
from tests.integration.processes import COMES_WITHIN_S, Processes, is_gone, is_ready
from tests.integration.python_sdk import bodies_of, receive
from tests.integration.serving import RunningNamespace

BROKERS = 2
EVERY_BROKER = pytest.mark.parametrize("index", range(BROKERS))
MESSAGES = [str(number) for number in range(200)]
KEYS = [next(key for key in map(str, range(10_000)) if fragment_of_key(key) == one) for one in range(FRAGMENT_COUNT)]
"""For each fragment of a partitioned entity a key of its messages."""


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("brokers") / "data", "--brokers", str(BROKERS))
    yield processes
    assert processes.running.stop() == 0, "".join(processes.running.log)


StartProcesses = Callable[..., Processes]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartProcesses]:
    started: list[Processes] = []

    def start(*options: str) -> Processes:
        started.append(Processes(tmp_path / f"data{len(started) or ''}", *options))
        return started[-1]

    yield start
    for processes in started:
        processes.running.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartProcesses]:
    """One namespace for each set of options: what is done to one broker of it after another needs no other start."""
    started: dict[tuple[str, ...], Processes] = {}

    def start(*options: str) -> Processes:
        if options not in started:
            started[options] = Processes(tmp_path_factory.mktemp("shared") / "data", *options)
        return started[options]

    yield start
    for processes in started.values():
        processes.running.stop()


@covers("P1", "B1")
def test_the_sdk_sends_and_receives_over_brokers(connect: Connect, processes: Processes) -> None:
    bus = Bus(processes.running)
    queues = [bus.make_queue() for _ in range(BROKERS)]
    sdk = connect(processes.connection_string)
    for queue in queues:
        sender, receiver = sdk.pair(queue)
        sender.send_messages([ServiceBusMessage(text) for text in MESSAGES[:10]])
        messages = receive(receiver, 10)
        assert bodies_of(messages) == [text.encode() for text in MESSAGES[:10]]
        for message in messages:
            receiver.complete_message(message)
        assert bus.counts(queue).active == 0
    bus.close()


@covers("P1", "P2")
async def test_plain_entities_are_spread_evenly_and_topology_tells_where_they_are(processes: Processes) -> None:
    names = [f"spread-{number}" for number in range(2 * BROKERS)]
    await processes.make_queues(*names)
    stores = [(await processes.stores_of(name))[0] for name in names]
    assert sorted(stores) == sorted([store for store in range(BROKERS) for _ in range(2)])
    topology = await processes.topology()
    assert [(broker["index"], broker["stores"]) for broker in topology.brokers] == [(0, [0]), (1, [1])]
    assert len({broker["pid"] for broker in topology.brokers} | {processes.running.process.pid}) == BROKERS + 1
    assert is_ready(topology)


@covers("P1")
def test_the_command_line_shows_the_topology(processes: Processes) -> None:
    run = command_line(processes.running)
    document = one(run("topology", "--json"))
    assert [broker["state"] for broker in document["brokers"]] == ["ready"] * BROKERS
    assert [store["broker"] for store in document["stores"]] == list(range(BROKERS))
    shown = run("topology").stdout
    assert str(document["brokers"][0]["pid"]) in shown
    assert "ready" in shown
    run("topology", "--entity", "nowhere", exit_code=3)


@EVERY_BROKER
@covers("P3", "M1")
async def test_what_a_killed_broker_stored_comes_back_with_it(processes: Processes, index: int) -> None:
    names = [f"killed-{index}-{number}" for number in range(BROKERS)]
    await processes.make_queues(*names)
    before = await processes.until_ready()
    for name in names:
        await processes.send(name, MESSAGES)
    pid = await processes.signal_broker(index, signal.SIGKILL)
    after = await processes.until(
        lambda found: is_ready(found) and found.brokers[index]["restarts"] != before.brokers[index]["restarts"]
    )
    assert after.brokers[index]["pid"] != pid
    assert after.brokers[index]["last_exit"] == "was ended by signal 9"
    assert after.brokers[1 - index]["pid"] == before.brokers[1 - index]["pid"]
    assert _epoch(after.stores[index]) == _epoch(before.stores[index]) + 1
    for name in names:
        assert await processes.receive_all(name, len(MESSAGES)) == MESSAGES


@EVERY_BROKER
@covers("P3")
async def test_entities_of_another_broker_are_served_while_one_is_down(start: StartProcesses, index: int) -> None:
    processes = start("--brokers", "2", "--restart-delay", "600")
    lost, kept = await _queues_on(processes, index, 1 - index)
    await processes.signal_broker(index, signal.SIGKILL)
    found = await processes.until(lambda topology: topology.brokers[index]["state"] == "down")
    assert [store["state"] == "unavailable" for store in found.stores] == [one == index for one in range(BROKERS)]
    states = {str(entity["path"]): entity["availability"] for entity in found.entities}
    assert states == {lost: "Limited", kept: "Available"}
    await processes.send(kept, MESSAGES)
    assert await processes.receive_all(kept, len(MESSAGES)) == MESSAGES


@EVERY_BROKER
@covers("P3")
async def test_a_broker_that_is_stopped_is_killed_and_another_owns_its_store(
    shared: StartProcesses, index: int
) -> None:
    processes = shared("--brokers", "2", "--heartbeat-timeout", "2")
    names = await _queues_on(processes, *range(BROKERS), prefix=f"stopped-{index}")
    for name in names:
        await processes.send(name, MESSAGES)
    before = await processes.until_ready()
    pid = await processes.signal_broker(index, signal.SIGSTOP)
    after = await processes.until(lambda found: is_ready(found) and found.brokers[index]["pid"] != pid)
    assert is_gone(pid)
    assert int(str(after.brokers[index]["restarts"])) > int(str(before.brokers[index]["restarts"]))
    assert _epoch(after.stores[index]) > _epoch(before.stores[index])
    for name in names:
        assert await processes.receive_all(name, len(MESSAGES)) == MESSAGES


@covers("P14", "P15")
async def test_keyed_sends_to_fragments_that_are_known_to_be_silent_fail_with_a_known_outcome(
    tmp_path: Path, start: StartProcesses
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[limits]\nfragment_timeout_s = 5.0\n")
    processes = start("--brokers", "2", "--heartbeat-timeout", "300", "--config", str(settings))
    await processes.make_queues("parts", partitioning=True)
    stores = await processes.stores_of("parts")
    (silent, other), up = (
        [KEYS[index] for index in range(FRAGMENT_COUNT) if stores[index] == 1][:2],
        KEYS[stores.index(0)],
    )
    async with processes.client() as bus:
        sender = await bus.sender("parts")
        pid = await processes.signal_broker(1, signal.SIGSTOP)
        try:
            with pytest.raises(OperationTimeout):
                await sender.send(OutgoingMessage("in doubt", partition_key=silent))
            for key in (silent, other):
                with pytest.raises(StoreUnavailable, match="nothing was changed") as refused:
                    await (await bus.sender("parts")).send(OutgoingMessage("refused", partition_key=key))
                assert refused.value.retryable
            await (await bus.sender("parts")).send(OutgoingMessage("taken", partition_key=up))
        finally:
            os.kill(pid, signal.SIGCONT)
    assert sorted(await processes.receive_all("parts", 2)) == ["in doubt", "taken"]
    assert await processes.counts("parts") == 0


@EVERY_BROKER
@covers("P3", "M1")
async def test_after_a_kill_of_the_whole_an_immediate_restart_finds_its_stores_free(
    shared: StartProcesses, index: int
) -> None:
    processes = shared("--brokers", "2", "--front-ends", "2")
    names = await _queues_on(processes, *range(BROKERS), prefix=f"whole-{index}")
    for name in names:
        await processes.send(name, MESSAGES)
    topology = await processes.topology()
    children = [int(str(one["pid"])) for one in (*topology.brokers, *topology.front_ends[1:])]
    os.kill(children[index], signal.SIGSTOP)  # this one would never notice by itself
    processes.restart("--brokers", "2", "--front-ends", "2", end=RunningNamespace.kill)
    assert all(is_gone(pid) for pid in children)
    assert is_ready(await processes.topology())
    for name in names:
        assert await processes.receive_all(name, len(MESSAGES)) == MESSAGES


@covers("P1", "P2", "P13")
async def test_as_many_brokers_as_fragments_have_one_fragment_each(start: StartProcesses) -> None:
    processes = start("--brokers", str(FRAGMENT_COUNT))
    await processes.make_queues("spread", partitioning=True)
    topology = await processes.topology("spread")
    assert [broker["stores"] for broker in topology.brokers] == [[one] for one in range(FRAGMENT_COUNT)]
    fragments: Any = topology.entities[0]["fragments"]
    assert [fragment["index"] for fragment in fragments] == list(range(FRAGMENT_COUNT))
    for place in ("store", "broker"):
        assert sorted(fragment[place] for fragment in fragments) == list(range(FRAGMENT_COUNT))
    await _send_to_all_fragments(processes, "spread", "first")
    await _send_to_all_fragments(processes, "spread", "second")
    assert await _received_by_fragment(processes, "spread", 2) == [["first", "second"]] * FRAGMENT_COUNT


@covers("P1", "P2", "P13")
async def test_data_of_any_number_of_brokers_is_served_by_any_other(start: StartProcesses) -> None:
    processes: Processes | None = None
    stores: dict[str, list[int]] = {}
    for brokers in (0, 1, 2, 4, 16, 3):
        if processes is None:
            processes = start("--brokers", str(brokers))
        else:
            processes.restart("--brokers", str(brokers))
        for name in stores:
            assert await processes.stores_of(name) == stores[name], "nothing moves by itself"
            if name.startswith("partitioned-"):
                await _send_to_all_fragments(processes, name, f"under {brokers}")
            else:
                await processes.send(name, [f"{brokers}-{text}" for text in MESSAGES[:5]])
        name, partitioned = f"of-{brokers}", f"partitioned-{brokers}"
        await processes.make_queues(name)
        await processes.make_queues(partitioned, partitioning=True)
        stores[partitioned] = await processes.stores_of(partitioned)
        await _send_to_all_fragments(processes, partitioned, f"under {brokers}")
        await processes.make_topic(f"topic-{brokers}", "all")
        for made in (name, f"topic-{brokers}"):
            stores[made] = await processes.stores_of(made)
            await processes.send(made, MESSAGES[:5])
    assert processes is not None
    numbers = (0, 1, 2, 4, 16, 3)
    for at, brokers in enumerate(numbers):
        expected = MESSAGES[:5] + [f"{later}-{text}" for later in numbers[at + 1 :] for text in MESSAGES[:5]]
        for entity in (f"of-{brokers}", f"topic-{brokers}/subscriptions/all"):
            assert await processes.receive_all(entity, len(expected)) == expected
        under = [f"under {later}" for later in numbers[at:]]
        assert await _received_by_fragment(processes, f"partitioned-{brokers}", len(under)) == [under] * FRAGMENT_COUNT
    spread = [len(set(stores[f"partitioned-{brokers}"])) for brokers in numbers]
    assert spread == [1, 1, 2, 4, 16, 3], "what is new goes to the stores of the brokers there are"
    assert len((await processes.topology()).stores) == 16


@covers("P1", "P18")
async def test_a_lost_catalog_is_made_again_from_any_copy(start: StartProcesses) -> None:
    processes = start("--brokers", "2")
    await processes.make_queues("a", "b")
    await processes.send("a", MESSAGES)
    for lost in (["catalog"], ["catalog", "stores/0/catalog"], ["stores/0/catalog", "stores/1/catalog"]):
        assert processes.running.stop() == 0
        for folder in lost:
            _remove(processes.data / folder)
        processes.restart("--brokers", "2")
        assert sorted(str(entity["path"]) for entity in (await processes.topology()).entities) == ["a", "b"]
    assert await processes.receive_all("a", len(MESSAGES)) == MESSAGES
    await processes.make_queues("c")


@EVERY_BROKER
@covers("P3", "P18")
async def test_the_catalog_survives_the_loss_of_any_one_store(start: StartProcesses, index: int) -> None:
    processes = start("--brokers", "2")
    await processes.make_queues("a", "b")
    lost, kept = await _names_by_store(processes, index)
    await processes.send(kept, MESSAGES)
    assert processes.running.stop() == 0
    _remove(processes.data / "stores" / str(index))
    processes.restart("--brokers", "2")
    assert await processes.receive_all(kept, len(MESSAGES)) == MESSAGES
    await processes.send(lost, MESSAGES)
    assert await processes.receive_all(lost, len(MESSAGES)) == MESSAGES


async def _names_by_store(processes: Processes, index: int) -> tuple[str, str]:
    """Of the queues a and b the one in this store, and the other."""
    stores = {(await processes.stores_of(name))[0]: name for name in ("a", "b")}
    assert len(stores) == 2
    return stores[index], stores[1 - index]


@EVERY_BROKER
@covers("P3")
async def test_a_broker_that_crashes_in_a_loop_is_started_ever_later_and_the_others_serve(
    tmp_path: Path, start: StartProcesses, index: int
) -> None:
    in_the_way = tmp_path / "data" / "meter" / f"broker-{index}"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    processes = start("--brokers", "2")
    await processes.make_queues("a")
    await processes.send("a", MESSAGES)
    assert await processes.receive_all("a", len(MESSAGES)) == MESSAGES
    await processes.until(lambda found: int(str(found.brokers[index]["restarts"])) >= 2)
    log = "".join(processes.running.log)
    assert f"broker {index} ended with exit code 1; it is started again in 0.25 s" in log
    in_the_way.unlink()
    await processes.until_ready()


@covers("P18")
async def test_a_change_does_not_wait_for_ever_for_a_broker_which_then_has_to_catch_up(start: StartProcesses) -> None:
    """Each broker in a namespace of its own, at the same time: most of it is waiting."""
    both = [start("--brokers", "2", "--heartbeat-timeout", "60") for _ in range(2)]
    await asyncio.gather(*[_stop_and_catch_up(processes, index) for index, processes in enumerate(both)])


async def _stop_and_catch_up(processes: Processes, index: int) -> None:
    await processes.make_queues("a", "b")
    there, here = await _names_by_store(processes, index)
    pid = await processes.signal_broker(index, signal.SIGSTOP)
    began = time.monotonic()
    async with processes.administration() as administration:
        await administration.update_queue(here, QueueSettings(max_delivery_count=3))
    assert 1.0 < time.monotonic() - began < 20.0
    assert (await processes.topology()).brokers[index]["state"] == "starting", "it has to catch up first"
    async with processes.administration() as administration:
        with pytest.raises(BusError, match="can be reached"):
            await administration.update_queue(there, QueueSettings(max_delivery_count=3))
    os.kill(pid, signal.SIGCONT)
    after = await processes.until_ready()
    assert after.brokers[index]["pid"] == pid, "nobody was killed"
    await processes.until_accepted(there, "first")
    await processes.send(there, MESSAGES)
    assert await processes.receive_all(there, len(MESSAGES) + 1) == ["first", *MESSAGES]
    async with processes.administration() as administration:
        await administration.update_queue(there, QueueSettings(max_delivery_count=4))


@pytest.mark.parametrize("index", range(4))
@covers("P3")
async def test_a_store_that_cannot_be_opened_keeps_no_other_from_being_served(
    start: StartProcesses, index: int
) -> None:
    processes = start("--brokers", "2", "--stores", "4")
    names = [f"queue-{number}" for number in range(4)]
    await processes.make_queues(*names)
    for name in names:
        await processes.send(name, MESSAGES)
    stores = {name: (await processes.stores_of(name))[0] for name in names}
    assert processes.running.stop() == 0
    damaged = processes.data / "stores" / str(index) / "data.mdb"
    damaged.write_bytes(b"no store" * 1000)
    processes.restart("--brokers", "2", "--stores", "4")
    topology = await processes.topology()
    states = [one["state"] for one in topology.stores]
    assert states == ["unavailable" if store == index else "available" for store in range(4)]
    assert topology.stores[index]["reason"]
    assert [one["state"] for one in topology.brokers] == ["ready", "ready"]
    for name in names:
        if stores[name] != index:
            assert await processes.receive_all(name, len(MESSAGES)) == MESSAGES


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")
@covers("P1")
async def test_the_first_brokers_are_forks_that_the_list_of_processes_tells_apart(start: StartProcesses) -> None:
    processes = start("--brokers", "2", "--name", "shop")
    for index, broker in enumerate((await processes.topology()).brokers):
        process = Path(f"/proc/{broker['pid']}")
        assert process.joinpath("cmdline").read_text().strip("\0") == f"tandembus broker {index} shop"
        assert f"PPid:\t{processes.running.process.pid}\n" in process.joinpath("status").read_text()


@covers("P1")
async def test_a_stop_ends_every_process_in_order(start: StartProcesses) -> None:
    processes = start("--brokers", "2", "--front-ends", "2")
    await processes.make_queues("a")
    await processes.send("a", MESSAGES)
    topology = await processes.topology()
    children = [int(str(one["pid"])) for one in (*topology.brokers, *topology.front_ends[1:])]
    processes.running.stop_in_peace()
    assert all(is_gone(pid) for pid in children)
    assert not processes.running.told_at("WARNING"), "".join(processes.running.log)


async def test_an_interrupt_at_the_terminal_which_reaches_all_processes_is_a_stop_in_order(
    start: StartProcesses,
) -> None:
    processes = start("--brokers", "2")
    topology = await processes.topology()
    for broker in topology.brokers:
        os.kill(int(str(broker["pid"])), signal.SIGINT)
    processes.running.process.send_signal(signal.SIGINT)
    code = await asyncio.to_thread(processes.running.process.wait, COMES_WITHIN_S)
    assert code == 0
    assert not processes.running.told_at("WARNING"), "".join(processes.running.log)


async def _queues_on(processes: Processes, *stores: int, prefix: str = "queue") -> list[str]:
    """New queues, one on each store, in the order in which the stores were asked for."""
    names = [f"{prefix}-{number}" for number in range(len(stores))]
    await processes.make_queues(*names)
    found = {(await processes.stores_of(name))[0]: name for name in names}
    assert sorted(found) == sorted(stores)
    return [found[store] for store in stores]


async def _send_to_all_fragments(processes: Processes, queue: str, body: str) -> None:
    async with processes.client() as bus:
        sender = await bus.sender(queue)
        for key in KEYS:
            await sender.send(OutgoingMessage(body.encode(), partition_key=key))


async def _received_by_fragment(processes: Processes, queue: str, count: int) -> list[list[str]]:
    """What each fragment had, in its order; all of it is completed, and the sequence number tells where it was."""
    found: list[list[str]] = [[] for _ in KEYS]
    async with processes.client() as bus:
        receiver = await bus.receiver(queue)
        while sum(map(len, found)) < count * len(KEYS):
            messages = await receiver.receive(count * len(KEYS), 10.0)
            if not messages:
                break
            await receiver.complete(*messages)
            for message in messages:
                assert isinstance(message.body, bytes)
                found[message.sequence_number >> NUMBER_BITS].append(message.body.decode())
    return found


def _epoch(store: object) -> int:
    assert isinstance(store, dict)
    return int(store["epoch"])


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
