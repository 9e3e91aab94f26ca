"""What an injected fault does to requests that wait for their answer: the cold half of the gate."""

from __future__ import annotations

from collections.abc import Sequence

from tandembus.broker.locks import MessageLock
from tandembus.broker.transactions import TransactionCancel
from tandembus.faults.board import FaultBoard
from tandembus.faults.effects import FragmentFaults
from tandembus.faults.ledger import FaultyLedger
from tandembus.interconnect.requests import Browsed, Counts, Listing, Requests, Taken
from tandembus.interconnect.traffic import SessionHold
from tandembus.message import Message


class FaultyRequests:
    """`Requests` of one fragment, hit by the same faults as its traffic.

    Throttling turns away what can come again later; whoever holds a lock may settle and renew it all the same."""

    def __init__(self, inner: Requests, faults: FragmentFaults, board: FaultBoard) -> None:
        self._inner = inner
        self._faults = faults
        self._board = board

    async def _pass(self, is_new: bool = False, grows: bool = False) -> None:
        faults = self._faults
        if faults.is_clear():
            return
        delay_s = faults.hit(is_new, grows)
        if delay_s > 0.0:
            await self._board.delay(delay_s, faults.is_slow)
            faults.check_reach()

    @property
    def ledgers(self) -> Sequence[FaultyLedger | None]:
        return [None if one is None else FaultyLedger(one, self._pass) for one in self._inner.ledgers]

    async def counts(self) -> Counts:
        """Whether it is limited is decided by who can be asked: chance has no part in that."""
        faults = self._faults
        if not faults.is_clear():
            faults.check_reach()
            await self._board.delay(faults.delay_s(), faults.is_slow)
            faults.check_reach()
        return await self._inner.counts()

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        await self._pass(is_new=True)
        return await self._inner.peek(lane, from_number, count, max_bytes, session_id)

    async def find_locks(
        self, tokens: Sequence[bytes], lane: int, hold: SessionHold | None = None
    ) -> list[MessageLock]:
        await self._pass()
        return await self._inner.find_locks(tokens, lane, hold)

    async def renew(self, tokens: Sequence[bytes]) -> Sequence[int]:
        await self._pass()
        return await self._inner.renew(tokens)

    async def receive_deferred(
        self, lane: int, numbers: Sequence[int], is_destructive: bool, hold: SessionHold | None = None
    ) -> Sequence[tuple[MessageLock, Message]]:
        await self._pass(is_new=True)
        return await self._inner.receive_deferred(lane, numbers, is_destructive, hold)

    async def schedule(self, messages: list[Message], size_bytes: int) -> Sequence[int]:
        await self._pass(is_new=True, grows=True)
        return await self._inner.schedule(messages, size_bytes)

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        await self._pass()
        await self._inner.cancel_scheduled(numbers)

    async def promise_numbers(self, index: int, session_ids: Sequence[str | None]) -> Sequence[int]:
        await self._pass(is_new=True, grows=True)
        return await self._inner.promise_numbers(index, session_ids)

    async def find_scheduled(self, numbers: Sequence[int]) -> Sequence[TransactionCancel]:
        await self._pass()
        return await self._inner.find_scheduled(numbers)

    async def delete_batch(self, lane: int, count: int, before_ms: int, session_id: str | None = None) -> int:
        await self._pass(is_new=True)
        return await self._inner.delete_batch(lane, count, before_ms, session_id)

    async def delete_one(self, lane: int, number: int) -> None:
        await self._pass()
        await self._inner.delete_one(lane, number)

    async def ends(self, lane: int) -> Sequence[int]:
        await self._pass()
        return await self._inner.ends(lane)

    async def take_waiting(self, lane: int, from_number: int, to_number: int, count: int, max_bytes: int) -> Taken:
        await self._pass(is_new=True)
        return await self._inner.take_waiting(lane, from_number, to_number, count, max_bytes)

    async def session_state(self, hold: SessionHold) -> bytes | None:
        await self._pass()
        return await self._inner.session_state(hold)

    async def set_session_state(self, hold: SessionHold, state: bytes | None) -> None:
        await self._pass(grows=state is not None)
        await self._inner.set_session_state(hold, state)

    async def renew_session(self, hold: SessionHold) -> int:
        await self._pass()
        return await self._inner.renew_session(hold)

    async def list_sessions(self, after_ms: int | None, skip: int, top: int, listing: Listing) -> Sequence[str]:
        await self._pass(is_new=True)
        return await self._inner.list_sessions(after_ms, skip, top, listing)
