"""A queue that detects duplicates: whatever happens to commits, an accepted message is there once."""

from __future__ import annotations

import hashlib

import pytest

from tandembus.broker.budget import Budget
from tandembus.broker.dropping import drop_fragments
from tandembus.broker.duplicates import FORGET_SLICE, TRIM_SLICE
from tandembus.clock import ManualClock
from tandembus.errors import ServerBusy, StoreFull, StoreUnavailable
from tandembus.store.memory import Fault, MemoryDisk
from tandembus.store.messaging_store import HistoryRecord
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message, ping, small
from tests.unit.broker.one_topic import ALL, OneTopic, rule_set
from tests.unit.namespace.partitioned_queue import keyed

WINDOW_S = 20.0


def detecting(
    disk: MemoryDisk | None = None,
    clock: ManualClock | None = None,
    max_ids: int = 1000,
    is_partitioned: bool = False,
) -> OneQueue:
    settings = small(duplicate_window_ms=int(WINDOW_S * 1000), is_partitioned=is_partitioned)
    return OneQueue(settings, disk, clock, lambda now: Budget(now, max_recent_ids=max_ids))


def digest(number: int) -> bytes:
    return hashlib.md5(number.to_bytes(4, "big")).digest()


@covers("M8")
async def test_a_second_message_with_the_same_id_is_accepted_and_dropped() -> None:
    async with detecting() as queue:
        assert await queue.send("a", "b") == [1, 2]
        assert await queue.send("a") == [0], "no number is used for it"
        assert await queue.send("c") == [3]
        assert await queue.peek() == ["a", "b", "c"]
        assert await queue.receiver().take(9) == ["a", "b", "c"]


@covers("M8")
async def test_a_queue_that_was_not_asked_to_takes_every_message() -> None:
    async with OneQueue() as queue:
        await queue.send("a", "a")
        assert await queue.peek() == ["a", "a"]
        assert not queue.disk.history


@covers("M8", "M12")
async def test_within_a_batch_each_message_is_judged_on_its_own() -> None:
    async with detecting() as queue:
        await queue.send("a")
        answer = queue.stage(message("x"), message("a"), message("x"), message("y"))
        await queue.quiet()
        assert answer.is_accepted
        assert await queue.peek() == ["a", "x", "y"]


@covers("M8")
async def test_an_id_counts_for_the_window_and_not_longer() -> None:
    async with detecting() as queue:
        await queue.send("a")
        await queue.pass_time(WINDOW_S - 0.001)
        await queue.send("a")
        assert await queue.peek() == ["a"]
        await queue.pass_time(0.001)
        await queue.send("a")
        assert await queue.peek() == ["a", "a"], "the duplicate in between did not prolong it"


@covers("M8")
async def test_a_message_that_was_received_and_completed_still_counts() -> None:
    async with detecting() as queue:
        await queue.send("a")
        await queue.complete(await queue.receiver().take_one())
        await queue.send("a")
        assert await queue.peek() == []


@covers("M5", "M8")
async def test_a_scheduled_message_counts_from_when_it_was_sent() -> None:
    async with detecting() as queue:
        await queue.schedule("a", in_s=5.0)
        assert await queue.schedule("a", in_s=1.0) == 0
        await queue.send("a")
        await queue.pass_time(6.0)
        assert await queue.peek() == ["a"]
        await queue.pass_time(WINDOW_S - 6.0)
        await queue.send("a")
        assert await queue.peek() == ["a", "a"]


@covers("M8", "N10")
async def test_pings_are_no_messages_and_their_ids_are_not_kept() -> None:
    async with detecting() as queue:
        assert (await queue.stage(ping()).wait()) is None
        assert (await queue.stage(ping()).wait()) is None
        assert queue.budget.recent_ids == 0


