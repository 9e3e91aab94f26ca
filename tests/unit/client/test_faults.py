"""Faults of a namespace, as they are asked for."""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest
from aiohttp import web

from tandembus.client.atom_requests import AtomRequests
from tandembus.client.faults import Faults, InjectedFault
from tandembus.errors import EntityNotFound
from tests.covers import covers
from tests.unit.client.fake_http import FakeHttp

TOLD = {
    "id": "f1",
    "target": "store/1",
    "kind": "slow",
    "latency_ms": 20,
    "probability": 0.5,
    "for_s": 60.0,
    "ends_in_s": 59.9,
    "state": "active",
    "started_at": "2026-01-01T00:00:00Z",
}
FAULT = InjectedFault("f1", "store/1", "slow", 20, 0.5, 60.0, 59.9, "active", "2026-01-01T00:00:00Z")


def serving(document: object, status: int = 200) -> FakeHttp:
    async def answer(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            return web.json_response({"cleared": 3}, status=status)
        is_list = request.path.endswith("$faults")
        return web.json_response({"faults": [document]} if is_list else document, status=status)

    return FakeHttp(answer)


@covers("B3")
async def test_each_wish_has_its_request() -> None:
    async with serving(TOLD) as server:
        requests = AtomRequests(server.connection_string)
        faults = Faults(requests)
        assert await faults.put("f1", "store/1", "slow", latency_ms=20, probability=0.5, for_s=60.0) == FAULT
        assert await faults.put("f2", "namespace", "throttled") == FAULT
        assert await faults.get("f1") == FAULT
        assert await faults.all() == [FAULT]
        await faults.remove("f1")
        assert await faults.clear() == 3
        await requests.close()
    asked = [(method, unquote(path).partition("?")[0]) for method, path in server.requests]
    assert asked == [
        ("PUT", "/$faults/f1"),
        ("PUT", "/$faults/f2"),
        ("GET", "/$faults/f1"),
        ("GET", "/$faults"),
        ("DELETE", "/$faults/f1"),
        ("DELETE", "/$faults"),
    ]
    assert json.loads(server.bodies[0]) == {
        "target": "store/1",
        "kind": "slow",
        "latency_ms": 20,
        "probability": 0.5,
        "for_s": 60.0,
    }
    assert json.loads(server.bodies[1]) == {"target": "namespace", "kind": "throttled"}


@covers("B3")
async def test_what_is_not_there_is_said_so() -> None:
    async with serving({}, status=404) as server:
        requests = AtomRequests(server.connection_string)
        with pytest.raises(EntityNotFound):
            await Faults(requests).get("f1")
        await requests.close()


async def test_answers_of_others_are_read_with_care() -> None:
    async with serving({"latency_ms": "x", "probability": None, "faults": 5}) as server:
        requests = AtomRequests(server.connection_string)
        assert await Faults(requests).get("f1") == InjectedFault("", "", "")
        await requests.close()
