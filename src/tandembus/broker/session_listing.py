"""Which sessions there are: those with messages, found in the columns, and those with nothing but a state.

A snapshot that grows page by page: a client asks for one page after the other, and each goes on where the last one
ended. What comes or goes meanwhile may be in it or not, but nothing is in it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandembus.broker.fragment import Fragment
from tandembus.broker.session_columns import entry_count, hash_at, offset_at
from tandembus.broker.session_reading import id_in, read_columns
from tandembus.message import Message
from tandembus.store.messaging_store import DEFERRED, MAIN

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

BLOCKS_SLICE = 8
STATES_SLICE = 500
READ_BYTES = 4 * 1024 * 1024


class SessionListing:
    """Sessions with active messages or a state; with a time, those whose state was set after it."""

    def __init__(self, broker: MessageBroker, fragment: Fragment, state_after_ms: int | None) -> None:
        self._broker = broker
        self._fragment = fragment
        self._state_after_ms = state_after_ms
        self._ids: dict[str, str] = {}
        """As they were sent, by what they are compared by."""
        self._seen: set[bytes] = set()
        self._number = 1
        self._has_all_messages = state_after_ms is not None
        self._last_state: str | None = None
        self._is_complete = False

    def __len__(self) -> int:
        return len(self._ids)

    def is_of(self, fragment: Fragment, state_after_ms: int | None) -> bool:
        """Whether it is the listing that is asked for, and no other object stands for its fragment by now."""
        return self._fragment is fragment and self._state_after_ms == state_after_ms

    async def page(self, skip: int, top: int) -> Sequence[str]:
        while len(self._ids) < skip + top and not self._is_complete:
            if self._has_all_messages:
                await self._read_states()
            else:
                await self._read_messages()
            await asyncio.sleep(0)
        return list(self._ids.values())[skip : skip + top]

    async def _read_messages(self) -> None:
        lane = self._fragment.main
        blocks = lane.live_blocks(self._number, BLOCKS_SLICE)
        candidates: list[int] = []
        for block, entries in zip(blocks, await read_columns(self._broker, self._fragment, lane, blocks), strict=True):
            candidates += await self._firsts(block, entries)
        while candidates:
            records = await self._broker.store.bodies(int(lane.body_fragment), MAIN, candidates, READ_BYTES)
            for record in records:
                session_id = id_in(record) if isinstance(record, Message) else None
                if session_id is not None:
                    self._ids.setdefault(self._fragment.settings.key_of(session_id), session_id)
            candidates = candidates[len(records) :]
        self._has_all_messages = len(blocks) < BLOCKS_SLICE
        if blocks:
            self._number = (blocks[-1] + 1) * int(lane.block_size)

    async def _firsts(self, block: int, entries: bytes) -> list[int]:
        """The first active message of each session that was not seen before, in order."""
        lane = self._fragment.main
        first = block * int(lane.block_size)
        found: list[int] = []
        for position in range(entry_count(entries)):
            hash_of_id = hash_at(entries, position)
            number = first + int(offset_at(entries, position))
            if hash_of_id not in self._seen and await self._is_active(number):
                self._seen.add(hash_of_id)
                found.append(number)
        return sorted(found)

    async def _is_active(self, number: int) -> bool:
        """Waiting, locked or deferred; what is scheduled is not there yet."""
        lane = self._fragment.main
        if number >= lane.visible_end or not lane.is_live(number):
            return False
        if not lane.is_parked(number):
            return True
        overlays = await self._broker.store.overlays_at(int(self._fragment.key), MAIN, [number])
        return bool(overlays) and overlays[0].state == DEFERRED

    async def _read_states(self) -> None:
        states = await self._broker.store.session_states(int(self._fragment.key), self._last_state, STATES_SLICE)
        for state in states:
            if self._state_after_ms is None or state.changed_at > self._state_after_ms:
                self._ids.setdefault(state.session_id, state.session_id)
        if states:
            self._last_state = states[-1].session_id
        self._is_complete = len(states) < STATES_SLICE
