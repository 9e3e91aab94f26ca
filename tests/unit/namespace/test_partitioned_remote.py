"""A partitioned queue whose fragments are behind sockets, on two brokers, seen by two front ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE
from tandembus.broker.operations import CallbackConsumer
from tandembus.clock import ManualClock
from tandembus.errors import FragmentUnavailable, MessageLockLost, OutcomeUnknown
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import SessionHold, SessionWish, Traffic
from tandembus.message import Message
from tandembus.namespace.partitioned_requests import PartitionedRequests
from tandembus.namespace.partitioned_traffic import PartitionedTraffic
from tandembus.namespace.partitioning import PartitionSettings, fragment_of_key
from tandembus.store.memory import Fault, MemoryDisk
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, message, small
from tests.unit.interconnect.two_ends import BrokerEnd, FrontEnd, Receiver, in_the_turn, settle, stage, until
from tests.unit.namespace.partitioned_queue import Timers, keyed

FIRST_KEY = 100
SIXTEEN = [str(number) for number in range(16)]


def pinned_to_broker(number: int) -> str:
    return next(key for key in SIXTEEN if fragment_of_key(key) % 2 == number)


class OneBroker(BrokerEnd):
    def index_of(self, key: int) -> int:
        return key - FIRST_KEY


class FrontEndOfTwo:
    """One channel to each broker, and the entity over both."""

    def __init__(
        self, paths: list[Path], clock: ManualClock, settings: PartitionSettings, channels: ChannelSettings
    ) -> None:
        self.timers = Timers(clock)
        self.channels = [FrontEnd(path, clock, channels) for path in paths]
        keys = [FIRST_KEY + index for index in range(16)]
        fragments: list[Traffic] = [
            self.channels[index % 2].traffic(key, index, settings.requires_session) for index, key in enumerate(keys)
        ]
        requests: list[Requests] = [self.channels[index % 2].requests(key) for index, key in enumerate(keys)]
        self.traffic = PartitionedTraffic(fragments, settings, clock, self.timers.later)
        self.requests = PartitionedRequests(requests, self.traffic)

    async def start(self) -> FrontEndOfTwo:
        for channel in self.channels:
            await channel.start()
        return self

    async def stop(self) -> None:
        for channel in self.channels:
            await channel.stop()

    async def kill(self) -> None:
        """Its process is gone, and its sockets with it."""
        for one in self.channels:
            peer = one.channel._peer
            await one.kill()
            if peer is not None:
                peer.connection.end(FragmentUnavailable("killed"))

    def receiver(self, is_destructive: bool = False) -> Receiver:
        return Receiver(self.traffic, MAIN, is_destructive).attach()

    def kept_count(self) -> int:
        cache = self.traffic.cache(MAIN)
        return 0 if cache is None else len(cache)

    async def send(self, *messages: Message) -> None:
        answers = [stage(self.traffic, one) for one in messages]
        assert [await answer.wait() for answer in answers] == [None] * len(messages)


class TwoBrokers:
    def __init__(self, folder: Path, requires_session: bool = False, channels: ChannelSettings | None = None) -> None:
        self.clock = ManualClock()
        self.channels = channels or ChannelSettings()
        self.paths = [folder / "0", folder / "1"]
        self.disks = [MemoryDisk(), MemoryDisk()]
        self.settings = small(requires_session=requires_session, window_messages=100, block_size=64)
        self.partition_settings = PartitionSettings(requires_session=requires_session)
        self.brokers = [self._broker(0), self._broker(1)]
        self.front_end = self.new_front_end()
        self._others: list[FrontEndOfTwo] = []
        self._crashed: set[int] = set()

    def _broker(self, number: int) -> BrokerEnd:
        fragments = {FIRST_KEY + index: self.settings for index in range(number, 16, 2)}
        return OneBroker(self.paths[number], self.disks[number], self.clock, fragments, self.channels)

    def new_front_end(self) -> FrontEndOfTwo:
        return FrontEndOfTwo(self.paths, self.clock, self.partition_settings, self.channels)

    async def __aenter__(self) -> TwoBrokers:
        for broker in self.brokers:
            await broker.start()
        await self.front_end.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for front_end in (self.front_end, *self._others):
            await front_end.stop()
        for number, broker in enumerate(self.brokers):
            if number not in self._crashed:
                await broker.stop()

    async def another_front_end(self) -> FrontEndOfTwo:
        other = await self.new_front_end().start()
        self._others.append(other)
        return other

    async def crash(self, number: int) -> None:
        self._crashed.add(number)
        await self.brokers[number].crash()
        await until(lambda: self.front_end.traffic.is_limited())

    async def restart(self, number: int) -> None:
        self._crashed.discard(number)
        self.brokers[number] = await self._broker(number).start()
        await until(lambda: not self.front_end.traffic.is_limited())

    def counts(self) -> list[int]:
        """What each fragment has and nobody has settled."""
        found = [0] * 16
        for broker in self.brokers:
            for fragment in broker.broker.fragments():
                found[int(fragment.index)] = int(fragment.main.live_count)
        return found

    def locked_count(self) -> int:
        return sum(len(one.locks) for broker in self.brokers for one in broker.broker.fragments())


@covers("P6", "P26")
@pytest.mark.parametrize("is_destructive", [False, True])
async def test_one_message_in_each_fragment_comes_one_by_one_and_the_rest_is_kept_ready(
    run_folder: Path, is_destructive: bool
) -> None:
    async with TwoBrokers(run_folder) as two:
        front_end = two.front_end
        await front_end.send(*[message(body) for body in SIXTEEN])
        assert two.counts() == [1] * 16
        receiver = front_end.receiver(is_destructive)
        await receiver.take(1)
        await until(lambda: front_end.kept_count() == 15)
        for _ in range(15):
            await receiver.take(1)
        assert sorted(receiver.bodies, key=int) == SIXTEEN
        assert {int(lock.delivery_count) for lock in receiver.locks} == {0}
        assert sum(two.counts()) == (0 if is_destructive else 16)


@covers("P6")
async def test_what_was_kept_ready_by_a_front_end_that_dies_comes_back_at_once_and_uncounted(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        await two.front_end.send(*[message(body) for body in SIXTEEN])
        receiver = two.front_end.receiver()
        taken = await receiver.take(3)
        await until(lambda: two.front_end.kept_count() == 13)
        other = await two.another_front_end()
        second = other.receiver()
        second.want(16)
        await two.front_end.kill()
        await until(lambda: len(second.bodies) == 13)
        assert sorted(second.bodies + taken, key=int) == SIXTEEN
        assert {int(lock.delivery_count) for lock in second.locks} == {0}
        assert two.locked_count() == 16, "what clients of the dead one have is theirs until it lapses"


@covers("P6")
async def test_what_is_kept_ready_goes_back_when_the_last_receiver_goes(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        await two.front_end.send(*[message(body) for body in SIXTEEN])
        receiver = two.front_end.receiver()
        await receiver.take(1)
        receiver.leave()
        await until(lambda: two.locked_count() == 1)
        again = two.front_end.receiver()
        await again.take(15)
        assert {int(lock.delivery_count) for lock in again.locks} == {0}


@covers("P6", "P21")
async def test_another_front_end_gets_what_was_kept_ready_for_too_long(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        await two.front_end.send(*[message(body) for body in SIXTEEN])
        first = two.front_end.receiver()
        await first.take(1)
        await until(lambda: two.front_end.kept_count() == 15)
        second = (await two.another_front_end()).receiver()
        second.want(20)
        two.front_end.timers.advance(10.1)
        await until(lambda: len(second.bodies) == 15)
        assert {int(lock.delivery_count) for lock in second.locks} == {0}


@covers("P6", "M12")
async def test_a_drain_gives_all_there_is_and_then_ends(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        front_end = two.front_end
        receiver = front_end.receiver()
        receiver.want(50, is_draining=True)
        await until(lambda: receiver.drain_count == 1)
        assert receiver.bodies == []
        await front_end.send(*[keyed(str(number), "pinned") for number in range(30)], *[message("x")] * 1)
        receiver.want(20, is_draining=True)
        await until(lambda: receiver.drain_count == 2)
        assert len(receiver.bodies) == 20
        receiver.want(20, is_draining=True)
        await until(lambda: receiver.drain_count == 3)
        assert len(receiver.bodies) == 31


@covers("P3", "P6", "M12")
async def test_a_drain_does_not_wait_for_a_broker_that_is_down(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        await two.front_end.send(*[message(body) for body in SIXTEEN])
        await two.crash(1)
        receiver = two.front_end.receiver()
        receiver.want(20, is_draining=True)
        await until(lambda: receiver.drain_count == 1)
        assert len(receiver.bodies) == 8
        await two.restart(1)
        receiver.want(20, is_draining=True)
        await until(lambda: receiver.drain_count == 2)
        assert sorted(receiver.bodies, key=int) == SIXTEEN


@covers("P3", "P6", "P13", "P14")
async def test_an_outage_of_one_broker_takes_just_its_share(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        front_end = two.front_end
        await front_end.send(*[message(body) for body in SIXTEEN])
        receiver = front_end.receiver()
        await receiver.take(1)
        await until(lambda: front_end.kept_count() == 15)
        await two.crash(0)
        assert front_end.kept_count() in (7, 8), "what is kept of the dead one is worth nothing"
        await front_end.send(*[message(f"more-{number}") for number in range(20)])
        key = pinned_to_broker(0)
        refusal = await stage(front_end.traffic, keyed("pinned", key)).wait()
        assert isinstance(refusal, FragmentUnavailable)
        assert f"Fragment {fragment_of_key(key)} is unavailable, and nothing was changed. Try again" in str(refusal)
        receiver.want(100)
        await until(lambda: len(receiver.bodies) >= 28)
        await two.restart(0)
        await until(lambda: len(set(receiver.bodies)) == 36)
        assert {int(lock.delivery_count) for lock in receiver.locks} == {0}


@covers("P6", "M2")
async def test_a_settlement_of_a_lock_from_before_the_outage_is_lost(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        await two.front_end.send(*[message(body) for body in SIXTEEN])
        receiver = two.front_end.receiver()
        await receiver.take(16)
        await two.crash(1)
        await two.restart(1)
        for lock in receiver.locks:
            if lock.index % 2 == 1:
                with pytest.raises(MessageLockLost):
                    two.front_end.traffic.settle(lock, COMPLETE, None)
            else:
                assert await settle(two.front_end.traffic, lock, COMPLETE).wait() is None


@covers("P6", "P15")
async def test_receive_and_delete_goes_on_after_a_removal_that_came_to_nothing(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        await two.front_end.send(keyed("a", pinned_to_broker(0)))
        two.disks[0].faults[two.disks[0].commit_count + 1] = Fault.HANG
        receiver = two.front_end.receiver(is_destructive=True)
        receiver.want(1)
        await two.disks[0].is_hanging.wait()
        await two.crash(0)
        await two.restart(0)
        await until(lambda: int(receiver.consumer.credit) == 1)
        two.front_end.timers.advance(0.1)
        await until(lambda: receiver.bodies == ["a"])
        assert (int(receiver.consumer.credit), sum(two.counts())) == (0, 0)


@covers("P6")
async def test_a_removal_that_waits_for_a_busy_broker_is_not_carried_out_for_a_receiver_that_is_gone(
    run_folder: Path,
) -> None:
    async with TwoBrokers(run_folder, channels=ChannelSettings(window_count=1)) as two:
        await two.front_end.send(*[keyed(body, pinned_to_broker(0)) for body in ("a", "b", "c")])
        other = two.front_end.receiver(is_destructive=True)
        receiver = two.front_end.receiver(is_destructive=True)
        two.disks[0].faults[two.disks[0].commit_count + 1] = Fault.HANG
        receiver.want(3)
        await two.disks[0].is_hanging.wait()
        await until(lambda: int(receiver.consumer.removing_count) == 3)
        receiver.leave()
        two.disks[0].go_on.set()
        await until(lambda: two.locked_count() == 0)
        assert receiver.bodies == ["a"], "its removal was under way: that is what the mode means"
        assert await other.take(2) == ["b", "c"]
        assert [int(one.delivery_count) for one in other.messages] == [0, 0]


@covers("P22", "P24")
async def test_peek_counts_and_schedules_work_over_the_sockets(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        front_end = two.front_end
        await front_end.send(*[message(body) for body in SIXTEEN])
        found = await front_end.requests.peek(MAIN, 0, 100, 1 << 20)
        assert [one.sequence_number >> 48 for one in found] == list(range(16))
        assert (await front_end.requests.counts()).active == 16
        at_ms = two.clock.now_ms() + 60_000
        numbers = await front_end.requests.schedule([keyed("later", scheduled_at_ms=at_ms)], 100)
        await front_end.requests.cancel_scheduled(numbers)
        await two.crash(0)
        assert (await front_end.requests.counts()).active == 8
        assert len(await front_end.requests.peek(MAIN, 0, 100, 1 << 20)) == 8
        assert await front_end.requests.delete_batch(MAIN, 100, two.clock.now_ms() + 1) == 8


@covers("P6", "M12")
@pytest.mark.parametrize("pushed", [0, 1, 16])
async def test_what_is_on_its_way_to_be_kept_ready_is_deleted_with_the_rest(run_folder: Path, pushed: int) -> None:
    async with TwoBrokers(run_folder) as two:
        front_end = two.front_end
        await front_end.send(*[message(body) for body in SIXTEEN])
        receiver = front_end.receiver()
        receiver.want(1)
        await in_the_turn(lambda: two.locked_count() >= pushed)
        receiver.want(0)
        deleted = await front_end.requests.delete_batch(MAIN, 100, two.clock.now_ms() + 1)
        assert (deleted, receiver.bodies, two.locked_count()) == (16, [], 0)


@covers("P13", "P15", "P24")
async def test_a_schedule_without_a_key_over_a_line_that_breaks_is_stored_once(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        later = keyed("later", scheduled_at_ms=two.clock.now_ms() + 60_000)
        commits = two.disks[0].commit_count
        scheduling = asyncio.ensure_future(two.front_end.requests.schedule([later], 100))
        await in_the_turn(lambda: two.disks[0].commit_count > commits)
        for peer in two.brokers[0].server._listener.peers:
            peer.connection.end(FragmentUnavailable("cut"))
        numbers = await asyncio.wait_for(scheduling, 10.0)
        assert sum(two.counts()) == 1
        await two.front_end.requests.cancel_scheduled(numbers)
        assert sum(two.counts()) == 0


@covers("P15")
@pytest.mark.parametrize("is_scheduled", [False, True])
async def test_that_nobody_knows_is_said_although_all_others_refuse(run_folder: Path, is_scheduled: bool) -> None:
    async with TwoBrokers(run_folder) as two:
        front_end = two.front_end
        await front_end.send(*[message(body) for body in SIXTEEN])
        two.disks[0].faults[two.disks[0].commit_count + 1] = Fault.HANG
        if is_scheduled:
            later = keyed("later", scheduled_at_ms=two.clock.now_ms() + 60_000)
            scheduling = asyncio.ensure_future(front_end.requests.schedule([later], 100))
        else:
            answer = stage(front_end.traffic, keyed("now"))
        await two.disks[0].is_hanging.wait()
        await two.crash(0)
        for number in range(100):
            two.disks[1].faults[two.disks[1].commit_count + number] = Fault.FULL
        two.clock.advance(5.1)
        front_end.channels[0].channel.core.tick(two.clock.monotonic())
        error = (await asyncio.gather(scheduling, return_exceptions=True))[0] if is_scheduled else await answer.wait()
        assert isinstance(error, OutcomeUnknown)


@covers("P4", "M7")
async def test_next_sessions_are_found_on_either_broker(run_folder: Path) -> None:
    async with TwoBrokers(run_folder, requires_session=True) as two:
        front_end = two.front_end
        holds: list[SessionHold] = []
        for _ in range(20):
            front_end.traffic.wish_session(SessionWish(None, True, holds.append, lambda _error: None))
        front_end.timers.advance(0.01)
        await front_end.send(*[keyed("m", session_id=f"s{number}") for number in range(20)])
        await until(lambda: len(holds) == 20)
        assert sorted(hold.session_id for hold in holds) == sorted(f"s{number}" for number in range(20))
        got: list[str] = []
        consumer = CallbackConsumer(False, lambda one, _lock: got.append(body_of(one)))
        front_end.traffic.hold_session(holds[0], consumer)
        consumer.credit = 1
        front_end.traffic.feed(consumer, MAIN, False)
        await until(lambda: got == ["m"])
        front_end.traffic.leave_session(holds[0])
        front_end.traffic.wish_session(SessionWish(None, True, holds.append, lambda _error: None))
        front_end.timers.advance(0.01)
        await until(lambda: len(holds) == 21)
        assert holds[20].session_id == holds[0].session_id


@covers("P4", "M7")
@pytest.mark.parametrize("is_late", [False, True])
async def test_the_oldest_session_is_next_though_its_broker_answers_last(run_folder: Path, is_late: bool) -> None:
    async with TwoBrokers(run_folder, requires_session=True) as two:
        await two.front_end.send(keyed("m", session_id=pinned_to_broker(0)))
        two.clock.advance(1.0)
        await two.front_end.send(keyed("m", session_id=pinned_to_broker(1)))
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        two.brokers[0].before_open = lambda _key: held
        other = await two.another_front_end()
        holds: list[SessionHold] = []
        other.traffic.wish_session(SessionWish(None, True, holds.append, lambda _error: None))
        await until(lambda: len(other.traffic._line._offers) == 1)
        other.timers.advance(0.2)
        assert holds == []
        if is_late:
            other.timers.advance(0.1)
        else:
            held.set_result(None)
        await until(lambda: len(holds) == 1)
        assert holds[0].session_id == pinned_to_broker(1 if is_late else 0)
        if is_late:
            held.set_result(None)


@covers("P4", "M7")
async def test_sessions_of_two_front_ends_are_shared_and_freed_when_one_dies(run_folder: Path) -> None:
    async with TwoBrokers(run_folder, requires_session=True) as two:
        other = await two.another_front_end()
        mine: list[SessionHold] = []
        theirs: list[SessionHold] = []
        for _ in range(10):
            two.front_end.traffic.wish_session(SessionWish(None, True, mine.append, lambda _error: None))
            other.traffic.wish_session(SessionWish(None, True, theirs.append, lambda _error: None))
        two.front_end.timers.advance(0.01)
        other.timers.advance(0.01)
        await other.send(*[keyed("m", session_id=f"s{number}") for number in range(15)])
        await until(lambda: len(mine) + len(theirs) == 15)
        before = len(theirs)
        await two.front_end.kill()
        await until(lambda: len(theirs) == 10)
        assert before <= 10
        assert len({hold.session_id for hold in theirs}) == 10


@covers("P6")
async def test_no_message_is_lost_or_doubled_with_many_receivers_and_large_credit(run_folder: Path) -> None:
    async with TwoBrokers(run_folder) as two:
        receivers = [two.front_end.receiver() for _ in range(3)]
        for receiver in receivers:
            receiver.want(1000)
        bodies = [str(number) for number in range(600)]
        await two.front_end.send(*[message(body) for body in bodies])
        await until(lambda: sum(len(receiver.bodies) for receiver in receivers) == 600)
        got = [body for receiver in receivers for body in receiver.bodies]
        assert sorted(got, key=int) == bodies
        for receiver in receivers:
            for lock in receiver.locks:
                settle(two.front_end.traffic, lock, COMPLETE)
        await until(lambda: sum(two.counts()) == 0)
