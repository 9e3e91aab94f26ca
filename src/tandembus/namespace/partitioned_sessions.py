"""The next available session of an entity whose sessions are spread over many fragments.

Whoever wants one stands in one line for all fragments. Fragments are watched, not asked again and again: each tells
once that it has a free session, and how old that is; the one that waits longest goes to whoever stands first in line.
Telling locks nothing, so another front end may be quicker: then the wish keeps its place, and the next one is tried.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from tandembus.errors import BusError, OperationTimeout
from tandembus.interconnect.local_traffic import NO_SESSION
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic
from tandembus.namespace.receive_cache import Later

GATHER_S: Final = 0.25
"""Whoever comes first waits at most so long until all fragments have said what they have: the oldest session is next,
not that of the fragment that answers first. A fragment that is asked and does not answer for so long holds nobody up:
the wish is back in its place, and another fragment is asked."""
LOOK_AGAIN_S: Final = 1.0
"""While somebody waits: fragments that could not be watched before are watched now."""
ALL_AGAIN: Final = 30
"""Each so many times all are, whatever may have become of the watches."""
LEAST_OVER: Final = 64


@final
class _Asking:
    """One fragment is asked for its next session, on behalf of one wish."""

    __slots__ = ("index", "is_answered", "is_late", "line", "since_ms", "wish")

    def __init__(self, line: SessionLine, index: i64, since_ms: i64, wish: SessionWish) -> None:
        self.line: Final = line
        self.index: i64 = index
        self.since_ms: i64 = since_ms
        self.wish: Final = wish
        self.is_answered: bool = False
        self.is_late: bool = False

    def granted(self, hold: SessionHold) -> None:
        self.is_answered = True
        self.line.granted(self.index, self.since_ms, self.wish, hold)

    def refused(self, error: BusError) -> None:
        self.is_answered = True
        self.line.refused(self)

    def due(self) -> None:
        if not self.is_answered:
            self.is_late = True
            self.line.put_back(self.wish)


@final
class _Search:
    """Somebody who does not wait: every fragment is asked in turn, once."""

    __slots__ = ("left", "line", "wish")

    def __init__(self, line: SessionLine, wish: SessionWish, order: list[int]) -> None:
        self.line: Final = line
        self.wish: Final = wish
        self.left: Final = order

    def granted(self, hold: SessionHold) -> None:
        self.line.hand_out(self.wish, hold)

    def refused(self, error: BusError) -> None:
        self.line.search_on(self)


@final
class SessionLine:
    """Who waits for a session of this entity, in this front end."""

    def __init__(self, fragments: list[Traffic], later: Later) -> None:
        self._fragments: Final = fragments
        self._later: Final = later
        self._watch: Final = SessionWatch(self.available, self.nothing)
        self._waiting: deque[SessionWish] = deque()
        self._over_count: i64 = 0
        """Of those in line: have given up."""
        self._offers: dict[int, int] = {}
        """Fragments that have a free session, and since when it waits."""
        self._asking: i64 = 0
        self._watched: i64 = 0
        self._unknown: i64 = 0
        """Bits of those that are watched and have not said yet whether they have one."""
        self._look_count: i64 = 0
        self._is_matching: bool = False
        self._is_gathering: bool = False
        self._is_timed: bool = False

    def __len__(self) -> int:
        return len(self._waiting) - self._over_count

    # Wishes.

    def wish(self, wish: SessionWish) -> None:
        if wish.is_patient:
            is_first = not self._waiting and not self._offers
            wish.tag = self
            self._waiting.append(wish)
            if is_first:
                self._gather()
            self._match()
            return
        order = self._offered()
        for index in range(len(self._fragments)):
            if index not in self._offers:
                order.append(index)
        self.search_on(_Search(self, wish, order))

    def give_up(self, wish: SessionWish) -> None:
        if wish.is_over:
            return
        wish.is_over = True
        if wish.tag is self:
            self._over_count += 1
            self._tidy()

    def _tidy(self) -> None:
        """Forget those that have given up: in front at once, elsewhere when they are many."""
        while self._waiting and self._waiting[0].is_over:
            self._waiting.popleft()
            self._over_count -= 1
        if self._over_count > LEAST_OVER and self._over_count * 2 > len(self._waiting):
            kept: deque[SessionWish] = deque()
            for wish in self._waiting:
                if not wish.is_over:
                    kept.append(wish)
            self._waiting = kept
            self._over_count = 0

    def search_on(self, search: _Search) -> None:
        """Ask the next fragment that may have one."""
        while search.left and not search.wish.is_over:
            index = search.left.pop(0)
            traffic = self._fragments[index]
            if not traffic.is_out():
                try:
                    traffic.wish_session(SessionWish(None, False, search.granted, search.refused))
                except BusError:
                    continue
                return
        if not search.wish.is_over:
            search.wish.is_over = True
            search.wish.refused(OperationTimeout(NO_SESSION))

    # Sessions.

    def available(self, index: int, enqueued_at_ms: int) -> None:
        self._watched &= ~(1 << index)
        self._unknown &= ~(1 << index)
        self._offers[index] = enqueued_at_ms
        self._match()

    def nothing(self, index: int) -> None:
        self._unknown &= ~(1 << index)
        if self._is_gathering:
            self._match()

    def _gather(self) -> None:
        self._watch_all()
        if not self._is_gathering and not self._is_known():
            self._is_gathering = True
            self._later(GATHER_S, self.gathered)

    def _is_known(self) -> bool:
        """Whether all that can be reached have said what they have."""
        for index in range(len(self._fragments)):
            if self._unknown & (1 << index) and not self._fragments[index].is_out():
                return False
        return True

    def gathered(self) -> None:
        self._is_gathering = False
        self._match()

    def _offered(self) -> list[int]:
        """Those that have one, the one that waits longest first."""
        order: list[tuple[int, int]] = []
        for index, since_ms in self._offers.items():
            order.append((since_ms, index))
        order.sort()
        return [index for _, index in order]

    def _match(self) -> None:
        """Wishes and sessions meet, in the order of both. In this process an answer comes before the call returns."""
        if self._is_matching:
            return
        self._is_matching = True
        self._tidy()
        if self._is_gathering and self._is_known():
            self._is_gathering = False
        while self._waiting and self._offers and not self._is_gathering:
            self._ask(self._offered()[0])
            self._tidy()
        self._is_matching = False
        if self._waiting:
            self._watch_all()

    def _take_first(self) -> SessionWish:
        wish = self._waiting.popleft()
        wish.tag = None
        return wish

    def _ask(self, index: int) -> None:
        since_ms = self._offers.pop(index)
        self._asking |= 1 << index
        asking = _Asking(self, index, since_ms, self._take_first())
        try:
            self._fragments[index].wish_session(SessionWish(None, False, asking.granted, asking.refused))
        except BusError as error:
            asking.refused(error)
        if not asking.is_answered:
            self._later(GATHER_S, asking.due)

    def granted(self, index: i64, since_ms: i64, wish: SessionWish, hold: SessionHold) -> None:
        """Where there was one there may be more: ask again, but after the others that have one."""
        self._asking &= ~(1 << index)
        newest = int(since_ms)
        for other_ms in self._offers.values():
            newest = max(newest, other_ms)
        self._offers[int(index)] = newest
        self.hand_out(wish, hold)
        self._match()

    def hand_out(self, wish: SessionWish, hold: SessionHold) -> None:
        """Whoever wanted it may be gone: then the next in line has it, or nobody."""
        while wish.is_over:
            self._tidy()
            if not self._waiting:
                self._fragments[hold.index].leave_session(hold)
                return
            wish = self._take_first()
        wish.is_over = True
        if wish.tag is self:
            self._over_count += 1  # the fragment was late, so it is back in line
        wish.granted(hold)

    def refused(self, asking: _Asking) -> None:
        """Somebody else was quicker, or the fragment is out of reach: the wish keeps its place."""
        self._asking &= ~(1 << asking.index)
        if asking.is_late:
            self._match()
        else:
            self.put_back(asking.wish)

    def put_back(self, wish: SessionWish) -> None:
        if not wish.is_over:
            wish.tag = self
            self._waiting.appendleft(wish)
        self._match()

    def _watch_all(self) -> None:
        for index in range(len(self._fragments)):
            bit: i64 = 1 << index
            if (self._watched | self._asking) & bit == 0 and index not in self._offers:
                self._watch_one(index)
        if not self._is_timed and self._waiting:
            self._is_timed = True
            self._later(LOOK_AGAIN_S, self.due)

    def _watch_one(self, index: int) -> None:
        self._watched |= 1 << index
        self._unknown |= 1 << index
        try:
            self._fragments[index].watch_sessions(self._watch)
        except BusError:
            self._watched &= ~(1 << index)
            self._unknown &= ~(1 << index)

    def due(self) -> None:
        self._is_timed = False
        self._look_count += 1
        if self._look_count % ALL_AGAIN == 0:
            self._watched = 0
        self._match()
