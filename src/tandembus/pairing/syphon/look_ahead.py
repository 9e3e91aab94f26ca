"""Looks through a backlog queue by peeking: for live messages behind dead ones, and for deferred ones.

A message is live if its destination takes messages, as far as the syphon knows, or if it can only become a dead letter.
This module decides what a page says; the engine peeks and acts.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, final

from tandembus.errors import MalformedData
from tandembus.pairing.aliases import why_not_a_path
from tandembus.pairing.payloads import Browsed, browsed
from tandembus.pairing.syphon.ports import destination_of

PAGE: Final = 250
LAST_NUMBER: Final = (1 << 63) - 1
PAGES_STEP_BY_STEP: Final = 20


@final
class LookAhead:
    """A walk through the queue, page by page. It remembers only its position and two counts."""

    def __init__(self) -> None:
        self.position = 1
        self.is_over = True
        self.is_cut_short = False
        """It ended before the end of the queue."""
        self.in_sight = 0
        """Active messages up to the last live one that was seen and not received yet."""
        self.has_left = False
        """This walk has seen messages that somebody else holds, or that stay deferred."""
        self._scan_beyond: int | None = None
        self._dead_in_a_row = 0
        self._untouched_in_a_row = 0
        self._unreadable_count = 0

    def start(self, position: int = 1, scan_beyond: int | None = None) -> None:
        """`scan_beyond`: ends after this many active messages in a row that were never received."""
        self.position = max(position, 1)
        self._scan_beyond = scan_beyond
        self.is_over = self.is_cut_short = self.has_left = False
        self.in_sight = self._dead_in_a_row = self._untouched_in_a_row = 0

    def resume(self) -> None:
        """Goes on where the last look ended: there may be more by now."""
        self.is_over = False

    def received(self, count: int) -> None:
        """Messages that were in sight were received. None: somebody else got the rest of them."""
        self.in_sight = max(self.in_sight - count, 0) if count else 0

    def see(
        self, page: Sequence[bytes], dead: Container[str], held: Container[int], is_partitioned: bool
    ) -> list[Browsed]:
        """Reads the messages from the position on; none at the end. Returns the deferred ones that have a destination.

        `held`: numbers of the messages that the syphon holds itself.
        """
        before, found = self.position, []
        for payload in page:
            try:
                message = browsed(payload)
            except MalformedData:
                continue
            self.position = max(self.position, message.sequence_number + 1)
            if message.is_scheduled or message.sequence_number in held:
                continue
            destination = _destination_in(message)
            if message.is_deferred:
                if destination is not None:
                    found.append(message)
                self._untouched_in_a_row = 0
            else:
                self._see_active(message, destination in dead)
        if page and self.position == before:
            self._skip(len(page))
        else:
            self._unreadable_count = 0
        limit = None if is_partitioned else self._scan_beyond
        self.is_cut_short = bool(page) and limit is not None and self._untouched_in_a_row >= limit
        self.is_over = not page or self.position > LAST_NUMBER or self.is_cut_short
        return found

    def _see_active(self, message: Browsed, is_dead: bool) -> None:
        self.has_left = True
        self._untouched_in_a_row = 0 if message.delivery_count else self._untouched_in_a_row + 1
        self._dead_in_a_row += 1
        if not is_dead:
            self.in_sight += self._dead_in_a_row
            self._dead_in_a_row = 0

    def _skip(self, count: int) -> None:
        """A page that cannot be read need not be the end. Its numbers are unknown and may be far apart, so after some
        of them the steps grow."""
        self._unreadable_count += 1
        self.position += count << max(0, self._unreadable_count - PAGES_STEP_BY_STEP)


def _destination_in(message: Browsed) -> str | None:
    if message.path is None or why_not_a_path(message.path) is not None:
        return None
    return destination_of(message.path)
