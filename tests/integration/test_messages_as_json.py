"""Messages and rules as JSON against a running namespace, with messages as the SDK sends and settles them."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.conftest import with_sync_client
from tests.integration.python_sdk import PythonSdk
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, PLAIN, on_shapes
from tests.integration.test_http_messages import Http
from tests.unit.front_end.http.hostile_texts import HOSTILE

pytestmark = [on_shapes(PLAIN, PARTITIONED, PARTITIONED_ON_BROKERS), with_sync_client]

DEAD = "dead-letter"


class Api:
    """The routes below `/$api/`."""

    def __init__(self, running: RunningNamespace) -> None:
        self.http = Http(running, False)

    def ask(self, method: str, route: str, document: object = None, **query: object) -> tuple[int, bytes]:
        path = f"$api/{route}?{urlencode({name.rstrip('_'): value for name, value in query.items()})}"
        body = None if document is None else json.dumps(document).encode()
        headers = {} if body is None else {"Content_Type": "application/json"}
        answer = self.http.ask(method, path, body, **headers)
        return answer.status, answer.body

    def told(self, method: str, route: str, document: object = None, **query: object) -> dict[str, Any]:
        status, body = self.ask(method, route, document, **query)
        assert status in (200, 201), body
        found: dict[str, Any] = json.loads(body)
        return found

    def lines(self, method: str, route: str, document: object = None, **query: object) -> list[dict[str, Any]]:
        status, body = self.ask(method, route, document, **query)
        assert status == 200, body
        return [json.loads(line) for line in body.splitlines()]

    def browse(self, path: str, **query: object) -> list[dict[str, Any]]:
        """All of them, page after page."""
        found: list[dict[str, Any]] = []
        first: str | None = "0"
        while first is not None:
            page = self.told("GET", "messages", path=path, from_=first, top=20, **query)
            found += page["messages"]
            first = page["next"]
        return found

    def act(self, path: str, sub_queue: str, **task: object) -> dict[str, Any]:
        return self.lines("POST", "messages/act", task, path=path, sub_queue=sub_queue)[-1]


@pytest.fixture
def api(running_namespace: RunningNamespace) -> Api:
    return Api(running_namespace)


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["body"]["text"] for message in messages)


def message(number: int, **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(f"{number:03}", message_id=f"id-{number}", partition_key=f"key-{number}", **fields)


def dead_letter(receiver: ServiceBusReceiver, count: int) -> None:
    """So many, for reasons that their texts decide."""
    for _ in range(count):
        (one,) = receiver.receive_messages(max_message_count=1, max_wait_time=20)
        reason = "odd" if int(str(one)) % 2 else "even"
        receiver.dead_letter_message(one, reason=reason, error_description=f"it is {reason}")


@covers("B4", "M4", "P22")
def test_messages_of_every_state_are_shown_as_the_sdk_left_them(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = sdk.sender(queue)
    properties = {
        "text": "Grüße",
        "whole": -5,
        "broken": 1.5,
        "yes": True,
        "at": datetime(2025, 1, 31, 12, tzinfo=UTC),
        "id": uuid.UUID(int=7),
    }
    sender.send_messages(message(0, subject="s", application_properties=properties, time_to_live=timedelta(hours=1)))
    sender.send_messages([message(1)])
    sender.schedule_messages(message(2), datetime.now(UTC) + timedelta(hours=1))
    receiver = sdk.receiver(queue)
    received = {str(one): one for _ in range(2) for one in receiver.receive_messages(1, max_wait_time=20)}
    receiver.defer_message(received["001"])
    receiver.abandon_message(received["000"])
    found = {one["body"]["text"]: one for one in api.browse(queue)}
    assert {text: one["state"] for text, one in found.items()} == {
        "000": "active",
        "001": "deferred",
        "002": "scheduled",
    }
    first = found["000"]
    assert (first["message_id"], first["subject"], first["partition_key"]) == ("id-0", "s", "key-0")
    assert (first["time_to_live_s"], first["delivery_count"]) == (3600.0, 1)
    told = {entry["name"]: (entry["type"], entry["value"]) for entry in first["properties"]}
    assert told == {
        "text": ("string", "Grüße"),
        "whole": ("int", -5),
        "broken": ("double", 1.5),
        "yes": ("bool", True),
        "at": ("datetime", "2025-01-31T12:00:00Z"),
        "id": ("uuid", str(uuid.UUID(int=7))),
    }
    second = api.told("GET", "message", path=queue, sequence_number=found["001"]["sequence_number"])
    assert (second["body"]["text"], second["state"]) == ("001", "deferred")


@covers("B4", "M3")
def test_dead_letters_are_found_by_reason_and_chosen_ones_go_back(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sdk.sender(queue).send_messages([message(0)])
    sender = sdk.sender(queue)
    for number in range(1, 6):
        sender.send_messages(message(number))
    dead_letter(sdk.receiver(queue), 6)
    reasons = api.told("GET", "messages/reasons", path=queue, sub_queue=DEAD)
    assert reasons == {
        "reasons": [{"reason": "even", "count": 3}, {"reason": "odd", "count": 3}],
        "scanned": 6,
        "is_complete": True,
    }
    odd = api.browse(queue, sub_queue=DEAD, reason="odd")
    assert texts(odd) == ["001", "003", "005"]
    assert {one["dead_letter_description"] for one in odd} == {"it is odd"}
    chosen = [one["sequence_number"] for one in odd if one["body"]["text"] != "003"]
    told = api.act(queue, DEAD, action="resubmit", sequence_numbers=chosen)
    assert told == {"done": 2, "failed": 0, "failures": [], "end": True, "error": None}
    assert bus.counts(queue) == Counts(2, 0, 4)
    receiver = sdk.receiver(queue)
    back = sorted(str(one) for _ in range(2) for one in receiver.receive_messages(1, max_wait_time=20))
    assert back == ["001", "005"]
    assert api.act(queue, DEAD, action="resubmit", reason="even")["done"] == 3
    assert texts(api.browse(queue, sub_queue=DEAD)) == ["003"]
    other = bus.make_queue()
    assert api.act(queue, DEAD, action="move", to=other)["done"] == 1
    assert texts(api.browse(other)) == ["003"]


@covers("B4", "M3", "M9")
def test_dead_letters_of_a_subscription_go_back_through_its_topic(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic("all")
    sender = sdk.topic_sender(topic)
    for number in range(4):
        sender.send_messages(message(number))
    dead_letter(sdk.subscription_receiver(topic, "all"), 4)
    path = f"{topic}/subscriptions/all"
    (last,) = [one for one in api.browse(path, sub_queue=DEAD) if one["body"]["text"] == "003"]
    assert api.act(path, DEAD, action="resubmit", sequence_numbers=[last["sequence_number"]])["done"] == 1
    assert texts(api.browse(path)) == ["003"]
    edited = {"body": {"text": "mended"}, "message_id": "new", "remove": True}
    (first,) = [one for one in api.browse(path, sub_queue=DEAD) if one["body"]["text"] == "000"]
    number = first["sequence_number"]
    sent = api.told("POST", "messages/resend", edited, path=path, sub_queue=DEAD, sequence_number=number)
    assert sent["removed"]
    assert texts(api.browse(path)) == ["003", "mended"]
    assert texts(api.browse(path, sub_queue=DEAD)) == ["001", "002"]
    assert api.act(path, DEAD, action="delete", reason="odd")["done"] == 1
    assert bus.counts_of_subscription(topic, "all") == Counts(2, 0, 1)


@covers("B4")
def test_what_was_exported_is_sent_again_the_same(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    queue, other = bus.make_queue(), bus.make_queue()
    properties = {"n": 2**31 - 1, "u": uuid.UUID(int=3), "f": 0.1, "t": datetime.now(UTC)}
    sender = sdk.sender(queue)
    sender.send_messages(message(0, application_properties=properties, subject="s", content_type="text/plain"))
    sender.send_messages(ServiceBusMessage(bytes(range(256)) * 300, partition_key="p", to="t", reply_to="r"))
    sender.send_messages(AmqpAnnotatedMessage(value_body={"a": [1, b"x"]}, annotations={"own": 5}))
    sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, "two"]]))
    exported = api.lines("GET", "messages/export", path=queue)
    assert len(exported) == 4
    for line in exported:
        assert api.told("POST", "messages", line, path=other)["sequence_number"]
    first, second = [sorted(map(shown, peeked(sdk, name, 4))) for name in (queue, other)]
    assert first == second


def peeked(sdk: PythonSdk, queue: str, count: int) -> list[Any]:
    receiver = sdk.receiver(queue)
    found: list[Any] = []
    while len(found) < count:
        first = 0 if not found else found[-1].sequence_number + 1
        found += receiver.peek_messages(max_message_count=count, sequence_number=first)
    return found


def shown(one: Any) -> str:
    raw = one.raw_amqp_message
    body = b"".join(one.body) if raw.body_type.value == "data" else repr(list(one.body) if one.body else one.body)
    own = {str(key): value for key, value in (raw.annotations or {}).items() if not str(key).startswith("b'x-opt")}
    return repr((one.message_id, raw.body_type, body, one.application_properties, own, one.subject, one.to))


@covers("B4")
def test_hostile_texts_come_out_as_text(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    batch = [
        ServiceBusMessage(
            text, message_id=f"{place}", subject=text, partition_key="k", application_properties={text: text}
        )
        for place, text in enumerate(HOSTILE)
    ]
    sdk.sender(queue).send_messages(batch)
    receiver = sdk.receiver(queue)
    receiver.dead_letter_message(receiver.receive_messages(1, max_wait_time=20)[0], reason=HOSTILE[1])
    found = {int(one["message_id"]): one for one in [*api.browse(queue), *api.browse(queue, sub_queue=DEAD)]}
    assert len(HOSTILE) > 50
    for place, text in enumerate(HOSTILE):
        one = found[place]
        assert one["subject"] == text
        assert {"name": text, "type": "string", "value": text} in one["properties"]
        assert one["body"]["text"] in (text, None)
    assert found[0]["dead_letter_reason"] == HOSTILE[1]


@covers("B4", "M7")
def test_sessions_are_listed_and_looked_into(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue(requires_session=True)
    sender = sdk.sender(queue)
    for session in ("a", "b", "a"):
        sender.send_messages(ServiceBusMessage(f"of {session}", session_id=session))
    assert sorted(api.told("GET", "sessions", path=queue)["sessions"]) == ["a", "b"]
    assert texts(api.browse(queue, session="a")) == ["of a", "of a"]


@covers("B4")
def test_a_message_sent_as_json_is_an_ordinary_message_to_the_sdk(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    properties = [
        {"name": "i", "type": "int", "value": 5},
        {"name": "l", "type": "long", "value": str(2**60)},
        {"name": "u", "type": "uuid", "value": str(uuid.UUID(int=7))},
        {"name": "d", "type": "datetime", "value": "2025-01-31T12:00:00.5Z"},
        {"name": "b", "type": "bytes", "value": "AP8="},
        {"name": "t", "type": "bool", "value": True},
        {"name": "f", "type": "double", "value": 1.5},
    ]
    document = {"body": {"text": "Grüße"}, "message_id": "m", "properties": properties, "time_to_live_s": 60}
    sent = api.told("POST", "messages", document, path=queue)
    receiver = sdk.receiver(queue)
    (one,) = receiver.receive_messages(1, max_wait_time=20)
    assert (str(one), one.message_id, one.time_to_live) == ("Grüße", "m", timedelta(seconds=60))
    assert str(one.sequence_number) == sent["sequence_number"]
    assert one.application_properties == {
        b"i": 5,
        b"l": 2**60,
        b"u": uuid.UUID(int=7),
        b"d": int(datetime(2025, 1, 31, 12, 0, 0, 500_000, UTC).timestamp() * 1000),
        b"b": b"\x00\xff",
        b"t": True,
        b"f": 1.5,
    }


@covers("B4", "P22")
def test_while_a_fragment_is_out_the_others_are_shown(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    queue = bus.make_queue()
    sender = sdk.sender(queue)
    for number in range(20):
        sender.send_messages(message(number))
    everything = api.browse(queue)
    out = everything[0]["fragment"]
    target = f"fragment/{queue}/{out}" if bus.shape.is_partitioned else f"entity/{queue}"
    fault = json.dumps({"target": target, "kind": "unavailable"}).encode()
    assert api.http.ask("PUT", f"$faults/{queue}", fault, Content_Type="application/json").status == 201
    try:
        if bus.shape.is_partitioned:
            page = api.told("GET", "messages", path=queue, top=200)
            assert page["is_partial"]
            assert page["messages"] == [one for one in everything if one["fragment"] != out]
        else:
            assert api.ask("GET", "messages", path=queue)[0] == 500
        assert api.ask("GET", "message", path=queue, sequence_number=everything[0]["sequence_number"])[0] == 500
    finally:
        assert api.http.ask("DELETE", f"$faults/{queue}").status == 200
    assert api.browse(queue) == everything


@covers("B4", "M9")
def test_a_rule_that_was_tried_does_the_same_once_it_is_there(api: Api, sdk: PythonSdk, bus: Bus) -> None:
    topic = bus.make_topic("some")
    path = f"{topic}/subscriptions/some"
    rule = {
        "filter": {
            "kind": "sql",
            "expression": "number > @least AND sys.Label = 'x'",
            "parameters": [{"name": "@least", "type": "long", "value": "1"}],
        },
        "action": {"expression": "SET color = 'red'; SET sys.CorrelationId = 'c'", "parameters": []},
    }
    assert api.told("PUT", "rules", rule, path=path, name="mine")["filter"] == rule["filter"]
    assert api.ask("DELETE", "rules", path=path, name="$Default")[0] == 204
    sender = sdk.topic_sender(topic)
    for number in range(4):
        sender.send_messages(message(number, subject="x", application_properties={"number": number}))
    found = api.browse(path)
    assert texts(found) == ["002", "003"]
    for one in found:
        before = {**one, "correlation_id": None, "properties": [one["properties"][0]]}
        tried = api.told("POST", "rules/check", {**rule, "message": before, "name": "mine"})
        assert (tried["matches"], tried["filter_error"], tried["evaluation_error"]) == (True, None, None)
        for key in ("properties", "correlation_id", "message_id", "subject"):
            assert tried["after"][key] == one[key]
