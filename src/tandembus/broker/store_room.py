"""Whether a store has room: sends stop in time, so that receiving and settling always go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tandembus.broker.budget import NO_ROOM
from tandembus.broker.fragment import Fragment
from tandembus.store.messaging_store import MessagingStore, Room

log = logging.getLogger("tandembus.broker")


class StoreRoom:
    def __init__(self, fragments: Callable[[], Sequence[Fragment]]) -> None:
        self._fragments = fragments
        self.is_short = False
        """Sends are refused."""
        self._shortage = NO_ROOM
        self.last: Room | None = None
        """As it was found last."""
        self.is_full = False
        """Not even what only moves messages fits."""

    def check(self, store: MessagingStore) -> None:
        """Looked at every second: sends stop below the reserve and resume above twice that."""
        self.last = room = store.room()
        self._shortage = room.shortage or NO_ROOM
        self.set_short(room.free_bytes < room.reserve_bytes * (2 if self.is_short else 1))

    def set_short(self, is_short: bool) -> None:
        if is_short != self.is_short:
            log.warning("the messaging store %s", "is short of room" if is_short else "has room again")
        self.is_short = is_short
        self.is_full = self.is_full and is_short
        for fragment in self._fragments():
            self.tell(fragment)

    def tell(self, fragment: Fragment) -> None:
        fragment.is_short_of_room = self.is_short
        fragment.shortage = self._shortage
        fragment.is_full = self.is_full
