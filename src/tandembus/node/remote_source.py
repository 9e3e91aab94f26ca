"""Fragments behind channels: for front ends, and for brokers that forward to another's stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from tandembus.clock import Clock
from tandembus.descriptions import TopicDescription
from tandembus.errors import StoreUnavailable
from tandembus.interconnect.channel import Channel
from tandembus.interconnect.remote_requests import RemoteRequests
from tandembus.interconnect.remote_traffic import RemoteTraffic
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import Traffic
from tandembus.limits import Limits
from tandembus.namespace.entries import Entry


@final
class RemoteSource:
    """Implements `FragmentSource`. Nothing is opened here: the broker does that when something is asked for."""

    def __init__(self, channels: Mapping[int, Channel], limits: Limits, clock: Clock) -> None:
        """`channels`: by the number of their store."""
        self._channels = channels
        self._limits = limits
        self._clock = clock

    async def open(self, entry: Entry, index: int) -> tuple[Traffic, Requests]:
        channel = self._channels.get(entry.stores[index])
        if channel is None:
            raise StoreUnavailable(f"Store {entry.stores[index]}, where '{entry.description.path}' is, is not there.")
        fragment_key = entry.fragment_key + index
        traffic = RemoteTraffic(channel.core, fragment_key, index, _requires_session(entry))
        limits = self._limits
        return traffic, RemoteRequests(
            channel, fragment_key, index, self._clock, limits.fragment_timeout_s, limits.operation_timeout_s
        )

    def close(self, entry: Entry, index: int) -> None:
        return


def _requires_session(entry: Entry) -> bool:
    description = entry.description
    return not isinstance(description, TopicDescription) and description.requires_session
