"""Requests to the HTTP front end of a namespace: who asks, how an answer is read, page after page."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

import aiohttp

from tandembus.client.atom import ATOM
from tandembus.client.errors import ConnectionLost, failure_of_answer
from tandembus.clock import Clock, SystemClock
from tandembus.errors import BusError, OperationTimeout, Unauthorized
from tandembus.security.sas import ConnectionString, make_token, parse_connection_string

API_VERSION: Final = "2021-05"
PAGE_SIZE: Final = 100
EMULATOR_HTTP_PORT: Final = 5300
HTTPS_PORT: Final = 443
TOKEN_LIFETIME_S: Final = 3600.0
JSON_TYPE: Final = "application/json"
ENTRY_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"


class AtomRequests:
    """One namespace over HTTP. Its connections are made when they are needed, and live until `close`."""

    def __init__(
        self,
        connection_string: str,
        *,
        ca_path: str | None = None,
        clock: Clock | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._parts: Final = parse_connection_string(connection_string)
        self.base: Final = _base_url(self._parts)
        self.namespace: Final = f"sb://{self._parts.endpoint}"
        self._tls: Final = None if self._parts.use_emulator else ssl.create_default_context(cafile=ca_path)
        self._clock: Final = clock or SystemClock()
        self._timeout: Final = aiohttp.ClientTimeout(total=timeout_s)
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def entry(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> ElementTree.Element:
        """The answer's document; an empty one where the answer has none."""
        return _document(await self._request(method, path, body, headers or {}))

    async def entries(self, path: str) -> AsyncIterator[ElementTree.Element]:
        """All entries of a feed; asks for one page after the other."""
        skip = 0
        while True:
            feed = _document(await self._request("GET", path, None, {}, f"&$skip={skip}&$top={PAGE_SIZE}"))
            entries = feed.findall(f"{ATOM}entry")
            for entry in entries:
                yield entry
            if len(entries) < PAGE_SIZE:
                return
            skip += len(entries)

    async def send(
        self, method: str, path: str, body: Mapping[str, object] | None = None, query: str = ""
    ) -> dict[str, object]:
        """A request of a tandembus namespace's own; the answer is JSON, if there is any."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": JSON_TYPE}
        answer = await self._request(method, path, content, headers, query)
        return _json_object(answer) if answer else {}

    async def lines(self, method: str, path: str, query: str) -> AsyncIterator[dict[str, object]]:
        """The same where the answer comes in steps, a line of JSON for each; it may take as long as it goes on."""
        patient = aiohttp.ClientTimeout(total=None, sock_read=self._timeout.total)
        async with self._answer(method, path, None, {}, query, patient) as answer:
            async for line in answer.content:
                yield _json_object(line)

    def token(self, uri: str | None = None) -> str:
        """For what the connection string allows; for another entity where `uri` names one."""
        if self._parts.signature is not None:
            return self._parts.signature
        if self._parts.key_name is None or self._parts.key is None:
            raise Unauthorized("the connection string has neither a key nor a signature")
        expires_at = self._clock.now() + TOKEN_LIFETIME_S
        return make_token(uri or self._audience(), self._parts.key_name, self._parts.key, expires_at)

    def _audience(self) -> str:
        """The key of an entity is worth nothing outside of it, so neither may its token say more."""
        return self.base if self._parts.entity_path is None else f"{self.base}/{self._parts.entity_path}"

    async def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], query: str = ""
    ) -> bytes:
        async with self._answer(method, path, body, headers, query, self._timeout) as answer:
            return await answer.read()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        query: str,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request, unless it is a refusal; failures on the way have their names, too."""
        url = f"{self.base}/{quote(path, safe='/$')}?api-version={API_VERSION}{query}"
        sent = {"Authorization": self.token(), **({} if body is None else {"Content-Type": ENTRY_TYPE}), **headers}
        try:
            async with self._session().request(method, url, data=body, headers=sent, timeout=timeout) as answer:
                if answer.status >= 300:
                    detail = _detail_of(await answer.read()) or f"{path!r}: the service answered {answer.status}"
                    raise failure_of_answer(answer.status, detail)
                yield answer
        except aiohttp.ClientError as error:
            raise ConnectionLost(f"{self.base} cannot be reached: {_reason_of(error)}") from error
        except TimeoutError as error:
            raise OperationTimeout(f"{self.base} did not answer in time") from error

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
            self._http = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self._http


def _reason_of(error: aiohttp.ClientError) -> str:
    """Of a connection that could not be made, what the system said; the library adds words on TLS to it."""
    if not isinstance(error, aiohttp.ClientConnectorError) or isinstance(error, aiohttp.ClientSSLError):
        return str(error)
    if isinstance(error.os_error, ConnectionRefusedError):
        return f"nothing listens on {error.host}:{error.port}"
    return error.os_error.strerror or str(error.os_error)


def _base_url(parts: ConnectionString) -> str:
    host = f"[{parts.host}]" if ":" in parts.host else parts.host
    if parts.use_emulator:
        return f"http://{host}:{parts.port or EMULATOR_HTTP_PORT}"
    return f"https://{host}:{parts.port or HTTPS_PORT}"


def _document(body: bytes) -> ElementTree.Element:
    if not body:
        return ElementTree.Element("nothing")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise BusError("the answer is not XML: is this address a Service Bus namespace?") from error


def _json_object(text: bytes) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BusError("the answer is not JSON: is this address a tandembus namespace?")
    return value


def _detail_of(body: bytes) -> str:
    try:
        return (ElementTree.fromstring(body).findtext("Detail") or "").strip()
    except ElementTree.ParseError:
        return body[:200].decode(errors="replace").strip()
