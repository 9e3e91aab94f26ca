"""Sessions that are spread over many fragments, and one line of those who want the next one."""

from __future__ import annotations

import random

import pytest

from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import COMPLETE
from tandembus.broker.operations import CallbackConsumer
from tandembus.errors import OperationTimeout, SessionCannotBeLocked, SessionLockLost, StoreUnavailable
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.traffic import Traffic
from tandembus.message import Message
from tandembus.namespace.partitioning import fragment_of_key
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, small
from tests.unit.namespace.partitioned_queue import PartitionedQueue, Wish, keyed


def session_queue(broker_count: int = 2) -> PartitionedQueue:
    return PartitionedQueue(small(requires_session=True, window_messages=100, block_size=64), broker_count)


def session_in(index: int) -> str:
    return next(name for number in range(1000) if fragment_of_key(name := f"s{number}") == index)


async def settle_down(queue: PartitionedQueue) -> None:
    await queue.quiet()
    queue.timers.advance(0.005)
    await queue.quiet()


@covers("P4", "P10", "M7")
async def test_a_session_by_name_is_granted_by_the_fragment_of_its_key() -> None:
    async with session_queue() as queue:
        for index in range(16):
            wish = Wish(queue, session_in(index))
            assert wish.hold is not None
            assert int(wish.hold.index) == index
        with pytest.raises(SessionCannotBeLocked):
            Wish(queue, session_in(3))


@covers("P4", "M7")
async def test_the_messages_of_a_session_go_to_its_holder_in_order_and_to_nobody_else() -> None:
    async with session_queue() as queue:
        for number in range(5):
            await queue.send(*[keyed(f"{name}{number}", session_id=name) for name in ("a", "b", "c")])
        wish = Wish(queue, "b")
        assert wish.hold is not None
        got: list[Message] = []
        consumer = CallbackConsumer(False, lambda message, _lock: got.append(message))
        queue.traffic.hold_session(wish.hold, consumer)
        consumer.credit = 10
        queue.traffic.feed(consumer, MAIN, False)
        await settle_down(queue)
        assert [body_of(one) for one in got] == [f"b{number}" for number in range(5)]
        wish.leave()
        consumer.credit = 10
        queue.traffic.feed(consumer, MAIN, False)
        await settle_down(queue)
        assert len(got) == 5
        assert Wish(queue, "b").hold is not None


@covers("P4", "M7")
async def test_the_next_session_is_found_in_whichever_fragment_it_is() -> None:
    async with session_queue() as queue:
        for index in (0, 7, 15):
            await queue.send(keyed("m", session_id=session_in(index)))
            wish = Wish(queue)
            await settle_down(queue)
            assert wish.session == session_in(index)


@covers("P4", "M7")
async def test_whoever_waits_gets_a_session_as_soon_as_there_is_one() -> None:
    async with session_queue() as queue:
        wishes = [Wish(queue) for _ in range(3)]
        await settle_down(queue)
        assert [wish.session for wish in wishes] == [None] * 3
        await queue.send(keyed("m", session_id="first"))
        await settle_down(queue)
        assert [wish.session for wish in wishes] == ["first", None, None]
        await queue.send(keyed("m", session_id="second"))
        await settle_down(queue)
        assert [wish.session for wish in wishes] == ["first", "second", None]
        wishes[0].leave()
        await settle_down(queue)
        assert [wish.session for wish in wishes] == ["first", "second", "first"]
        assert [wish.answer_count for wish in wishes] == [1, 1, 1]


@covers("P4", "M7")
async def test_the_session_that_waits_longest_is_next() -> None:
    async with session_queue() as queue:
        names = [session_in(index) for index in (12, 3, 9, 0, 14)]
        for name in names:
            await queue.send(keyed("m", session_id=name))
            queue.clock.advance(1.0)
        wishes = [Wish(queue)]
        await settle_down(queue)
        wishes += [Wish(queue) for _ in range(4)]
        await settle_down(queue)
        assert [wish.session for wish in wishes] == names


@covers("P4", "M7")
async def test_a_wish_that_was_given_up_takes_nobodys_session() -> None:
    async with session_queue() as queue:
        first, second = Wish(queue), Wish(queue)
        await settle_down(queue)
        first.give_up()
        await queue.send(keyed("m", session_id="a"))
        await settle_down(queue)
        assert (first.answer_count, second.session) == (0, "a")


@covers("P4", "M7")
async def test_a_session_that_nobody_wants_any_more_is_free_for_others() -> None:
    async with session_queue() as queue:
        wish = Wish(queue)
        await settle_down(queue)
        wish.give_up()
        await queue.send(keyed("m", session_id="a"))
        await settle_down(queue)
        assert Wish(queue, "a").hold is not None


@covers("P4", "M7")
async def test_whoever_does_not_wait_is_told_that_there_is_none() -> None:
    async with session_queue() as queue:
        none = Wish(queue, is_patient=False)
        assert isinstance(none.error, OperationTimeout)
        await queue.send(keyed("m", session_id=session_in(13)))
        some = Wish(queue, is_patient=False)
        assert some.session == session_in(13)


