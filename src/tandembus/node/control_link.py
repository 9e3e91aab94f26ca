"""A broker's or front end's end of its control connection: joins, follows, confirms, and is heard from.

It serves only while it is connected and has taken everything it was told (`on_serving`, `on_cut_off`): what the
supervisor has acknowledged to a client must hold for whoever talks to this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, final

from tandembus.errors import BusError, FragmentUnavailable, MalformedData
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Handlers, Peer, connect_peer
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.node.catalog_wire import PART, SNAPSHOT, ChangeParts, change_from_wire, fields_of
from tandembus.node.supervisor import Role

log = logging.getLogger("tandembus.node")

RETRY_S: Final = 0.02
LONGEST_RETRY_S: Final = 0.05
"""Whoever is not there at the start still loads, and nobody is served until it is found."""
JOIN_TIMEOUT_S: Final = 60.0
CALL_TIMEOUT_S: Final = 60.0
HEARTBEATS_PER_TIMEOUT: Final = 5
LONGEST_HEARTBEAT_S: Final = 1.0


class CatalogCopy(Protocol):
    """This process's copy of the catalog."""

    @property
    def version(self) -> int: ...

    async def known(self) -> tuple[str, int]:
        """The namespace's id, and the version of which nothing is missing here, when what was begun is over."""

    async def take(self, change: CatalogChange) -> None:
        """Returns when it is in effect here, and durable where it is kept; is carried through once begun."""


