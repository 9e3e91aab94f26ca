"""Requests to the HTTP front end of a namespace: who asks, how an answer is read, page after page."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

import aiohttp

from tandembus.client.atom import ATOM
from tandembus.client.errors import ConnectionLost, failure_of_status
from tandembus.clock import Clock, SystemClock
from tandembus.errors import BusError, OperationTimeout, Unauthorized
from tandembus.security.sas import ConnectionString, make_token, parse_connection_string

API_VERSION: Final = "2021-05"
PAGE_SIZE: Final = 100
EMULATOR_HTTP_PORT: Final = 5300
HTTPS_PORT: Final = 443
TOKEN_LIFETIME_S: Final = 3600.0
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

    async def json(
        self, method: str, path: str, body: Mapping[str, object] | None = None, query: str = ""
    ) -> dict[str, object]:
        """A request of the namespace's own, beyond what every Service Bus knows; these speak JSON."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        answer = await self._request(method, path, content, headers, query)
        try:
            document = json.loads(answer or b"{}")
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise BusError("the answer is not JSON: is this address a tandembus namespace?")
        return document

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
        url = f"{self.base}/{quote(path, safe='/$')}?api-version={API_VERSION}{query}"
        sent = {"Authorization": self.token()}
        if body is not None:
            sent["Content-Type"] = ENTRY_TYPE
        try:
            async with self._session().request(method, url, data=body, headers={**sent, **headers}) as answer:
                content = await answer.read()
        except aiohttp.ClientError as error:
            raise ConnectionLost(f"{self.base} cannot be reached: {error}") from error
        except asyncio.TimeoutError as error:
            raise OperationTimeout(f"{self.base} did not answer in time") from error
        if answer.status >= 300:
            detail = _detail_of(content) or f"{path!r}: the service answered {answer.status}"
            raise failure_of_status(answer.status, None, detail)
        return content

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
            self._http = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self._http


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


def _detail_of(body: bytes) -> str:
    try:
        return (ElementTree.fromstring(body).findtext("Detail") or "").strip()
    except ElementTree.ParseError:
        return body[:200].decode(errors="replace").strip()
