"""Requests that only a tandembus namespace knows, and how their answers are read."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from aiohttp import web

from tandembus.client import ConnectionLost, SubQueue
from tandembus.client.atom_requests import AtomRequests
from tandembus.client.upkeep import Resubmitted, Upkeep
from tandembus.errors import BusError, EntityNotFound, MessageNotFound, NotSupported
from tests.covers import covers
from tests.unit.client.fake_http import FakeHttp


def answers(text: str, status: int = 200) -> FakeHttp:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    return FakeHttp(answer)


def refusal(status: int, sub_code: int) -> FakeHttp:
    return answers(f"<Error><Code>{status}</Code><Detail>No. SubCode={sub_code}. Tracking</Detail></Error>", status)


async def resubmitted(server: FakeHttp, **options: object) -> list[Resubmitted]:
    requests = AtomRequests(server.connection_string)
    try:
        steps = Upkeep(requests).resubmit("events/subscriptions/a", **options)  # type: ignore[arg-type]
        return [step async for step in steps]
    finally:
        await requests.close()


@covers("M3")
async def test_every_step_is_told_and_the_last_one_with_the_reasons() -> None:
    steps = '{"moved": 100, "refused": 0}\n{"moved": 150, "refused": 1}\n'
    end = '{"moved": 150, "refused": 1, "done": true, "refusals": [{"sequence_number": 7, "error": "too large"}]}\n'
    async with answers(steps + end) as server:
        told = await resubmitted(server, to="else/where", max_messages=200)
    assert told == [Resubmitted(100, 0), Resubmitted(150, 1), Resubmitted(150, 1, ("too large",))]
    ((method, path),) = server.requests
    assert (method, unquote(path.split("?")[0])) == ("POST", "/events/subscriptions/a/$DeadLetterQueue/$resubmit")
    assert "to=else/where" in path
    assert "max=200" in path
    assert server.tokens[0].startswith("SharedAccessSignature ")


@covers("M3")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '{"moved": 5, "refused": 0, "done": false, "error": "The disk is full"}\n',
            r"disk is full.*5 were moved",
        ),
        ('{"moved": 5, "refused": 0}\n', "before its end"),
        ("", "before its end"),
        ("<html>", "not JSON"),
        ("[1]\n", "not JSON"),
    ],
)
async def test_an_answer_that_ends_badly_is_no_success(text: str, reason: str) -> None:
    async with answers(text) as server:
        with pytest.raises(BusError, match=reason):
            await resubmitted(server)


async def test_another_service_says_that_it_does_not_know_this() -> None:
    async with refusal(404, 40400) as server:
        with pytest.raises(EntityNotFound):
            await resubmitted(server)
    async with answers("", 405) as server:
        with pytest.raises(NotSupported):
            await resubmitted(server)


async def test_a_connection_that_breaks_in_the_middle_is_lost() -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"moved": 5, "refused": 0}\n')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with FakeHttp(breaks) as server:
        with pytest.raises(ConnectionLost):
            await resubmitted(server)


async def test_one_message_is_deleted_by_its_number() -> None:
    async with answers("") as server:
        requests = AtomRequests(server.connection_string)
        await Upkeep(requests).delete_message("orders", 17)
        await Upkeep(requests).delete_message("orders", 18, SubQueue.DEAD_LETTER)
        await requests.close()
    paths = [(method, unquote(path.split("?")[0])) for method, path in server.requests]
    assert paths == [("DELETE", "/orders/messages/17"), ("DELETE", "/orders/$DeadLetterQueue/messages/18")]


async def test_a_message_that_is_not_there_is_told_from_an_entity_that_is_not_there() -> None:
    async with refusal(404, 40401) as server:
        requests = AtomRequests(server.connection_string)
        with pytest.raises(MessageNotFound):
            await Upkeep(requests).delete_message("orders", 17)
        await requests.close()


async def test_the_token_of_an_entitys_key_is_for_that_entity() -> None:
    async with answers("") as server:
        requests = AtomRequests(f"{server.connection_string};EntityPath=orders")
        await Upkeep(requests).delete_message("orders", 17)
        await requests.close()
    assert unquote(server.tokens[0].split("sr=")[1].split("&")[0]).endswith("/orders")
