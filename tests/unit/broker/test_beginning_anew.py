"""A fragment whose store was lost: it serves again, and no number comes twice."""

from __future__ import annotations

from tandembus.broker.beginning_anew import NUMBERS_PER_S, begin_anew, first_number
from tandembus.broker.settings import FragmentSettings
from tandembus.store.memory import MemoryDisk
from tandembus.store.messaging_store import BLOCK_SIZE, DEAD_LETTER, FragmentHead
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message
from tests.unit.broker.one_topic import ALL, OneTopic
from tests.unit.broker.several_queues import settings
from tests.unit.broker.several_stores import Placed, SeveralStores

# The blocks of other tests are small; numbers after a loss are those of real ones.
REAL = FragmentSettings(block_size=BLOCK_SIZE)


@covers("P26")
async def test_numbers_go_on_far_behind_all_that_can_have_been_given() -> None:
    async with OneQueue(REAL) as queue:
        other = KEY + 1
        await begin_anew(queue.broker, [FragmentHead(other, 1, 0, False)])
        queue.fragment = await queue.broker.open_fragment(other, 0, REAL)
        start = first_number(queue.clock.now_ms())
        assert start > 0
        assert await queue.send("a", "b") == [start, start + 1]
        assert await queue.peek() == ["a", "b"]
        lock = await queue.receiver().take_one()
        await queue.dead_letter(lock)
        receiver = queue.receiver(DEAD_LETTER)
        await receiver.take(1)
        assert receiver.messages[0].number == start


@covers("P26")
def test_they_fit_and_grow_faster_than_anybody_sends() -> None:
    in_a_hundred_years_ms = (1_577_836_800 + 100 * 31_557_600) * 1000
    assert first_number(in_a_hundred_years_ms) < 1 << 48
    assert first_number(2_000_000_001_000) - first_number(2_000_000_000_000) == NUMBERS_PER_S
    assert first_number(2_000_000_000_000) % BLOCK_SIZE == 0


@covers("P26", "M1")
async def test_what_is_there_stays_when_only_the_head_was_lost() -> None:
    async with OneQueue(REAL) as queue:
        await queue.send("a")
        del queue.disk.heads[KEY]
        await begin_anew(queue.broker, [FragmentHead(KEY, 1, 0, False)])
        async with await queue.after_crash() as again:
            assert await again.send("b") == [2]
            assert await again.peek() == ["a", "b"]


@covers("P26", "M9")
async def test_a_topic_and_its_subscriptions_begin_anew_together() -> None:
    disk = MemoryDisk()
    lives = OneTopic({KEY + 1: (REAL, ALL)}, REAL, disk)
    await lives.broker.start()
    await begin_anew(lives.broker, [FragmentHead(KEY, 1, 0, False), FragmentHead(KEY + 1, 1, 0, False)])
    await lives.broker.stop()
    async with OneTopic({KEY + 1: (REAL, ALL)}, REAL, disk) as topic:
        await topic.publish(message("a"), message("b"))
        subscription = topic.subscription(KEY + 1)
        receiver = subscription.receiver()
        await receiver.take(2)
        start = first_number(topic.clock.now_ms())
        assert [int(one.number) for one in receiver.messages] == [start, start + 1]
        for lock in receiver.locks:
            await subscription.complete(lock)
        assert topic.fragment.live_bytes() == 0


@covers("P17", "P26")
async def test_what_a_source_forwards_after_its_store_was_lost_is_not_taken_for_what_it_forwarded_before() -> None:
    real = FragmentSettings(forward_to="b", block_size=BLOCK_SIZE)
    async with SeveralStores(2, a=Placed(real, (0,)), b=Placed(settings(), (1,))) as stores:
        await stores.send("a", "1", "2", "3")
        await stores.kill(0)
        lost = stores.stores[0]
        lost.disk = MemoryDisk()
        lost.begin()
        await lost.broker.start()
        key = stores.entities["a"].first_key
        await begin_anew(lost.broker, [FragmentHead(key, 1, 0, False)])
        stores.down.clear()
        await stores.send("a", "4", "5")
        assert await stores.peek("b") == ["1", "2", "3", "4", "5"]
