"""One at a time, over all processes: whoever reads a description to write it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Handlers, Peer, PeerListener, connect_peer
from tandembus.node.describing import BEGIN, END, DescribingDesk, RemoteDescribing
from tests.covers import covers

KEY = bytes(range(32))


class Stage:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = asyncio.Lock()
        self.desk = DescribingDesk(self.lock)
        handlers = Handlers({BEGIN: self.desk.begin, END: self.desk.end})
        self.listener = PeerListener(KEY, Party("supervisor"), handlers, lambda _: {}, self._joined)

    def _joined(self, peer: Peer) -> None:
        peer.on_lost = self.desk.end_of

    async def front_end(self) -> tuple[Peer, RemoteDescribing]:
        peer = await connect_peer(self.path, KEY, Party("front-end"))
        return peer, RemoteDescribing(peer.call)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path / "s")
    await stage.listener.start(stage.path)
    yield stage
    await stage.listener.stop()


@covers("P18")
async def test_two_front_ends_take_turns_with_each_other_and_with_the_first_process(stage: Stage) -> None:
    inside = 0
    most = 0

    async def describe(describing: RemoteDescribing | asyncio.Lock) -> None:
        nonlocal inside, most
        for _ in range(10):
            async with describing:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    _, one = await stage.front_end()
    _, other = await stage.front_end()
    await asyncio.gather(describe(one), describe(other), describe(one), describe(stage.lock))
    assert most == 1
    assert not stage.lock.locked()


@covers("P18")
async def test_a_front_end_that_dies_during_its_turn_holds_nobody_up(stage: Stage) -> None:
    peer, one = await stage.front_end()
    await one.__aenter__()
    assert stage.lock.locked()
    await peer.close()
    _, other = await stage.front_end()
    await asyncio.wait_for(other.__aenter__(), 10)
    assert stage.lock.locked()


async def test_a_front_end_that_dies_while_it_waits_gets_no_turn(stage: Stage) -> None:
    peer, one = await stage.front_end()
    async with stage.lock:
        waiting = asyncio.ensure_future(one.__aenter__())
        await asyncio.sleep(0.05)
        await peer.close()
        await asyncio.gather(waiting, return_exceptions=True)
    _, other = await stage.front_end()
    await asyncio.wait_for(other.__aenter__(), 10)
    await other.__aexit__(None, None, None)
    assert not stage.lock.locked()
