"""One at a time, over all processes: whoever reads a description, or policies, to write them back changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, final

from tandembus.errors import BusError, MalformedData
from tandembus.interconnect.peer import Peer

BEGIN: Final = "begin describing"
END: Final = "end describing"
LONGEST_S: Final = 90.0
"""Whoever takes longer has lost its turn: administration itself takes less."""
BEGIN_TIMEOUT_S: Final = 120.0
"""Longer than the longest turn: one that hangs does not make all who wait behind it give up."""
END_TIMEOUT_S: Final = 60.0

Ask = Callable[[str, object, float], Awaitable[object]]
_Turn = tuple[Peer, int]
"""Of whom, and which: a front end may have given up one and be asking for the next."""


@final
class RemoteDescribing:
    """In a front end: `async with describing` waits for its turn among all of them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._here = asyncio.Lock()
        self._turn = 0
        self._ending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> None:
        await self._here.acquire()
        self._turn += 1
        try:
            await self._ask(BEGIN, self._turn, BEGIN_TIMEOUT_S)
        except BaseException:
            self._give_up(self._turn)
            self._here.release()
            raise

    def _give_up(self, turn: int) -> None:
        """The desk must know, or it would take a turn that nobody is there for. Nobody waits for that."""
        task = asyncio.ensure_future(self._end(turn))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end(self._turn)
        finally:
            self._here.release()

    async def _end(self, turn: int) -> None:
        try:
            await self._ask(END, turn, END_TIMEOUT_S)
        except BusError:
            pass  # With the connection its turn is over.


@final
class DescribingDesk:
    """The other end: takes the lock for front ends, and gives it back for those that are gone."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._waiting: dict[_Turn, asyncio.Task[object]] = {}
        self._turns: dict[_Turn, asyncio.TimerHandle] = {}

    async def begin(self, peer: Peer, value: object) -> object:
        turn = peer, _number(value)
        task = asyncio.current_task()
        assert task is not None
        self._waiting[turn] = task
        try:
            await self._lock.acquire()
        finally:
            self._waiting.pop(turn, None)
        if not peer.is_open:
            self._lock.release()
        else:
            self._turns[turn] = asyncio.get_running_loop().call_later(LONGEST_S, self._end, turn)
        return None

    async def end(self, peer: Peer, value: object) -> object:
        self._end((peer, _number(value)))
        return None

    def end_of(self, peer: Peer) -> None:
        """It is gone."""
        for turn in [*self._waiting, *self._turns]:
            if turn[0] is peer:
                self._end(turn)

    def _end(self, turn: _Turn) -> None:
        """Whether it has come, is over already, or is still waited for."""
        waiting = self._waiting.pop(turn, None)
        if waiting is not None:
            waiting.cancel()
        timer = self._turns.pop(turn, None)
        if timer is not None:
            timer.cancel()
            self._lock.release()


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise MalformedData("a turn without its number")
    return value
