"""The supervisor's end of the control connections: who is there, what all of them must know, and who has confirmed it.

A process joins with what it has of the catalog, is told what it has missed, and follows from then on. Whatever is told
to all (`tell`: keys, faults) is confirmed by each; one that does not confirm in time is cut off, and serves nobody
until it has joined again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, final

from tandembus.errors import BusError, FragmentUnavailable, MalformedData, OperationTimeout, Unauthorized
from tandembus.interconnect.handshake import Agreement, Party
from tandembus.interconnect.peer import Handlers, Peer, PeerListener
from tandembus.namespace.catalog_change import CatalogChange
from tandembus.namespace.store_port import CatalogFollower
from tandembus.node.catalog_wire import PART, change_to_wire, fields_of, parts_to_wire
from tandembus.node.supervisor import ProcessId, Role, Supervisor

log = logging.getLogger("tandembus.node")

SUPERVISOR: Final = "supervisor"
MAX_HANDED_OUT: Final = 2
"""What one process may be fetching at the same time: what it joins with, and a snapshot."""
CONFIRM_S: Final = 2.0
"""Who has not confirmed after this does not count among those who serve."""

Follow = Callable[[CatalogFollower, str, int], Awaitable[list[CatalogChange]]]
"""Lets a follower, who has this version of the catalog with this id, follow from now on; returns what it missed."""


@final
class ControlledProcess:
    """One life of one connection of a process; a follower of the catalog once it has joined."""

    def __init__(self, process_id: ProcessId, pid: int, peer: Peer) -> None:
        self.id = process_id
        self.pid = pid
        self.peer = peer
        self.has_joined = False
        self.is_following = False
        self.is_serving = False
        self.status: Mapping[str, object] = {}
        """What it last said of itself."""
        self._handed_out: dict[int, Iterator[object]] = {}
        self._hand_out_count = 0

    def hand_out(self, changes: Iterable[CatalogChange]) -> int:
        """The number under which the process fetches them, part by part."""
        self._hand_out_count += 1
        self._handed_out[self._hand_out_count] = iter(parts_to_wire(changes))
        if len(self._handed_out) > MAX_HANDED_OUT:
            del self._handed_out[min(self._handed_out)]
        return self._hand_out_count

    def next_part(self, number: object) -> object:
        """None after the last."""
        parts = self._handed_out.get(number) if isinstance(number, int) else None
        if parts is None:
            raise MalformedData("a part of what was not handed out")
        part = next(parts, None)
        if part is None:
            self._handed_out = {key: kept for key, kept in self._handed_out.items() if key != number}
        return part

    @property
    def name(self) -> str:
        return str(self.id)

    async def take(self, change: CatalogChange) -> None:
        await self.peer.call("catalog", change_to_wire(change), CONFIRM_S)

    def cut_off(self, reason: BusError) -> None:
        if self.peer.is_open:
            log.warning("%s is cut off until it has caught up: %s", self.id, reason)
            self.is_serving = False
            self.peer.connection.end(reason)


@final
class ControlServer:
    def __init__(self, key: bytes, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.handlers = Handlers(
            calls={"join": self._join, PART: self._tell_part},
            notices={"heartbeat": self._heartbeat, "serving": self._serving},
        )
        """Those who know more than this class add what they answer."""
        party = Party(SUPERVISOR, {"pid": os.getpid()})
        self._listener = PeerListener(key, party, self.handlers, self._admit, self._connected)
        self.follow: Follow = _nothing_to_follow
        self.unfollow: Callable[[CatalogFollower], None] = _nothing
        self._processes: dict[Peer, ControlledProcess] = {}
        self._told: dict[str, tuple[int, object]] = {}
        self._tell_count = 0
        self.on_serving: Callable[[ControlledProcess], None] = _nothing
        self.on_left: Callable[[ControlledProcess], None] = _nothing

    async def start(self, path: Path) -> None:
        await self._listener.start(path)

    async def stop(self) -> None:
        await self._listener.stop()

    # Who is there.

    def find(self, process_id: ProcessId) -> ControlledProcess | None:
        """The process, if it is connected."""
        for process in self._processes.values():
            if process.id == process_id:
                return process
        return None

    def processes(self, role: Role | None = None) -> list[ControlledProcess]:
        return [one for one in self._processes.values() if role is None or one.id.role is role]

    def of(self, peer: Peer) -> ControlledProcess:
        process = self._processes.get(peer)
        if process is None:
            raise FragmentUnavailable("This connection is over.")
        return process

    def _admit(self, agreement: Agreement) -> Mapping[str, object]:
        process_id, pid = _who(agreement)
        if not self._supervisor.is_current(process_id, pid):
            raise Unauthorized(f"{process_id} (process {pid}) is not one of this supervisor's.")
        return {}

    def _connected(self, peer: Peer) -> None:
        process_id, pid = _who(peer.agreement)
        earlier = self.find(process_id)
        if earlier is not None:
            earlier.peer.connection.end(FragmentUnavailable("It has connected again."))
        self._processes[peer] = ControlledProcess(process_id, pid, peer)
        peer.on_lost = self._lost
        self._supervisor.heard(process_id, pid)

    def _lost(self, peer: Peer) -> None:
        process = self._processes.pop(peer, None)
        if process is not None:
            self._stop_following(process)
            self._supervisor.resyncs(process.id, process.pid)
            self.on_left(process)

    def _stop_following(self, process: ControlledProcess) -> None:
        if process.is_following:
            process.is_following = False
            self.unfollow(process)

    # What they say.

    async def _join(self, peer: Peer, value: object) -> object:
        """What it does not know yet. It must have taken all of it before it serves."""
        process = self.of(peer)
        fields = fields_of(value)
        namespace_id, version = fields.get("namespace_id"), fields.get("version")
        if not isinstance(namespace_id, str) or not isinstance(version, int):
            raise MalformedData("who joins must say what it has of the catalog")
        process.has_joined = True
        missed = await self.follow(process, namespace_id, version)
        process.is_following = True
        if not peer.is_open:
            self._stop_following(process)
        return {
            "missed": process.hand_out(missed),
            "told": [[number, name, told] for name, (number, told) in self._told.items()],
        }

    async def _tell_part(self, peer: Peer, value: object) -> object:
        return self.of(peer).next_part(value)

    def _heartbeat(self, peer: Peer, value: object) -> None:
        process = self._processes.get(peer)
        if process is not None:
            process.status = fields_of(value)
            self._supervisor.heard(process.id, process.pid)

    def _serving(self, peer: Peer, value: object) -> None:
        process = self._processes.get(peer)
        if process is not None:
            process.status = fields_of(value)
            process.is_serving = True
            self._supervisor.became_ready(process.id, process.pid)
            self.on_serving(process)

    # What they are told.

    async def tell(self, name: str, value: object) -> None:
        """Returns when everybody who serves honours it."""
        self._tell_count += 1
        told = (self._tell_count, value)
        self._told[name] = told
        joined = [process for process in self._processes.values() if process.has_joined]
        await asyncio.gather(*[self._tell_one(process, [told[0], name, value]) for process in joined])

    async def _tell_one(self, process: ControlledProcess, told: list[object]) -> None:
        try:
            await process.peer.call("told", told, CONFIRM_S)
        except OperationTimeout as error:
            process.cut_off(error)
        except BusError as error:
            log.warning("%s cannot be told: %s", process.id, error)
            process.cut_off(error)

    async def ask_to_stop(self, processes: Iterable[ProcessId]) -> None:
        """They finish what they have begun, and end; how long that takes is watched elsewhere."""
        for one in processes:
            process = self.find(one)
            if process is not None:
                process.peer.push("stop")


def _who(agreement: Agreement) -> tuple[ProcessId, int]:
    index, pid = agreement.facts.get("index"), agreement.facts.get("pid")
    try:
        role = Role(agreement.role)
    except ValueError:
        raise Unauthorized("Somebody with a role that nobody has here.") from None
    if not isinstance(index, int) or not isinstance(pid, int):
        raise Unauthorized("Somebody who does not say who it is.")
    return ProcessId(role, index), pid


async def _nothing_to_follow(_follower: CatalogFollower, _namespace_id: str, _version: int) -> list[CatalogChange]:
    return []


def _nothing(_: object) -> None:
    return
