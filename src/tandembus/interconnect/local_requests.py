"""Requests to one fragment in this process: straight to the fragment, and to the broker that reads for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import final

from tandembus.broker import browsing
from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import MessageLock
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.session import SessionLock
from tandembus.broker.session_listing import SessionListing
from tandembus.broker.session_locks import renew_session
from tandembus.broker.session_reading import promise_numbers, set_state
from tandembus.broker.sessions import SESSION_LOST
from tandembus.broker.transactions import TransactionCancel
from tandembus.errors import MessageLockLost, MessageNotFound, SessionLockLost
from tandembus.interconnect.answers import tell
from tandembus.interconnect.local_channel import LocalChannel
from tandembus.interconnect.local_ledger import LocalLedger
from tandembus.interconnect.requests import Browsed, Counts, Listing, Taken
from tandembus.interconnect.traffic import SessionHold
from tandembus.message import Message
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, NUMBER_BITS, NUMBER_MASK, TRANSFER, TRANSFER_DEAD_LETTER

MOST_REMEMBERED = 100_000
"""Sessions of a listing kept for the next page; beyond that each page is looked for from the start."""
FIND_COUNT = 1000
FIND_BYTES = 8 << 20
"""How many messages, and how many bytes of them, are looked at in one go."""


@final
class LocalRequests:
    """Implements `Requests`."""

    def __init__(self, broker: MessageBroker, fragment: Fragment, channel: LocalChannel | None = None) -> None:
        """`channel`: as for the fragment's traffic."""
        self._broker = broker
        self._fragment = fragment
        self._channel = channel

    @property
    def ledgers(self) -> Sequence[LocalLedger]:
        return [LocalLedger(self._broker, self._fragment)]

    def _check_open(self) -> None:
        """Raises StoreUnavailable while there is no store: a fragment that was not read from it looks empty."""
        _ = self._broker.store

    # Sequence numbers.

    def _whole(self, number: int) -> int:
        return int(self._fragment.index) << NUMBER_BITS | number

    def _own(self, sequence_numbers: Sequence[int]) -> list[int]:
        """The same as numbers of this fragment. Raises MessageNotFound for what cannot be one."""
        self._check_open()
        for one in sequence_numbers:
            if one <= 0 or one >> NUMBER_BITS != self._fragment.index:
                raise MessageNotFound(f"There is no message with sequence number {one}.")
        return [one & NUMBER_MASK for one in sequence_numbers]

    def _first_from(self, sequence_number: int) -> int | None:
        """The number to begin with; None where it lies behind this fragment."""
        index = int(self._fragment.index)
        if sequence_number >> NUMBER_BITS > index:
            return None
        return max(sequence_number - (index << NUMBER_BITS), 1)

    # Looking.

    async def counts(self) -> Counts:
        """A topic has no active messages: those are its subscriptions'."""
        fragment = self._fragment
        main = fragment.lane(MAIN)
        return Counts(
            active=0 if fragment.fan_out is not None else int(main.live_count - main.scheduled_count),
            dead_letter=int(fragment.lane(DEAD_LETTER).live_count),
            scheduled=int(main.scheduled_count),
            transfer=int(fragment.lane(TRANSFER).live_count),
            transfer_dead_letter=int(fragment.lane(TRANSFER_DEAD_LETTER).live_count),
            size_bytes=int(fragment.live_bytes()),
            deferred=0 if fragment.fan_out is not None else int(main.deferred_count),
        )

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        self._check_open()
        first = self._first_from(from_number)
        if first is None:
            return []
        found = await browsing.peek(self._broker, self._fragment, lane, first, count, max_bytes, session_id)
        return [Browsed(one.message, self._whole(int(one.message.number)), one.state) for one in found]

    async def ends(self, lane: int) -> Sequence[int]:
        return [self._whole(int(self._fragment.lane(lane).visible_end))]

    # Locks.

    async def find_locks(
        self, tokens: Sequence[bytes], lane: int, hold: SessionHold | None = None
    ) -> list[MessageLock]:
        session_lock = self._held(hold)
        locks = [self._fragment.find_lock(token) for token in tokens]
        if any(lock.lane != lane for lock in locks):
            raise MessageLockLost("The lock is one of another queue of this entity.")
        if any(lock.session_lock is not session_lock for lock in locks):
            raise MessageLockLost("The message was received in another session.")
        return locks

    async def renew(self, tokens: Sequence[bytes]) -> Sequence[int]:
        for token in tokens:
            self._fragment.find_lock(token)
        return [int(self._fragment.renew(token)) for token in tokens]

    async def receive_deferred(
        self, lane: int, numbers: Sequence[int], is_destructive: bool, hold: SessionHold | None = None
    ) -> Sequence[tuple[MessageLock, Message]]:
        session_lock = self._held(hold)
        own = self._own(numbers)
        fragment = self._fragment
        taken = await browsing.receive_deferred(self._broker, fragment, lane, own, is_destructive, session_lock)
        until_ms = fragment.clock.now_ms() + int(fragment.settings.lock_duration_s * 1000)
        for lock, _ in taken:
            lock.locked_until_ms = until_ms if session_lock is None else session_lock.locked_until_ms
        return taken

    async def take_waiting(self, lane: int, from_number: int, to_number: int, count: int, max_bytes: int) -> Taken:
        first, end = self._own([from_number, to_number])
        taken, at = await browsing.take_waiting(self._broker, self._fragment, lane, first, end, count, max_bytes)
        return Taken(taken, self._whole(at))

    # Sending.

    async def schedule(self, messages: list[Message], size_bytes: int) -> Sequence[int]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reply = CallbackSendReply(lambda _operation, error: tell(done, error))
        operation = SendOperation(messages, size_bytes, reply, 0)
        if self._channel is None:
            self._fragment.send(operation)
        else:
            self._channel.send(self._fragment, operation)
        await done
        return [self._whole(int(one.number)) if one.number else 0 for one in messages]

    async def find_sent(self, from_number: int, sections: Sequence[bytes], others: Sequence[int]) -> Sequence[int]:
        """The numbers of messages that were stored behind a number, by what is in them; 0 for what is not there any
        more. `others`: what these numbers name is known to be another's."""
        wanted: dict[bytes, deque[int]] = {}
        for position, one in enumerate(sections):
            wanted.setdefault(one, deque()).append(position)
        numbers = [0] * len(sections)
        taken = set(others)
        at = from_number
        while wanted and (found := await self.peek(MAIN, at, FIND_COUNT, FIND_BYTES)):
            for browsed in found:
                positions = wanted.get(browsed.message.sections)
                if positions is None or browsed.sequence_number in taken:
                    continue
                numbers[positions.popleft()] = browsed.sequence_number
                if not positions:
                    del wanted[browsed.message.sections]
            at = found[-1].sequence_number + 1
        return numbers

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        await browsing.cancel_scheduled(self._broker, self._fragment, self._own(numbers))

    async def promise_numbers(self, index: int, session_ids: Sequence[str | None]) -> Sequence[int]:
        return [self._whole(number) for number in await promise_numbers(self._fragment, session_ids)]

    async def find_scheduled(self, numbers: Sequence[int]) -> Sequence[TransactionCancel]:
        return await browsing.find_scheduled(self._broker, self._fragment, self._own(numbers))

    # Deleting.

    async def delete_batch(self, lane: int, count: int, before_ms: int, session_id: str | None = None) -> int:
        self._check_open()
        return await browsing.delete_batch(self._broker, self._fragment, lane, count, before_ms, session_id)

    async def delete_one(self, lane: int, number: int) -> None:
        (own,) = self._own([number])
        await browsing.delete_one(self._broker, self._fragment, lane, own)

    # Sessions.

    def _held(self, hold: SessionHold | None) -> SessionLock | None:
        """Raises SessionLockLost unless the session is still held; where none is meant, there is no lock."""
        if hold is None:
            return None
        lock = hold.lock
        if lock is None or not lock.is_live(self._fragment.clock.monotonic()):
            raise SessionLockLost(SESSION_LOST)
        return lock

    async def session_state(self, hold: SessionHold) -> bytes | None:
        self._held(hold)
        key = self._fragment.settings.key_of(hold.session_id)
        stored = await self._broker.store.session_state(int(self._fragment.key), key)
        return None if stored is None else stored.state

    async def set_session_state(self, hold: SessionHold, state: bytes | None) -> None:
        self._held(hold)
        await set_state(self._fragment, hold.session_id, state)

    async def renew_session(self, hold: SessionHold) -> int:
        lock = self._held(hold)
        assert lock is not None
        hold.locked_until_ms = renew_session(self._fragment, lock)
        return int(hold.locked_until_ms)

    async def list_sessions(self, after_ms: int | None, skip: int, top: int, listing: Listing) -> Sequence[str]:
        known = listing.tag
        if not isinstance(known, SessionListing) or not known.is_of(self._fragment, after_ms):
            known = SessionListing(self._broker, self._fragment, after_ms)
        ids = await known.page(skip, top)
        listing.tag = known if len(known) <= MOST_REMEMBERED else None
        return ids
