"""One at a time, over all processes: whoever reads a description to write it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.errors import OutcomeUnknown
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import Handlers, Peer, PeerListener, connect_peer
from tandembus.node import describing
from tandembus.node.describing import BEGIN, END, DescribingDesk, RemoteDescribing
from tandembus.node.waiting import comes_true
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
        assert await comes_true(lambda: bool(stage.desk._waiting), 10)
        await peer.close()
        await asyncio.gather(waiting, return_exceptions=True)
    _, other = await stage.front_end()
    await asyncio.wait_for(other.__aenter__(), 10)
    await other.__aexit__(None, None, None)
    assert not stage.lock.locked()


@covers("P18")
async def test_a_turn_that_was_given_up_is_nobodys(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing, "BEGIN_TIMEOUT_S", 0.05)
    _, one = await stage.front_end()
    async with stage.lock:
        with pytest.raises(OutcomeUnknown):
            await one.__aenter__()
        waiting = asyncio.ensure_future(one.__aenter__())
        assert await comes_true(lambda: waiting.done() or any(number == 2 for _, number in stage.desk._waiting), 10)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await comes_true(lambda: not stage.desk._waiting, 10)
    monkeypatch.undo()
    for _ in range(3):
        await asyncio.wait_for(one.__aenter__(), 10)
        await one.__aexit__(None, None, None)
    assert not stage.lock.locked()


async def test_a_turn_that_was_given_up_when_it_had_come_is_over_too(stage: Stage) -> None:
    peer, _ = await stage.front_end()
    await peer.call(BEGIN, 1)
    await peer.call(END, 2)
    assert stage.lock.locked(), "the end of another turn is not the end of this one"
    await peer.call(END, 1)
    assert not stage.lock.locked()


def test_who_waits_behind_the_longest_turn_does_not_give_up_before_its_end() -> None:
    assert describing.BEGIN_TIMEOUT_S > describing.LONGEST_S
