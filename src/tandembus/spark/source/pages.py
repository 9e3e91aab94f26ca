"""Pages of messages, fetched one after the other and ahead of whoever reads them, as far as memory allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Final, NamedTuple

from tandembus.spark.source.link import Link
from tandembus.spark.source.options import SourceOptions

PAGE_BYTES: Final = 4 * 1024 * 1024
SHARES: Final = 4
"""Of `maxBytes`: pages that wait, the one under way, the messages of a batch of rows, and its columns."""
Page = tuple[list[bytes], int | None]
"""Encoded messages, and the number to go on at; None at the end."""
Fetch = Callable[[int], Awaitable[Page]]


def share_of(options: SourceOptions) -> int:
    """Bytes of a page."""
    return max(1, min(PAGE_BYTES, options.max_bytes // SHARES))


class Fetched(NamedTuple):
    messages: list[bytes]
    size: int


class PagesAhead:
    """Fetches in the event loop, while another thread takes from `ready`: None is the end, early or not."""

    def __init__(self, link: Link, fetch: Fetch, limit_bytes: int) -> None:
        self.ready: Final[SimpleQueue[Fetched | None]] = SimpleQueue()
        self._link: Final = link
        self._fetch: Final = fetch
        self._limit_bytes: Final = limit_bytes
        self._waiting_bytes = 0
        self._has_room: Final = asyncio.Event()

    async def run(self, first: int) -> None:
        at: int | None = first
        try:
            while at is not None:
                messages, at = await self._link.patiently(lambda at=at: self._fetch(at))  # type: ignore[misc]
                size = sum(map(len, messages))
                self._waiting_bytes += size
                self.ready.put(Fetched(messages, size))
                while self._waiting_bytes >= self._limit_bytes and at is not None:
                    self._has_room.clear()
                    await self._has_room.wait()
        finally:
            self.ready.put(None)

    def take(self, page: Fetched) -> None:
        """In the event loop: it is not waiting any more."""
        self._waiting_bytes -= page.size
        self._has_room.set()
