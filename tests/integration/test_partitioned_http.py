"""Messages of partitioned entities over HTTP, and what HTTP may say about partitioning."""

from __future__ import annotations

import http.client
import json
import uuid

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk, receive
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, on_shapes
from tests.integration.test_administration import token_of
from tests.integration.test_http_messages import Answer, Http

pytestmark = on_shapes(PARTITIONED, PARTITIONED_ON_BROKERS)

FRAGMENTS = 16
NUMBER_BITS = 48
QUEUE = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
    "<EnablePartitioning>{}</EnablePartitioning></QueueDescription></content></entry>"
)


@pytest.fixture
def http_client(running_namespace: RunningNamespace) -> Http:
    return Http(running_namespace, False)


@pytest.fixture
def queue(bus: Bus) -> str:
    return bus.make_queue()


def fragment_of(answer: Answer) -> int:
    return int(answer.properties["SequenceNumber"]) >> NUMBER_BITS


def send(http: Http, queue: str, count: int) -> list[bytes]:
    bodies = [f"{number:03}".encode() for number in range(count)]
    for body in bodies:
        assert http.ask("POST", f"{queue}/messages", body).status == 201
    return bodies


@covers("P5", "P6", "B1")
def test_messages_come_from_all_fragments_and_are_gone(http_client: Http, bus: Bus, queue: str) -> None:
    bodies = send(http_client, queue, 2 * FRAGMENTS)
    answers = [http_client.ask("DELETE", f"{queue}/messages/head") for _ in bodies]
    assert sorted(answer.body for answer in answers) == bodies
    assert set(map(fragment_of, answers)) == set(range(FRAGMENTS))
    assert http_client.ask("DELETE", f"{queue}/messages/head?timeout=0").status == 204
    assert bus.counts(queue) == Counts(0)


@covers("P24", "B1")
def test_a_locked_message_is_renewed_unlocked_and_completed_in_its_fragment(
    http_client: Http, bus: Bus, queue: str
) -> None:
    send(http_client, queue, FRAGMENTS)
    seen: set[int] = set()
    for _ in range(FRAGMENTS):
        answer = http_client.ask("POST", f"{queue}/messages/head")
        assert answer.status == 201
        seen.add(fragment_of(answer))
        location = answer.headers["Location"]
        assert http_client.ask("POST", location).status == 200
        assert http_client.ask("DELETE", location).status == 200
        assert http_client.ask("DELETE", location).status == 404
    assert seen == set(range(FRAGMENTS))
    assert bus.counts(queue) == Counts(0)


@covers("P24", "B1")
def test_an_unlocked_message_comes_again(http_client: Http, queue: str) -> None:
    send(http_client, queue, 1)
    first = http_client.ask("POST", f"{queue}/messages/head")
    assert http_client.ask("PUT", first.headers["Location"]).status == 200
    again = http_client.ask("POST", f"{queue}/messages/head")
    assert again.properties["SequenceNumber"] == first.properties["SequenceNumber"]
    assert again.properties["DeliveryCount"] == first.properties["DeliveryCount"] + 1


@covers("P10", "B1")
def test_a_partition_key_picks_the_fragment(http_client: Http, queue: str) -> None:
    for key in ("a", "b", "a", "b"):
        properties = json.dumps({"PartitionKey": key})
        assert http_client.ask("POST", f"{queue}/messages", key.encode(), BrokerProperties=properties).status == 201
    found: dict[bytes, set[int]] = {}
    for _ in range(4):
        answer = http_client.ask("DELETE", f"{queue}/messages/head")
        found.setdefault(answer.body, set()).add(fragment_of(answer))
    assert {body: len(fragments) for body, fragments in found.items()} == {b"a": 1, b"b": 1}
    assert found[b"a"] != found[b"b"]


