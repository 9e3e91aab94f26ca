"""Injected faults over HTTP: what is put, told and cleared, what is refused, and what the front end does with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tandembus.descriptions import QueueDescription
from tandembus.faults.fault import Topology
from tandembus.front_end.http.faults import MAX_BODY_BYTES
from tests.covers import covers
from tests.unit.front_end.http import test_server
from tests.unit.front_end.http.harness import KEY, Reply, RunningFrontEnd
from tests.unit.front_end.http.test_server import queue_body

JSON = {"Content-Type": "application/json"}
OUT = {"target": "namespace", "kind": "unavailable"}


async def put(front_end: RunningFrontEnd, fault_id: str, document: object, token: str | None = "") -> Reply:
    body = document if isinstance(document, str) else json.dumps(document)
    return await front_end.request("PUT", f"/$faults/{fault_id}", body, JSON, token)


def told(reply: Reply, status: int = 200) -> dict[str, Any]:
    assert (reply.status, reply.headers["Content-Type"]) == (status, "application/json;charset=utf-8")
    document: dict[str, Any] = json.loads(reply.body)
    return document


def refusal(reply: Reply, status: int) -> str:
    code, detail = test_server.refusal(reply)
    assert code == status
    return detail


@pytest.fixture
async def orders(front_end: RunningFrontEnd) -> RunningFrontEnd:
    await front_end.namespace.create_queue(QueueDescription("orders"))
    return front_end


@covers("B3")
async def test_a_fault_is_put_changed_told_and_cleared(orders: RunningFrontEnd) -> None:
    wanted = {"target": "entity/Orders", "kind": "slow", "latency_ms": 20, "probability": 0.5, "for_s": 60}
    created = told(await put(orders, "f1", wanted), 201)
    assert {name: created[name] for name in wanted} == wanted
    assert (created["id"], created["state"]) == ("f1", "active")
    assert 59 < created["ends_in_s"] <= 60
    assert created["started_at"].endswith("Z")
    changed = told(await put(orders, "f1", {"target": "store/0", "kind": "throttled"}))
    assert (changed["latency_ms"], changed["probability"], changed["for_s"], changed["ends_in_s"]) == (
        None,
        1.0,
        None,
        None,
    )
    assert told(await orders.request("GET", "/$faults/f1")) == changed
    second = told(await put(orders, "a", {"target": "entity/orders", "kind": "disk-full"}), 201)
    assert told(await orders.request("GET", "/$Faults"))["faults"] == [second, changed]
    assert told(await put(orders, "a", second)) | {"started_at": ""} == second | {"started_at": ""}
    assert told(await orders.request("DELETE", "/$faults/a")) == {"cleared": 1}
    assert "no fault 'a'" in refusal(await orders.request("GET", "/$faults/a"), 404)
    assert told(await orders.request("DELETE", "/$faults")) == {"cleared": 1}
    assert told(await orders.request("GET", "/$faults")) == {"faults": []}


@covers("B3")
async def test_a_fault_waits_for_an_entity_that_is_not_there(front_end: RunningFrontEnd) -> None:
    assert (
        told(await put(front_end, "f1", {"target": "entity/later", "kind": "unavailable"}), 201)["state"] == "pending"
    )
    await front_end.namespace.create_queue(QueueDescription("later"))
    assert told(await front_end.request("GET", "/$faults/f1"))["state"] == "active"


@covers("B3")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/$faults", "/$faults/f1"])
async def test_faults_need_manage_on_the_namespace(orders: RunningFrontEnd, method: str, path: str) -> None:
    body = json.dumps(OUT) if method == "PUT" else None
    for token in (None, orders.token("orders"), orders.token(key=KEY[::-1])):
        assert (await orders.request(method, path, body, JSON, token)).status == 401
    assert orders.namespace.faults.standing() == []


@covers("B3")
@pytest.mark.parametrize(
    ("fault_id", "document", "status", "reason"),
    [
        ("f1", "", 400, "is not JSON"),
        ("f1", "{", 400, "is not JSON"),
        ("f1", '{"target": "namespace", "kind": "throttled", "for_s": NaN}', 400, "is not JSON"),
        ("f1", '{"target": "namespace", "target": "store/0", "kind": "throttled"}', 400, "twice"),
        ("f1", "[" * 4000, 400, "The fault is n"),
        ("f1", [], 400, "JSON object"),
        ("f1", {"kind": "throttled"}, 400, "needs a 'target'"),
        ("f1", {**OUT, "kind": "gone"}, 400, "none of unavailable"),
        ("f1", {**OUT, "kind": "slow"}, 400, "latency_ms"),
        ("f1", {**OUT, "probability": 2}, 400, "probability"),
        ("f1", {**OUT, "color": "red"}, 400, "no 'color'"),
        ("f1", {**OUT, "target": "store/1"}, 400, "only store 0"),
        ("f1", {**OUT, "target": "broker/7"}, 400, "only broker 0"),
        ("f1", {**OUT, "target": "fragment/orders/3"}, 400, "is not partitioned"),
        ("f1", {**OUT, "target": "entity/\u0000"}, 400, "is no target"),
        ("f%201", OUT, 400, "fault id"),
        ("a/b", OUT, 400, "fault id"),
        ("a" * 65, OUT, 400, "fault id"),
        ("f1", {**OUT, "target": "entity/" + "x" * MAX_BODY_BYTES}, 413, "4096"),
    ],
)
async def test_what_is_no_fault_is_refused_and_nothing_stands(
    orders: RunningFrontEnd, fault_id: str, document: object, status: int, reason: str
) -> None:
    assert reason in refusal(await put(orders, fault_id, document), status)
    assert orders.namespace.faults.standing() == []


@covers("B3")
async def test_only_json_is_taken(orders: RunningFrontEnd) -> None:
    for headers in ({"Content-Type": "application/xml"}, {**JSON, "Content-Encoding": "gzip"}):
        reply = await orders.request("PUT", "/$faults/f1", json.dumps(OUT), headers)
        assert reply.status == 415
    assert (await orders.request("POST", "/$faults/f1", json.dumps(OUT), JSON)).status == 405
    assert (await orders.request("PUT", "/$faults", json.dumps(OUT), JSON)).status == 405


@covers("B3")
async def test_more_faults_than_allowed_are_refused(orders: RunningFrontEnd) -> None:
    for number in range(orders.namespace.limits.max_faults):
        assert (await put(orders, f"f{number}", {"target": "entity/x", "kind": "throttled"})).status == 201
    assert "clear some" in refusal(await put(orders, "more", OUT), 403)


@covers("B3")
async def test_brokers_and_stores_that_are_there_can_fail(orders: RunningFrontEnd) -> None:
    orders.namespace.faults.topology = Topology(stores=4, brokers=2)
    assert (await put(orders, "a", {"target": "store/3", "kind": "slow", "latency_ms": 1})).status == 201
    assert (await put(orders, "b", {"target": "broker/1", "kind": "unavailable"})).status == 201
    assert "0 to 1" in refusal(await put(orders, "c", {"target": "broker/2", "kind": "unavailable"}), 400)


@covers("B3")
async def test_a_namespace_that_is_out_answers_nobody_but_can_be_healed(orders: RunningFrontEnd) -> None:
    assert (await put(orders, "drill", OUT)).status == 201
    for method, path in (
        ("GET", "/orders"),
        ("GET", "/$Resources/queues"),
        ("GET", "/$namespaceinfo"),
        ("GET", "/$policies"),
        ("POST", "/orders/messages"),
        ("DELETE", "/orders/messages/head?timeout=1"),
        ("DELETE", "/orders"),
    ):
        assert "injected fault 'drill'" in refusal(await orders.request(method, path), 500)
    assert (await orders.request("GET", "/tandembus/meter")).status == 200
    assert (await orders.request("GET", "/health", token=None)).status == 200
    assert (await orders.request("DELETE", "/$faults/drill")).status == 200
    assert (await orders.request("GET", "/orders")).status == 200


@covers("B3")
async def test_a_throttled_namespace_is_busy_for_administration_too(orders: RunningFrontEnd) -> None:
    await put(orders, "f1", {"target": "namespace", "kind": "throttled"})
    reply = await orders.request("GET", "/orders")
    assert (reply.status, reply.headers["Retry-After"]) == (503, "10")


@covers("B3")
async def test_a_namespace_without_room_creates_nothing_and_deletes_all_the_same(orders: RunningFrontEnd) -> None:
    await put(orders, "f1", {"target": "namespace", "kind": "disk-full"})
    assert "no room" in refusal(await orders.request("PUT", "/more", queue_body()), 500)
    assert (await orders.request("DELETE", "/orders")).status == 200
