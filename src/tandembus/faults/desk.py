"""Where faults are asked for. One process of a namespace decides, and it holds in all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from tandembus.faults.board import FaultBoard
from tandembus.faults.fault import Fault


class FaultDesk(Protocol):
    """Each returns when the change holds in every process of the namespace."""

    async def put(self, fault: Fault) -> bool:
        """Returns whether it is a new one. Raises QuotaExceeded."""

    async def remove(self, fault_id: str) -> None:
        """Raises EntityNotFound."""

    async def clear(self) -> int:
        """Returns how many there were."""


class LocalDesk:
    """In the process whose board is the one that counts."""

    def __init__(self, board: FaultBoard, publish: Callable[[], Awaitable[None]] | None = None) -> None:
        """`publish` tells the other processes what stands now, and returns when they know."""
        self._board = board
        self._publish = publish
        self._turn = asyncio.Lock()

    async def put(self, fault: Fault) -> bool:
        async with self._turn:
            is_new = self._board.put(fault)
            await self._tell()
            return is_new

    async def remove(self, fault_id: str) -> None:
        async with self._turn:
            self._board.remove(fault_id)
            await self._tell()

    async def clear(self) -> int:
        async with self._turn:
            count = self._board.clear()
            await self._tell()
            return count

    async def _tell(self) -> None:
        if self._publish is not None:
            await self._publish()