@final
class ControlLink:
    def __init__(
        self,
        path: Path,
        key: bytes,
        role: Role,
        index: int,
        catalog: CatalogCopy,
        heartbeat_timeout_s: float,
    ) -> None:
        self._path = path
        self._key = key
        self._party = Party(role.value, {"index": index, "pid": os.getpid()})
        self._catalog = catalog
        self._heartbeat_s = min(LONGEST_HEARTBEAT_S, heartbeat_timeout_s / HEARTBEATS_PER_TIMEOUT)
        self.handlers = Handlers(
            calls={"catalog": self._take_change, "told": self._take_told}, notices={"stop": self._asked_to_stop}
        )
        """Those who know more than this class add what they answer."""
        self.on_told: Callable[[str, object], Awaitable[None]] = _hear_nothing
        self.on_serving: Callable[[], Awaitable[None]] = _do_nothing
        self.on_cut_off: Callable[[], None] = _nothing
        self.status: Callable[[], Mapping[object, object]] = _no_status
        self.stop_asked = asyncio.Event()
        self._peer: Peer | None = None
        self._taking = asyncio.Lock()
        self._told_numbers: dict[str, int] = {}
        self._has_caught_up = False
        self._to_take: deque[CatalogChange] = deque()
        self._to_hear: deque[object] = deque()
        self._lost = asyncio.Event()
        self._may_be_met = False
        """From the moment when it begins to open its doors."""
        self._is_ending = False
        self.is_serving = False

    async def run(self) -> None:
        """Connected, or on the way there, until it is cancelled."""
        retry_s = RETRY_S
        while True:
            try:
                await self._connect()
            except BusError as error:
                log.debug("no control connection: %s", error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
                continue
            retry_s = RETRY_S
            beating = asyncio.ensure_future(self._beat())
            try:
                await self._join()
                await self._lost.wait()
            except BusError as error:
                log.warning("could not join: %s", error)
            finally:
                beating.cancel()
                await self._leave()

    async def call(self, name: str, value: object = None, timeout_s: float = CALL_TIMEOUT_S) -> object:
        """Asks the supervisor. Raises what it raised; FragmentUnavailable while it is not there."""
        if self._peer is None:
            raise FragmentUnavailable("The process that holds the catalog is out of reach. Try again.")
        return await self._peer.call(name, value, timeout_s)

    def push(self, name: str, value: object) -> None:
        if self._peer is not None:
            self._peer.push(name, value)

    def stop_serving(self) -> None:
        """This process ends in order: that its connection ends, too, is no surprise."""
        self._is_ending = True
        self._may_be_met = self.is_serving = False
        self.on_cut_off = _nothing

    def tell_status(self) -> None:
        """Something has changed that others should know before the next heartbeat."""
        self.push("heartbeat", self.status())

    async def take_snapshot(self) -> None:
        """For a copy that wants a whole catalog. One that is older than what was told meanwhile is of no use."""
        peer = self._peer
        if peer is None:
            raise FragmentUnavailable("The process that holds the catalog is out of reach. Try again.")
        changes = await self._fetch(peer, await peer.call(SNAPSHOT, None, CALL_TIMEOUT_S))
        async with self._taking:
            for change in changes:
                if change.version >= self._catalog.version:
                    await self._catalog.take(change)

    # Connecting.

    async def _connect(self) -> None:
        peer = await connect_peer(self._path, self._key, self._party, self.handlers)
        self._lost.clear()
        self._has_caught_up = False
        self._to_take.clear()
        self._to_hear.clear()
        self._peer = peer
        peer.on_lost = self._peer_lost
        if not peer.is_open:
            self._lost.set()

    def _peer_lost(self, peer: Peer) -> None:
        if peer is self._peer:
            self._stop_serving()
            self._lost.set()

    def _stop_serving(self) -> None:
        """At once, in the same turn of the loop: nothing that comes behind it is answered any more."""
        if self._may_be_met:
            log.warning("the control connection is gone: nobody is served until it is back")
            self._may_be_met = self.is_serving = False
            self.on_cut_off()

    async def _join(self) -> None:
        peer = self._peer
        assert peer is not None
        async with self._taking:
            namespace_id, version = await self._catalog.known()
            known = {"namespace_id": namespace_id, "version": version}
            answer = fields_of(await peer.call("join", known, JOIN_TIMEOUT_S))
            self._to_take.extendleft(reversed(await self._fetch(peer, answer.get("missed"))))
            self._told_numbers.clear()
            self._to_hear.extendleft(reversed(_list(answer.get("told"))))
            await self._catch_up()
        if self._is_ending:
            return
        self._may_be_met = True
        await self.on_serving()
        if self._may_be_met and peer.is_open:
            self.is_serving = True
            peer.push("serving", self.status())

    async def _fetch(self, peer: Peer, number: object) -> list[CatalogChange]:
        """What was handed out under this number, each part in a turn of its own."""
        parts = ChangeParts()
        changes: list[CatalogChange] = []
        while (part := await peer.call(PART, number, CALL_TIMEOUT_S)) is not None:
            change = parts.add(part)
            if change is not None:
                changes.append(change)
        return changes

    async def _catch_up(self) -> None:
        """What it missed, then what it was told since it asked."""
        while self._to_take or self._to_hear:
            if self._to_take:
                await self._take(self._to_take.popleft())
            else:
                await self._hear(self._to_hear.popleft())
        self._has_caught_up = True

    async def _leave(self) -> None:
        peer, self._peer = self._peer, None
        self._stop_serving()
        if peer is not None:
            await peer.close()

    async def _beat(self) -> None:
        while True:
            self.tell_status()
            await asyncio.sleep(self._heartbeat_s)

    # Being told.

    async def _take_change(self, _peer: Peer, value: object) -> object:
        """Confirmed at once by who is still joining: it serves nobody before it has taken this, too."""
        change = change_from_wire(value)
        if not self._has_caught_up:
            self._to_take.append(change)
            return None
        async with self._taking:
            await self._take(change)
        return None

    async def _take(self, change: CatalogChange) -> None:
        if change.is_whole or change.version > self._catalog.version:
            await self._catalog.take(change)

    async def _take_told(self, _peer: Peer, value: object) -> object:
        if not self._has_caught_up:
            self._to_hear.append(value)
            return None
        async with self._taking:
            await self._hear(value)
        return None

    async def _hear(self, told: object) -> None:
        number, name, value = _list(told)
        if not isinstance(number, int) or not isinstance(name, str):
            raise MalformedData("something told without a number or a name")
        if number > self._told_numbers.get(name, 0):
            await self.on_told(name, value)
            self._told_numbers[name] = number

    def _asked_to_stop(self, _peer: Peer, _value: object) -> None:
        self.stop_asked.set()


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise MalformedData("no list where one must be")
    return value


async def _hear_nothing(_name: str, _value: object) -> None:
    return


async def _do_nothing() -> None:
    return


def _nothing() -> None:
    return


def _no_status() -> Mapping[object, object]:
    return {}
