"""Looking and deleting in all fragments of an entity, whose answers belong together and may be slow in coming.

Fragments are independent, so whoever waits for all of them waits for the slowest, not for the sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, final

from tandembus.errors import BusError, OperationTimeout, StoreUnavailable
from tandembus.interconnect.requests import Browsed, Requests
from tandembus.namespace.partitioning import sequence_number

ASK_ALL_S: Final = 0.05
"""A fragment that has not answered for so long is slow: the others are asked meanwhile. To ask them sooner would be a
waste, since most peeks find enough in one."""

LATE: Final = "The partitions of the entity did not answer in time."


def is_out_of_reach(error: BaseException) -> bool:
    """Whether it says something about the fragment, and nothing about what was asked of it."""
    return isinstance(error, (StoreUnavailable, OperationTimeout))


def _now() -> float:
    return asyncio.get_running_loop().time()


class _Page:
    """What one fragment has, as far as it was wanted."""

    def __init__(self) -> None:
        self.found: list[Browsed] = []
        self.is_exhausted = False
        """There is nothing behind it. Else whoever peeks goes on in this fragment."""


@final
class PeekWalk:
    """One peek: fragment after fragment, in the order of their numbers; on to the next one within the same peek, since
    an empty answer ends the walk of whoever peeks."""

    def __init__(
        self,
        requests: Sequence[Requests],
        indices: Sequence[int],
        lane: int,
        from_number: int,
        count: int,
        max_bytes: int,
        session_id: str | None,
    ) -> None:
        self._requests = requests
        self._indices = indices
        self._lane = lane
        self._from_number = from_number
        self._count = count
        self._room = max_bytes
        self._session_id = session_id
        self._found: list[Browsed] = []
        self._pages: dict[int, _Page] = {}
        self._asked: dict[int, asyncio.Task[None]] = {}

    async def go(self, within_s: float, ask_all_s: float, outage: BusError | None) -> list[Browsed]:
        """`outage`: why nobody can be asked."""
        until = _now() + within_s
        last = outage
        is_answered = False
        try:
            for index in self._indices:
                try:
                    is_answered = await self._answers(index, until, ask_all_s)
                except BusError as error:
                    if not is_out_of_reach(error):
                        raise
                    last = error
                    if self._found:
                        break  # what was found goes out first: this one may be back when the walk goes on
                    continue
                goes_on = self._take(self._pages[index])
                if not is_answered:
                    last = OperationTimeout(LATE)
                    break
                if not goes_on:
                    break
        finally:
            await self._call_off()
        if not self._found and not is_answered and last is not None:
            raise last  # an empty answer would say that there is nothing
        return self._found

    async def _answers(self, index: int, until: float, ask_all_s: float) -> bool:
        """Whether its page is complete in time. Raises what it answered with instead."""
        asked = self._ask(index)
        await asyncio.wait((asked,), timeout=max(min(ask_all_s, until - _now()), 0.0))
        if not asked.done() and _now() < until:
            for other in self._indices:
                self._ask(other)
            await asyncio.wait((asked,), timeout=until - _now())
        if not asked.done():
            return False
        asked.result()
        return True

    def _ask(self, index: int) -> asyncio.Task[None]:
        asked = self._asked.get(index)
        if asked is None:
            page = self._pages[index] = _Page()
            asked = self._asked[index] = asyncio.ensure_future(self._fill(index, page))
        return asked

    async def _fill(self, index: int, page: _Page) -> None:
        """It is asked until it has nothing more: an answer may be short since the next message does not fit, and
        whoever peeks goes on behind the last one found."""
        count, room = self._count - len(self._found), self._room
        first = max(self._from_number, int(sequence_number(index, 1)))
        while len(page.found) < count and (room > 0 or not page.found):
            wanted = count - len(page.found)
            try:
                part = await self._requests[index].peek(self._lane, first, wanted, max(room, 1), self._session_id)
            except BusError as error:
                if page.found and is_out_of_reach(error):
                    return
                raise
            if not part:
                page.is_exhausted = True
                return
            for one in part:
                size = len(one.message.sections)
                if page.found and size > room:
                    return
                page.found.append(one)
                room -= size
            first = part[-1].sequence_number + 1

    def _take(self, page: _Page) -> bool:
        """As much as there is room for. Returns whether the walk goes on behind this fragment."""
        for one in page.found:
            size = len(one.message.sections)
            if self._found and (len(self._found) >= self._count or size > self._room):
                return False
            self._found.append(one)
            self._room -= size
        return page.is_exhausted and len(self._found) < self._count and self._room > 0

    async def _call_off(self) -> None:
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)


@final
class BatchDelete:
    """Of the oldest messages of each fragment: all that have any are asked at once, each for its share; what one has
    not is the share of the others in the next round."""

    def __init__(
        self, requests: Sequence[Requests], lane: int, count: int, before_ms: int, session_id: str | None
    ) -> None:
        self._requests = requests
        self._lane = lane
        self._count = count
        self._before_ms = before_ms
        self._session_id = session_id
        self._deleted = 0
        self._active: list[int] = []
        """Those that may have more."""
        self._is_answered = False
        self._last: BusError | None = None

    async def go(self, indices: Sequence[int], within_s: float, outage: BusError | None) -> int:
        """No round begins later than `within_s`; one that has begun is not broken off, since nobody would know what it
        has deleted. `outage`: why nobody can be asked."""
        until = _now() + within_s
        self._last = outage
        await self._find_active(indices)
        while self._active and self._deleted < self._count:
            if _now() >= until:
                self._is_answered = False
                self._last = OperationTimeout(LATE)
                break
            await self._delete_shares()
        if self._deleted == 0 and not self._is_answered and self._last is not None:
            raise self._last  # none would say that there are none
        return self._deleted

    async def _find_active(self, indices: Sequence[int]) -> None:
        """No share is wasted on fragments that have nothing at all: the batch may be smaller than their number."""
        if len(indices) == 1:
            self._active = list(indices)
            return
        lane, session_id = self._lane, self._session_id
        answers = await asyncio.gather(
            *[self._requests[one].peek(lane, int(sequence_number(one, 1)), 1, 1, session_id) for one in indices],
            return_exceptions=True,
        )
        for index, answer in zip(indices, answers, strict=True):
            if isinstance(answer, BaseException):
                self._failed(answer)
                continue
            self._is_answered = True
            if answer:
                self._active.append(index)

    async def _delete_shares(self) -> None:
        left = self._count - self._deleted
        share, more = divmod(left, len(self._active))
        shares = {index: share + (place < more) for place, index in enumerate(self._active)}
        asked = {index: one for index, one in shares.items() if one > 0}
        lane, before_ms, session_id = self._lane, self._before_ms, self._session_id
        answers = await asyncio.gather(
            *[self._requests[index].delete_batch(lane, one, before_ms, session_id) for index, one in asked.items()],
            return_exceptions=True,
        )
        for (index, one), answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, BaseException):
                self._active.remove(index)
                self._failed(answer)
                continue
            self._is_answered = True
            self._deleted += answer
            if answer < one:
                self._active.remove(index)

    def _failed(self, error: BaseException) -> None:
        """One that is out of reach is passed over."""
        if not isinstance(error, BusError) or not is_out_of_reach(error):
            raise error
        self._last = error