@covers("M8")
async def test_ids_are_known_to_the_next_life() -> None:
    async with detecting() as queue:
        await queue.send("a", "b")
        await queue.pass_time(10.0)
        await queue.send("c")
        await queue.pass_time(WINDOW_S - 10.0)
        async with await queue.after_crash() as again:
            await again.send("a", "b", "c", "d")
            assert await again.peek() == ["a", "b", "c", "a", "b", "d"]


@covers("M8")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
async def test_after_an_unknown_outcome_the_store_says_what_is_a_duplicate(fault: Fault) -> None:
    async with detecting() as queue:
        await queue.send("a")
        queue.fault_next(fault)
        first, second = queue.stage(message("b")), queue.stage(message("b"))
        await queue.failed()
        assert isinstance(first.error, StoreUnavailable)
        assert isinstance(second.error, StoreUnavailable), "its original's fate is unknown, and so is its own"
        async with await queue.after_crash() as again:
            await again.send("a", "b", "b")
            assert await again.peek() == ["a", "b"]


@covers("M8", "M13")
async def test_an_id_that_a_full_store_refused_is_not_a_duplicate_later() -> None:
    async with detecting() as queue:
        await queue.send("a")
        queue.fault_next(Fault.FULL)
        answers = [queue.stage(message(body)) for body in ("b", "a", "b", "c")]
        await queue.quiet()
        assert all(isinstance(answer.error, StoreFull) for answer in answers)
        assert queue.budget.recent_ids == 1
        queue.broker.check_room()
        assert await queue.send("b", "b") == [2, 0]
        async with await queue.after_crash() as again:
            assert await again.send("b", "c", "c") == [0, 3, 0]
            assert await again.peek() == ["a", "b", "c"]


@covers("M8")
async def test_a_shorter_and_a_longer_window_hold_at_once() -> None:
    async with detecting() as queue:
        await queue.send("a")
        await queue.pass_time(10.0)
        queue.fragment.settings = small(duplicate_window_ms=10_000)
        await queue.send("a")
        assert await queue.peek() == ["a", "a"]
        queue.fragment.settings = small(duplicate_window_ms=60_000)
        await queue.pass_time(59.0)
        await queue.send("a")
        assert await queue.peek() == ["a", "a"]


@covers("M8", "F9")
async def test_a_clock_that_is_set_back_makes_ids_count_longer_not_shorter() -> None:
    async with detecting() as queue:
        await queue.send("a")
        queue.clock.shift_wall(-3600.0)
        await queue.send("a", "b")
        async with await queue.after_crash() as again:
            await again.send("a", "b", "c")
            assert await again.peek() == ["a", "b", "c"]
            again.clock.shift_wall(3600.0 + WINDOW_S)
            await again.send("a", "c")
            assert await again.peek() == ["a", "b", "c", "a", "c"]


@covers("M8")
async def test_at_the_most_ids_sends_are_throttled_and_nothing_is_forgotten() -> None:
    async with detecting(max_ids=3) as queue:
        await queue.send("a", "b", "c")
        with pytest.raises(ServerBusy, match="wait 10 seconds"):
            queue.stage(message("d"))
        await queue.complete(await queue.receiver().take_one())
        await queue.pass_time(WINDOW_S)
        await queue.send("d", "a")
        assert queue.budget.recent_ids == 2


@covers("M8")
async def test_a_batch_larger_than_all_that_can_be_remembered_is_taken_when_nothing_is() -> None:
    async with detecting(max_ids=2) as queue:
        answer = queue.stage(message("a"), message("b"), message("c"))
        await queue.quiet()
        assert answer.is_accepted


@covers("M8")
async def test_ids_leave_memory_and_store_when_their_time_is_over() -> None:
    async with detecting() as queue:
        await queue.send("a")
        await queue.send("b")
        await queue.pass_time(WINDOW_S / 2)
        await queue.send("c")
        await queue.pass_time(WINDOW_S / 2)
        assert queue.budget.recent_ids == 1
        assert len(queue.disk.history) == 1
        await queue.pass_time(WINDOW_S / 2)
        assert queue.budget.recent_ids == 0
        assert not queue.disk.history
        assert await queue.peek() == ["a", "b", "c"]


