"""Finds deferred messages in a backlog queue by browsing: behind a message that came back, where there are too many to
remember, and where nothing leads to them any more. Decides only what a page tells; others read the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tandembus.errors import MalformedData
from tandembus.pairing.aliases import why_not_a_path
from tandembus.pairing.payloads import Browsed, browsed
from tandembus.pairing.syphon_lane import Lane
from tandembus.pairing.syphon_rules import MAX_REMEMBERED, destination_of

PAGE: Final = 250
PAGES_STEP_BY_STEP: Final = 20
LAST_NUMBER: Final = (1 << 63) - 1
MAX_PATHS: Final = 10_000
"""Strangers decide how many there are."""


def read_page(page: Sequence[bytes]) -> list[Browsed]:
    """What browsed messages tell, as far as they can be read."""
    found: list[Browsed] = []
    for payload in page:
        try:
            found.append(browsed(payload))
        except MalformedData:
            continue
    return found


class Look:
    """One walk through the queue, page by page, for all lanes at once: so that the queue is not read once for each.

    Lanes whose unknown part begins at our position or behind it learn what is in it as we go, and need not be told who
    takes part. A sweep starts at the beginning, and finds deferred messages of all other destinations, too.
    In a partitioned queue the fragments have orders of their own, so there everything is looked at.
    """

    def __init__(self, position: int, scan_beyond: int, is_partitioned: bool = False, is_sweep: bool = False) -> None:
        self.position = max(position, 1)
        self.is_sweep: Final = is_sweep
        self.has_active = False
        self.is_partial = False
        """There were more destinations than one can note down: another look will find them."""
        self.suspected: Final[set[str]] = set()
        """Destinations with deferred messages behind an active one, which is their lead."""
        self.leaderless: Final[dict[str, Lane]] = {}
        self._scan_beyond: Final = scan_beyond
        self._is_partitioned: Final = is_partitioned
        self._has_active: Final[dict[str, bool]] = {}
        self._left = MAX_REMEMBERED
        self._untouched_count = 0
        self._unreadable_count = 0
        self._is_at_end = False

    def is_over(self, lanes: Mapping[str, Lane]) -> bool:
        return self.is_at_end or not (self.is_sweep or self._takers(lanes))

    @property
    def is_at_end(self) -> bool:
        """Nobody ever had what is behind our position: receivers get messages in the order of their numbers."""
        return self._is_at_end or (not self._is_partitioned and self._untouched_count >= self._scan_beyond)

    @property
    def has_more(self) -> bool:
        """It has not come to the end of the queue."""
        return not self._is_at_end

    def see(self, page: Sequence[bytes], lanes: Mapping[str, Lane]) -> None:
        """The messages from our position on; none at the end."""
        before = self.position
        takers = self._takers(lanes)
        for message in read_page(page):
            self.position = max(self.position, message.sequence_number + 1)
            self._see(message, lanes, takers)
        if page and self.position == before:
            self._skip(len(page))
        else:
            self._unreadable_count = 0
        self._is_at_end = not page or self.position > LAST_NUMBER
        for key in takers:
            lanes[key].followers.known_below(None if self.is_at_end else self.position)

    def _skip(self, count: int) -> None:
        """A page of which nothing can be read is not the end: there may be more behind it. Its numbers are not known,
        and may be far apart, so after some of them the steps grow."""
        self._unreadable_count += 1
        self.position += count << max(0, self._unreadable_count - PAGES_STEP_BY_STEP)

    def _takers(self, lanes: Mapping[str, Lane]) -> set[str]:
        return {key for key, lane in lanes.items() if (lane.followers.look_from or 0) >= self.position}

    def _see(self, message: Browsed, lanes: Mapping[str, Lane], takers: set[str]) -> None:
        self.has_active = self.has_active or not message.is_deferred
        if message.is_scheduled:
            return  # It is in nobody's way, and nobody could have had it.
        is_untouched = not message.is_deferred and message.delivery_count == 0
        self._untouched_count = self._untouched_count + 1 if is_untouched else 0
        if message.path is None or why_not_a_path(message.path) is not None:
            return
        key = destination_of(message.path)
        if key not in lanes:
            if self.is_sweep:
                self._note(key, message)
        elif key in takers and message.is_deferred and not lanes[key].followers.found(message.sequence_number):
            takers.discard(key)  # It has no room for more, and will look again from there.

    def _note(self, key: str, message: Browsed) -> None:
        if key not in self._has_active and len(self._has_active) >= MAX_PATHS:
            self.is_partial = True
        elif not message.is_deferred:
            self._has_active[key] = True
        elif self._has_active.setdefault(key, False):
            self.suspected.add(key)
        else:
            self._note_leaderless(key, message)

    def _note_leaderless(self, key: str, message: Browsed) -> None:
        if key not in self.leaderless:
            if self._left <= 0:
                self.is_partial = True
                return
            self.leaderless[key] = Lane(message.path or key, None, 0.0)
        followers = self.leaderless[key].followers
        if self._left > 0:
            self._left -= 1
            followers.found(message.sequence_number)
        elif followers.look_from is None:
            followers.look_from = message.sequence_number
