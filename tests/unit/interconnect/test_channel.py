"""Sends and settlements over a channel."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE
from tandembus.broker.operations import CallbackSendReply, SendOperation, TransferSource
from tandembus.broker.transactions import TransactionSettlement
from tandembus.errors import (
    EntityNotFound,
    FragmentUnavailable,
    InvalidOperation,
    MessageLockLost,
    QuotaExceeded,
    StoreFull,
)
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.traffic import Traffic
from tandembus.limits import Limits
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTER_LANE
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, body_of, message, properties_of
from tests.unit.interconnect.two_ends import KEY, Receiver, TwoEnds, discharge, send, settle, stage, until


@covers("P1")
async def test_what_is_sent_is_stored_in_the_order_in_which_it_was_sent(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        bodies = [f"m{number}" for number in range(100)]
        await send(ends.traffic, *bodies)
        assert ends.broker.bodies() == bodies
        assert ends.front_end.channel.core.open_counts() == (0, 0)


async def test_order_is_kept_while_the_fragment_is_being_opened(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        answers = [stage(ends.traffic, message(f"m{number}")) for number in range(20)]
        other = ends.front_end.traffic(KEY + 1)
        await send(other, "x")
        answers += [stage(ends.traffic, message(f"m{number}")) for number in range(20, 40)]
        assert [await answer.wait() for answer in answers] == [None] * 40
        assert ends.broker.bodies() == [f"m{number}" for number in range(40)]
        assert ends.broker.opened == [KEY, KEY + 1], "each is opened once"


async def test_a_batch_arrives_whole_with_all_that_was_read_from_its_envelopes(run_folder: Path) -> None:
    async with TwoEnds(run_folder, requires_session=True) as ends:
        sent = [message("a", ttl_ms=5000, session_id="s"), message("b", session_id="tü")]
        sent[0].partition_key = "s"
        sent[0].priority = 9
        assert await stage(ends.traffic, *sent).wait() is None
        stored = [ends.disk.bodies[KEY, 0, number] for number in (1, 2)]
        assert [one.sections for one in stored] == [one.sections for one in sent]
        assert stored[0].expires_at - stored[0].enqueued_at == 5000
        assert stored[0].priority == 9


async def test_a_refusal_is_the_same_error_and_stops_nothing_behind_it(run_folder: Path) -> None:
    async with TwoEnds(run_folder, max_size_bytes=2000) as ends:
        answers = [stage(ends.traffic, message("big", padding=5000)), stage(ends.traffic, message("small"))]
        assert isinstance(await answers[0].wait(), QuotaExceeded)
        assert await answers[1].wait() is None
        assert ends.broker.bodies() == ["small"]


async def test_an_entity_that_is_gone_is_not_found(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        gone = ends.front_end.traffic(99)
        assert isinstance(await stage(gone, message("a")).wait(), EntityNotFound)
        await send(ends.traffic, "b")


async def test_a_full_store_refuses_sends_and_the_mark_forgets_them(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.FULL
        assert isinstance(await stage(ends.traffic, message("b")).wait(), StoreFull)
        assert ends.broker.bodies() == ["a"]


@covers("P6")
async def test_messages_are_received_and_settled_in_every_way(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a", "b", "c", "d", "e")
        receiver = ends.receiver()
        assert await receiver.take(5) == ["a", "b", "c", "d", "e"]
        a, b, c, d, e = receiver.locks
        d.reason, d.description, d.changes = "spoilt", "it smells", {"n": 7}
        for lock, settlement in ((a, COMPLETE), (b, ABANDON), (c, DEFER), (d, DEAD_LETTER), (e, RELEASE)):
            assert await settle(ends.traffic, lock, settlement).wait() is None
        assert await receiver.take(2) == ["b", "e"]
        assert [int(lock.delivery_count) for lock in receiver.locks[-2:]] == [1, 0]
        dead = ends.receiver(lane=DEAD_LETTER_LANE)
        assert await dead.take(1) == ["d"]
        properties = properties_of(dead.messages[0])
        assert (properties["DeadLetterReason"], properties["DeadLetterErrorDescription"]) == ("spoilt", "it smells")
        assert properties["n"] == 7


async def test_a_lock_is_known_by_token_number_and_end(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        lock, received = receiver.locks[0], receiver.messages[0]
        assert (int(lock.number), int(lock.lane), int(lock.index)) == (1, 0, 0)
        assert lock.locked_until_ms == ends.clock.now_ms() + 60_000
        assert lock.locked_until == pytest.approx(ends.clock.monotonic() + 60.0, abs=0.01)
        assert (int(received.number), body_of(received)) == (1, "a")


async def test_a_lock_is_settled_once(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        answer = settle(ends.traffic, receiver.locks[0], COMPLETE)
        with pytest.raises(MessageLockLost):
            ends.traffic.settle(receiver.locks[0], ABANDON, None)
        with pytest.raises(MessageLockLost):
            ends.traffic.check_lock(receiver.locks[0])
        assert await answer.wait() is None


async def test_a_refused_settlement_can_be_tried_again(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        lock = (await receiver.take(1), receiver.locks[0])[1]
        assert await settle(ends.traffic, lock, DEAD_LETTER).wait() is None
        dead = ends.receiver(lane=DEAD_LETTER_LANE)
        await dead.take(1)
        assert isinstance(await settle(ends.traffic, dead.locks[0], DEAD_LETTER).wait(), InvalidOperation)
        assert await settle(ends.traffic, dead.locks[0], COMPLETE).wait() is None


@covers("M2")
@pytest.mark.parametrize("window", [4096, 2])
async def test_what_a_consumer_settled_before_it_left_stays_settled(run_folder: Path, window: int) -> None:
    """In one turn, and also where more is settled than may be under way at once."""
    async with TwoEnds(run_folder, settings=ChannelSettings(window_count=window)) as ends:
        await send(ends.traffic, *[f"m{number}" for number in range(9)])
        receiver = ends.receiver()
        await receiver.take(9)
        answers = [settle(ends.traffic, lock, COMPLETE) for lock in receiver.locks[:8]]
        receiver.leave()
        assert [await answer.wait() for answer in answers] == [None] * 8
        assert await settle(ends.traffic, receiver.locks[8], RELEASE).wait() is None
        assert await ends.receiver().take(1) == ["m8"]
        assert ends.broker.bodies()[-1:] == ["m8"]


@covers("M12")
async def test_whoever_leaves_holds_nobody_else_up(run_folder: Path) -> None:
    """More is settled than may be under way, in a store that hangs: the one who leaves has to wait, and a drain not."""
    async with TwoEnds(run_folder, settings=ChannelSettings(window_count=2)) as ends:
        await send(ends.traffic, *[f"m{number}" for number in range(9)])
        other = ends.front_end.traffic(KEY + 1)
        await send(other, "x")
        receiver = ends.receiver()
        await receiver.take(9)
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answers = [settle(ends.traffic, lock, COMPLETE) for lock in receiver.locks[:8]]
        await ends.disk.is_hanging.wait()
        receiver.leave()
        draining = Receiver(other).attach()
        draining.want(2, is_draining=True)
        await until(lambda: draining.drain_count == 1)
        assert draining.bodies == ["x"]
        assert not answers[-1].is_given
        ends.disk.go_on.set()
        assert [await answer.wait() for answer in answers] == [None] * 8
        assert ends.broker.bodies()[-1:] == ["m8"]


async def test_a_lapsed_lock_is_lost(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        ends.clock.advance(61.0)
        assert isinstance(await settle(ends.traffic, receiver.locks[0], COMPLETE).wait(), MessageLockLost)


async def test_a_transaction_is_one_operation(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        commits = ends.disk.commit_count
        part = TransactionSettlement(receiver.locks[0], COMPLETE)
        assert await discharge(ends.traffic, [message("b"), message("c")], part).wait() is None
        assert ends.disk.commit_count == commits + 1
        assert await receiver.take(2) == ["b", "c"]
        with pytest.raises(MessageLockLost):
            discharge(ends.traffic, [message("d")], part)


async def test_a_transaction_with_a_lapsed_lock_changes_nothing(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "a")
        receiver = ends.receiver()
        await receiver.take(1)
        ends.clock.advance(61.0)
        part = TransactionSettlement(receiver.locks[0], COMPLETE)
        assert isinstance(await discharge(ends.traffic, [message("b")], part).wait(), MessageLockLost)
        assert ends.broker.bodies() == ["a"]


async def test_4096_sends_are_under_way_at_most_and_all_are_answered(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, "first")
        ends.disk.faults[ends.disk.commit_count + 1] = Fault.HANG
        answers = [stage(ends.traffic, message(f"m{number}")) for number in range(5_000)]
        await ends.disk.is_hanging.wait()
        core = ends.front_end.channel.core
        await until(lambda: core.open_counts()[0] == 4096)
        ends.disk.go_on.set()
        assert [await answer.wait() for answer in answers] == [None] * 5_000
        assert ends.broker.bodies() == ["first"] + [f"m{number}" for number in range(5_000)]


async def test_what_waits_to_be_carried_to_the_broker_is_not_over(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        core = ends.front_end.channel.core
        await send(ends.traffic, "first")
        assert core.is_idle()
        answer = stage(ends.traffic, message("a"))
        assert (core.open_counts(), core.is_idle()) == ((0, 0), False)
        assert await answer.wait() is None
        assert core.is_idle()


async def test_settlements_have_numbers_of_their_own(run_folder: Path) -> None:
    """Sends that wait for their fragment to be opened use up all of theirs, and settlements go on."""
    async with TwoEnds(run_folder) as ends:
        await send(ends.traffic, *[f"m{number}" for number in range(5)])
        receiver = ends.receiver()
        await receiver.take(5)
        opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ends.broker.before_open = lambda _key: opening
        other = ends.front_end.traffic(KEY + 1)
        answers = [stage(other, message("x")) for _ in range(4200)]
        await until(lambda: ends.front_end.channel.core.open_counts()[0] == 4096)
        for lock in receiver.locks:
            assert await settle(ends.traffic, lock, COMPLETE).wait() is None
        assert not answers[0].is_given
        opening.set_result(None)
        assert [await answer.wait() for answer in answers] == [None] * 4200


async def test_without_a_broker_nothing_is_taken(run_folder: Path) -> None:
    ends = TwoEnds(run_folder)
    assert isinstance(ends.traffic.failure(), FragmentUnavailable)
    assert isinstance(await stage(ends.traffic, message("a")).wait(), FragmentUnavailable)


def test_the_largest_message_that_limits_allow_fits_into_a_frame() -> None:
    limits = Limits(max_message_size_bytes=100 * 1024 * 1024)
    settings = ChannelSettings.of(limits)
    assert settings.max_frame_bytes > 100 * 1024 * 1024 + 64 * 1024


# Forwarding to another broker.


def _forward(traffic: Traffic, first: int, *bodies: str) -> Answer:
    answer = Answer()
    messages = [message(body) for body in bodies]
    for one in messages:
        one.hops, one.original_number = 2, 77
    source = TransferSource(3, 0, list(range(first, first + len(bodies))))
    reply = CallbackSendReply(lambda _operation, error: answer.give(error))
    traffic.send(SendOperation(messages, 100, reply, 0, False, source))
    return answer


@covers("P17")
async def test_what_is_forwarded_twice_from_the_same_place_is_taken_once(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        assert await _forward(ends.traffic, 10, "a", "b").wait() is None
        assert await _forward(ends.traffic, 10, "a", "b").wait() is None, "it has them, and says so"
        assert await _forward(ends.traffic, 11, "b", "c").wait() is None
        assert ends.broker.bodies() == ["a", "b", "c"]
        stored = ends.disk.bodies[KEY, 0, 1]
        assert (int(stored.hops), int(stored.original_number)) == (2, 77)


@covers("P17")
async def test_forwarding_goes_on_after_the_destination_was_killed(run_folder: Path) -> None:
    async with TwoEnds(run_folder) as ends:
        for number in range(1, 30):
            answer = _forward(ends.traffic, number, f"m{number}")
            if number % 7 == 0:
                for _ in range(number // 7):
                    await asyncio.sleep(0)
                await ends.restart_broker()
            while (error := await answer.wait()) is not None:
                assert isinstance(error, FragmentUnavailable)
                assert await ends.front_end.channel.until_up(10.0)
                answer = _forward(ends.traffic, number, f"m{number}")
            assert await ends.front_end.channel.until_up(10.0)
        assert ends.broker.bodies() == [f"m{number}" for number in range(1, 30)]