@covers("M8")
async def test_what_went_old_while_the_broker_was_away_goes_slice_by_slice() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    for number in range(TRIM_SLICE + 5):
        disk.history[KEY, clock.now_ms(), number] = HistoryRecord(KEY, clock.now_ms(), number, digest(number))
    clock.advance(WINDOW_S)
    async with detecting(disk, clock) as queue:
        await queue.do_due_work()
        assert len(disk.history) == 5
        await queue.do_due_work()
        assert not disk.history


@covers("M8")
async def test_many_ids_that_go_old_together_all_go() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    total = 2 * FORGET_SLICE + 10
    hashes = b"".join(digest(number) for number in range(total))
    disk.history[KEY, clock.now_ms(), 1] = HistoryRecord(KEY, clock.now_ms(), 1, hashes)
    async with detecting(disk, clock, max_ids=10_000) as queue:
        assert queue.budget.recent_ids == total
        await queue.pass_time(WINDOW_S)
        assert queue.budget.recent_ids == 0


@covers("M8")
async def test_a_closed_and_a_dropped_queue_leave_nothing_behind() -> None:
    async with detecting() as queue:
        await queue.send("a", "b")
        queue.broker.close_fragment(KEY)
        assert queue.budget.recent_ids == 0
        queue.fragment = await queue.broker.open_fragment(KEY, 0, queue.settings)
        assert queue.budget.recent_ids == 2
        await drop_fragments(queue.broker, [KEY])
        assert queue.budget.recent_ids == 0
        assert not queue.disk.history


@covers("M8", "F2", "F3")
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
async def test_whichever_commit_fails_a_sender_that_repeats_itself_is_heard_once(fault: Fault) -> None:
    bodies = [f"m{number}" for number in range(6)]
    for failing in range(2, 9):
        queue = detecting()
        queue.disk.faults[failing] = fault
        async with queue:
            left = list(bodies)
            while left:
                answers = [(body, queue.stage(message(body))) for body in (left[0], left[0])]
                for _, answer in answers:
                    await answer.wait()
                if all(answer.is_accepted for _, answer in answers):
                    left.pop(0)
                elif fault is not Fault.FULL:
                    break
                queue.broker.check_room()
            if left:
                async with await queue.after_crash() as queue:
                    await queue.send(*bodies, *bodies)
                    assert await queue.receiver().take(99) == bodies
            else:
                assert await queue.receiver().take(99) == bodies


# Partitioned entities: an id counts under its key.


async def send_under(queue: OneQueue, *sent: tuple[str, str | None]) -> list[int]:
    """Send messages of these ids under these keys; returns their numbers, 0 for a duplicate."""
    answers = [queue.stage(keyed(f"{key}/{one}", key, message_id=one)) for one, key in sent]
    await queue.quiet()
    assert all(answer.is_accepted for answer in answers)
    return [int(answer.messages[0].number) for answer in answers]


@covers("P10", "M8")
@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "plain"])
async def test_an_id_counts_under_its_key_on_partitioned_entities_alone_and_in_the_next_life(
    is_partitioned: bool,
) -> None:
    sent = [("a", "k1"), ("a", "k2"), ("a", None), ("b", None), ("b", "k1")]
    async with detecting(is_partitioned=is_partitioned) as queue:
        first = await send_under(queue, *sent)
        assert first == ([1, 2, 3, 4, 5] if is_partitioned else [1, 0, 0, 2, 0])
        assert await send_under(queue, *sent) == [0] * 5
        async with await queue.after_crash() as again:
            assert await send_under(again, *sent) == [0] * 5
            assert (await send_under(again, ("a", "k3")) == [0]) is not is_partitioned


