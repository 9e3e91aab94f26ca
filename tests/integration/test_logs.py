"""What running namespaces log: nothing that is secret, at no level, and which connection and link it is about."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.node.metrics import families
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.processes import Processes
from tests.integration.raw_amqp import FIRST, RECEIVER, SENDER, UNSETTLED, RawAmqp
from tests.integration.serving import KEY, RunningNamespace, serving
from tests.integration.syphons import numbered, pair
from tests.integration.test_metrics import scraped
from tests.integration.test_syphon_program import ended, program
from tests.integration.test_up import Up

BODY = "the-body-that-nobody-may-see"
WRONG_KEY = "a-wrong-key-that-nobody-may-see"
FORGED = 'x\n{"level": "CRITICAL", "message": "forged"}\r\x1b[2K'


@pytest.fixture
def chatty(tmp_path: Path) -> Iterator[RunningNamespace]:
    with serving(tmp_path / "data", environment={"TANDEMBUS_LOG_LEVEL": "debug"}) as running:
        bus = Bus(running)
        bus.admin.create_queue("orders")
        bus.close()
        yield running


def token(key: str, running: RunningNamespace) -> str:
    return make_token(f"{running.http_url}/", ROOT_POLICY, key, int(time.time()) + 600)


def logged(running: RunningNamespace) -> list[str]:
    """Without what stands on standard output: where the namespace is, and its key."""
    return [line for line in running.log if not line.startswith(("ready ", "dashboard "))]


def records(running: RunningNamespace) -> list[dict[str, str]]:
    """Every line is one."""
    return [json.loads(line) for line in logged(running)]


def use_amqp(running: RunningNamespace) -> None:
    """Good and bad tokens, sends that are taken and refused, a link to what is not there, PLAIN with either key."""
    with RawAmqp(running.port) as raw:
        raw.start()
        raw.begin()
        node = raw.attach_node("$cbs")
        for key in (WRONG_KEY, KEY):
            raw.put_token(f"sb://localhost:{running.port}/", token(key, running), node)
        raw.put_token(f"sb://localhost:{running.port}/", "SharedAccessSignature " + BODY, node)
        raw.attach_sender(SENDER, "orders")
        raw.send_message(SENDER, 0, data_section(BODY.encode()))
        raw.send_message(SENDER, 1, properties_section(message_id=BODY * 10) + data_section(BODY.encode()))
        raw.send_message(SENDER, 2, b"\x00\x53\x75" + BODY.encode())
        raw.attach_receiver(RECEIVER, "orders", (UNSETTLED, FIRST))
        raw.flow(RECEIVER, 1)
        raw.receive_message()
        raw.attach_sender(3, "nowhere" + FORGED)
    with RawAmqp(running.port) as raw, pytest.raises(PermissionError):
        raw.log_in(key=WRONG_KEY)
    with RawAmqp(running.port) as raw:
        raw.log_in()


async def use_http(running: RunningNamespace) -> None:
    async with aiohttp.ClientSession(running.http_url) as session:
        for key in (WRONG_KEY, KEY):
            headers = {"Authorization": token(key, running), "Content-Type": "text/plain"}
            await (await session.post("/orders/messages", data=BODY, headers=headers)).read()
            await (await session.post("/nowhere/messages", data=BODY, headers=headers)).read()
            await (await session.put("/$policies/p", data=f'{{"PrimaryKey": "{WRONG_KEY}', headers=headers)).read()
            await (await session.put("/orders2", data=f"<entry>{BODY}", headers={**headers, "Content-Type": ""})).read()
        headers = {"Authorization": token(KEY, running)}
        await (await session.put("/$policies/p", json={"PrimaryKey": WRONG_KEY}, headers=headers)).read()
    malformed = f"GET /orders HTTP/1.1\r\nHost: x\r\nAuthorization\x00: {token(KEY, running)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.http_port)) as connection:
        connection.sendall(malformed.encode())
        connection.recv(4096)


@covers("B5", "M12")
async def test_no_key_token_or_body_is_ever_logged(chatty: RunningNamespace) -> None:
    use_amqp(chatty)
    await use_http(chatty)
    chatty.stop_in_peace()
    log = "".join(logged(chatty))
    for secret in (KEY, WRONG_KEY, BODY, "sig=", "SharedAccessSignature sr"):
        for form in (secret, base64.b64encode(secret.encode()).decode().rstrip("=")):
            assert form not in log, [line for line in chatty.log if form in line]
    told = records(chatty)
    messages = [record["message"] for record in told]
    for part in ("a token is accepted", "a token is refused", "a link is refused", "is attached", "refused as HTTP"):
        assert any(part in message for message in messages), f"nothing was told of: {part}"


@covers("B5")
async def test_what_is_told_of_a_connection_or_a_link_names_it(chatty: RunningNamespace) -> None:
    use_amqp(chatty)
    chatty.stop_in_peace()
    told = records(chatty)
    assert not [record for record in told if record["message"] == "forged"]
    refused = [record for record in told if record["message"].startswith("a link is refused")]
    assert refused
    assert all(record["connection"].startswith("amqp-") and record["link"] for record in refused)
    connected = {record["connection"] for record in told if record["message"].startswith("connected")}
    ended = {record["connection"] for record in told if record["message"].startswith("ended")}
    assert len(connected) == 3
    assert connected == ended
    tokens = [record for record in told if record["message"].startswith("a token")]
    assert {record["connection"] for record in tokens} < connected


@covers("B5")
async def test_the_log_says_what_is_refused_and_why_where_the_sdk_does_not(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as running:
        bus = Bus(running)
        bus.admin.create_queue("orders")
        for target, connection_string in (
            ("ordrs", running.connection_string),
            ("orders", bus.connection_string_of(ROOT_POLICY, WRONG_KEY)),
        ):
            client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
            with client, pytest.raises(ServiceBusError), client.get_queue_sender(target) as sender:
                sender.send_messages(ServiceBusMessage(BODY))
        bus.close()
        use_amqp(running)
        await use_http(running)
        counted = await scraped(running)
        running.stop_in_peace()
    wrong_key = f"The token was not signed with a key of policy '{ROOT_POLICY}'."
    endpoint = f"sb://localhost:{running.port}"
    expected = (
        f"a token for '{endpoint}/ordrs': The messaging entity 'sb://tandembus/ordrs' could not be found.",
        f"a token for '{endpoint}/orders': {wrong_key}",
        f"a connection by SASL PLAIN with the policy '{ROOT_POLICY}': The policy name or its key is wrong.",
        f"a sender of 'nowhere{FORGED}': The address contains spaces",
        "POST /nowhere/messages: The messaging entity 'sb://tandembus/nowhere' could not be found.",
        f"POST /orders/messages: {wrong_key} TrackingId:",
        "PUT /$policies/p: 400 TrackingId:",
    )
    warned = [one["message"] for one in records(running) if one["level"] == "WARNING"]
    for start in expected:
        assert len([one for one in warned if one.startswith(f"refused: {start}")]) == 1, f"{start} is not in {warned}"
    assert counted.of(families.REFUSALS, protocol="amqp", reason="unauthorized") >= 4
    assert counted.of(families.REFUSALS, protocol="http", reason="entity_not_found") >= 1


@covers("B5")
def test_every_process_logs_as_json_with_its_name(tmp_path: Path) -> None:
    processes = Processes(tmp_path / "data", "--brokers", "2", "--config", str(chatty_config(tmp_path)))
    processes.running.stop_in_peace()
    told = records(processes.running)
    assert {record["process"] for record in told} >= {"front-end-0", "broker-0", "broker-1"}


def chatty_config(folder: Path) -> Path:
    """Brokers have little to say."""
    config = folder / "config.toml"
    config.write_text('log_level = "debug"\n')
    return config


@covers("B5")
def test_people_can_have_theirs_wherever_the_log_goes(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--log-format", "human") as running:
        pass
    assert any(" INFO tandembus: namespace 'tandembus' on " in line for line in running.log)
    assert not [line for line in running.log if line.startswith("{")]


@covers("B5")
def test_up_puts_the_name_of_the_namespace_before_each_line(tmp_path: Path) -> None:
    up = Up(tmp_path, "--brokers", "0", "--json")
    try:
        assert set(up.found()) == {"primary", "secondary"}
        told = [up.until_told("namespace '") for _ in range(2)]
        assert up.interrupt() == 0
    finally:
        up.process.kill()
    lines = [line.split(" | ", 1) for line in told]
    assert {who.strip() for who, _ in lines} == {"primary", "secondary"}
    assert all(json.loads(text)["logger"] == "tandembus" for _, text in lines)


@covers("B5")
async def test_a_syphon_logs_as_json_where_nobody_watches() -> None:
    async with pair("orders") as both:
        await both.divert("orders", numbered(1))
        code, _, told = await ended(await program(both, "--once"))
        assert code == 0
    entries = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert {entry["process"] for entry in entries} == {"syphon"}
    assert any("backlog queues" in entry["message"] for entry in entries)
