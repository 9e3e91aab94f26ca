"""The broker's end of all channels of a process: lets front ends and other brokers in, and serves its stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.errors import BusError, EntityNotFound, FragmentUnavailable, InvalidArgument, StoreUnavailable
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.frames import MAX_FRAME_BYTES, FrameReader
from tandembus.interconnect.handshake import Agreement, Party
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.peer import HANDSHAKE_TIMEOUT_S, Handlers, Peer, PeerListener
from tandembus.interconnect.served_channel import ServedChannel
from tandembus.interconnect.served_requests import ServedRequests
from tandembus.store.messaging_store import CHANNEL_BYTES
from tandembus.tasks import WhenBroken, carry_on, essential

log = logging.getLogger("tandembus.interconnect")

TICK_S: Final = 0.5
MAX_CHANNELS: Final = 4096
"""Of one store: front ends and brokers there are, and those that are gone and have something under way."""

OpenFragment = Callable[[int], Awaitable[Fragment | None]]


class ServedStore:
    """One store of this process, and who is connected to it."""

    def __init__(
        self, broker: MessageBroker, open_by_key: OpenFragment, clock: Clock, settings: ChannelSettings
    ) -> None:
        """`open_by_key`: the fragment with this key, opened when needed; None for what is not there."""
        self.broker: Final = broker
        self.open_by_key: Final = open_by_key
        self._clock = clock
        self._settings = settings
        self._channels: dict[bytes, ServedChannel] = {}
        self._peers: dict[bytes, Peer] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._is_hanging = False
        broker.on_failed.append(self._store_failed)
        broker.on_reopened.append(self._store_reopened)

    @property
    def epoch(self) -> int:
        return self.broker.store.epoch if self.broker.failure is None else 0

    # Channels.

    def join(self, channel_id: bytes, peer: Peer) -> ServedChannel:
        """A connection of a channel. The one before, if there was one, is closed first: not a byte of it may be read
        after the channel has been told what became of its operations."""
        before = self._peers.pop(channel_id, None)
        if before is not None:
            before.connection.end(FragmentUnavailable("The channel has a new connection."))
        channel = self._channels.get(channel_id)
        if channel is None:
            channel = self._new_channel(channel_id)
        self._peers[channel_id] = peer
        for mark in (channel.sends.numbers.mark, channel.settles.numbers.mark):
            self.broker.channel_marks.open(mark.channel, self._clock.now_ms())
        channel.connected(self.epoch, self.broker.failure is None, self._is_hanging)
        peer.epoch = self.epoch
        connection = peer.connection
        connection.on_flush = channel.collect
        peer.is_meant_for_us = lambda epoch: epoch == channel.epoch
        peer.on_other_frame = lambda reader: self._take(channel, peer, reader)
        peer.on_lost = lambda _: self._leave(channel_id, channel, peer)
        return channel

    def _new_channel(self, channel_id: bytes) -> ServedChannel:
        self._forget_idle()
        if len(self._channels) >= MAX_CHANNELS:
            raise StoreUnavailable("Too many channels to one store.")
        marks, now_ms = self.broker.channel_marks, self._clock.now_ms()
        channel = ServedChannel(
            marks.open(channel_id, now_ms),
            marks.open(settles_id(channel_id), now_ms),
            self._settings,
            self._open_fragment,
            lambda _channel: self._wake(channel_id),
            self._feed_soon,
        )
        self._channels[channel_id] = channel
        return channel

    def _take(self, channel: ServedChannel, peer: Peer, reader: FrameReader) -> None:
        channel.take(reader)
        peer.epoch = int(channel.epoch)

    def _leave(self, channel_id: bytes, channel: ServedChannel, peer: Peer) -> None:
        if self._peers.get(channel_id) is peer:
            del self._peers[channel_id]
        elif channel_id in self._peers:
            return  # another connection has taken its place, and the channel with it
        channel.disconnected()
        for mark in (channel.sends.numbers.mark, channel.settles.numbers.mark):
            self.broker.channel_marks.closed(mark, self._clock.now_ms())
        self._forget_idle()

    def _forget_idle(self) -> None:
        for channel_id, channel in list(self._channels.items()):
            if channel.is_idle():
                del self._channels[channel_id]

    def _wake(self, channel_id: bytes) -> None:
        peer = self._peers.get(channel_id)
        if peer is not None:
            peer.connection.want_flush()

    def _feed_soon(self, channel: ServedChannel) -> None:
        asyncio.get_running_loop().call_soon(channel.receivers.feed_hungry)

    # Fragments.

    def _open_fragment(self, channel: ServedChannel, fragment_key: int) -> None:
        task = asyncio.get_running_loop().create_task(self._open(channel, fragment_key))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, channel: ServedChannel, fragment_key: int) -> None:
        try:
            fragment = await self.find(fragment_key)
        except BusError as error:
            channel.not_opened(fragment_key, error)
        except Exception as error:
            log.exception("fragment %d cannot be opened", fragment_key)
            channel.not_opened(fragment_key, FragmentUnavailable(f"The fragment cannot be opened: {error}"))
        else:
            broker = self.broker
            channel.opened(fragment_key, LocalTraffic(fragment, broker.want, broker.session_serving.want))

    async def find(self, fragment_key: int) -> Fragment:
        fragment = await self.open_by_key(fragment_key)
        if fragment is None:
            raise EntityNotFound("The messaging entity could not be found.")
        return fragment

    # The store.

    def _store_failed(self, error: StoreUnavailable) -> None:
        for channel in list(self._channels.values()):
            channel.store_failed(error)

    def _store_reopened(self) -> None:
        for channel in list(self._channels.values()):
            channel.store_reopened(self.epoch)
        self._forget_idle()

    def tick(self) -> None:
        is_hanging = self.broker.is_hanging
        for channel in list(self._channels.values()):
            channel.forget_closed()
            channel.receivers.forget_lapsed()
            if is_hanging != self._is_hanging and self.broker.failure is None:
                channel.store_hangs(is_hanging)
        self._is_hanging = is_hanging
        self._forget_idle()

    async def stop(self) -> None:
        self.broker.on_failed.remove(self._store_failed)
        self.broker.on_reopened.remove(self._store_reopened)
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)


def settles_id(channel_id: bytes) -> bytes:
    """Settlements are numbered apart from sends, and have a mark of their own."""
    return channel_id[:-1] + bytes([channel_id[-1] ^ 1])


class ChannelServer:
    """The socket of a broker process, for all its stores."""

    def __init__(
        self,
        key: bytes,
        party: Party,
        stores: Mapping[int, ServedStore],
        admit: Callable[[Agreement], Mapping[str, object]] | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        """`admit` may refuse somebody besides, and say more of us."""
        self.when_broken: WhenBroken = carry_on
        self._stores = stores
        self._more_admit = admit
        self._requests = ServedRequests()
        self._listener = PeerListener(
            key,
            party,
            Handlers(self._requests.calls()),
            self._admit,
            self._joined,
            handshake_timeout_s,
            max_frame_bytes,
        )
        self._ticker: asyncio.Task[None] | None = None

    async def start(self, path: Path) -> None:
        await self._listener.start(path)
        self._ticker = essential(self._tick(), "upkeep of channels", self.when_broken)

    def cut_off(self, error: BusError) -> None:
        """Everybody who is connected, at once; their channels stay, for when they come back."""
        for peer in self._listener.peers:
            peer.connection.end(error)

    async def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self._listener.stop()
        for store in self._stores.values():
            await store.stop()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for store in self._stores.values():
                store.tick()

    def _admit(self, agreement: Agreement) -> Mapping[str, object]:
        store, _ = self._asked_for(agreement)
        facts = self._more_admit(agreement) if self._more_admit is not None else {}
        return {**facts, "epoch": store.epoch}

    def _asked_for(self, agreement: Agreement) -> tuple[ServedStore, bytes]:
        """The store and the channel that a newcomer names."""
        index, channel_id = agreement.facts.get("store"), agreement.facts.get("channel")
        if not isinstance(channel_id, bytes) or len(channel_id) != CHANNEL_BYTES:
            raise InvalidArgument("A channel has an id of 16 bytes.")
        store = self._stores.get(index) if isinstance(index, int) else None
        if store is None:
            raise FragmentUnavailable(f"Store {index} is not served by this message broker.")
        return store, channel_id

    def _joined(self, peer: Peer) -> None:
        store, channel_id = self._asked_for(peer.agreement)
        channel = store.join(channel_id, peer)
        self._requests.joined(peer, store.broker, store.find, channel)
