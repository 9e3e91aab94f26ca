"""Queue administration over HTTP: create, look at, change, list and delete."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from types import TracebackType
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

import aiohttp

from tandembus.client.errors import ConnectionLost, failure_of_status
from tandembus.client.queues import ATOM, QueueInfo, QueueSettings, queue_entry, queue_of
from tandembus.clock import Clock, SystemClock
from tandembus.errors import BusError, OperationTimeout, Unauthorized
from tandembus.security.sas import ConnectionString, make_token, parse_connection_string

API_VERSION: Final = "2021-05"
PAGE_SIZE: Final = 100
EMULATOR_HTTP_PORT: Final = 5300
HTTPS_PORT: Final = 443
TOKEN_LIFETIME_S: Final = 3600.0


class Administration:
    """The queues of one namespace. Use it as `async with Administration(connection_string) as administration`."""

    def __init__(
        self,
        connection_string: str,
        *,
        ca_path: str | None = None,
        clock: Clock | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._parts: Final = parse_connection_string(connection_string)
        self._base: Final = _base_url(self._parts)
        self._tls: Final = None if self._parts.use_emulator else ssl.create_default_context(cafile=ca_path)
        self._clock: Final = clock or SystemClock()
        self._timeout: Final = aiohttp.ClientTimeout(total=timeout_s)
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Administration:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def create_queue(self, name: str, settings: QueueSettings | None = None) -> QueueInfo:
        """`EntityAlreadyExists` if the name is taken."""
        return queue_of(await self._request("PUT", name, queue_entry(settings or QueueSettings())))

    async def get_queue(self, name: str) -> QueueInfo:
        return queue_of(await self._request("GET", name))

    async def update_queue(self, name: str, changes: QueueSettings) -> QueueInfo:
        """Change what `changes` names, leave the rest; an empty text removes a forwarding or the metadata."""
        present = (await self.get_queue(name)).settings
        chosen = {each.name: getattr(changes, each.name) for each in fields(changes)}
        settings = replace(present, **{key: value for key, value in chosen.items() if value is not None})
        return queue_of(await self._request("PUT", name, queue_entry(_without_empty(settings)), {"If-Match": "*"}))

    async def delete_queue(self, name: str) -> None:
        await self._request("DELETE", name)

    async def queues(self) -> AsyncIterator[QueueInfo]:
        """All queues, by name; asks for one page after the other."""
        skip = 0
        while True:
            feed = await self._request("GET", "$Resources/queues", query=f"&$skip={skip}&$top={PAGE_SIZE}")
            entries = feed.findall(f"{ATOM}entry")
            for entry in entries:
                yield queue_of(entry)
            if len(entries) < PAGE_SIZE:
                return
            skip += len(entries)

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        query: str = "",
    ) -> ElementTree.Element:
        url = f"{self._base}/{quote(path, safe='/$')}?api-version={API_VERSION}{query}"
        sent = {"Authorization": self._token(), **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/atom+xml;type=entry;charset=utf-8"
        try:
            async with self._session().request(method, url, data=body, headers=sent) as answer:
                return _answer_of(answer.status, await answer.read(), path)
        except aiohttp.ClientError as error:
            raise ConnectionLost(f"{self._base} cannot be reached: {error}") from error
        except asyncio.TimeoutError as error:
            raise OperationTimeout(f"{self._base} did not answer in time") from error

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
            self._http = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self._http

    def _token(self) -> str:
        if self._parts.signature is not None:
            return self._parts.signature
        if self._parts.key_name is None or self._parts.key is None:
            raise Unauthorized("the connection string has neither a key nor a signature")
        expires_at = self._clock.now() + TOKEN_LIFETIME_S
        return make_token(self._base, self._parts.key_name, self._parts.key, expires_at)


def _without_empty(settings: QueueSettings) -> QueueSettings:
    emptied = [each.name for each in fields(settings) if getattr(settings, each.name) == ""]
    return replace(settings, **dict.fromkeys(emptied))


def _base_url(parts: ConnectionString) -> str:
    host = f"[{parts.host}]" if ":" in parts.host else parts.host
    if parts.use_emulator:
        return f"http://{host}:{parts.port or EMULATOR_HTTP_PORT}"
    return f"https://{host}:{parts.port or HTTPS_PORT}"


def _answer_of(status: int, body: bytes, path: str) -> ElementTree.Element:
    if status >= 300:
        raise failure_of_status(status, None, _detail_of(body) or f"{path!r}: the service answered {status}")
    if not body:
        return ElementTree.Element("nothing")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise BusError("the answer is not XML: is this address a Service Bus namespace?") from error


def _detail_of(body: bytes) -> str:
    try:
        return (ElementTree.fromstring(body).findtext("Detail") or "").strip()
    except ElementTree.ParseError:
        return body[:200].decode(errors="replace").strip()
