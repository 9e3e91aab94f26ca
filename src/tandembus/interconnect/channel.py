"""A channel of this front end to one store: connects, comes back after every loss, and lets nobody wait for ever.

What is said on it is `channel_core.py`'s affair. One channel lasts for the life of the process: its id stays the same
over all its connections, so that the broker knows what was asked before.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tandembus.clock import Clock
from tandembus.errors import BusError, FragmentUnavailable, OutcomeUnknown
from tandembus.interconnect.channel_core import ChannelCore
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Peer, connect_peer
from tandembus.store.messaging_store import CHANNEL_BYTES
from tandembus.tasks import WhenBroken, carry_on, essential

log = logging.getLogger("tandembus.interconnect")

FIRST_RETRY_S: Final = 0.02
LAST_RETRY_S: Final = 0.1
"""A broker that was restarted is there within a second or two: what is in doubt waits for it."""
CONNECT_TIMEOUT_S: Final = 1.5
"""A socket may be there without anybody behind it, such as that of a broker that is being killed: it is asked again
while what is in doubt still waits."""
TICK_S: Final = 0.25


class Channel:
    def __init__(
        self,
        store: int,
        path: Path,
        key: bytes,
        party: Party,
        clock: Clock,
        settings: ChannelSettings,
    ) -> None:
        """`path`: the socket of the broker that has the store; `party`: this process, as the broker is to know it."""
        self.store: Final = store
        self.id: Final = secrets.token_bytes(CHANNEL_BYTES)
        self.core: Final = ChannelCore(clock, settings, self._wake)
        self.on_turn_end: Callable[[], None] = _nothing
        """Called after all that one read brought: what was answered to clients is written now."""
        self.on_state: Callable[[Channel], None] = _no_state
        """Told when it has come up or gone down."""
        self.when_broken: WhenBroken = carry_on
        self._path = path
        self._key = key
        facts = {**party.facts, "store": store, "channel": self.id}
        self._party = Party(party.role, facts, party.features, party.lowest_version, party.highest_version)
        self._clock = clock
        self._max_frame_bytes = settings.max_frame_bytes
        self._peer: Peer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._came_up = asyncio.Event()
        self._was_up = False

    @property
    def is_up(self) -> bool:
        return self.core.is_up

    def start(self) -> None:
        self._tasks = [
            essential(self._stay_connected(), f"channel to store {self.store}", self.when_broken),
            essential(self._tick(), f"time-outs of store {self.store}", self.when_broken),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.core.close()
        self.on_turn_end()

    async def until_up(self, timeout_s: float) -> bool:
        """Returns whether it is."""
        try:
            await asyncio.wait_for(self._came_up.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    # Calls.

    async def call(self, name: str, value: object, timeout_s: float, changes: bool = False) -> object:
        """A request that waits for its answer. One that changes something may have done so when the connection breaks:
        OutcomeUnknown. All others were in vain: FragmentUnavailable."""
        peer = self._peer
        if peer is None or not self.core.is_up:
            raise self.core.refusal()
        peer.epoch = int(self.core.epoch)
        try:
            return await peer.call(name, value, timeout_s)
        except OutcomeUnknown as error:
            if changes or peer.is_open:
                raise
            raise FragmentUnavailable(str(error)) from error

    # The connection.

    async def _stay_connected(self) -> None:
        delay_s = FIRST_RETRY_S
        while True:
            try:
                peer = await connect_peer(
                    self._path, self._key, self._party, None, CONNECT_TIMEOUT_S, self._max_frame_bytes
                )
            except BusError as error:
                log.debug("the broker of store %d cannot be reached yet: %s", self.store, error)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, LAST_RETRY_S)
                continue
            delay_s = FIRST_RETRY_S
            await self._use(peer)

    async def _use(self, peer: Peer) -> None:
        """Returns when the connection is over."""
        connection = peer.connection
        self._peer = peer
        peer.on_other_frame = self.core.take
        connection.on_read = self._read
        connection.on_flush = self.core.collect
        try:
            if connection.is_open:
                connection.send(self.core.resume())
                await connection.until_ended()
        finally:
            self._peer = None
            connection.close()
            self.core.go_down(FragmentUnavailable("The connection to the message broker is broken."))
            self._read()

    def _read(self) -> None:
        self.on_turn_end()
        if self.core.is_up != self._was_up:
            self._was_up = self.core.is_up
            if self._was_up:
                self._came_up.set()
            else:
                self._came_up.clear()
            self.on_state(self)

    def _wake(self) -> None:
        if self._peer is not None:
            self._peer.connection.want_flush()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.core.tick(self._clock.monotonic())
            self.on_turn_end()


def _nothing() -> None:
    return


def _no_state(_channel: Channel) -> None:
    return
