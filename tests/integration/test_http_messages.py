"""Messages over HTTP against a running namespace, plain and in TLS, beside the SDK."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import timedelta
from email.message import Message as Headers
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.covers import covers
from tests.integration.python_sdk import PythonSdk
from tests.integration.serving import RunningNamespace, start_namespace
from tests.integration.shapes import on_every_shape
from tests.integration.test_administration import token_of

pytestmark = on_every_shape


class Answer(NamedTuple):
    status: int
    headers: Headers
    body: bytes

    @property
    def properties(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.headers["BrokerProperties"])
        return found


class Http:
    """The standard library's client, with a token for everything."""

    def __init__(self, running: RunningNamespace, uses_tls: bool) -> None:
        self.base = running.http_url.replace("http:", "https:") if uses_tls else running.http_url
        self._tls = ssl.create_default_context(cafile=str(running.ca_path)) if uses_tls else None
        self._token = token_of(running)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        url = path if path.startswith("http") else f"{self.base}/{path}"
        sent = {"Authorization": self._token, **{name.replace("_", "-"): value for name, value in headers.items()}}
        request = urllib.request.Request(url, body, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._tls) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())


@pytest.fixture(params=["plain", "tls"])
def http(request: pytest.FixtureRequest, running_namespace: RunningNamespace) -> Http:
    return Http(running_namespace, request.param == "tls")


@covers("B1", "M1", "M2")
def test_a_message_is_sent_locked_renewed_unlocked_and_completed(http: Http, queue_name: str) -> None:
    sent = http.ask(
        "POST",
        f"{queue_name}/messages",
        b"body",
        Content_Type="text/plain",
        BrokerProperties='{"MessageId": "m1", "Label": "l1", "TimeToLive": 600}',
        Customer="12",
        Priority='"High"',
    )
    assert (sent.status, sent.body) == (201, b"")
    first = http.ask("POST", f"{queue_name}/messages/head?timeout=5")
    assert (first.status, first.body, first.headers["Content-Type"]) == (201, b"body", "text/plain")
    assert (first.headers["Customer"], first.headers["Priority"]) == ("12", '"High"')
    assert (first.properties["Label"], first.properties["DeliveryCount"]) == ("l1", 1)
    assert first.headers["Location"].startswith(f"{http.base}/{queue_name}/messages/m1/")
    assert http.ask("POST", first.headers["Location"]).status == 200
    assert http.ask("PUT", first.headers["Location"]).status == 200
    assert http.ask("DELETE", first.headers["Location"]).status == 404
    second = http.ask("POST", f"{queue_name}/messages/head?timeout=5")
    assert second.properties["DeliveryCount"] == 2
    assert http.ask("DELETE", second.headers["Location"]).status == 200
    assert http.ask("DELETE", f"{queue_name}/messages/head?timeout=0").status == 204


@covers("B1")
def test_what_comes_over_http_is_an_ordinary_message_to_the_sdk(http: Http, sdk: PythonSdk, queue_name: str) -> None:
    batch = [
        {"Body": "one", "BrokerProperties": {"Label": "l", "SessionId": "s"}, "UserProperties": {"n": 5, "t": "x"}},
        {"Body": "two", "BrokerProperties": {"SessionId": "s"}},
    ]
    content_type = "application/vnd.microsoft.servicebus.json"
    body = json.dumps(batch).encode()
    assert http.ask("POST", f"{queue_name}/messages", body, Content_Type=content_type).status == 201
    receiver = sdk.receiver(queue_name)
    one, two = [receiver.receive_messages(max_message_count=1, max_wait_time=10)[0] for _ in range(2)]
    assert (b"".join(one.body), one.subject, one.session_id) == (b"one", "l", "s")
    assert one.application_properties == {b"n": 5, b"t": b"x"}
    assert b"".join(two.body) == b"two"
    for message in (one, two):
        receiver.complete_message(message)


@covers("B1")
def test_what_the_sdk_sends_is_received_over_http(http: Http, sdk: PythonSdk, queue_name: str) -> None:
    sdk.sender(queue_name).send_messages(
        ServiceBusMessage(
            b"body",
            application_properties={"text": "\u00e9\r\nX-Evil: 1", "number": 5, "Content-Length": 0, "flag": True},
            message_id="m/1",
            correlation_id="c",
            subject="l",
            time_to_live=timedelta(minutes=5),
            content_type="application/json",
        )
    )
    got = http.ask("DELETE", f"{queue_name}/messages/head?timeout=10")
    assert (got.status, got.body, got.headers["Content-Type"]) == (200, b"body", "application/json")
    assert json.loads(got.headers["text"]) == "\u00e9\r\nX-Evil: 1"
    assert (got.headers["number"], got.headers["flag"], got.headers["X-Evil"]) == ("5", "true", None)
    assert json.loads(got.headers["UserProperties"]) == {"Content-Length": 0}
    assert (got.properties["MessageId"], got.properties["TimeToLive"]) == ("m/1", 300.0)


