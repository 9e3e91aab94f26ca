"""`/metrics` of a running namespace: who may read it, and what one scrape tells of all processes."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tandembus.client import connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.faults import Faults
from tandembus.client.messages import OutgoingMessage
from tandembus.errors import BusError
from tandembus.node.metrics import families
from tandembus.prometheus import CONTENT_TYPE, HISTOGRAM
from tandembus.security.sas import make_token
from tests.covers import covers
from tests.integration.processes import Processes
from tests.integration.serving import KEY, RunningNamespace, serving
from tests.integration.syphons import until
from tests.unit.node.metrics.scraped import Scraped

SENDS = 'rights = ["Send", "Listen"]'
CONFIG = f"""
[[policies]]
name = "messages"
key = "{KEY}"
{SENDS}
"""


async def fetch(running: RunningNamespace, token: str | None = None, query: str = "") -> tuple[int, str, str]:
    headers = {} if token is None else {"Authorization": token}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{running.http_url}/metrics{query}", headers=headers) as one,
    ):
        return one.status, one.headers.get("Content-Type", ""), await one.text()


def token_of(running: RunningNamespace, policy: str = "RootManageSharedAccessKey") -> str:
    return make_token(f"{running.http_url}/", policy, KEY, int(time.time()) + 3600)


async def scraped(running: RunningNamespace) -> Scraped:
    status, _, text = await fetch(running, token_of(running))
    assert status == 200, text
    return Scraped(text)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    folder = tmp_path_factory.mktemp("alone")
    config = folder / "config.toml"
    config.write_text(CONFIG)
    with serving(folder / "data", "--config", str(config)) as running:
        yield running


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    options = ("--brokers", "2", "--front-ends", "2", "--heartbeat-timeout", "30")
    processes = Processes(tmp_path_factory.mktemp("many") / "data", *options)
    yield processes
    assert processes.running.stop() == 0, "".join(processes.running.log)


@covers("B5")
async def test_without_a_token_that_grants_manage_nobody_reads_the_metrics(alone: RunningNamespace) -> None:
    assert (await fetch(alone))[0] == 401
    assert (await fetch(alone, "SharedAccessSignature nonsense"))[0] == 401
    assert (await fetch(alone, token_of(alone, "messages")))[0] == 401
    status, content_type, text = await fetch(alone, token_of(alone))
    assert (status, content_type) == (200, CONTENT_TYPE)
    assert "tandembus_build_info{" in text
    assert (await fetch(alone, f"Bearer {token_of(alone)}"))[0] == 200


@covers("B5")
async def test_with_open_metrics_anybody_does(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--open-metrics") as running:
        assert (await fetch(running))[0] == 200
        assert (await fetch(running, "SharedAccessSignature nonsense"))[0] == 200


@covers("B5")
async def test_a_queue_may_be_called_metrics(alone: RunningNamespace) -> None:
    assert (await fetch(alone, token_of(alone), "?api-version=2021-05"))[0] == 404


@covers("B5")
async def test_a_scrape_tells_every_metric_that_is_documented(alone: RunningNamespace) -> None:
    """Those that only several processes have apart."""
    async with Administration(alone.connection_string, ca_path=str(alone.ca_path)) as administration:
        await administration.create_queue("parts", QueueSettings(partitioning=True))
    async with await connect(alone.connection_string) as bus:
        await (await bus.sender("parts")).send_many([OutgoingMessage(b"a"), OutgoingMessage(b"b")])

    async def knows_the_queue() -> bool:
        """What is told may be a second old."""
        return "parts" in (await scraped(alone)).entities(families.MESSAGES)

    await until(knows_the_queue)
    told = {name for name, _ in (await scraped(alone)).series}
    expected = set()
    for one in families.FAMILIES:
        if one is not families.PROCESS_RESTARTS:
            expected |= (
                {f"{one.name}{end}" for end in ("_bucket", "_sum", "_count")} if one.kind == HISTOGRAM else {one.name}
            )
    assert told == expected


@covers("B5", "F18")
async def test_connections_that_are_refused_are_counted_and_logged(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[limits]\nmax_unauthenticated_connections_per_address = 2\n")
    with serving(tmp_path / "data", "--config", str(tmp_path / "config.toml")) as running:
        address = ("127.0.0.1", running.port)
        peers = [socket.create_connection(address, source_address=("127.0.0.2", 0)) for _ in range(5)]

        async def knows_them() -> bool:
            """What is told may be a second old."""
            return (await scraped(running)).of(families.REFUSED_CONNECTIONS, reason="address") == 3.0

        await until(knows_them)
        for peer in peers:
            peer.close()
        (line,) = [one for one in running.log if "max_unauthenticated_connections_per_address" in one]
        assert "a connection from 127.0.0.2 is refused" in line


@covers("B5")
async def test_one_scrape_at_any_front_end_tells_of_all_processes(processes: Processes) -> None:
    await processes.make_queues("parts", partitioning=True)
    await processes.send("parts", [f"m{number}" for number in range(40)])
    for _ in range(6):  # connections are shared out over the front ends
        told = await scraped(processes.running)
        up = {dict(labels)["process"]: value for labels, value in told.all(families.PROCESS_UP).items()}
        assert up == {"broker-0": 1, "broker-1": 1, "front-end-0": 1, "front-end-1": 1}
        assert told.of(families.ARRIVED, entity="parts") == 40
        assert told.of(families.MESSAGES, entity="parts", state="active") == 40
        held = [dict(labels)["process"] for labels in told.all(families.ARRIVED, entity="parts")]
        assert sorted(held) == ["broker-0", "broker-1"]
        assert len(told.all(families.FRAGMENT_MESSAGES, entity="parts")) == 16
        assert told.of(families.STORE_STATE, state="available") == 2
        assert told.of(families.OPERATION_MESSAGES, operation="send", reason="normal") == 40
        assert told.of(families.PROCESS_RESTARTS) == 0


@covers("B5")
async def test_a_process_that_does_not_answer_is_left_out_and_told_as_down(processes: Processes) -> None:
    pid = (await processes.broker(1))["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        told = await scraped(processes.running)
        while told.of(families.PROCESS_UP, process="broker-1") != 0:  # what was told a moment ago is told again
            told = await scraped(processes.running)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert told.of(families.PROCESS_UP, process="broker-0") == 1
    assert told.all(families.PROCESS_MEMORY, process="broker-1") == {}
    assert told.of(families.PROCESS_MEMORY, process="front-end-1") > 0


@covers("B5", "N16")
async def test_what_a_namespace_sees_of_a_pair_is_told(tmp_path: Path) -> None:
    backlog = "contoso/x-servicebus-transfer/0"
    ping = OutgoingMessage(b"", content_type="application/vnd.ms-servicebus-ping")
    purpose: dict[str, object] = {"tandembus:purpose": "syphon"}
    with serving(tmp_path / "data") as running:
        async with (
            Administration(running.connection_string, ca_path=str(running.ca_path)) as administration,
            await connect(running.connection_string) as bus,
        ):
            for name in ("orders", backlog):
                await administration.create_queue(name, QueueSettings())
            orders, to_backlog = await bus.sender("orders"), await bus.sender(backlog)
            await orders.send(ping)
            await to_backlog.send_many([OutgoingMessage(b"a"), OutgoingMessage(b"b")])
            home = await bus.sender("orders", properties=purpose)
            await home.send(OutgoingMessage(b"a"))
            receiver = await bus.receiver(backlog)
            (first,) = await receiver.receive(1, 10.0)
            await receiver.complete(first)
            await Faults(administration.requests).put("f", "entity/orders", "unavailable")
            with pytest.raises(BusError):
                await orders.send(ping)
            told = await scraped(running)
    assert told.of(families.PINGS, result="accepted") == 1
    assert told.of(families.PINGS, result="refused") == 1
    assert (told.of(families.BACKLOG_IN), told.of(families.BACKLOG)) == (2, 1)
    assert (told.of(families.SYPHONED, direction="home"), told.of(families.SYPHONED, direction="out")) == (1, 1)
    assert (told.of(families.SYPHON_LINKS, direction="home"), told.of(families.SYPHON_LINKS, direction="out")) == (1, 1)