@covers("P10", "M8")
async def test_ids_stored_without_their_keys_count_for_every_key_until_their_time_is_over() -> None:
    """The previous version stored the ids of a partitioned entity as those of a plain one are stored."""
    async with detecting() as previous:
        await send_under(previous, ("old", "k1"), ("older", None))
        await previous.pass_time(WINDOW_S / 2)
        queue = await previous.after_crash()
    queue.settings = small(duplicate_window_ms=int(WINDOW_S * 1000), is_partitioned=True)
    for _ in range(2):  # ids of both versions stand in the store when it is opened for the second time
        async with queue:
            assert await send_under(queue, ("old", "k1"), ("old", "k2"), ("old", None), ("older", "k1")) == [0] * 4
            await send_under(queue, ("new", "k1"), ("late", None))
            queue = await queue.after_crash()
    async with queue:
        assert await send_under(queue, ("new", "k1"), ("late", None)) == [0, 0]
        assert 0 not in await send_under(queue, ("new", None), ("new", "k2"), ("late", "k1"))
        await queue.pass_time(WINDOW_S / 2)
        assert 0 not in await send_under(queue, ("old", "k1"), ("old", "k2"), ("old", None), ("older", "k1"))
        assert await send_under(queue, ("old", "k2"), ("new", "k2")) == [0, 0]


@covers("P10", "M8", "M9")
async def test_a_partitioned_topic_takes_one_id_under_two_keys() -> None:
    settings = small(duplicate_window_ms=int(WINDOW_S * 1000), is_partitioned=True)
    async with OneTopic({11: (small(), ALL)}, settings) as topic:
        await topic.publish(*[keyed(key, key, message_id="same") for key in ("k1", "k2", "k1")])
        assert await topic.subscription(11).peek() == ["k1", "k2"]


# Topics.


def detecting_topic() -> OneTopic:
    settings = small(duplicate_window_ms=int(WINDOW_S * 1000))
    return OneTopic({11: (small(), ALL), 12: (small(), rule_set("sys.MessageId LIKE 'r%'"))}, settings)


@covers("M8", "M9")
async def test_a_topic_drops_what_came_before_for_all_its_subscriptions() -> None:
    async with detecting_topic() as topic:
        await topic.publish(message("r"), message("g"), message("r"))
        await topic.publish(message("g"), message("r2"))
        assert await topic.subscription(11).peek() == ["r", "g", "r2"]
        assert await topic.subscription(12).peek() == ["r", "r2"]
        async with await topic.after_crash() as again:
            await again.publish(message("r"), message("g"), message("r3"))
            assert await again.subscription(12).peek() == ["r", "r2", "r3"]


@covers("M8", "M9")
async def test_what_no_subscription_wanted_was_there_all_the_same() -> None:
    async with OneTopic({12: (small(), rule_set("1=0"))}, small(duplicate_window_ms=20_000)) as topic:
        await topic.publish(message("a"))
        later = await topic.subscribe(13, ALL)
        await topic.publish(message("a"), message("b"))
        assert await later.peek() == ["b"]


@covers("M5", "M8", "M9")
async def test_a_message_scheduled_for_a_topic_counts_from_when_it_was_sent() -> None:
    async with detecting_topic() as topic:
        at_ms = topic.clock.now_ms() + 5_000
        await topic.publish(message("r", scheduled_at_ms=at_ms), message("r"))
        await topic.pass_time(6.0)
        assert await topic.subscription(11).peek() == ["r"]


@covers("M8", "M9", "M13")
async def test_a_topic_without_room_takes_the_ids_back() -> None:
    async with detecting_topic() as topic:
        await topic.publish(message("a"))
        topic.fault_next(Fault.FULL)
        refused = topic.stage(message("b"), message("a"))
        await topic.quiet()
        assert isinstance(refused.error, StoreFull)
        topic.broker.check_room()
        await topic.publish(message("b"), message("a"))
        assert await topic.subscription(11).peek() == ["a", "b"]
