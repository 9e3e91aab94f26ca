"""Reads the keys of trusted issuers at the start, every ten minutes, and when a token is signed with an unknown key."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import aiohttp

from tandembus.config import IssuerSetting
from tandembus.security.issuers import Issuers
from tandembus.tasks import WhenBroken, essential, within

log = logging.getLogger("tandembus.node")

READ_EVERY_S: Final = 600.0
SHORTEST_PAUSE_S: Final = 5.0
"""However many tokens with unknown keys arrive."""
TIMEOUT_S: Final = 5.0
MAX_BYTES: Final = 1024 * 1024


@final
class IssuerKeys:
    def __init__(self, issuers: Issuers, trusted: Sequence[IssuerSetting]) -> None:
        self._issuers = issuers
        self._trusted = trusted
        self._wanted = {one.issuer: asyncio.Event() for one in trusted}
        """Set when a token names a key that is not known."""
        issuers.when_key_is_missing = self._want
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, when_broken: WhenBroken) -> None:
        """Returns when the keys have been read once; those that could not be read are tried again later."""
        await asyncio.gather(*(self._read(one) for one in self._trusted))
        self._tasks = [essential(self._keep(one), f"keys of {one.issuer}", when_broken) for one in self._trusted]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _want(self, issuer: str) -> None:
        self._wanted[issuer].set()

    async def _keep(self, trusted: IssuerSetting) -> None:
        wanted = self._wanted[trusted.issuer]
        while True:
            with contextlib.suppress(TimeoutError):
                await within(wanted.wait(), READ_EVERY_S)
            wanted.clear()
            await self._read(trusted)
            await asyncio.sleep(SHORTEST_PAUSE_S)

    async def _read(self, trusted: IssuerSetting) -> None:
        source = trusted.jwks
        try:
            content = await (_fetched(source) if "://" in source else asyncio.to_thread(_content_of, Path(source)))
            document = json.loads(content)
            if not isinstance(document, dict):
                raise ValueError("it is not a JSON object")
            self._issuers.set_keys(trusted.issuer, document)
        except (TimeoutError, OSError, ValueError, RecursionError, aiohttp.ClientError) as error:
            reason = str(error) or type(error).__name__
            log.warning("the keys of issuer %s could not be read from %s: %s", trusted.issuer, source, reason)


async def _fetched(url: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, trust_env=True) as http,
        http.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"the answer was {answer.status} {answer.reason}")
        content = bytearray()
        async for part in answer.content.iter_chunked(64 * 1024):
            content += part
            if len(content) > MAX_BYTES:
                raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        return bytes(content)


def _content_of(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return content