@covers("P4", "M7")
async def test_two_front_ends_share_the_sessions_and_none_is_given_twice() -> None:
    async with session_queue() as queue:
        one = [Wish(queue) for _ in range(10)]
        queue.connect()
        other = [Wish(queue) for _ in range(10)]
        await settle_down(queue)
        await queue.send(*[keyed("m", session_id=f"s{number}") for number in range(20)])
        for _ in range(5):
            await settle_down(queue)
        got = [wish.session for wish in one + other]
        assert sorted(str(name) for name in got) == sorted(f"s{number}" for number in range(20))


@covers("P4", "M7")
async def test_ten_thousand_wishes_meet_single_sessions_one_by_one_and_in_order() -> None:
    async with session_queue() as queue:
        wishes = [Wish(queue) for _ in range(10_000)]
        for wish in wishes[1::2]:
            wish.give_up()
        await settle_down(queue)
        for number in range(40):
            await queue.send(keyed("m", session_id=f"s{number}"))
            await settle_down(queue)
        granted = [wish.session for wish in wishes[::2]]
        assert granted[:40] == [f"s{number}" for number in range(40)]
        assert set(granted[40:]) == {None}
        assert all(wish.answer_count == 0 for wish in wishes[1::2])


@covers("P3", "P20", "M7")
async def test_sessions_of_the_other_fragments_go_on_while_a_store_is_out() -> None:
    async with session_queue() as queue:
        lost, kept = session_in(1), session_in(2)
        await queue.send(keyed("m", session_id=lost), keyed("m", session_id=kept))
        await queue.fail(1)
        wishes = [Wish(queue), Wish(queue)]
        await settle_down(queue)
        assert [wish.session for wish in wishes] == [kept, None]
        with pytest.raises(StoreUnavailable):
            Wish(queue, lost)
        await queue.heal(1)
        await queue.pass_time(1.0)
        assert [wish.session for wish in wishes] == [kept, lost]


@covers("P3", "M7")
async def test_the_holder_of_a_session_is_told_when_its_store_fails() -> None:
    async with session_queue() as queue:
        name = session_in(1)
        wish = Wish(queue, name)
        assert wish.hold is not None
        lost: list[str] = []
        consumer = CallbackConsumer(
            False, lambda *_: None, when_session_lost=lambda error: lost.append(type(error).__name__)
        )
        queue.traffic.hold_session(wish.hold, consumer)
        await queue.fail(1, stays_down=False)
        assert lost == [SessionLockLost.__name__]
        await queue.heal(1)
        assert Wish(queue, name).hold is not None


class CountedQueue(PartitionedQueue):
    """How often fragments were asked for sessions, or to be watched, is counted."""

    def __init__(self) -> None:
        super().__init__(small(requires_session=True, window_messages=100, block_size=64))
        self.asked_count = 0

    def locals(self) -> list[Traffic]:
        return [LocalTraffic(one, self.broker_of(0).want, self._serve) for one in self.fragments]

    def _serve(self, fragment: Fragment) -> None:
        self.asked_count += 1
        self.broker_of(int(fragment.index)).session_serving.want(fragment)


@covers("M7")
async def test_nothing_is_done_again_and_again_while_wishes_wait() -> None:
    queue = CountedQueue()
    async with queue:
        Wish(queue)
        await settle_down(queue)
        before = queue.timers.count
        queue.timers.advance(59.0)
        await settle_down(queue)
        assert queue.timers.count - before <= 60
        assert queue.asked_count <= 16 + 16 * 2


@covers("P20", "M7")
@pytest.mark.parametrize("stays_down", [True, False])
async def test_a_watch_outlasts_the_outage_of_a_store(stays_down: bool) -> None:
    async with session_queue() as queue:
        wish = Wish(queue)
        await settle_down(queue)
        await queue.fail(1, stays_down=stays_down)
        await queue.heal(1)
        await queue.send(keyed("m", session_id=session_in(1)))
        await settle_down(queue)
        assert wish.session == session_in(1)


@covers("P4", "M7")
@pytest.mark.parametrize("seed", range(5))
async def test_every_message_of_every_session_is_received_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    async with session_queue(3) as queue:
        expected: dict[str, list[str]] = {}
        for number in range(120):
            name = f"s{chance.randrange(25)}"
            expected.setdefault(name, []).append(f"{name}/{number}")
            await queue.send(keyed(f"{name}/{number}", session_id=name))
        got: dict[str, list[str]] = {}
        waiting = [Wish(queue) for _ in range(4)]
        for _ in range(400):
            await settle_down(queue)
            for wish in list(waiting):
                if wish.hold is not None:
                    waiting.remove(wish)
                    await _receive_some(queue, wish, chance.randrange(1, 6), got)
                    waiting.append(Wish(queue))
            if sum(len(bodies) for bodies in got.values()) == 120:
                break
        assert got == expected


async def _receive_some(queue: PartitionedQueue, wish: Wish, credit: int, got: dict[str, list[str]]) -> None:
    assert wish.hold is not None
    taken: list[tuple[Message, object]] = []
    consumer = CallbackConsumer(False, lambda message, lock: taken.append((message, lock)))
    queue.traffic.hold_session(wish.hold, consumer)
    consumer.credit = credit
    queue.traffic.feed(consumer, MAIN, True)
    await settle_down(queue)
    for message, lock in taken:
        got.setdefault(wish.hold.session_id, []).append(body_of(message))
        queue.settle(lock, COMPLETE)  # type: ignore[arg-type]
    await queue.quiet()
    wish.leave()
