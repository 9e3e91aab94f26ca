"""A browser that has the dashboard open: it keeps the cookie, and says who asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from tandembus.security.sas import make_connection_string
from tests.unit.front_end.http.harness import KEY, ROOT, Reply, RunningFrontEnd

OURS = {"X-Tandembus": "1"}


@dataclass
class Browser:
    front_end: RunningFrontEnd
    cookies: dict[str, str] = field(default_factory=dict)

    async def sign_in(self, key_name: str = ROOT, key: str = KEY, entity: str | None = None) -> Reply:
        wanted = {"key_name": key_name, "key": key}
        return await self.ask("POST", "session", wanted if entity is None else {**wanted, "entity": entity})

    async def ask(
        self, method: str, route: str, document: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """A request of our page, or whatever other headers say."""
        return await self.request(method, f"/$api/{route}", document, headers)

    async def request(
        self, method: str, path: str, document: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        sent = dict(OURS if headers is None else headers)
        if self.cookies:
            sent.setdefault("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        if document is not None:
            sent.setdefault("Content-Type", "application/json")
        body = None if document is None else json.dumps(document)
        reply = await self.front_end.request(method, path, body, sent, token=None)
        self._keep(reply.headers.get("Set-Cookie"))
        return reply

    def _keep(self, cookie: str | None) -> None:
        if cookie is None:
            return
        name, _, value = cookie.partition(";")[0].partition("=")
        if value:
            self.cookies[name] = value
        else:
            self.cookies.pop(name, None)


def document_of(reply: Reply) -> dict[str, object]:
    document = json.loads(reply.body)
    assert isinstance(document, dict)
    return document


def error_of(reply: Reply) -> str:
    return str(cast(dict[str, object], document_of(reply)["error"])["text"])


def connection_string(front_end: RunningFrontEnd, name: str, key: str, entity: str | None = None) -> str:
    return make_connection_string("127.0.0.1", front_end.port, name, key, entity)
