"""Requests to one fragment behind a channel: a call each.

But what is scheduled goes the way of every send, numbered and marked: another fragment may take it only when it is
known that this one did not."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Final, final

from tandembus.broker.locks import MessageLock
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.sessions import SESSION_LOST
from tandembus.broker.transactions import TransactionCancel
from tandembus.clock import Clock
from tandembus.errors import BusError, FragmentUnavailable, MalformedData, SessionLockLost
from tandembus.interconnect.answers import tell
from tandembus.interconnect.channel import Channel
from tandembus.interconnect.open_operations import unavailable
from tandembus.interconnect.remote_ledger import RemoteLedger
from tandembus.interconnect.requests import Browsed, Counts, Listing, Taken
from tandembus.interconnect.traffic import SessionHold
from tandembus.interconnect.wire_values import (
    Values,
    browsed_of,
    counts_of,
    lock_of,
    taken_of,
)
from tandembus.message import Message
from tandembus.store.messaging_store import MAIN, NUMBER_BITS

_listing_numbers = itertools.count(1)

MOST_GIVEN: Final = 4096
"""Numbers of scheduled messages that are remembered, so that none is taken for another's."""
FIND_TRIES: Final = 3
"""How often a broker that is back is asked for the numbers of what it has stored."""


@final
class RemoteRequests:
    """Implements `Requests`."""

    def __init__(
        self,
        channel: Channel,
        fragment_key: int,
        index: int,
        clock: Clock,
        timeout_s: float = 15.0,
        long_timeout_s: float = 60.0,
    ) -> None:
        """`long_timeout_s`: for what goes through many messages."""
        self._channel: Final = channel
        self._fragment_key: Final = fragment_key
        self._index: Final = index
        self._clock: Final = clock
        self._timeout_s: Final = timeout_s
        self._long_timeout_s: Final = long_timeout_s
        self._given: Final[deque[int]] = deque(maxlen=MOST_GIVEN)

    async def _ask(self, name: str, *values: object) -> object:
        return await self._call(name, values, self._timeout_s)

    async def _change(self, name: str, *values: object) -> object:
        return await self._call(name, values, self._long_timeout_s, changes=True)

    async def _call(self, name: str, values: Sequence[object], timeout_s: float, changes: bool = False) -> object:
        try:
            return await self._channel.call(name, [self._fragment_key, *values], timeout_s, changes)
        except FragmentUnavailable as error:
            raise unavailable(self._index, str(error)) from error

    @property
    def ledgers(self) -> Sequence[RemoteLedger]:
        return [RemoteLedger(self._channel, self._fragment_key, self._timeout_s, self._long_timeout_s)]

    # Looking.

    async def counts(self) -> Counts:
        return counts_of(await self._ask("counts"))

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        return browsed_of(await self._ask("peek", lane, from_number, count, max_bytes, session_id))

    async def ends(self, lane: int) -> Sequence[int]:
        return Values([await self._ask("ends", lane)]).integers()

    # Locks.

    async def find_locks(
        self, tokens: Sequence[bytes], lane: int, hold: SessionHold | None = None
    ) -> list[MessageLock]:
        found = Values([await self._ask("find_locks", list(tokens), lane, _number(hold))])
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        return [lock_of(one, now, now_ms) for one in found.lists()]

    async def renew(self, tokens: Sequence[bytes]) -> Sequence[int]:
        return Values([await self._ask("renew", list(tokens))]).integers()

    async def receive_deferred(
        self, lane: int, numbers: Sequence[int], is_destructive: bool, hold: SessionHold | None = None
    ) -> Sequence[tuple[MessageLock, Message]]:
        found = await self._change("receive_deferred", lane, list(numbers), is_destructive, _number(hold))
        return taken_of(found, self._clock.monotonic(), self._clock.now_ms())

    async def take_waiting(self, lane: int, from_number: int, to_number: int, count: int, max_bytes: int) -> Taken:
        found = Values(await self._ask("take_waiting", lane, from_number, to_number, count, max_bytes))
        taken = taken_of(found.items(), self._clock.monotonic(), self._clock.now_ms())
        return Taken(taken, found.integer())

    # Sending.

    async def schedule(self, messages: list[Message], size_bytes: int) -> Sequence[int]:
        self._channel.core.check_can_take(self._index, size_bytes)
        end = Values([await self._ask("ends", MAIN)]).integers()[0]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reply = CallbackSendReply(lambda _operation, error: tell(done, error))
        sent = self._channel.core.schedule(
            self._fragment_key, self._index, SendOperation(messages, size_bytes, reply, 0)
        )
        await done
        if sent.numbers is not None:
            base = end >> NUMBER_BITS << NUMBER_BITS
            numbers = [base | one if one else 0 for one in sent.numbers]
        else:
            numbers = await self._find_sent(end, messages)
        self._given.extend(one for one in numbers if one)
        return numbers

    async def _find_sent(self, end: int, messages: list[Message]) -> list[int]:
        """They are stored, and the answer that would have said where is lost: they lie behind the end that there was
        before. When the broker is away once more, they stay without numbers: an error would say that they are to be
        sent again."""
        sections = [message.sections for message in messages]
        for _ in range(FIND_TRIES):
            await self._channel.until_up(self._timeout_s)
            try:
                others = [one for one in self._given if one >= end]
                return Values([await self._ask("find_sent", end, sections, others)]).integers()
            except BusError:
                continue
        return [0] * len(messages)

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        await self._change("cancel_scheduled", list(numbers))

    async def promise_numbers(self, index: int, session_ids: Sequence[str | None]) -> Sequence[int]:
        wanted = [None if one is None else [one] for one in session_ids]
        return Values([await self._change("promise_numbers", wanted)]).integers()

    async def find_scheduled(self, numbers: Sequence[int]) -> Sequence[TransactionCancel]:
        found = Values([await self._ask("find_scheduled", list(numbers))])
        return [TransactionCancel(one.integer(), one.integer(), one.integer()) for one in found.lists()]

    # Deleting.

    async def delete_batch(self, lane: int, count: int, before_ms: int, session_id: str | None = None) -> int:
        return Values([await self._change("delete_batch", lane, count, before_ms, session_id)]).integer()

    async def delete_one(self, lane: int, number: int) -> None:
        await self._change("delete_one", lane, number)

    # Sessions.

    async def session_state(self, hold: SessionHold) -> bytes | None:
        state = await self._ask("session_state", _number(hold))
        if state is not None and not isinstance(state, bytes):
            raise MalformedData("a state that is no bytes")
        return state

    async def set_session_state(self, hold: SessionHold, state: bytes | None) -> None:
        await self._change("set_session_state", _number(hold), state)

    async def renew_session(self, hold: SessionHold) -> int:
        hold.locked_until_ms = Values([await self._ask("renew_session", _number(hold))]).integer()
        return int(hold.locked_until_ms)

    async def list_sessions(self, after_ms: int | None, skip: int, top: int, listing: Listing) -> Sequence[str]:
        if not isinstance(listing.tag, int):
            listing.tag = next(_listing_numbers)
        found = await self._call("list_sessions", [after_ms, skip, top, listing.tag], self._long_timeout_s)
        return Values([found]).texts()


def _number(hold: SessionHold | None) -> int | None:
    """Raises SessionLockLost for what is known to be over."""
    if hold is None:
        return None
    if hold.is_over:
        raise SessionLockLost(SESSION_LOST)
    return int(hold.number)
