"""Messages that go on to an entity in another store: in order, once, whatever is lost on the way."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

from tandembus.broker.locks import ABANDON, CallbackSettleReply, MessageLock
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.operations import CallbackConsumer
from tandembus.errors import EntityDisabled
from tandembus.message import Message
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER, TRANSFER_DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_topic import ALL
from tests.unit.broker.several_queues import numbered, settings
from tests.unit.broker.several_stores import Placed, SeveralStores

BODIES = [f"m{number:02}" for number in range(25)]


def pair() -> SeveralStores:
    """Two queues in two stores; the first forwards to the second."""
    return SeveralStores(2, a=Placed(settings(forward_to="b"), (0,)), b=Placed(settings(), (1,)))


def to_many() -> SeveralStores:
    """A queue that forwards to one of four fragments in three stores, its own among them."""
    return SeveralStores(3, a=Placed(settings(forward_to="b"), (0,)), b=Placed(settings(), (1, 2, 0, 1)))


async def all_of(stores: SeveralStores, name: str, lane: int = MAIN) -> list[list[str]]:
    return [await stores.peek(name, lane, index) for index in range(len(stores.entities[name].stores))]


async def lock_next(stores: SeveralStores, name: str, lane: int = MAIN) -> MessageLock:
    locks: list[MessageLock] = []
    fragment = await stores.open(name)
    consumer = CallbackConsumer(False, lambda _message, lock: locks.append(lock))
    fragment.consumers(lane).add(consumer)
    consumer.credit = 1
    stores.broker_of(name).want(fragment)
    await stores.quiet()
    fragment.consumers(lane).remove(consumer)
    return locks[0]


@covers("P17", "M10")
async def test_messages_go_on_in_order_and_leave_nothing_behind() -> None:
    async with pair() as stores:
        await stores.send("a", *BODIES)
        assert await stores.peek("b") == BODIES
        assert (await stores.open("a")).live_bytes() == 0
        assert sum(moved[1] for moved in stores.forwarded) == len(BODIES)
        assert stores.sent_operations < len(BODIES), "many messages share an operation"


@covers("P17", "M10")
async def test_a_message_keeps_its_first_number_its_hops_and_its_time_to_live() -> None:
    in_a_row = SeveralStores(
        3,
        a=Placed(settings("b", default_ttl_ms=50_000), (0,)),
        b=Placed(settings("c"), (1,)),
        c=Placed(settings(), (2,)),
    )
    async with in_a_row as stores:
        await stores.send("b", "before")
        await stores.send("a", "x")
        fragment = await stores.open("c")
        (_, moved) = await stores.broker_of("c").store.bodies(int(fragment.key), MAIN, [1, 2], 1 << 20)
        assert isinstance(moved, Message)
        assert (moved.hops, moved.original_number) == (2, 1)
        assert moved.expires_at - moved.enqueued_at == 50_000


@covers("P17", "M1")
async def test_an_answer_that_is_lost_makes_nothing_twice() -> None:
    async with pair() as stores:
        stores.lose_answers = 3
        await stores.send("a", *BODIES)
        for _ in range(4):
            await stores.pass_time(10.0)
        assert await stores.peek("a") == []
        assert await stores.peek("b") == BODIES


@covers("P17", "M1")
async def test_a_request_that_is_lost_is_sent_again() -> None:
    async with pair() as stores:
        stores.lose_requests = 1
        await stores.send("a", *BODIES)
        assert await stores.peek("b") == []
        await stores.pass_time(2.0)
        assert await stores.peek("b") == BODIES


@covers("P17", "M1")
@pytest.mark.parametrize("store", [0, 1])
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST, Fault.FULL])
async def test_a_commit_that_fails_on_either_side_loses_nothing_and_doubles_nothing(store: int, fault: Fault) -> None:
    for k in range(1, 5):
        async with pair() as stores:
            answers = [await stores.stage("a", numbered(body)) for body in BODIES]
            disk = stores.stores[store].disk
            disk.faults[disk.commit_count + k] = fault
            for _ in range(8):
                await stores.quiet()
                await stores.pass_time(10.0)
            await stores.open_all()
            for _ in range(4):
                await stores.pass_time(61.0)
            found = await stores.everything()
            accepted = [body for body, answer in zip(BODIES, answers, strict=True) if answer.is_accepted]
            assert max(found.values(), default=1) == 1
            assert set(accepted) <= set(found)
            assert await stores.peek("a") == []
            assert await stores.peek("b") == sorted(found)


@covers("P17", "P3")
async def test_while_the_other_broker_is_down_messages_wait_and_go_on_when_it_is_back() -> None:
    async with pair() as stores:
        await stores.send("a", "first")
        await stores.kill(1)
        await stores.send("a", *BODIES)
        assert await stores.peek("a") == BODIES
        await stores.restart(1)
        await stores.quiet()
        assert await stores.peek("a") == []
        assert await stores.peek("b") == ["first", *BODIES]


@covers("P17", "M1")
async def test_a_source_that_dies_before_it_settles_sends_the_same_again() -> None:
    async with pair() as stores:
        await stores.send("b", "own")
        disk = stores.stores[0].disk
        for body in BODIES:
            await stores.stage("a", numbered(body))
        # The first commit takes the messages in, the second settles those that have arrived.
        disk.faults[disk.commit_count + 2] = Fault.HANG
        await disk.is_hanging.wait()
        assert len(await stores.peek("b")) > 1
        await stores.kill(0)
        await stores.restart(0)
        await stores.quiet()
        assert await stores.peek("a") == []
        assert await stores.peek("b") == ["own", *BODIES]


@covers("P17")
async def test_the_key_decides_the_fragment_and_what_has_none_is_spread_by_its_number() -> None:
    async with to_many() as stores:
        for body in BODIES:
            await stores.stage("a", numbered(body, session_id="s"))
        await stores.quiet()
        before = await all_of(stores, "b")
        assert sorted(map(len, before)) == [0, 0, 0, len(BODIES)]
        assert BODIES in before
        more = [f"n{number:02}" for number in range(20)]
        await stores.send("a", *more)
        after = [now[len(was) :] for now, was in zip(await all_of(stores, "b"), before, strict=True)]
        assert list(map(len, after)) == [5, 5, 5, 5]
        assert sorted(chain.from_iterable(after)) == more
        assert all(part == sorted(part) for part in after)


@covers("P17", "P3")
async def test_only_messages_for_the_fragments_that_are_down_wait() -> None:
    async with to_many() as stores:
        await stores.kill(1)
        await stores.send("a", *BODIES)
        waiting = await stores.peek("a")
        assert len(waiting) == len([number for number in range(1, 26) if number % 4 in (0, 3)])
        assert await stores.peek("b", MAIN, 1) == [BODIES[number - 1] for number in range(1, 26) if number % 4 == 1]
        await stores.send("a", *[f"n{number}" for number in range(8)])
        await stores.pass_time(2.0)
        assert len(await stores.peek("a")) == len(waiting) + 4
        await stores.restart(1)
        await stores.quiet()
        assert await stores.peek("a") == []
        found = await all_of(stores, "b")
        assert sorted(chain.from_iterable(found)) == sorted([*BODIES, *[f"n{number}" for number in range(8)]])
        assert all(part == sorted(part) for part in found)


@covers("P17", "P3")
async def test_what_waits_is_not_read_again_for_every_message_that_does_not() -> None:
    async with to_many() as stores:
        await stores.kill(1)
        await stores.send("a", *[f"{number:03}" for number in range(200)])
        reads = 0
        disk = stores.stores[0].disk

        async def count_reads() -> None:
            nonlocal reads
            reads += 1

        disk.before_read = count_reads
        for number in range(10):
            await stores.send("a", f"new{number}")
        assert reads < 60, "and not the hundred that wait, ten times"
        disk.before_read = None


@covers("P17", "M10")
async def test_dead_letters_and_what_is_sent_via_an_entity_go_to_other_stores_too() -> None:
    stores = SeveralStores(
        2,
        a=Placed(settings(forward_dead_letters_to="parked"), (0,)),
        parked=Placed(settings(), (1,)),
        b=Placed(settings(), (1,)),
    )
    async with stores:
        stores.lose_answers = 2
        await stores.send("a", "x", "y")
        (await stores.open("a")).settle(await lock_next(stores, "a"), TO_DEAD_LETTERS, None)
        await stores.send("a", "v", "w", via="b")
        for _ in range(3):
            await stores.pass_time(10.0)
        assert await stores.peek("parked") == ["x"]
        assert await stores.peek("b") == ["v", "w"]
        assert await stores.peek("a") == ["y"]
        for lane in (DEAD_LETTER, TRANSFER, TRANSFER_DEAD_LETTER):
            assert await stores.peek("a", lane) == []


@covers("P17", "M9")
async def test_a_topic_in_another_store_gets_each_message_once() -> None:
    stores = SeveralStores(
        2,
        a=Placed(settings("t"), (0,)),
        t=Placed(settings(), (1, 1), subscriptions=[(950, settings("end"), ALL)], is_topic=True),
        end=Placed(settings(), (0,)),
    )
    async with stores:
        stores.lose_answers = 2
        await stores.send("a", *BODIES)
        for _ in range(4):
            await stores.pass_time(10.0)
        assert sorted(await stores.peek("end")) == BODIES


@covers("P17", "M10")
async def test_what_the_destination_will_never_take_is_a_transfer_dead_letter_and_the_rest_arrives() -> None:
    async with pair() as stores:
        for number, body in enumerate(BODIES):
            await stores.stage("a", numbered(body, session_id=None if number in (3, 17) else "s"))
        # The sender does not know yet that sessions are required.
        (await stores.open("b")).settings = settings(requires_session=True)
        await stores.quiet()
        expected = [body for number, body in enumerate(BODIES) if number not in (3, 17)]
        assert await stores.peek("b") == expected
        assert await stores.peek("a", TRANSFER_DEAD_LETTER) == [BODIES[3], BODIES[17]]
        assert await stores.peek("a") == []


@covers("P17", "M13")
async def test_a_destination_that_is_nearly_full_takes_what_still_fits() -> None:
    stores = SeveralStores(2, a=Placed(settings("b"), (0,)), b=Placed(settings(max_size_bytes=400), (1,)))
    async with stores:
        await stores.send("a", *BODIES)
        taken = await stores.peek("b")
        assert 5 < len(taken) < len(BODIES)
        assert taken + await stores.peek("a") == BODIES
        await stores.change("b", settings())
        for _ in range(2):
            await stores.pass_time(61.0)
        assert await stores.peek("b") == BODIES


@covers("P17")
async def test_nothing_passes_a_message_that_somebody_holds_and_may_give_back() -> None:
    async with pair() as stores:
        await stores.change("a", settings())
        await stores.send("a", "1", "2", "3")
        lock = await lock_next(stores, "a")
        await stores.change("a", settings(forward_to="b"))
        await stores.quiet()
        assert await stores.peek("b") == [], "or the first would be taken for one that has been there"
        (await stores.open("a")).settle(lock, ABANDON, None)
        await stores.quiet()
        assert await stores.peek("b") == ["1", "2", "3"]


@covers("P17")
async def test_nothing_passes_a_message_that_is_given_back_while_those_behind_it_are_read() -> None:
    async with pair() as stores:
        await stores.change("a", settings())
        await stores.send("a", "1", "2", "3")
        lock = await lock_next(stores, "a")
        source, disk = await stores.open("a"), stores.stores[0].disk
        reading, go_on, given_back = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            reading.set()
            await go_on.wait()

        disk.before_read = wait
        await stores.change("a", settings(forward_to="b"))
        await reading.wait()
        source.settle(lock, ABANDON, CallbackSettleReply(lambda _lock, _error: given_back.set()))
        await given_back.wait()
        disk.before_read = None
        go_on.set()
        await stores.quiet()
        assert await stores.peek("b") == ["1", "2", "3"]


@covers("P17", "M10")
async def test_a_destination_that_is_disabled_is_waited_for() -> None:
    async with pair() as stores:
        stores.refusals["b"] = EntityDisabled("disabled")
        await stores.send("a", "x")
        assert await stores.peek("a") == ["x"]
        stores.refusals.clear()
        stores.retry()
        await stores.quiet()
        assert await stores.peek("b") == ["x"]


@covers("P17", "M10")
async def test_a_destination_that_is_gone_makes_transfer_dead_letters() -> None:
    async with pair() as stores:
        del stores.entities["b"]
        await stores.send("a", "x")
        assert await stores.peek("a", TRANSFER_DEAD_LETTER) == ["x"]
