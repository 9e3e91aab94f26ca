"""A fragment that is one of many: its index is in its numbers and its tokens, and its limits are its own."""

from __future__ import annotations

import pytest

from tandembus.broker.locks import fragment_index_of, is_of_epoch
from tandembus.errors import MessageLockLost, QuotaExceeded
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, OneQueue, message, small
from tests.unit.broker.one_topic import ALL, OneTopic

LAST = 15


def sequence_number(number: int) -> int:
    return LAST << 48 | number


@covers("P2")
async def test_numbers_name_their_fragment_whatever_becomes_of_the_message() -> None:
    async with OneQueue(index=LAST) as queue:
        await queue.send("a", "b")
        scheduled = await queue.schedule("later", in_s=10.0)
        receiver = queue.receiver()
        await receiver.take(2)
        assert [one.original_number for one in receiver.messages] == [sequence_number(1), sequence_number(2)]
        await queue.dead_letter(receiver.locks[0])
        await queue.pass_time(11.0)
        await receiver.take(1)
        assert receiver.messages[-1].number == scheduled + 1
        assert receiver.messages[-1].original_number == sequence_number(scheduled + 1)
        dead = queue.receiver(DEAD_LETTER)
        await dead.take(1)
        assert dead.messages[0].original_number == sequence_number(1)


@covers("P2", "M1")
async def test_the_index_is_the_same_in_every_life() -> None:
    async with OneQueue(index=LAST) as queue:
        await queue.send("a")
        async with await queue.after_crash() as again:
            assert queue.disk.heads[KEY].index == LAST
            receiver = again.receiver()
            await receiver.take(1)
            assert receiver.messages[0].original_number == sequence_number(1)
            assert fragment_index_of(receiver.locks[0].token) == receiver.locks[0].index == LAST


@covers("P2", "M2")
async def test_a_token_names_its_fragment_and_the_life_it_was_given_in() -> None:
    async with OneQueue(index=LAST) as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        assert fragment_index_of(lock.token) == LAST
        assert is_of_epoch(lock.token, queue.disk.epoch)
        async with await queue.after_crash() as again:
            assert not is_of_epoch(lock.token, again.disk.epoch)
            with pytest.raises(MessageLockLost):
                again.fragment.find_lock(lock.token)


@covers("P8")
async def test_each_fragment_holds_its_own_maximum_size() -> None:
    async with OneQueue(small(max_size_bytes=1000), index=3) as queue:
        other = await queue.broker.open_fragment(KEY + 1, 4, queue.settings)
        await queue.send("a", padding=800)
        with pytest.raises(QuotaExceeded):
            queue.stage(message("b", padding=800))
        queue.fragment = other
        await queue.send("b", padding=800)


@covers("P7", "P2")
async def test_a_subscription_of_a_partitioned_topic_has_the_index_of_its_topic() -> None:
    async with OneTopic({KEY + 1: (small(), ALL)}, index=LAST) as topic:
        late = await topic.subscribe(KEY + 2, ALL)
        await topic.publish(message("a"))
        for view in (topic.subscription(KEY + 1), late):
            receiver = view.receiver()
            await receiver.take(1)
            assert receiver.messages[0].original_number == sequence_number(1)
            assert receiver.locks[0].index == LAST
        async with await topic.after_crash() as again:
            receiver = again.subscription(KEY + 2).receiver()
            await receiver.take(1)
            assert receiver.locks[0].index == LAST
            await again.subscription(KEY + 2).dead_letter(receiver.locks[0])
            dead = again.subscription(KEY + 2).receiver(DEAD_LETTER)
            await dead.take(1)
            assert dead.messages[0].original_number == sequence_number(1)
