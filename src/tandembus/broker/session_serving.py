"""Sessions for those who wait for one, and messages for those who hold one, beside the commits.

A receiver of sessions goes through many of them, and would wait for a commit at every step if what it needs were read
between commits. Reading changes nothing, so it need not wait: what is read is taken in only if it is still wanted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tandembus.broker.fragment import Fragment
from tandembus.broker.session_locks import grant_sessions
from tandembus.broker.session_reading import is_wanting, read_for_sessions
from tandembus.errors import StoreUnavailable
from tandembus.store.messaging_store import MAIN

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

log = logging.getLogger("tandembus.broker")


class SessionServing:
    def __init__(self, broker: MessageBroker) -> None:
        self._broker = broker
        self._wanting: dict[int, Fragment] = {}
        self._work = asyncio.Event()
        self._is_reading = False

    def is_idle(self) -> bool:
        return not self._wanting and not self._is_reading

    def want(self, fragment: Fragment) -> None:
        """Somebody waits for a session here, or could take more of one."""
        self._wanting[int(fragment.key)] = fragment
        self._work.set()

    def hand_over(self, fragment: Fragment) -> None:
        """Give what is in memory; the rest is read soon."""
        index = fragment.sessions
        if index is None or fragment.is_void:
            return
        grant_sessions(fragment)
        fragment.pump()
        if is_wanting(index):
            self.want(fragment)
        fragment.consumers(MAIN).finish_drains()

    async def run(self) -> None:
        """One slice for each fragment in turn, so that a search through millions of messages holds nobody up."""
        while True:
            await self._work.wait()
            self._work.clear()
            wanting, self._wanting = list(self._wanting.values()), {}
            self._is_reading = True
            for fragment in wanting:
                await self._serve(fragment)
            self._is_reading = False
            self._broker.on_turn_end()
            await asyncio.sleep(0)

    async def _serve(self, fragment: Fragment) -> None:
        broker = self._broker
        if broker.failure is not None or broker.by_key.get(int(fragment.key)) is not fragment:
            return
        store = broker.store
        try:
            self.hand_over(fragment)
            await read_for_sessions(broker, fragment)
            self.hand_over(fragment)
        except StoreUnavailable as error:
            broker.give_up(store, error)
        except Exception:
            log.exception("sessions of fragment %d have to wait", fragment.key)
