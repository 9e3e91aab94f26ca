"""What an injected fault does to the ledger of a fragment: the same as to its other requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tandembus.broker.reservations import BrowsedBlock, Prospect, Range
from tandembus.interconnect.ledger import FragmentLedger


class FaultyLedger:
    """`FragmentLedger` behind a gate. Throttling turns away what can come again later; whoever has reserved messages
    may settle and release them all the same."""

    def __init__(self, inner: FragmentLedger, pass_gate: Callable[[bool], Awaitable[None]]) -> None:
        """`pass_gate`: is told whether this is something new."""
        self._inner = inner
        self._pass = pass_gate

    async def open_owner(self, lane: int, owner: str, wanted: int | None, max_owners: int) -> int:
        await self._pass(True)
        return await self._inner.open_owner(lane, owner, wanted, max_owners)

    async def prospect(
        self, lane: int, owner: str, epoch: int, request: int, max_messages: int, up_to: int | None
    ) -> Prospect:
        await self._pass(True)
        return await self._inner.prospect(lane, owner, epoch, request, max_messages, up_to)

    async def reserve(
        self,
        lane: int,
        owner: str,
        epoch: int,
        request: int,
        max_messages: int,
        max_bytes: int,
        up_to: int | None,
    ) -> Sequence[Range]:
        await self._pass(True)
        return await self._inner.reserve(lane, owner, epoch, request, max_messages, max_bytes, up_to)

    async def reserved(self, lane: int, owner: str, epoch: int | None) -> Sequence[Range]:
        await self._pass(True)
        return await self._inner.reserved(lane, owner, epoch)

    async def browse(self, lane: int, first: int, last: int, max_messages: int, max_bytes: int) -> BrowsedBlock:
        await self._pass(True)
        return await self._inner.browse(lane, first, last, max_messages, max_bytes)

    async def complete(self, lane: int, owner: str, epoch: int, ranges: Sequence[Range]) -> int:
        await self._pass(False)
        return await self._inner.complete(lane, owner, epoch, ranges)

    async def release(self, lane: int, owner: str, epoch: int | None, ranges: Sequence[Range] | None) -> int:
        await self._pass(False)
        return await self._inner.release(lane, owner, epoch, ranges)

    async def owners(self, lane: int) -> Sequence[tuple[str, int, int]]:
        await self._pass(True)
        return await self._inner.owners(lane)

    async def end(self, lane: int) -> int:
        await self._pass(True)
        return await self._inner.end(lane)
