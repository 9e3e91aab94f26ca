"""Requests to an entity of many fragments: to the one that a token, a number or a session names, or to all of them.

What is asked of several fragments at once cannot be one commit. Everything that can be checked is checked on all of
them before anything is changed on any: so "all or none" fails only where a fragment goes out of reach between the two,
and then to the side that loses nothing. A fragment that is out of reach is passed over where the others' answers are of
use without its own (peek, counts, deleting, listing).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, final

from tandembus.broker.locks import OPEN, RELEASE, REMOVE, CallbackSettleReply, MessageLock, fragment_index_of
from tandembus.broker.transactions import TransactionCancel
from tandembus.errors import (
    BusError,
    InvalidArgument,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    OperationTimeout,
    anew,
)
from tandembus.interconnect.ledger import FragmentLedger
from tandembus.interconnect.requests import Browsed, Counts, Listing, Requests, Taken
from tandembus.interconnect.traffic import SessionHold
from tandembus.message import Message
from tandembus.namespace.fragment_walks import ASK_ALL_S, LATE, BatchDelete, PeekWalk, is_out_of_reach
from tandembus.namespace.partitioned_traffic import TRY_FOR_S, PartitionedTraffic, may_go_elsewhere, worse_of
from tandembus.namespace.partitioning import (
    fragment_of_key,
    fragment_of_number,
    key_of_batch,
    partition_key_of,
    split_by_fragment,
)
from tandembus.store.messaging_store import MAIN, SCHEDULED

WALK_S: Final = 30.0
"""So long a peek or a deletion goes from fragment to fragment: whoever asked waits for twice that."""
GIVE_BACK_WAIT_S: Final = 1.0
"""A fragment that does not answer for so long gives nothing back in time."""

T = TypeVar("T")
K = TypeVar("K")


class _Pages:
    """A listing over all fragments: how many sessions each of those has that were listed to the end."""

    def __init__(self, fragment_count: int) -> None:
        self.listings = [Listing() for _ in range(fragment_count)]
        self.counts: list[int] = []
        self.has_answer = False


@final
class PartitionedRequests:
    """Implements `Requests`."""

    def __init__(
        self,
        requests: list[Requests],
        traffic: PartitionedTraffic,
        walk_s: float = WALK_S,
        ask_all_s: float = ASK_ALL_S,
    ) -> None:
        self._requests = requests
        self._traffic = traffic
        self._walk_s = walk_s
        self._ask_all_s = ask_all_s

    @property
    def ledgers(self) -> Sequence[FragmentLedger | None]:
        return [
            None if fragment.is_out() else requests.ledgers[0]
            for fragment, requests in zip(self._traffic.fragments, self._requests, strict=True)
        ]

    # Which fragment.

    def _of_number(self, number: int) -> int:
        index = fragment_of_number(number)
        if number <= 0 or not 0 <= index < len(self._requests):
            raise MessageNotFound(f"There is no message with sequence number {number}.")
        return index

    def _by_number(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        if len(set(numbers)) != len(numbers):
            raise InvalidArgument("A sequence number stands twice in the request.")
        return _grouped(numbers, self._of_number)

    def _check_is_of(self, hold: SessionHold, numbers: Sequence[int]) -> None:
        """A session is in one fragment with all it has; its holder is known to that one only."""
        for number in numbers:
            if fragment_of_number(number) != hold.index:
                raise MessageNotFound(f"There is no deferred message with sequence number {number} in the session.")

    def _of_token(self, token: bytes) -> int:
        index = int(fragment_index_of(token))
        if not 0 <= index < len(self._requests):
            raise MessageLockLost("The lock is lost: no partition of the entity gave this token.")
        return index

    def _outage(self) -> BusError | None:
        """Why none of the fragments can be asked."""
        failure = self._traffic.failure()
        return None if failure is None else anew(failure)

    async def _reachable(self, ask: Callable[[Requests], Awaitable[T]]) -> list[tuple[int, T]]:
        """The answers of all fragments that give one, in their order. Raises when none does."""
        indices = [index for index, one in enumerate(self._traffic.fragments) if not one.is_out()]
        answers = await asyncio.gather(*[ask(self._requests[index]) for index in indices], return_exceptions=True)
        found: list[tuple[int, T]] = []
        last: BaseException | None = self._outage()
        for index, answer in zip(indices, answers, strict=True):
            if not isinstance(answer, BaseException):
                found.append((index, answer))
            elif is_out_of_reach(answer):
                last = answer
            else:
                raise answer
        if not found and last is not None:
            raise last
        return found

    # Looking.

    async def counts(self) -> Counts:
        answers = await self._reachable(lambda one: one.counts())
        total = Counts(missing_fragments=len(self._requests) - len(answers))
        for _, counts in answers:
            total = total + counts
        return total

    async def peek(
        self, lane: int, from_number: int, count: int, max_bytes: int, session_id: str | None = None
    ) -> Sequence[Browsed]:
        walk = PeekWalk(
            self._requests, self._walk(from_number, session_id), lane, from_number, count, max_bytes, session_id
        )
        return await walk.go(self._walk_s, self._ask_all_s, self._outage())

    def _walk(self, from_number: int, session_id: str | None) -> list[int]:
        """The fragments to look at, without those that are out of reach. A session has all it has in one."""
        first = max(fragment_of_number(from_number), 0)
        if session_id is None:
            indices = list(range(first, len(self._requests)))
        else:
            indices = [index for index in (int(self._traffic.settings.index_of(session_id)),) if index >= first]
        return [index for index in indices if not self._traffic.fragments[index].is_out()]

    async def ends(self, lane: int) -> Sequence[int]:
        await self._give_back(lane)
        return [end for _, ends in await self._reachable(lambda one: one.ends(lane)) for end in ends]

    # Locks.

    async def find_locks(
        self, tokens: Sequence[bytes], lane: int, hold: SessionHold | None = None
    ) -> list[MessageLock]:
        groups = _grouped(tokens, self._of_token)
        if hold is not None and any(index != hold.index for index in groups):
            raise MessageLockLost("The message was received in another session.")
        found = await asyncio.gather(
            *[self._requests[index].find_locks(part, lane, hold) for index, part in groups.items()]
        )
        by_token = {lock.token: lock for locks in found for lock in locks}
        return [by_token[token] for token in tokens]

    async def renew(self, tokens: Sequence[bytes]) -> Sequence[int]:
        """A lock that is lost is noticed by its own fragment: those asked before it have renewed theirs by then, which
        does no harm but to hold these messages a little longer. The request fails as a whole."""
        groups = _grouped(tokens, self._of_token)
        until: dict[bytes, int] = {}
        for index, part in groups.items():
            renewed = await self._requests[index].renew(part)
            until.update(zip(part, renewed, strict=True))
        return [until[token] for token in tokens]

    async def receive_deferred(
        self, lane: int, numbers: Sequence[int], is_destructive: bool, hold: SessionHold | None = None
    ) -> Sequence[tuple[MessageLock, Message]]:
        """Locked in all fragments first; when one has not all of its part, the others' locks are let go of."""
        groups = self._by_number(numbers)
        if hold is not None:
            self._check_is_of(hold, numbers)
        if len(groups) == 1:
            (index,) = groups
            return await self._requests[index].receive_deferred(lane, numbers, is_destructive, hold)
        taken: dict[int, tuple[MessageLock, Message]] = {}
        try:
            for index, part in groups.items():
                got = await self._requests[index].receive_deferred(lane, part, False, hold)
                taken.update(zip(part, got, strict=True))
        except BaseException:
            await self._let_go([lock for lock, _ in taken.values()])
            raise
        if is_destructive:
            taken = await self._removed(taken)
        return [taken[number] for number in numbers if number in taken]

    async def _let_go(self, locks: list[MessageLock]) -> None:
        """Whoever is refused finds the messages as they were: they are let go of before the answer, unless their
        fragment does not answer in time."""
        released = [asyncio.ensure_future(self._release(lock)) for lock in locks]
        if released:
            await asyncio.wait(released, timeout=GIVE_BACK_WAIT_S)

    async def _release(self, lock: MessageLock) -> None:
        error = await self._settle(lock, RELEASE)
        if error is not None and lock.settlement == OPEN:
            try:
                self._traffic.settle(lock, RELEASE, None)  # which no injected fault refuses
            except BusError:
                pass  # it lapses

    async def _removed(self, taken: dict[int, tuple[MessageLock, Message]]) -> dict[int, tuple[MessageLock, Message]]:
        """What could be removed is the caller's; the rest is deferred as before. Raises when nothing could be."""
        errors = await asyncio.gather(*[self._settle(lock, REMOVE) for lock, _ in taken.values()])
        removed = {number: one for (number, one), error in zip(taken.items(), errors, strict=True) if error is None}
        left = [lock for number, (lock, _) in taken.items() if number not in removed]
        await self._let_go([lock for lock in left if lock.settlement == OPEN])
        if not removed:
            raise next(error for error in errors if error is not None)
        return removed

    async def _give_back(self, lane: int) -> None:
        """Whoever looks for messages in the fragments themselves must find what is kept ready for receivers, and what
        is on its way to be: that comes before the answer to whatever the fragments are asked now."""
        if self._traffic.cache(lane) is None:
            return
        await self._give_back_kept(lane)
        asked = [asyncio.ensure_future(self._requests[index].ends(lane)) for index in self._walk(0, None)]
        try:
            if asked:
                await asyncio.wait(asked, timeout=GIVE_BACK_WAIT_S)
        finally:
            for one in asked:
                one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await self._give_back_kept(lane)

    async def _give_back_kept(self, lane: int) -> None:
        await asyncio.gather(*[self._settle(lock, RELEASE) for lock in self._traffic.take_kept(lane)])

    async def _settle(self, lock: MessageLock, settlement: int) -> BusError | None:
        done: asyncio.Future[BusError | None] = asyncio.get_running_loop().create_future()

        def settled(_lock: MessageLock, error: BusError | None) -> None:
            if not done.done():
                done.set_result(error)

        try:
            self._traffic.settle(lock, settlement, CallbackSettleReply(settled))
        except BusError as error:
            return error
        return await done

    async def take_waiting(self, lane: int, from_number: int, to_number: int, count: int, max_bytes: int) -> Taken:
        index = self._of_number(from_number)
        return await self._requests[index].take_waiting(lane, from_number, to_number, count, max_bytes)

    # Sending.

    async def schedule(self, messages: list[Message], size_bytes: int) -> Sequence[int]:
        """To the fragment of the key, in turn without one, as every send."""
        settings = self._traffic.settings
        key = partition_key_of(messages[0], settings) if len(messages) == 1 else key_of_batch(messages, settings)
        if key is not None:
            return await self._requests[int(fragment_of_key(key))].schedule(messages, size_bytes)
        if settings.requires_duplicate_detection:
            return await self._schedule_split(messages)
        return await self._schedule_anywhere(messages, size_bytes)

    async def _schedule_anywhere(self, messages: list[Message], size_bytes: int) -> Sequence[int]:
        tried = 0
        late_at = self._traffic.clock.monotonic() + TRY_FOR_S
        last: BusError | None = self._outage()
        while (index := int(self._traffic.next_turn(tried))) >= 0:
            tried |= 1 << index
            try:
                return await self._requests[index].schedule(messages, size_bytes)
            except BusError as error:
                last = worse_of(last, error)
                if not may_go_elsewhere(error) or self._traffic.clock.monotonic() >= late_at:
                    break
                for message in messages:
                    message.number = 0
        assert last is not None, "every fragment was tried, and refused"
        raise last

    async def _schedule_split(self, messages: list[Message]) -> Sequence[int]:
        """When one part fails the request does, and is made again: what is stored already is a duplicate then."""
        parts = split_by_fragment(messages)
        self._traffic.check_parts(parts)
        answers = await asyncio.gather(
            *[
                self._requests[index].schedule(part, sum(int(one.wire_size) for one in part))
                for index, part in parts.items()
            ],
            return_exceptions=True,
        )
        numbers: dict[int, int] = {}
        for part, answer in zip(parts.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            numbers.update(zip((id(one) for one in part), answer, strict=True))
        return [numbers[id(one)] for one in messages]

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        """All are looked for first: one that is gone, or due already, leaves the others as they are."""
        groups = self._by_number(numbers)
        if len(groups) > 1:
            await asyncio.gather(*[self._check_scheduled(number) for number in numbers])
        for index, part in groups.items():
            await self._requests[index].cancel_scheduled(part)

    async def promise_numbers(self, index: int, session_ids: Sequence[str | None]) -> Sequence[int]:
        return await self._requests[index].promise_numbers(index, session_ids)

    async def find_scheduled(self, numbers: Sequence[int]) -> Sequence[TransactionCancel]:
        groups = self._by_number(numbers)
        if len(groups) > 1:
            raise InvalidOperation("A transaction can cancel scheduled messages of one partition only.")
        (index,) = groups
        return await self._requests[index].find_scheduled(numbers)

    async def _check_scheduled(self, number: int) -> None:
        for one in await self._requests[self._of_number(number)].peek(MAIN, number, 1, 1):
            if one.sequence_number == number and one.state == SCHEDULED:
                return
        raise MessageNotFound(f"There is no scheduled message with sequence number {number}.")

    # Deleting.

    async def delete_batch(self, lane: int, count: int, before_ms: int, session_id: str | None = None) -> int:
        """In each fragment the oldest first. What is kept ready for receivers waits, too."""
        await self._give_back(lane)
        batch = BatchDelete(self._requests, lane, count, before_ms, session_id)
        return await batch.go(self._walk(0, session_id), self._walk_s, self._outage())

    async def delete_one(self, lane: int, number: int) -> None:
        await self._give_back(lane)
        await self._requests[self._of_number(number)].delete_one(lane, number)

    # Sessions.

    async def session_state(self, hold: SessionHold) -> bytes | None:
        return await self._requests[int(hold.index)].session_state(hold)

    async def set_session_state(self, hold: SessionHold, state: bytes | None) -> None:
        await self._requests[int(hold.index)].set_session_state(hold, state)

    async def renew_session(self, hold: SessionHold) -> int:
        return await self._requests[int(hold.index)].renew_session(hold)

    async def list_sessions(self, after_ms: int | None, skip: int, top: int, listing: Listing) -> Sequence[str]:
        """Fragment after fragment; those that are out of reach have none. Raises when none can be asked."""
        pages = listing.tag
        if not isinstance(pages, _Pages):
            pages = listing.tag = _Pages(len(self._requests))
        found: list[str] = []
        before = 0
        for index in range(len(self._requests)):
            if index < len(pages.counts) and before + pages.counts[index] <= skip:
                before += pages.counts[index]
                continue
            part = await self._page(index, after_ms, max(skip - before, 0), top - len(found), pages)
            found += part
            if len(found) >= top:
                break
            before += pages.counts[index]
        if not found:
            if (outage := self._outage()) is not None:
                raise outage
            if not pages.has_answer:
                raise OperationTimeout(LATE)
        return found

    async def _page(self, index: int, after_ms: int | None, skip: int, top: int, pages: _Pages) -> Sequence[str]:
        """What one fragment has from there on; when that is all of it, its count is known."""
        ids = await self._ids(index, after_ms, skip, top, pages)
        if len(ids) < top and index == len(pages.counts):
            before = skip
            if not ids and skip > 0:
                before = len(await self._ids(index, after_ms, 0, skip, pages))  # it may have fewer than are skipped
            pages.counts.append(before + len(ids))
        return ids

    async def _ids(self, index: int, after_ms: int | None, skip: int, top: int, pages: _Pages) -> Sequence[str]:
        if self._traffic.fragments[index].is_out():
            return []
        try:
            ids = await self._requests[index].list_sessions(after_ms, skip, top, pages.listings[index])
        except BusError as error:
            if is_out_of_reach(error):
                return []
            raise
        pages.has_answer = True
        return ids


def _grouped(items: Sequence[K], index_of: Callable[[K], int]) -> dict[int, list[K]]:
    groups: dict[int, list[K]] = {}
    for item in items:
        groups.setdefault(index_of(item), []).append(item)
    return groups
