"""SAS policies made over HTTP: they open what they say, and a key that was replaced opens nothing any more."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError

from tests.covers import covers
from tests.integration.bus import COMES_WITHIN_S, Bus
from tests.integration.conftest import Connect, with_sync_client
from tests.integration.serving import start_namespace
from tests.integration.test_administration import token_of
from tests.integration.test_http_messages import Http


def made(http: Http, path: str, *rights: str) -> dict[str, Any]:
    body = json.dumps({"rights": rights}).encode()
    answer = http.ask("PUT", path, body, Content_Type="application/json")
    assert answer.status in (200, 201)
    document: dict[str, Any] = json.loads(answer.body)
    return document


def send_for(sender: ServiceBusSender, seconds: float) -> None:
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        sender.send_messages(ServiceBusMessage("not any more"))


@covers("M15")
@with_sync_client
@pytest.mark.parametrize("is_entity_s", [False, True])
def test_a_policy_opens_what_it_says_until_its_key_is_replaced(
    connect: Connect, small_bus: Bus, is_entity_s: bool
) -> None:
    queue = small_bus.make_queue()
    http = Http(small_bus.running, False)
    path = f"{queue}/$policies/worker" if is_entity_s else "$policies/worker"
    policy = made(http, path, "Send")
    sdk = connect(small_bus.connection_string_of("worker", policy["primary_key"]), retry_total=0)
    sender = sdk.sender(queue)
    sender.send_messages(ServiceBusMessage("allowed"))
    with pytest.raises(ServiceBusError):
        sdk.receiver(queue).receive_messages(max_wait_time=2)
    renewed = json.loads(http.ask("POST", f"{path}/regenerate?key=primary").body)
    assert renewed["secondary_key"] == policy["secondary_key"]
    with pytest.raises(ServiceBusError):
        send_for(sender, COMES_WITHIN_S)
    for key in (renewed["primary_key"], policy["secondary_key"]):
        other = connect(small_bus.connection_string_of("worker", key), retry_total=0)
        other.sender(queue).send_messages(ServiceBusMessage("allowed again"))
    assert http.ask("DELETE", path).status == 200
    last = connect(small_bus.connection_string_of("worker", renewed["primary_key"]), retry_total=0)
    with pytest.raises(ServiceBusError):
        last.sender(queue)


@covers("M15")
async def test_a_receiver_that_waits_with_a_key_that_is_replaced_is_sent_away(small_bus: Bus) -> None:
    running = small_bus.running
    queue = small_bus.make_queue()
    http = Http(running, False)
    policy = made(http, f"{queue}/$policies/worker", "Listen")
    headers = {"Authorization": token_of(running, queue, "worker", policy["primary_key"])}
    async with aiohttp.ClientSession(headers=headers) as session:
        url = f"{running.http_url}/{queue}/messages/head"
        async with session.post(f"{url}?timeout=0") as none:
            assert none.status == 204
        waiting = asyncio.create_task(session.post(f"{url}?timeout=60"))
        await asyncio.to_thread(http.ask, "POST", f"{queue}/$policies/worker/regenerate")
        assert (await waiting).status == 401


@covers("M15")
def test_policies_survive_a_crash(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("policies") / "data"
    running = start_namespace(data)
    http = Http(running, False)
    made(http, "$policies/worker", "Send")
    renewed = json.loads(http.ask("POST", "$policies/worker/regenerate?key=secondary").body)
    running.kill()
    running = start_namespace(data)
    http = Http(running, False)
    assert json.loads(http.ask("GET", "$policies/worker").body) == renewed
    assert running.stop() == 0
