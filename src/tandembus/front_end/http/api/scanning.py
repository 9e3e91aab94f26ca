"""Looking through a lane for the messages that somebody wants to see: a window at a time, never all of it at once.

What is looked through need not be shown, so what one call may cost is bounded by what it looks at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from tandembus.errors import InvalidArgument, OperationTimeout
from tandembus.front_end.http.api.message_json import STATES, dead_letter_reason, size_of
from tandembus.front_end.http.api.places import LARGEST_NUMBER, has_sessions
from tandembus.interconnect.requests import Browsed
from tandembus.limits import Limits
from tandembus.message import session_id_of
from tandembus.metering.meter import Meter
from tandembus.metering.reasons import reason_to_receive
from tandembus.metering.slot import PEEK, operations_for
from tandembus.namespace.entity import Entity
from tandembus.namespace.partitioning import fragment_of_number
from tandembus.store.messaging_store import NUMBER_BITS

PAGE_MESSAGES: Final = 256
PAGE_BYTES: Final = 1024 * 1024
"""What is read at once; one message may be larger."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages: each of these that is set must fit."""

    state: int | None = None
    session_id: str | None = None
    reason: str | None = None
    """Empty for messages without one."""

    def fits(self, one: Browsed, entity: Entity) -> bool:
        if self.state is not None and one.state != self.state:
            return False
        if self.session_id is not None:
            session_id = session_id_of(one.message)
            if session_id is None or entity.key_of(session_id) != entity.key_of(self.session_id):
                return False
        return self.reason is None or (dead_letter_reason(one.message) or "") == self.reason


def wanted_in(request: web.Request, limits: Limits) -> Wanted:
    query = request.query
    state = query.get("state", "all")
    if state not in (*STATES, "all"):
        raise InvalidArgument(f"state: '{state[:64]}' is none of {', '.join(STATES)}, all.")
    session_id = query.get("session")
    if session_id is not None and len(session_id) > limits.max_key_length:
        raise InvalidArgument(f"session has more than {limits.max_key_length} characters.")
    return Wanted(None if state == "all" else STATES.index(state), session_id, query.get("reason"))


def _go_on() -> None:
    return


class Scan:
    """One walk through a lane in the order of sequence numbers."""

    def __init__(self, entity: Entity, lane: int, limits: Limits, meter: Meter) -> None:
        self._entity = entity
        self._lane = lane
        self._timeout_s = limits.operation_timeout_s
        self._meter = meter
        self._ends: dict[int, int] | None = None
        self.check: Callable[[], None] = _go_on
        """Called after every page; raises when the walk must end. A long one may find nothing for a long time."""
        self.scanned = 0
        self.scanned_bytes = 0
        self.next_number: int | None = None
        """Where to go on; None at the end."""

    async def messages(
        self,
        first: int,
        wanted: Wanted,
        max_messages: int = LARGEST_NUMBER,
        max_bytes: int = LARGEST_NUMBER,
        page_messages: int = PAGE_MESSAGES,
    ) -> AsyncIterator[Browsed]:
        """Those that fit, from a number on, out of at most so many."""
        session_id = wanted.session_id if has_sessions(self._entity, self._lane) else None
        self.next_number = max(first, 1)
        while self.scanned < max_messages and self.scanned_bytes < max_bytes:
            count = min(page_messages, max_messages - self.scanned)
            page = await self._page(self.next_number, count, session_id)
            self.next_number = self._behind(page[-1].sequence_number) if page else None
            for one in page:
                if self._is_in(one.sequence_number) and wanted.fits(one, self._entity):
                    yield one
            if self.next_number is None:
                return
            self.check()
            await asyncio.sleep(0)

    async def stop_at_ends(self) -> None:
        """Only what is there now: on and on with what comes meanwhile, a walk would have no end. Fragments that are out
        of reach now are left out. What is kept ready for receivers goes back for this."""
        ends = await self._entity.requests.ends(self._lane)
        self._ends = {fragment_of_number(end): end for end in ends}

    def _is_in(self, number: int) -> bool:
        return self._ends is None or number < self._ends.get(fragment_of_number(number), 0)

    def _behind(self, number: int) -> int | None:
        """Where to go on behind this one: at the next fragment, once the end of its own is reached."""
        after = number + 1 if self._is_in(number) else fragment_of_number(number) + 1 << NUMBER_BITS
        return after if after <= LARGEST_NUMBER else None

    async def _page(self, first: int, count: int, session_id: str | None) -> list[Browsed]:
        asked = self._entity.requests.peek(self._lane, first, count, PAGE_BYTES, session_id)
        try:
            page = list(await asyncio.wait_for(asked, self._timeout_s))
        except TimeoutError:
            raise OperationTimeout(f"The messages could not be read within {self._timeout_s:g} s.") from None
        sizes = [size_of(one.message) for one in page]
        self.scanned += len(page)
        self.scanned_bytes += sum(sizes)
        key = self._entity.entry.key
        units = max(1, sum([operations_for(size) for size in sizes]))
        self._meter.count(key, PEEK, reason_to_receive(key), len(page), units, sum(sizes))
        return page
