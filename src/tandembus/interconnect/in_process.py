"""Channels to the stores of this process: what `local_channel.py` needs of the loop and of the broker."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.local_channel import LocalChannel
from tandembus.store.messaging_store import CHANNEL_BYTES

TICK_S: Final = 0.25


class InProcessChannel:
    """One per store, for the life of the process."""

    def __init__(self, broker: MessageBroker, clock: Clock, settings: ChannelSettings) -> None:
        mark = broker.channel_marks.open(secrets.token_bytes(CHANNEL_BYTES), clock.now_ms())
        self.core: Final = LocalChannel(mark, clock, settings, self._watch)
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._broker = broker
        broker.on_reopened.append(self._reopened)

    def _reopened(self) -> None:
        self.core.reopened()
        self._broker.on_turn_end()

    def _watch(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.core.tick(self._clock.monotonic()):
            self._watch()
        self._broker.on_turn_end()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._broker.on_reopened.remove(self._reopened)
