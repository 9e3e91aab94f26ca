"""One at a time, over all processes: whoever reads a description, or policies, to write them back changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, final

from tandembus.errors import BusError
from tandembus.interconnect.peer import Peer

BEGIN: Final = "begin describing"
END: Final = "end describing"
BEGIN_TIMEOUT_S: Final = 60.0
LONGEST_S: Final = 90.0
"""Whoever takes longer has lost its turn: administration itself takes less."""

Ask = Callable[[str, object, float], Awaitable[object]]


@final
class RemoteDescribing:
    """In a front end: `async with describing` waits for its turn among all of them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._here = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._here.acquire()
        try:
            await self._ask(BEGIN, None, BEGIN_TIMEOUT_S)
        except BaseException:
            self._here.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._ask(END, None, BEGIN_TIMEOUT_S)
        except BusError:
            pass  # With the connection its turn is over.
        finally:
            self._here.release()


@final
class DescribingDesk:
    """The other end: takes the lock for front ends, and gives it back for those that are gone."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._turns: dict[Peer, asyncio.TimerHandle] = {}

    async def begin(self, peer: Peer, _value: object) -> object:
        await self._lock.acquire()
        if not peer.is_open:
            self._lock.release()
        else:
            loop = asyncio.get_running_loop()
            self._turns[peer] = loop.call_later(LONGEST_S, self.end_of, peer)
        return None

    async def end(self, peer: Peer, _value: object) -> object:
        self.end_of(peer)
        return None

    def end_of(self, peer: Peer) -> None:
        """Its turn, if it has one, is over."""
        timer = self._turns.pop(peer, None)
        if timer is not None:
            timer.cancel()
            self._lock.release()
