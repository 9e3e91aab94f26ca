"""The other namespace of a pair, asked over HTTP for what it tells of itself.

It may be anywhere, and out of reach is what a pair is there for: nobody who looks at this namespace waits for it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp

from tandembus.clock import Clock
from tandembus.config import ServeSettings
from tandembus.errors import BusError, InvalidArgument, StoreUnavailable, Unauthorized
from tandembus.front_end.http.broker_properties import read_json
from tandembus.node.facts import FACTS_FILE
from tandembus.security.key_file import read_key
from tandembus.security.sas import ROOT_POLICY, ConnectionString, make_token, parse_connection_string

ANSWERS_WITHIN_S: Final = 2.0
TOKEN_LIFETIME_S: Final = 300.0
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
DEFAULT_PORT: Final = 5300
DEFAULT_TLS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class PartnerAddress:
    """Where it is, and what opens it."""

    name: str
    base_url: str
    key_name: str = ""
    key: str = field(default="", repr=False)
    signature: str | None = field(default=None, repr=False)

    def token(self, now: float) -> str:
        return self.signature or make_token(self.base_url, self.key_name, self.key, now + TOKEN_LIFETIME_S)


FindPartner = Callable[[], PartnerAddress]
"""Where it is at the moment. Raises a BusError that says why nobody knows."""


class Partner:
    def __init__(self, find: FindPartner, clock: Clock, trust: ssl.SSLContext | None = None) -> None:
        """`trust`: None for the system's."""
        self._find = find
        self._clock = clock
        self._trust = trust
        self._http: aiohttp.ClientSession | None = None

    def name(self) -> str | None:
        """What it is called, as far as that is known without asking it."""
        try:
            return self._find().name
        except BusError:
            return None

    async def ask(self, path: str) -> Mapping[str, object]:
        """The object that it answers to a GET. Raises a BusError that says why there is none; never a secret."""
        address = self._find()
        headers = {"Authorization": address.token(self._clock.now())}
        try:
            async with self._session().get(address.base_url + path, headers=headers, allow_redirects=False) as answer:
                return await _read(answer)
        except TimeoutError:
            raise StoreUnavailable(f"It does not answer within {ANSWERS_WITHIN_S:g} s.") from None
        except aiohttp.ClientError as error:
            raise StoreUnavailable(f"It cannot be reached: {_cause(error)}.") from None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=ANSWERS_WITHIN_S)
            self._http = aiohttp.ClientSession(
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(ssl=self._trust or True),
            )
        return self._http


def partner_of(settings: ServeSettings, clock: Clock) -> Partner | None:
    """None where there is none. Raises InvalidArgument for a connection string that cannot be used, OSError for such
    certificates."""
    if settings.partner is not None:
        return Partner(partial(_same, address_in(settings.partner)), clock, _trust(settings.partner_ca))
    if settings.partner_data is not None:
        return Partner(partial(address_from, settings.partner_data), clock)
    return None


def _trust(certificates: Path | None) -> ssl.SSLContext | None:
    return None if certificates is None else ssl.create_default_context(cafile=certificates)


def _same(address: PartnerAddress) -> PartnerAddress:
    return address


def address_from(data: Path) -> PartnerAddress:
    """From the data folder of a namespace on this machine. Read whenever it is asked: it may be started later, on other
    ports, or with another key. Raises StoreUnavailable."""
    try:
        facts = json.loads((data / FACTS_FILE).read_text())
        host, port, name = str(facts["host"]), int(facts["http_port"]), str(facts["name"])
        key = read_key(data)
    except (OSError, ValueError, TypeError, KeyError, StoreUnavailable):
        raise StoreUnavailable("Its data folder does not tell where it is: it was never started.") from None
    if key is None:
        raise StoreUnavailable("Its data folder holds no key.")
    return PartnerAddress(name, f"http://{_in_url(host)}:{port}", ROOT_POLICY, key)


def address_in(connection_string: str) -> PartnerAddress:
    """Raises InvalidArgument, which repeats no key."""
    parts = parse_connection_string(connection_string)
    if parts.key is None and parts.signature is None:
        raise InvalidArgument("The partner's connection string has neither a key nor a signature.")
    return PartnerAddress(parts.host, _base_url(parts), parts.key_name or "", parts.key or "", parts.signature)


def _base_url(parts: ConnectionString) -> str:
    host = _in_url(parts.host)
    if parts.use_emulator:
        return f"http://{host}:{parts.port or DEFAULT_PORT}"
    return f"https://{host}:{parts.port or DEFAULT_TLS_PORT}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _read(answer: aiohttp.ClientResponse) -> Mapping[str, object]:
    if answer.status in (401, 403):
        raise Unauthorized("It does not take the key that this namespace has for it.")
    if answer.status != 200:
        raise StoreUnavailable(f"It answers with status {answer.status}.")
    body = bytearray()
    while not answer.content.at_eof() and len(body) <= MAX_ANSWER_BYTES:
        body += await answer.content.readany()
    if len(body) > MAX_ANSWER_BYTES:
        raise StoreUnavailable("It answers with more than can be looked at.")
    # Beside the loop: it may be large, and comes again every second while somebody looks.
    document = await asyncio.to_thread(read_json, bytes(body), "Its answer")
    if not isinstance(document, dict):
        raise StoreUnavailable("Its answer is not one of a namespace.")
    return document


def _cause(error: aiohttp.ClientError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error) or type(error).__name__
