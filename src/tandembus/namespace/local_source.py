"""Fragments of this process, for its own front end and administration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from tandembus.errors import BusError, StoreUnavailable, anew
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.in_process import InProcessChannel
from tandembus.interconnect.local_channel import LocalChannel
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import Traffic
from tandembus.namespace.entries import Entry
from tandembus.namespace.hosting import FragmentHost


@final
class LocalSource:
    """Implements `FragmentSource` over the hosts of this process, by the number of their store."""

    def __init__(self, hosts: Mapping[int, FragmentHost], is_pinning: bool = True) -> None:
        """`is_pinning`: what is opened stays in memory until it is closed; else for as long as it is used, by somebody
        who can send again what may have been taken already."""
        self._hosts = hosts
        self._channels: dict[int, InProcessChannel] = {}
        self._is_pinning = is_pinning
        self._pins: dict[int, Callable[[], None]] = {}

    async def open(self, entry: Entry, index: int) -> tuple[Traffic, Requests]:
        host = self._hosts.get(entry.stores[index])
        if host is None:
            raise StoreUnavailable(f"Store {entry.stores[index]}, where '{entry.description.path}' is, is not there.")
        fragment = await host.open(entry, index)
        fragment_key = entry.fragment_key + index
        if self._is_pinning and fragment_key not in self._pins:
            self._pins[fragment_key] = host.pin(fragment_key)
        broker = host.broker
        channel = self._channel(host) if entry.is_partitioned and self._is_pinning else None
        traffic = LocalTraffic(fragment, broker.want, broker.session_serving.want, channel)
        return traffic, LocalRequests(broker, fragment, channel)

    def _channel(self, host: FragmentHost) -> LocalChannel:
        """What became of a send to one of many fragments must be known before another one may take it."""
        channel = self._channels.get(host.store)
        if channel is None:
            channel = InProcessChannel(host.broker, host.clock, ChannelSettings.of(host.limits))
            self._channels[host.store] = channel
        return channel.core

    def close(self, entry: Entry, index: int) -> None:
        unpin = self._pins.pop(entry.fragment_key + index, None)
        if unpin is not None:
            unpin()


@final
class LocalStorePort:
    """Implements `StorePort`."""

    def __init__(self, host: FragmentHost) -> None:
        self._host = host

    @property
    def index(self) -> int:
        return self._host.store

    @property
    def newest_key(self) -> int:
        return self._host.newest_key

    def failure(self) -> BusError | None:
        return self._host.broker.failure

    async def make(self, entry: Entry) -> None:
        await self._host.make(entry)

    async def check(self, entry: Entry) -> None:
        failure = self._host.broker.failure
        if failure is not None:
            raise anew(failure)
