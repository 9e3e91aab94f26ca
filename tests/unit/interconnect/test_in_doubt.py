"""Broken lines and killed brokers: what is in doubt is learnt, and nothing is carried out twice."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE, RELEASE
from tandembus.broker.transactions import TransactionSettlement
from tandembus.clock import SystemClock
from tandembus.errors import (
    BusError,
    FragmentUnavailable,
    MessageLockLost,
    OperationTimeout,
    OutcomeUnknown,
    StoreUnavailable,
)
from tandembus.interconnect.frames import OPERATIONS, frame
from tandembus.interconnect.peer import connect_peer
from tandembus.message import Message
from tandembus.store.memory import Fault, MemoryDisk
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, body_of, message, small
from tests.unit.interconnect.two_ends import (
    INSTALL_KEY,
    KEY,
    BrokerEnd,
    Cutter,
    FrontEnd,
    Receiver,
    TwoEnds,
    discharge,
    in_the_turn,
    send,
    settle,
    stage,
    until,
)

PLENTY = 1 << 30


async def send_all(front_end: FrontEnd, bodies: list[str]) -> None:
    """As a round robin does: whatever was not taken is sent again. Anything else is a failure."""
    traffic = front_end.traffic()
    waiting: dict[str, Answer] = {body: stage(traffic, message(body)) for body in bodies}
    while waiting:
        for body, answer in list(waiting.items()):
            error = await answer.wait()
            if error is None:
                del waiting[body]
                continue
            assert isinstance(error, FragmentUnavailable), f"{body} failed: {error!r}"
            assert await front_end.channel.until_up(10.0)
            waiting[body] = stage(traffic, message(body))


class Line:
    """A broker that lives on, a front end, and a line between them that is cut once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = MemoryDisk()
        self.broker = self.new_broker()
        self.cutter = Cutter(folder / "line", folder / "broker")
        self.count = 0
        self.rehearsed: list[str] = []

    def new_broker(self) -> BrokerEnd:
        settings = {KEY: small(window_messages=1000, block_size=1024, max_locks=50_000)}
        return BrokerEnd(self.folder / "broker", self.disk, SystemClock(), settings)

    async def __aenter__(self) -> Line:
        await self.broker.start()
        await self.cutter.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cutter.stop()
        await self.broker.stop()

    async def points(self, is_forward: bool, count: int) -> list[int]:
        """Where to cut: so many places, evenly spread over what goes through when nothing is cut."""
        before = list(self.cutter.passed)
        self.rehearsed = await self.send_over_a_cut(PLENTY, is_forward)
        side = 0 if is_forward else 1
        total = self.cutter.passed[side] - before[side]
        return [1, 4, 9, *(10 + number * (total - 20) // count for number in range(count))]

    async def send_over_a_cut(self, after: int, is_forward: bool, when_cut: str = "") -> list[str]:
        self.cutter.cut_after(after, is_forward)
        cuts = self.cutter.cut_count
        front_end = FrontEnd(self.cutter.path, SystemClock())
        front_end.channel.start()
        self.count += 1
        bodies = [f"{self.count}.{number}" for number in range(25)]
        restarting = asyncio.ensure_future(self._restart_after(cuts)) if when_cut == "restart" else None
        assert await front_end.channel.until_up(10.0)
        for start in range(0, 25, 5):
            await send_all(front_end, bodies[start : start + 5])
        await front_end.stop()
        self.cutter.cut_after(PLENTY, True)
        if restarting is not None:
            restarting.cancel()
            await asyncio.gather(restarting, return_exceptions=True)
        return bodies

    async def _restart_after(self, cuts: int) -> None:
        await until(lambda: self.cutter.cut_count > cuts, 60.0)
        await self.broker.crash()
        self.broker = await self.new_broker().start()


@covers("P13", "P15")
@pytest.mark.parametrize("is_forward", [True, False])
async def test_a_line_cut_after_any_byte_loses_and_doubles_nothing(run_folder: Path, is_forward: bool) -> None:
    async with Line(run_folder) as line:
        points = await line.points(is_forward, 50)
        expected = line.rehearsed
        for after in points:
            expected += await line.send_over_a_cut(after, is_forward)
        assert sorted(line.broker.bodies()) == sorted(expected)
        assert line.cutter.cut_count >= 47


@covers("P13", "P15")
@pytest.mark.parametrize("is_forward", [True, False])
async def test_a_broker_killed_after_any_byte_loses_and_doubles_nothing(run_folder: Path, is_forward: bool) -> None:
    async with Line(run_folder) as line:
        points = await line.points(is_forward, 14)
        expected = line.rehearsed
        for after in points:
            expected += await line.send_over_a_cut(after, is_forward, "restart")
        assert sorted(line.broker.bodies()) == sorted(expected)
        assert line.cutter.cut_count >= 13


# A store that fails behind a line that holds.


@covers("P13", "P15")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_send_in_doubt_is_told_when_the_store_is_open_again(run_folder: Path, is_kept: bool) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST
        answers = [stage(ends.traffic, message("a")), stage(ends.traffic, message("b"))]
        errors = [await answer.wait() for answer in answers]
        assert [type(error) for error in errors] == [type(None) if is_kept else FragmentUnavailable] * 2
        await until(lambda: ends.traffic.failure() is None)
        await send(ends.traffic, "after")
        assert ends.broker.bodies() == ["before", *(["a", "b"] if is_kept else []), "after"]


@covers("P3", "P15")
async def test_while_its_store_is_away_a_fragment_takes_nothing_and_says_so(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        ends.broker.open_faults = [StoreUnavailable("not yet")] * 1_000_000
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_LOST
        answer = stage(ends.traffic, message("a"))
        await until(lambda: ends.traffic.failure() is not None)
        assert isinstance(await stage(ends.traffic, message("b")).wait(), FragmentUnavailable)
        await ends.pass_time(4.9)
        assert not answer.is_given
        await ends.pass_time(0.2)
        assert isinstance(answer.error, OutcomeUnknown)
        ends.broker.open_faults.clear()
        await until(lambda: ends.traffic.failure() is None)
        await send(ends.traffic, "c")


@covers("P15")
async def test_a_broker_that_stays_away_leaves_the_outcome_unknown_after_five_seconds(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answer = stage(ends.traffic, message("a"))
        await ends.disk.is_hanging.wait()
        await ends.broker.crash()
        await until(lambda: ends.traffic.failure() is not None)
        assert not answer.is_given
        await ends.pass_time(4.9)
        assert not answer.is_given
        await ends.pass_time(0.2)
        assert isinstance(answer.error, OutcomeUnknown)


@covers("P14", "P15")
async def test_a_silent_fragment_is_given_fifteen_seconds_and_then_no_new_send(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answer = stage(ends.traffic, message("a"))
        await ends.disk.is_hanging.wait()
        await ends.pass_time(14.9)
        assert not answer.is_given
        await ends.pass_time(0.2)
        assert isinstance(answer.error, OutcomeUnknown)
        await _refuses_sends_at_once(ends)
        ends.disk.go_on.set()
        await until(lambda: ends.traffic.failure() is None)
        await send(ends.traffic, "b")
        assert ends.broker.bodies() == ["before", "a", "b"]


async def _refuses_sends_at_once(ends: TwoEnds) -> None:
    """With an error that may be retried, names the fragment, and says that nothing was stored."""
    assert isinstance(ends.traffic.failure(), OperationTimeout)
    refused = stage(ends.traffic, message("refused"))
    assert isinstance(refused.error, FragmentUnavailable)
    assert "Fragment 0 is unavailable, and nothing was changed. Try again in a few seconds." in str(refused.error)
    with pytest.raises(FragmentUnavailable):
        await asyncio.wait_for(ends.front_end.requests().schedule([message("refused")], 100), 5.0)


@covers("P14", "P15")
async def test_a_hanging_store_is_told_before_anything_times_out(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answer = stage(ends.traffic, message("a"))
        await ends.disk.is_hanging.wait()
        ends.clock.advance(6.0)
        ends.broker.served.tick()
        await until(lambda: isinstance(ends.traffic.failure(), OperationTimeout))
        await _refuses_sends_at_once(ends)
        ends.disk.go_on.set()
        assert await answer.wait() is None
        ends.broker.served.tick()
        await until(lambda: ends.traffic.failure() is None)
        assert ends.broker.bodies() == ["before", "a"]


def _is_told_that_it_hangs(front_end: FrontEnd) -> bool:
    return front_end.channel.is_up and isinstance(front_end.traffic().failure(), OperationTimeout)


@covers("P19")
async def test_whoever_connects_while_the_store_hangs_is_told_too(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answer = stage(ends.traffic, message("a"))
        await ends.disk.is_hanging.wait()
        ends.clock.advance(6.0)
        ends.broker.served.tick()
        newcomer = await FrontEnd(ends.path, ends.clock).start()
        await _cut(ends)
        for one in (newcomer, ends.front_end):
            await until(partial(_is_told_that_it_hangs, one))
        ends.disk.go_on.set()
        assert await answer.wait() is None
        ends.broker.served.tick()
        await until(lambda: newcomer.traffic().failure() is None and ends.traffic.failure() is None)
        await newcomer.stop()


async def test_what_never_left_the_front_end_can_go_elsewhere_at_once(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answers = [stage(ends.traffic, message(f"m{number}")) for number in range(5000)]
        await until(lambda: ends.front_end.channel.core.open_counts()[0] == 4096)
        await ends.broker.crash()
        await until(lambda: ends.traffic.failure() is not None)
        assert [answer.is_given for answer in answers] == [False] * 4096 + [True] * 904
        assert all(isinstance(answer.error, FragmentUnavailable) for answer in answers[4096:])
        await ends.pass_time(5.1)
        assert all(isinstance(answer.error, OutcomeUnknown) for answer in answers[:4096])


@covers("P13")
async def test_thousands_in_doubt_over_a_restart_are_each_told_right(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        told: list[tuple[str, bool]] = []
        for turns in range(2, 11):
            bodies = [f"{turns}.{number}" for number in range(500)]
            answers = [stage(ends.traffic, message(body)) for body in bodies]
            for _ in range(turns):
                await asyncio.sleep(0)
            await ends.restart_broker()
            errors = [await answer.wait() for answer in answers]
            assert all(error is None or isinstance(error, FragmentUnavailable) for error in errors)
            told += [(body, error is None) for body, error in zip(bodies, errors, strict=True)]
            assert await ends.front_end.channel.until_up(10.0)
        stored = set(ends.broker.bodies())
        assert [body in stored for body, _ in told] == [is_stored for _, is_stored in told]
        assert 0 < len(stored) < len(told), "some kills came before the commit and some after it"


# Settlements.


async def _cut(ends: TwoEnds) -> None:
    """The connection breaks; both live on. Looked at in every turn: it is back before a timer would see it down."""
    for peer in ends.broker.server._listener.peers:
        peer.connection.end(FragmentUnavailable("cut"))
    await in_the_turn(lambda: not ends.front_end.channel.is_up)


async def test_a_settlement_in_doubt_is_carried_out_once(run_folder: Path) -> None:
    """The line is cut while its commit hangs: it is answered on the next connection."""
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        receiver = ends.receiver()
        await receiver.take(2)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answer = settle(ends.traffic, receiver.locks[0], COMPLETE)
        await ends.disk.is_hanging.wait()
        await _cut(ends)
        assert await ends.front_end.channel.until_up(10.0)
        assert not answer.is_given
        ends.disk.go_on.set()
        assert await answer.wait() is None
        assert await settle(ends.traffic, receiver.locks[1], COMPLETE).wait() is None, "the other lock outlived the cut"


async def test_a_settlement_that_never_arrived_is_asked_for_again(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        (served,) = ends.broker.served._channels.values()
        await until(lambda: served.receivers.unreported_count() == 0)
        answer = settle(ends.traffic, receiver.locks[0], COMPLETE)
        ends.front_end.channel.core.collect()  # given to a socket that goes nowhere
        await _cut(ends)
        assert await answer.wait() is None
        assert ends.broker.broker.by_key[KEY].main.live_count == 0


async def test_locks_of_an_earlier_life_are_lost(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        receiver = ends.receiver()
        await receiver.take(2)
        core = ends.front_end.channel.core
        answer = settle(ends.traffic, receiver.locks[0], COMPLETE)
        core.collect()
        await ends.restart_broker()
        assert isinstance(await answer.wait(), MessageLockLost)
        assert await ends.front_end.channel.until_up(10.0)
        with pytest.raises(MessageLockLost):
            ends.traffic.settle(receiver.locks[1], COMPLETE, None)
        assert await receiver.take(2) == ["a", "b"], "what was locked comes again"
        assert [int(lock.delivery_count) for lock in receiver.locks[2:]] == [0, 0]


# Schedules.


def _later(ends: TwoEnds, *bodies: str) -> list[Message]:
    at_ms = ends.clock.now_ms() + 3_600_000
    return [message(body, scheduled_at_ms=at_ms) for body in bodies]


@covers("P13", "P15", "P24")
@pytest.mark.parametrize("is_killed", [False, True])
async def test_the_numbers_of_what_was_scheduled_are_found_when_the_answer_is_lost(
    run_folder: Path, is_killed: bool
) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "before")
        requests = ends.front_end.requests(KEY + 1)
        assert list(await requests.schedule(_later(ends, "a", "b"), 100)) == [(1 << 48) + 1, (1 << 48) + 2]
        commits = ends.disk.commit_count
        if is_killed:
            ends.disk.faults[commits + 1] = Fault.UNKNOWN_KEPT
            ends.broker.open_faults = [StoreUnavailable("not yet")] * 1_000_000
        scheduling = asyncio.ensure_future(requests.schedule(_later(ends, "b", "c", "b"), 100))
        await in_the_turn(lambda: ends.disk.commit_count > commits)
        await (ends.restart_broker() if is_killed else _cut(ends))
        numbers = await asyncio.wait_for(scheduling, 10.0)
        assert [number & 0xFFFF for number in numbers] == [3, 4, 5], "not that of the other message with the same body"
        assert ends.broker.bodies(KEY + 1) == ["a", "b", "b", "c", "b"]
        assert await ends.front_end.channel.until_up(10.0)
        await requests.cancel_scheduled(numbers)
        assert (await requests.counts()).scheduled == 2


@covers("P13", "P15")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_schedule_in_doubt_is_told_when_the_store_is_open_again(run_folder: Path, is_kept: bool) -> None:
    async with TwoEnds(run_folder) as ends:
        requests = ends.front_end.requests()
        await requests.counts()
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST
        if is_kept:
            assert list(await requests.schedule(_later(ends, "a"), 100)) == [1]
        else:
            with pytest.raises(FragmentUnavailable):
                await requests.schedule(_later(ends, "a"), 100)
        assert ends.broker.bodies() == (["a"] if is_kept else [])


# Transactions.


@covers("P16")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_transaction_in_doubt_is_resolved_by_the_mark(run_folder: Path, is_kept: bool) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST
        part = TransactionSettlement(receiver.locks[0], COMPLETE)
        error = await discharge(ends.traffic, [message("b")], part).wait()
        assert (error is None) == is_kept
        assert is_kept or isinstance(error, FragmentUnavailable)
        await until(lambda: ends.traffic.failure() is None)
        assert await receiver.take(1) == (["b"] if is_kept else ["a"])


async def test_a_transaction_whose_broker_is_killed_is_whole_or_not_at_all(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        for number in range(10):
            receiver = ends.receiver()
            await receiver.take(1)
            answer = discharge(
                ends.traffic, [message(f"t{number}")], TransactionSettlement(receiver.locks[0], COMPLETE)
            )
            for _ in range(number * 3):
                await asyncio.sleep(0)
            await ends.restart_broker()
            error = await answer.wait()
            assert error is None or isinstance(error, FragmentUnavailable)
            receiver.leave()
            assert await ends.front_end.channel.until_up(10.0)
            after = ends.receiver()
            expected = f"t{number}" if error is None else receiver.bodies[0]
            assert await after.take(1) == [expected]
            assert await settle(ends.traffic, after.locks[0], RELEASE).wait() is None
            after.leave()


# The old connection.


@covers("P1")
async def test_nothing_of_an_old_connection_is_read_once_the_channel_has_a_new_one(run_folder: Path) -> None:
    """Bytes that still lie in the old socket would be carried out after the front end was told that they never will."""
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        channel = ends.front_end.channel
        (old,) = ends.broker.server._listener.peers
        again = await connect_peer(ends.path, INSTALL_KEY, channel._party)
        assert not old.is_open, "the newcomer has taken its place"
        old.connection.data_received(frame(OPERATIONS, int(channel.core.epoch), b"never read"))
        await again.close()
        assert await channel.until_up(10.0)
        await send(ends.traffic, "b")
        assert ends.broker.bodies() == ["a", "b"]


async def test_errors_of_calls_depend_on_whether_they_change_something(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ends.broker.before_open = lambda _key: opening
        requests = ends.front_end.requests(KEY + 1)
        reading = asyncio.ensure_future(requests.counts())
        changing = asyncio.ensure_future(requests.delete_batch(0, 10, 1 << 50))
        await until(lambda: ends.broker.opened.count(KEY + 1) == 2)
        await _cut(ends)
        errors: list[BusError | None] = []
        for asked in (reading, changing):
            with pytest.raises(BusError) as caught:
                await asked
            errors.append(caught.value)
        assert isinstance(errors[0], FragmentUnavailable)
        assert "Fragment 0 is unavailable, and nothing was changed. Try again in a few seconds." in str(errors[0])
        assert isinstance(errors[1], OutcomeUnknown)


async def test_a_receiver_gets_everything_over_many_cuts(run_folder: Path) -> None:
    async with TwoEnds(run_folder, max_delivery_count=1000) as ends:
        await send(ends.traffic, *[f"m{number}" for number in range(200)])
        receiver = Receiver(ends.traffic).attach()
        done: set[str] = set()
        seen = cuts = 0
        while len(done) < 200:
            receiver.want(20)
            await until(lambda: len(receiver.messages) > seen)  # noqa: B023
            answers: dict[str, Answer] = {}
            while seen < len(receiver.messages):
                body, lock = body_of(receiver.messages[seen]), receiver.locks[seen]
                seen += 1
                answers[body] = settle(ends.traffic, lock, COMPLETE)
            if cuts < 25:
                cuts += 1
                await _cut(ends)
                assert await ends.front_end.channel.until_up(10.0)
            for body, answer in answers.items():
                error = await answer.wait()
                assert error is None or isinstance(error, MessageLockLost)
                if error is None:
                    assert body not in done, "completed twice"
                    done.add(body)
        assert ends.broker.broker.by_key[KEY].main.live_count == 0
        assert cuts > 5
