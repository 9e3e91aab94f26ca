"""Frames that cannot be: whatever comes, a connection ends and nothing else does."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE
from tandembus.errors import BusError, MalformedData, NotSupported
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.frames import (
    ANSWERS,
    CONTROL,
    ERRORS,
    EVENTS,
    HANDED,
    MAX_FRAME_BYTES,
    OPERATIONS,
    PUSHES,
    RESUME,
    RESUMED,
    STORE,
    WINDOW,
    FrameReader,
    frame,
)
from tandembus.interconnect.handshake import Party
from tandembus.interconnect.peer import connect_peer
from tests.covers import covers
from tests.unit.broker.one_queue import message
from tests.unit.interconnect.two_ends import (
    INSTALL_KEY,
    KEY,
    BrokerEnd,
    FrontEnd,
    Receiver,
    TwoEnds,
    in_the_turn,
    send,
    settle,
    stage,
    turns,
    until,
)


def frames_in(data: bytes) -> list[bytes]:
    reader = FrameReader(MAX_FRAME_BYTES)
    reader.feed(data)
    found = []
    while reader.next():
        found.append(frame(reader.kind, reader.epoch, reader.body()))
    return found


async def record(ends: TwoEnds) -> tuple[list[bytes], list[bytes]]:
    """What the two say to each other while they send, receive, settle and hold sessions: frames of every kind."""
    said: list[bytes] = []
    heard: list[bytes] = []
    core = ends.front_end.channel.core
    peer = ends.front_end.channel._peer
    assert peer is not None
    collect, take = core.collect, core.take
    said.append(core.resume())

    def collecting() -> bytes:
        data = collect()
        said.extend(frames_in(data))
        return data

    def taking(reader: FrameReader) -> None:
        heard.append(frame(reader.kind, reader.epoch, reader.body()))
        take(reader)

    peer.connection.on_flush = collecting
    peer.on_other_frame = taking
    await send(ends.traffic, "a", "b", "c")
    receiver = Receiver(ends.traffic).attach()
    await receiver.take(2)
    receiver.locks[0].reason, receiver.locks[0].changes = "why", {"x": 1}
    assert await settle(ends.traffic, receiver.locks[0], COMPLETE).wait() is None
    receiver.want(3, True)
    await until(lambda: receiver.drain_count == 1)
    assert isinstance(await stage(ends.front_end.traffic(99), message("x")).wait(), BusError)
    receiver.leave()
    await ends.front_end.requests().counts()
    return said, heard


def mutated(chance: random.Random, good: bytes) -> bytes:
    bad = bytearray(good)
    for _ in range(chance.randint(1, 5)):
        bad[chance.randrange(4, len(bad))] = chance.randrange(256)
    body = bytes(bad[9:])
    if chance.random() < 0.3:
        body = body[: chance.randrange(len(body) + 1)]
    kind = bad[4] if chance.random() < 0.1 else good[4]
    epoch = int.from_bytes(good[5:9], "big")
    return frame(kind, epoch, body)


@covers("P1")
async def test_thousands_of_mutated_frames_do_a_broker_no_harm(run_folder: Path) -> None:
    chance = random.Random(3)
    async with TwoEnds(run_folder) as ends:
        said, _ = await record(ends)
        assert {one[4] for one in said} == {RESUME, OPERATIONS, CONTROL, HANDED}
        for _ in range(60):
            peer = await connect_peer(ends.path, INSTALL_KEY, _party(chance))
            peer.connection.send(said[0])
            for _ in range(25):
                peer.connection.send(mutated(chance, chance.choice(said)))
            await peer.close()
        await until(lambda: len(ends.broker.server._listener.peers) == 1)
        other = ends.front_end.traffic(KEY + 1, 1)
        await send(other, "still here")
        assert await Receiver(other).attach().take(1) == ["still here"]
        await until(lambda: len(ends.broker.served._channels) == 1)


def _party(chance: random.Random) -> Party:
    return Party("front end", {"store": 0, "channel": chance.randbytes(16)})


@covers("P1")
async def test_thousands_of_mutated_frames_do_a_front_end_no_harm(run_folder: Path) -> None:
    chance = random.Random(4)
    async with TwoEnds(run_folder) as ends:
        _, heard = await record(ends)
        assert {ANSWERS, ERRORS, PUSHES, EVENTS} <= {one[4] for one in heard}
        core = ends.front_end.channel.core
        heard += [frame(WINDOW, int(core.epoch), b"\0\0\1\0" + bytes(8) + b"\0\0\1\0" + bytes(8))]
        heard += [frame(STORE, int(core.epoch), b"\1\0\0\0\3off"), frame(RESUMED, int(core.epoch), b"\0")]
        refusals = 0
        for _ in range(3000):
            reader = FrameReader(MAX_FRAME_BYTES)
            reader.feed(mutated(chance, chance.choice(heard)))
            assert reader.next()
            try:
                core.take(reader)
            except BusError:
                refusals += 1
        assert refusals > 300
        peer = ends.front_end.channel._peer
        assert peer is not None
        peer.connection.end(MalformedData("enough"))
        await in_the_turn(lambda: not ends.front_end.channel.is_up)
        assert await ends.front_end.channel.until_up(10.0)
        await until(lambda: stage_is_taken(ends))
        await send(ends.traffic, "still here")


def stage_is_taken(ends: TwoEnds) -> bool:
    return ends.traffic.failure() is None


@pytest.mark.parametrize("kind", [0, 6, 31, 39, 71, 200, 255, PUSHES])
async def test_a_frame_that_nobody_knows_ends_the_connection(run_folder: Path, kind: int) -> None:
    async with TwoEnds(run_folder) as ends:
        peer = ends.front_end.channel._peer
        assert peer is not None
        peer.connection.send(frame(kind, int(ends.front_end.channel.core.epoch), b""))
        await peer.connection.until_ended()
        assert await ends.front_end.channel.until_up(10.0)
        await until(lambda: ends.front_end.channel.is_up)
        await send(ends.traffic, "a")


async def test_a_frame_that_is_too_long_ends_the_connection_before_it_has_come(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        peer = ends.front_end.channel._peer
        assert peer is not None
        peer.connection.send((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
        await peer.connection.until_ended()


async def test_a_number_that_comes_twice_ends_the_connection_and_is_carried_out_once(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        said, _ = await record(ends)
        first = next(one for one in said if one[4] == OPERATIONS)
        peer = ends.front_end.channel._peer
        assert peer is not None
        peer.connection.send(first)
        await peer.connection.until_ended()
        assert ends.broker.bodies() == ["a", "b", "c"]


@covers("P1")
async def test_operations_of_another_epoch_are_not_taken(run_folder: Path) -> None:
    """A front end that has not heard yet that the store was opened anew."""
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        core = ends.front_end.channel.core
        core.epoch -= 1
        answer = stage(ends.traffic, message("b"))
        receiver.locks[0].settlement = 0
        assert isinstance(await answer.wait(), BusError)
        assert ends.broker.bodies() == ["a"]
        core.epoch += 1
        await send(ends.traffic, "c")


async def test_pushes_of_another_epoch_are_dropped(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        receiver = ends.receiver()
        receiver.want(5)
        await send(ends.traffic, "a")
        await until(lambda: receiver.bodies == ["a"])
        (served,) = ends.broker.served._channels.values()
        served.epoch += 1
        other = await FrontEnd(ends.path, ends.clock, party=Party("front end", {"index": 1})).start()
        await send(other.traffic(), "b")
        await turns()
        assert receiver.bodies == ["a"]
        await other.stop()


# Versions.


@covers("P1")
@pytest.mark.parametrize(("ours", "theirs"), [((1, 2), (1, 1)), ((1, 1), (1, 3))])
async def test_neighbouring_versions_understand_each_other(
    run_folder: Path, ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    ends = TwoEnds(run_folder)
    ends.broker = BrokerEnd(
        ends.path, ends.disk, ends.clock, ends.fragments, party=Party("broker", {}, frozenset(), *theirs)
    )
    ends.front_end = FrontEnd(ends.path, ends.clock, party=Party("front end", {}, frozenset({"new"}), *ours))
    ends.traffic = ends.front_end.traffic()
    async with ends:
        await send(ends.traffic, "a")


@covers("P1")
async def test_versions_too_far_apart_never_come_up(run_folder: Path) -> None:
    ends = TwoEnds(run_folder)
    await ends.broker.start()
    newer = Party("front end", {"store": 0, "channel": b"c" * 16}, frozenset(), 2, 3)
    with pytest.raises(NotSupported):
        await connect_peer(ends.path, INSTALL_KEY, newer)
    await ends.broker.stop()


@pytest.mark.parametrize("facts", [{}, {"store": 0}, {"store": 7, "channel": b"c" * 16}, {"store": 0, "channel": b"c"}])
async def test_a_channel_names_a_store_and_itself(run_folder: Path, facts: dict[str, object]) -> None:
    ends = TwoEnds(run_folder)
    await ends.broker.start()
    with pytest.raises(BusError):
        await connect_peer(ends.path, INSTALL_KEY, Party("front end", facts))
    await ends.broker.stop()


# Back-pressure.


@covers("P1")
async def test_a_broker_that_does_not_read_bounds_the_memory_of_the_front_end(run_folder: Path) -> None:
    settings = ChannelSettings(window_bytes=300_000, waiting_bytes=200_000)
    async with TwoEnds(run_folder, settings=settings) as ends:
        await send(ends.traffic, "a")
        (peer,) = ends.broker.server._listener.peers
        transport = peer.connection._transport
        assert transport is not None
        transport.pause_reading()
        answers = [stage(ends.traffic, message("m", padding=10_000)) for _ in range(200)]
        for _ in range(20):
            await asyncio.sleep(0)
        core = ends.front_end.channel.core
        assert core._sends.open_bytes <= 300_000
        assert core._sends.waiting_bytes <= 200_000
        refused = [answer for answer in answers if answer.is_given]
        assert len(refused) > 100
        assert {type(answer.error).__name__ for answer in refused} == {"ServerBusy"}, "so far it has kept up"
        ends.clock.advance(6.0)
        late = [stage(ends.traffic, message("m", padding=10_000)) for _ in range(50)]
        assert type(late[-1].error).__name__ == "FragmentUnavailable", "an outage is never answered with ServerBusy"
        transport.resume_reading()
        for answer in answers:
            if answer not in refused:
                assert await answer.wait() is None


async def test_a_message_larger_than_the_window_goes_alone(run_folder: Path) -> None:
    settings = ChannelSettings(window_bytes=10_000)
    async with TwoEnds(run_folder, settings=settings) as ends:
        answers = [stage(ends.traffic, message(f"m{number}", padding=50_000)) for number in range(5)]
        assert [await answer.wait() for answer in answers] == [None] * 5
        assert ends.broker.bodies() == [f"m{number}" for number in range(5)]
        assert KEY in ends.broker.opened