@covers("B1", "M9")
def test_topics_and_subscriptions_work_as_well(http: Http, admin: ServiceBusAdministrationClient) -> None:
    topic = f"topic-{uuid.uuid4().hex[:12]}"
    admin.create_topic(topic)
    admin.create_subscription(topic, "audit", max_delivery_count=1)
    assert http.ask("POST", f"{topic}/messages", b"x").status == 201
    locked = http.ask("POST", f"{topic}/subscriptions/audit/messages/head?timeout=5")
    assert (locked.status, http.ask("PUT", locked.headers["Location"]).status) == (201, 200)
    dead = f"{topic}/subscriptions/audit/$DeadLetterQueue"
    answer = http.ask("POST", f"{dead}/$resubmit")
    assert [json.loads(line)["moved"] for line in answer.body.splitlines()] == [1, 1]
    assert http.ask("DELETE", f"{topic}/Subscriptions/audit/messages/head?timeout=5").body == b"x"
    admin.delete_topic(topic)


async def test_a_hundred_receivers_wait_at_once_and_each_gets_a_message(
    running_namespace: RunningNamespace, queue_name: str
) -> None:
    headers = {"Authorization": token_of(running_namespace)}
    url = f"{running_namespace.http_url}/{queue_name}/messages"
    connector = aiohttp.TCPConnector(limit=200)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def receive(number: int) -> tuple[int, str]:
            method = "DELETE" if number % 2 else "POST"
            async with session.request(method, f"{url}/head?timeout=60") as response:
                return response.status, await response.text()

        waiting = [asyncio.create_task(receive(number)) for number in range(100)]
        for number in range(100):
            async with session.post(url, data=str(number)) as sent:
                assert sent.status == 201
        answers = await asyncio.gather(*waiting)
    assert sorted([int(body) for _, body in answers]) == list(range(100))
    assert {status for status, _ in answers} == {200, 201}


async def test_who_hangs_up_while_it_waits_gets_nothing(running_namespace: RunningNamespace, queue_name: str) -> None:
    headers = {"Authorization": token_of(running_namespace)}
    url = f"{running_namespace.http_url}/{queue_name}/messages"
    async with aiohttp.ClientSession(headers=headers) as session:
        for method in ("POST", "DELETE") * 3:
            with pytest.raises(TimeoutError):
                await session.request(method, f"{url}/head", timeout=aiohttp.ClientTimeout(total=0.3))
        async with session.post(url, data="x") as sent:
            assert sent.status == 201
        async with session.post(f"{url}/head?timeout=10") as got:
            assert (got.status, json.loads(got.headers["BrokerProperties"])["DeliveryCount"]) == (201, 1)


@pytest.fixture
def stopping(data_folder: Path) -> Iterator[RunningNamespace]:
    running = start_namespace(data_folder)
    yield running
    running.stop()


async def test_a_stop_does_not_wait_for_those_who_wait(stopping: RunningNamespace) -> None:
    headers = {"Authorization": token_of(stopping)}
    entry = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content><QueueDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
    )
    async with aiohttp.ClientSession(headers=headers) as session:
        created = await session.put(
            f"{stopping.http_url}/orders", data=entry, headers={"Content-Type": "application/atom+xml"}
        )
        assert created.status == 201
        waiting = asyncio.create_task(session.post(f"{stopping.http_url}/orders/messages/head?timeout=60"))
        async with session.get(f"{stopping.http_url}/orders") as looked:
            assert looked.status == 200
        # The wait would last for a minute; stopping gives up after half of that.
        assert await asyncio.to_thread(stopping.stop) == 0
        (answer,) = await asyncio.gather(waiting, return_exceptions=True)
        # It may have come too late to be read at all.
        if not isinstance(answer, aiohttp.ClientConnectionError):
            assert isinstance(answer, aiohttp.ClientResponse)
            assert answer.status in (204, 503)


@covers("M1")
def test_what_was_accepted_over_http_survives_a_crash(data_folder: Path) -> None:
    running = start_namespace(data_folder)
    admin = ServiceBusAdministrationClient.from_connection_string(
        running.connection_string, connection_verify=str(running.ca_path)
    )
    admin.create_queue("orders")
    http = Http(running, False)
    for number in range(20):
        assert http.ask("POST", "orders/messages", str(number).encode()).status == 201
    assert http.ask("DELETE", "orders/messages/head?timeout=5").body == b"0"
    running.kill()
    running = start_namespace(data_folder)
    http = Http(running, False)
    got = [http.ask("DELETE", "orders/messages/head?timeout=0").body for _ in range(20)]
    assert got == [*[str(number).encode() for number in range(1, 20)], b""]
    assert running.stop() == 0
