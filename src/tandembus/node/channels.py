"""The channels of one process to all stores of the namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, final

from tandembus.clock import Clock
from tandembus.config import ServeSettings
from tandembus.interconnect.channel import Channel
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.handshake import Party
from tandembus.node.remote_source import RemoteSource
from tandembus.node.run_folder import RunFolder
from tandembus.node.waiting import comes_true
from tandembus.tasks import WhenBroken

ANSWERED_WITHIN_S: Final = 5.0


@final
class Channels:
    def __init__(self, run: RunFolder, key: bytes, party: Party, settings: ServeSettings, clock: Clock) -> None:
        self._run = run
        self._key = key
        self._party = party
        self._settings = settings
        self._clock = clock
        self.by_store: dict[int, Channel] = {}

    def open(self, stores: Iterable[int], when_broken: WhenBroken) -> RemoteSource:
        """They connect in the background, and again whenever they are lost."""
        settings = ChannelSettings.of(self._settings.limits)
        for store in stores:
            path = self._run.broker_socket(store % self._settings.brokers)
            channel = Channel(store, path, self._key, self._party, self._clock, settings)
            channel.when_broken = when_broken
            channel.start()
            self.by_store[store] = channel
        return RemoteSource(self.by_store, self._settings.limits, self._clock)

    def on_turn_end(self, flush: Callable[[], None]) -> None:
        for channel in self.by_store.values():
            channel.on_turn_end = flush

    async def until_up(self, within_s: float) -> None:
        """Returns when all of them are, or after so long."""
        await asyncio.gather(*[channel.until_up(within_s) for channel in self.by_store.values()])

    def is_any_up(self) -> bool:
        return any(channel.is_up for channel in self.by_store.values())

    async def until_answered(self, within_s: float = ANSWERED_WITHIN_S) -> None:
        """Returns when nothing is under way any more, or after so long."""
        await comes_true(self._is_idle, within_s)

    def _is_idle(self) -> bool:
        return all(channel.core.is_idle() for channel in self.by_store.values())

    async def stop(self) -> None:
        await asyncio.gather(*[channel.stop() for channel in self.by_store.values()])