@covers("P21")
def test_a_connection_that_stays_open_gets_every_message(
    running_namespace: RunningNamespace, http_client: Http, bus: Bus, queue: str
) -> None:
    bodies = send(http_client, queue, 2 * FRAGMENTS)
    connection = http.client.HTTPConnection("localhost", running_namespace.http_port, timeout=60)
    headers = {"Authorization": token_of(running_namespace)}
    found: list[bytes] = []
    for _ in bodies:
        connection.request("DELETE", f"/{queue}/messages/head", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        found.append(answer.read())
    assert sorted(found) == bodies
    connection.close()
    assert bus.counts(queue) == Counts(0)


@covers("P6", "P21")
@with_sync_client
def test_what_was_ready_for_a_connection_that_closed_is_there_for_others_uncounted(
    running_namespace: RunningNamespace, http_client: Http, sdk: PythonSdk, queue: str
) -> None:
    send(http_client, queue, FRAGMENTS)
    connection = http.client.HTTPConnection("localhost", running_namespace.http_port, timeout=60)
    connection.request("DELETE", f"/{queue}/messages/head", headers={"Authorization": token_of(running_namespace)})
    assert connection.getresponse().status == 200
    connection.close()
    rest = receive(sdk.receiver(queue), FRAGMENTS - 1)
    assert {one.delivery_count for one in rest} == {0}


# Upkeep.


@covers("P26", "B1")
def test_one_message_is_deleted_by_its_number(http_client: Http, bus: Bus, queue: str) -> None:
    send(http_client, queue, 3)
    answer = http_client.ask("POST", f"{queue}/messages/head")
    number = int(answer.properties["SequenceNumber"])
    assert http_client.ask("PUT", answer.headers["Location"]).status == 200
    for wrong in (number + 1, 16 << NUMBER_BITS | 1, 2**63 - 1):
        assert http_client.ask("DELETE", f"{queue}/messages/{wrong}").status == 404
    assert http_client.ask("DELETE", f"{queue}/messages/{number}").status == 200
    assert bus.counts(queue) == Counts(2)


@covers("P4")
def test_all_fragments_are_purged(http_client: Http, bus: Bus, queue: str) -> None:
    send(http_client, queue, 2 * FRAGMENTS)
    answer = http_client.ask("POST", f"{queue}/$purge", b"")
    assert json.loads(answer.body)["purged"] == 2 * FRAGMENTS
    assert bus.counts(queue) == Counts(0)


@covers("P4")
@with_sync_client
@pytest.mark.parametrize("has_keys", [False, True], ids=["no keys", "keys"])
@pytest.mark.parametrize("goes_elsewhere", [False, True], ids=["home", "elsewhere"])
def test_dead_letters_of_all_fragments_are_sent_again(
    http_client: Http, sdk: PythonSdk, bus: Bus, queue: str, has_keys: bool, goes_elsewhere: bool
) -> None:
    sender, receiver = sdk.pair(queue)
    bodies = [f"{number:02}".encode() for number in range(FRAGMENTS)]
    for body in bodies:
        sender.send_messages(ServiceBusMessage(body, partition_key=body.decode() if has_keys else None))
    for one in receive(receiver, FRAGMENTS):
        receiver.dead_letter_message(one, reason="test")
    assert bus.counts(queue) == Counts(0, 0, FRAGMENTS)
    target = bus.make_queue() if goes_elsewhere else queue
    query = f"?to={target}" if goes_elsewhere else ""
    supplementary = {"ServiceBusSupplementaryAuthorization": token_of(bus.running)} if goes_elsewhere else {}
    answer = http_client.ask("POST", f"{queue}/$DeadLetterQueue/$resubmit{query}", b"", **supplementary)
    assert json.loads(answer.body.splitlines()[-1]) == {"moved": FRAGMENTS, "refused": 0, "done": True}
    assert bus.counts(queue) == (Counts(0) if goes_elsewhere else Counts(FRAGMENTS))
    again = receive(sdk.receiver(target), FRAGMENTS)
    assert sorted(b"".join(one.body) for one in again) == bodies
    assert {one.dead_letter_reason for one in again} == {None}
    assert not sdk.receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER).peek_messages()


# What HTTP may say about partitioning.


@covers("P7")
@pytest.mark.parametrize(("version", "status"), [("2013-08", 400), ("2012-03", 400), ("2013-10", 201), ("", 201)])
def test_partitioning_is_asked_for_with_an_api_version_that_knows_of_it(
    http_client: Http, version: str, status: int
) -> None:
    name = f"queue-{uuid.uuid4().hex[:12]}"
    path = f"{name}?api-version={version}" if version else name
    answer = http_client.ask("PUT", path, QUEUE.format("true").encode(), Content_Type="application/atom+xml")
    assert answer.status == status
    if status == 400:
        assert b"EnablePartitioning needs api-version 2013-10 or later" in answer.body
        assert http_client.ask("GET", name).status == 404
    else:
        assert b"<EnablePartitioning>true</EnablePartitioning>" in http_client.ask("GET", name).body


@covers("P7")
@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "plain"])
def test_partitioning_is_never_changed(http_client: Http, bus: Bus, is_partitioned: bool) -> None:
    queue = bus.make_queue(enable_partitioning=is_partitioned)
    other = QUEUE.format("false" if is_partitioned else "true").encode()
    answer = http_client.ask("PUT", queue, other, If_Match="*", Content_Type="application/atom+xml")
    assert answer.status == 400
    assert b"EnablePartitioning" in answer.body
    assert b"fixed when the entity is created" in answer.body
    assert bus.admin.get_queue(queue).enable_partitioning is is_partitioned
