"""The namespace's policies, as they are asked for."""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest
from aiohttp import web

from tandembus.client.access_policies import AccessPolicy
from tandembus.client.atom_requests import AtomRequests
from tandembus.client.policies import NamespacePolicies
from tandembus.errors import EntityAlreadyExists, MalformedData
from tests.covers import covers
from tests.unit.client.fake_http import FakeHttp

APP = {"name": "app", "rights": ["Send", "Listen"], "primary_key": "one", "secondary_key": "two", "created_at": "x"}
POLICY = AccessPolicy("app", ("Listen", "Send"), "one", "two")


def serving(document: object) -> FakeHttp:
    async def answer(request: web.Request) -> web.Response:
        is_list = request.path.endswith("$policies")
        return web.json_response({"policies": [document]} if is_list else document)

    return FakeHttp(answer)


def asked(server: FakeHttp) -> list[tuple[str, str]]:
    return [(method, unquote(path).replace("?api-version=2021-05", "")) for method, path in server.requests]


@covers("M15")
async def test_each_wish_has_its_request() -> None:
    async with serving(APP) as server:
        requests = AtomRequests(server.connection_string)
        policies = NamespacePolicies(requests)
        assert await policies.all() == [POLICY]
        assert await policies.get("app") == POLICY
        assert await policies.regenerate("app", secondary=False) == POLICY
        assert await policies.regenerate("app", secondary=True) == POLICY
        assert await policies.allow("app", ("Manage",)) == POLICY
        await policies.remove("app")
        await requests.close()
    assert asked(server) == [
        ("GET", "/$policies"),
        ("GET", "/$policies/app"),
        ("POST", "/$policies/app/regenerate&key=primary"),
        ("POST", "/$policies/app/regenerate&key=secondary"),
        ("GET", "/$policies/app"),
        ("PUT", "/$policies/app"),
        ("DELETE", "/$policies/app"),
    ]
    assert json.loads(server.bodies[5]) == {"rights": ["Manage"]}


@covers("M15")
async def test_a_name_that_is_taken_is_left_alone() -> None:
    async with serving(APP) as server:
        requests = AtomRequests(server.connection_string)
        with pytest.raises(EntityAlreadyExists):
            await NamespacePolicies(requests).create(AccessPolicy("app", ("Send",)))
        await NamespacePolicies(requests).create(AccessPolicy("new", ("Send",), primary_key="mine"))
        await requests.close()
    assert [method for method, _ in server.requests] == ["GET", "GET", "PUT"]
    assert json.loads(server.bodies[2]) == {"rights": ["Send"], "primary_key": "mine"}


@pytest.mark.parametrize("document", [{"name": "app"}, {"rights": ["Send"]}, {"name": "app", "rights": "Send"}])
async def test_what_is_no_policy_is_the_fault_of_the_service(document: object) -> None:
    async with serving(document) as server:
        requests = AtomRequests(server.connection_string)
        with pytest.raises(MalformedData):
            await NamespacePolicies(requests).get("app")
        await requests.close()
