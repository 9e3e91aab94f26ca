"""Receiving over a channel: credit, drains, what a dead front end leaves behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, RELEASE, MessageLock
from tandembus.broker.operations import CallbackConsumer
from tandembus.errors import BusError, StoreFull, StoreUnavailable
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.message import Message
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, message
from tests.unit.interconnect.two_ends import (
    KEY,
    FrontEnd,
    Receiver,
    TwoEnds,
    discharge,
    in_the_turn,
    send,
    settle,
    stage,
    turns,
    until,
)


class KeepingReady:
    """What a cache of received messages is to its fragment."""

    def __init__(self) -> None:
        self.consumer = CallbackConsumer(False, self._deliver, when_locks_lost=self._locks_lost)
        self.consumer.keeps_ready = True
        self.kept: list[tuple[Message, MessageLock]] = []
        self.loss_count = 0

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.kept.append((message, lock))

    def _locks_lost(self) -> None:
        self.loss_count += 1
        self.kept = []

    @property
    def bodies(self) -> list[str]:
        return [body_of(one) for one, _ in self.kept]

    def want(self, ends: TwoEnds, credit: int) -> None:
        ends.traffic.attach(self.consumer, 0)
        self.consumer.credit = credit
        ends.traffic.feed(self.consumer, 0, False)


async def kept_ready(ends: TwoEnds, count: int) -> KeepingReady:
    kept = KeepingReady()
    kept.want(ends, count)
    await until(lambda: len(kept.kept) == count)
    return kept


async def second_front_end(ends: TwoEnds) -> FrontEnd:
    return await FrontEnd(ends.path, ends.clock, ends.settings).start()


# Credit.


@covers("P6")
async def test_nobody_is_given_more_than_its_credit(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, *[f"m{number}" for number in range(30)])
        receiver = ends.receiver()
        assert await receiver.take(3) == ["m0", "m1", "m2"]
        assert await receiver.take(20) == [f"m{number}" for number in range(3, 23)]
        assert len(receiver.messages) == 23
        assert receiver.consumer.credit == 0


async def test_messages_that_come_later_go_to_whoever_waits(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        receiver = ends.receiver()
        receiver.want(10)
        await send(ends.traffic, "a", "b")
        await until(lambda: receiver.bodies == ["a", "b"])


async def test_receivers_of_two_front_ends_share(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        other = await second_front_end(ends)
        receivers = [ends.receiver(), Receiver(other.traffic()).attach()]
        for receiver in receivers:
            receiver.want(1)
        await send(ends.traffic, "a", "b", "c")
        await until(lambda: all(len(one.messages) == 1 for one in receivers))
        assert sorted(receivers[0].bodies + receivers[1].bodies) == ["a", "b"]
        await other.stop()


async def test_a_push_that_crosses_a_withdrawal_goes_back(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        receiver = ends.receiver()
        receiver.want(5)
        await ends.front_end.requests().counts()
        (served,) = ends.broker.served._channels.values()
        answer = stage(ends.traffic, message("a"))
        await in_the_turn(lambda: served.receivers.unreported_count() > 0)
        assert receiver.messages == [], "it is on its way"
        receiver.want(0)
        assert await answer.wait() is None
        other = ends.receiver()
        assert await other.take(1) == ["a"]
        assert int(other.locks[0].delivery_count) == 0


async def test_what_a_full_connection_cannot_take_waits_in_order(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, *[f"m{number}" for number in range(10)])
        receiver = ends.receiver()
        receiver.consumer.is_full = True
        receiver.want(10)
        (served,) = ends.broker.served._channels.values()
        await until(lambda: served.receivers.unreported_count() == 10)
        await ends.front_end.requests().counts()
        assert receiver.bodies == [], "all of them are here by now"
        receiver.consumer.is_full = False
        receiver.want(10)
        assert receiver.bodies == [f"m{number}" for number in range(10)]


# Draining.


@covers("P6")
async def test_a_drain_gives_what_there_is_and_then_says_so(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        receiver = ends.receiver()
        receiver.want(5, True)
        await until(lambda: receiver.drain_count == 1)
        assert receiver.bodies == ["a", "b"]
        await send(ends.traffic, "c")
        assert await receiver.take(1) == ["c"], "new credit after the drain counts anew"


async def test_a_drain_of_an_empty_fragment_that_has_to_be_opened_first(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        receiver = Receiver(ends.front_end.traffic(KEY + 1)).attach()
        receiver.want(5, True)
        await until(lambda: receiver.drain_count == 1)
        gone = Receiver(ends.front_end.traffic(99)).attach()
        gone.want(5, True)
        await until(lambda: gone.drain_count == 1)


async def test_a_drain_that_was_called_off_takes_no_credit_away(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        receiver.want(5, True)
        await asyncio.sleep(0)
        receiver.want(5)
        await until(lambda: receiver.bodies == ["a"])
        await send(ends.traffic, "b", "c")
        await until(lambda: receiver.bodies == ["a", "b", "c"])
        assert receiver.drain_count == 0


@covers("P3")
async def test_a_fragment_that_is_down_counts_as_drained_at_once(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        stage(ends.traffic, message("b"))
        await ends.disk.is_hanging.wait()
        receiver.want(5, True)
        await ends.broker.crash()
        await until(lambda: receiver.drain_count == 1 and not ends.front_end.channel.is_up)
        receiver.want(5, True)
        assert receiver.drain_count == 2


# Receive-and-delete.


@covers("P6")
async def test_in_receive_and_delete_the_removal_is_committed_before_the_transfer(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        receiver = ends.receiver(is_destructive=True)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        receiver.want(1)
        await ends.disk.is_hanging.wait()
        assert receiver.messages == []
        assert int(receiver.consumer.removing_count) == 1
        ends.disk.go_on.set()
        await until(lambda: receiver.bodies == ["a"])
        assert ends.broker.broker.by_key[KEY].main.live_count == 1
        assert receiver.consumer.credit == 0


@covers("M12", "P15")
@pytest.mark.parametrize("is_drained_first", [True, False])
@pytest.mark.parametrize("is_back", [True, False])
async def test_a_drain_waits_for_removals_that_are_in_doubt(
    run_folder: Path, is_drained_first: bool, is_back: bool
) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        ends.broker.open_faults = [StoreUnavailable("not yet")] * 1_000_000
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_KEPT
        receiver = ends.receiver(is_destructive=True)
        receiver.want(3, is_drained_first)
        await until(lambda: not ends.front_end.channel.is_up)
        if not is_drained_first:
            receiver.want(2, is_draining=True)
        assert (receiver.drain_count, receiver.bodies) == (0, []), "it may still be transferred"
        if is_back:
            ends.broker.open_faults.clear()
        else:
            await ends.pass_time(5.1)
        await until(lambda: receiver.drain_count == 1)
        assert receiver.bodies == (["a"] if is_back else [])
        ends.broker.open_faults.clear()


@covers("P6")
async def test_a_drain_waits_for_removals(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver(is_destructive=True)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        receiver.want(3, True)
        await ends.disk.is_hanging.wait()
        await turns()
        assert receiver.drain_count == 0
        ends.disk.go_on.set()
        await until(lambda: receiver.drain_count == 1)
        assert receiver.bodies == ["a"]


@covers("P6")
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_removal_in_doubt_is_transferred_only_if_it_was_carried_out(run_folder: Path, is_kept: bool) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        receiver = ends.receiver(is_destructive=True)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_KEPT if is_kept else Fault.UNKNOWN_LOST
        receiver.want(1)
        await until(lambda: len(receiver.messages) == 1)
        assert receiver.bodies == ["a"], "kept: told by the mark; lost: delivered again, since the credit stands"
        assert int(receiver.consumer.removing_count) == 0


# What a dead front end leaves behind.


@covers("P6")
async def test_what_no_client_has_seen_goes_back_at_once_and_uncounted(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b", "c")
        kept = await kept_ready(ends, 3)
        ends.traffic.handed_over(kept.kept[0][1])
        (served,) = ends.broker.served._channels.values()
        await until(lambda: served.receivers.unreported_count() == 2)
        other = await second_front_end(ends)
        receiver = Receiver(other.traffic()).attach()
        receiver.want(10)
        await ends.front_end.kill()
        await until(lambda: receiver.bodies == ["b", "c"])
        assert [int(lock.delivery_count) for lock in receiver.locks] == [0, 0]
        for lock in receiver.locks:
            assert await settle(receiver.traffic, lock, COMPLETE).wait() is None
        ends.clock.advance(61.0)
        await ends.broker.broker.catch_up()
        await until(lambda: receiver.bodies == ["b", "c", "a"])
        assert int(receiver.locks[2].delivery_count) == 1, "a client had it, and its lock lapsed"
        await other.stop()


@covers("P6")
async def test_a_client_settles_through_another_front_end_what_it_got_from_a_dead_one(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        (served,) = ends.broker.served._channels.values()
        await until(lambda: served.receivers.unreported_count() == 0)
        other = await second_front_end(ends)
        await ends.front_end.kill()
        (lock,) = await other.requests().find_locks([receiver.locks[0].token], 0)
        assert await settle(other.traffic(), lock, COMPLETE).wait() is None
        assert ends.broker.broker.by_key[KEY].main.live_count == 0
        await other.stop()


@covers("P6")
async def test_in_receive_and_delete_what_was_not_removed_yet_goes_back(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, *[f"m{number}" for number in range(5)])
        kept = await kept_ready(ends, 5)  # a cache settles with REMOVE when a link wants one
        other = await second_front_end(ends)
        assert len(kept.kept) == 5
        await ends.front_end.kill()
        receiver = Receiver(other.traffic()).attach()
        assert await receiver.take(5) == [f"m{number}" for number in range(5)]
        assert {int(lock.delivery_count) for lock in receiver.locks} == {0}
        await other.stop()


@covers("P6")
async def test_a_removal_that_waits_is_not_carried_out_for_a_consumer_that_has_left(run_folder: Path) -> None:
    async with TwoEnds(run_folder, settings=ChannelSettings(window_count=1)) as ends:
        await send(ends.traffic, "a", "b", "c")
        other = ends.receiver(is_destructive=True)
        receiver = ends.receiver(is_destructive=True)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        receiver.want(3)
        await ends.disk.is_hanging.wait()
        await until(lambda: int(receiver.consumer.removing_count) == 3)
        receiver.leave()
        ends.disk.go_on.set()
        assert await other.take(2) == ["b", "c"]
        assert receiver.bodies == ["a"], "its removal was under way: that is what the mode means"


async def test_a_consumer_that_leaves_gives_back_what_it_has_not_got(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        kept = await kept_ready(ends, 2)
        ends.traffic.handed_over(kept.kept[0][1])
        ends.traffic.detach(kept.consumer, 0)
        receiver = ends.receiver()
        receiver.want(5)
        await until(lambda: receiver.bodies == ["b"])
        assert int(receiver.locks[0].delivery_count) == 0
        # What was handed over can still be settled.
        lock = (await ends.front_end.requests().find_locks([kept.kept[0][1].token], 0))[0]
        assert await settle(ends.traffic, lock, ABANDON).wait() is None
        await until(lambda: receiver.bodies == ["b", "a"])
        assert int(receiver.locks[1].delivery_count) == 1


@covers("M2")
async def test_what_a_consumer_has_got_stays_locked_when_it_leaves(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        first, second = ends.receiver(), ends.receiver()
        await first.take(1)
        first.leave()
        assert await second.take(1) == ["b"]
        assert await settle(ends.traffic, first.locks[0], RELEASE).wait() is None
        assert await second.take(1) == ["a"]
        assert int(second.locks[1].delivery_count) == 0


@covers("M2", "P6")
async def test_a_settlement_over_another_channel_leaves_what_that_one_has_pushed_alone(run_folder: Path) -> None:
    """Each channel numbers what it pushes for itself."""
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        kept = await kept_ready(ends, 1)
        other = await second_front_end(ends)
        receiver = Receiver(other.traffic()).attach()
        assert await receiver.take(1) == ["b"]
        (found,) = await ends.front_end.requests().find_locks([receiver.locks[0].token], 0)
        assert await settle(ends.traffic, found, COMPLETE).wait() is None
        ends.traffic.handed_over(kept.kept[0][1])
        ends.traffic.detach(kept.consumer, 0)
        await ends.front_end.requests().counts()  # the broker has heard of all that
        receiver.want(1, is_draining=True)
        await until(lambda: receiver.drain_count == 1)
        assert receiver.bodies == ["b"], "the other one was handed over, and stays locked"
        await other.stop()


async def test_messages_kept_ready_are_given_back_by_hand(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        kept = await kept_ready(ends, 1)
        ends.traffic.settle(kept.kept[0][1], RELEASE, None)
        receiver = ends.receiver()
        assert await receiver.take(1) == ["a"]
        assert int(receiver.locks[0].delivery_count) == 0


@covers("P6")
async def test_after_a_restart_what_was_kept_ready_is_void_and_comes_again(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b")
        kept = await kept_ready(ends, 2)
        kept.consumer.credit = 5
        await ends.restart_broker()
        await until(lambda: kept.loss_count >= 1 and kept.bodies == ["a", "b"])
        assert int(kept.consumer.credit) == 3
        for _, lock in kept.kept:
            assert await settle(ends.traffic, lock, COMPLETE).wait() is None


@covers("P6")
async def test_after_a_store_has_failed_what_was_kept_ready_is_void_and_comes_again(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        kept = await kept_ready(ends, 1)
        kept.consumer.credit = 5
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.UNKNOWN_LOST
        assert isinstance(await stage(ends.traffic, message("b")).wait(), BusError)
        await until(lambda: kept.loss_count >= 1 and kept.bodies == ["a"])
        assert await settle(ends.traffic, kept.kept[0][1], COMPLETE).wait() is None


@covers("P6")
async def test_locks_that_a_full_store_has_voided_are_told(run_folder: Path) -> None:
    """A transaction that does not fit is rolled back by taking up the fragment's state anew: its locks are lost."""
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        kept = await kept_ready(ends, 1)
        kept.consumer.credit = 5
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.FULL
        assert isinstance(await discharge(ends.traffic, [message("b")]).wait(), StoreFull)
        await until(lambda: kept.loss_count == 1 and kept.bodies == ["a"])
        assert await settle(ends.traffic, kept.kept[0][1], COMPLETE).wait() is None


