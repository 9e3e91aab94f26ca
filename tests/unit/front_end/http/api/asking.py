"""Requests to the namespace as JSON, as tests make them; and messages as any client sends them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from tandembus.amqp.encoding.sections import data_section
from tandembus.message import Message, parse_message
from tandembus.namespace.entity import Entity
from tests.unit.front_end.http.harness import Reply, RunningFrontEnd

JSON = {"Content-Type": "application/json"}


def url(route: str, **query: object) -> str:
    return f"/$api/{route}?{urlencode({name: str(value) for name, value in query.items()})}"


async def ask(running: RunningFrontEnd, method: str, route: str, document: object = None, /, **query: object) -> Reply:
    """As the root policy."""
    return await ask_with(running, "", method, route, document, **query)


async def ask_with(
    running: RunningFrontEnd, token: str | None, method: str, route: str, document: object = None, /, **query: object
) -> Reply:
    body = None if document is None else json.dumps(document)
    return await running.request(method, url(route, **query), body, JSON if body else None, token)


def told(reply: Reply, status: int = 200) -> dict[str, Any]:
    assert reply.status == status, reply.text
    document: dict[str, Any] = json.loads(reply.body)
    return document


def error(reply: Reply) -> tuple[int, str]:
    told = json.loads(reply.body)["error"]
    assert told["status"] == reply.status
    return reply.status, told["text"]


def lines(reply: Reply) -> list[dict[str, Any]]:
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/x-ndjson"), reply.text
    return [json.loads(line) for line in reply.body.splitlines()]


async def entity_of(running: RunningFrontEnd, path: str) -> Entity:
    return await running.namespace.entity(path)


async def put_in(running: RunningFrontEnd, path: str, *payloads: bytes | Message) -> list[int]:
    """Messages as AMQP brings them; their sequence numbers."""
    entity = await entity_of(running, path)
    messages = [one if isinstance(one, Message) else parse_message(one) for one in payloads]
    numbers: list[int] = []
    for message in messages:
        numbers += await entity.requests.schedule([message], int(message.wire_size))
    return numbers


async def put_batch(running: RunningFrontEnd, path: str, count: int) -> None:
    """Many small messages in one commit."""
    messages = [parse_message(data_section(str(number).encode())) for number in range(count)]
    size_bytes = sum([int(message.wire_size) for message in messages])
    await (await entity_of(running, path)).requests.schedule(messages, size_bytes)


async def browse(running: RunningFrontEnd, path: str, **query: object) -> list[dict[str, Any]]:
    """Everything, page after page."""
    found: list[dict[str, Any]] = []
    first: str | None = "0"
    while first is not None:
        page = told(await ask(running, "GET", "messages", path=path, **{**query, "from": first}))
        found += page["messages"]
        first = page["next"]
    return found


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"]["text"] for message in messages]