# Back-pressure.


async def test_a_front_end_that_hands_nothing_over_is_not_filled(run_folder: Path) -> None:
    settings = ChannelSettings(unreported_bytes=10_000)
    async with TwoEnds(run_folder, settings=settings) as ends:
        answers = [stage(ends.traffic, message(f"m{number}", padding=3000)) for number in range(20)]
        for answer in answers:
            assert await answer.wait() is None
        kept = KeepingReady()
        kept.want(ends, 20)
        await until(lambda: len(kept.kept) == 4)
        await send(ends.traffic, "later")
        assert len(kept.kept) == 4, "10,000 bytes are enough of what nobody takes"
        for _, lock in kept.kept[:2]:
            ends.traffic.handed_over(lock)
        await until(lambda: len(kept.kept) > 4)
        assert len(kept.kept) <= 8, "one turn more, and no more than is in memory"


async def test_pushes_nobody_reads_are_bounded(run_folder: Path) -> None:
    """A front end whose process is stopped does not read: the broker keeps so much for it, and no more."""
    settings = ChannelSettings(unreported_bytes=1 << 30, unsent_bytes=100_000)
    async with TwoEnds(run_folder, settings=settings, window_messages=1000, max_locks=10_000) as ends:
        for _ in range(10):
            answers = [stage(ends.traffic, message("m", padding=10_000)) for _ in range(100)]
            for answer in answers:
                assert await answer.wait() is None
        receiver = ends.receiver()
        await receiver.take(1)
        (peer,) = ends.broker.server._listener.peers
        transport = ends.front_end.channel._peer.connection._transport  # type: ignore[union-attr]
        assert transport is not None
        transport.pause_reading()
        receiver.want(1000)
        await until(lambda: not peer.connection.is_writable)
        (served,) = ends.broker.served._channels.values()
        await until(lambda: len(served.receivers._pushes) >= 100_000)
        before = served.receivers.unreported_count()
        await send_around(ends)
        assert served.receivers.unreported_count() == before
        assert len(served.receivers._pushes) < 100_000 + 300_000, "the limit and one turn"
        transport.resume_reading()
        await until(lambda: len(receiver.messages) == 1000)


async def send_around(ends: TwoEnds) -> None:
    """Some turns of the broker."""
    for _ in range(5):
        await ends.broker.broker.next_turn()
