"""Messages that may have arrived in another store: they are bound to where they were sent until that has decided."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.operations import CallbackConsumer, SendOperation
from tandembus.errors import FragmentUnavailable
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.traffic import SessionHold, SessionWish
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import body_of
from tests.unit.broker.several_queues import numbered, settings
from tests.unit.broker.several_stores import Placed, SeveralStores, Wire
from tests.unit.broker.test_forwarding_between_stores import lock_next

BODIES = [f"m{number:02}" for number in range(8)]
OF_THE_SECOND = next(name for name in map(str, range(100)) if zlib.crc32(name.encode()) % 2 == 1)
"""A session of the second fragment of an entity that has two (see `Somewhere`)."""
ELSEWHERE = ["c", "own", ""]
"""To a third store, within the source's own, and nowhere: whoever receives from the source would get them."""


def three() -> SeveralStores:
    """A queue that forwards to another store, and two others that it may forward to instead."""
    entities = {name: Placed(settings(), (store,)) for name, store in (("b", 1), ("c", 2), ("own", 0))}
    return SeveralStores(3, a=Placed(settings(forward_to="b"), (0,)), **entities)


async def receiver_of(stores: SeveralStores, name: str) -> list[str]:
    """What somebody gets who receives from now on."""
    got: list[str] = []
    fragment = await stores.open(name)
    consumer = CallbackConsumer(False, lambda message, _lock: got.append(body_of(message)))
    consumer.credit = 100
    fragment.consumers(MAIN).add(consumer)
    stores.broker_of(name).want(fragment)
    await stores.quiet()
    return got


async def lost_answer(stores: SeveralStores, *bodies: str) -> None:
    """The destination takes them, and dies before it says so."""
    stores.lose_answers = 1
    for body in bodies:
        await stores.stage("a", numbered(body))
    await stores.quiet()
    assert await stores.peek("b") == list(bodies)
    await stores.kill(1)


async def lost_request(stores: SeveralStores, *bodies: str) -> None:
    """It never hears of them, and nobody knows that."""
    stores.lose_requests = 1
    for body in bodies:
        await stores.stage("a", numbered(body))
    await stores.quiet()
    assert await stores.peek("b") == []
    await stores.kill(1)


async def change(stores: SeveralStores, forward_to: str) -> None:
    await stores.change("a", settings(forward_to=forward_to))
    await stores.pass_time(100.0)


@covers("P17", "M1")
@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("elsewhere", ELSEWHERE)
async def test_what_may_have_arrived_goes_nowhere_else_when_forwarding_is_changed(
    elsewhere: str, is_taken: bool
) -> None:
    async with three() as stores:
        await (lost_answer if is_taken else lost_request)(stores, "m0")
        await change(stores, elsewhere)
        got = await receiver_of(stores, "a")
        assert (await stores.peek("a"), got) == (["m0"], []), "b may have it, and is away"
        await stores.restart(1)
        await stores.pass_time(100.0)
        assert await stores.everything() == {"m0": 1}
        assert (await stores.peek("b"), got) == (["m0"], [])
        assert stores.stores[0].broker.forwarding._jobs == {}, "nothing is looked at again and again"


@covers("P17", "M1")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST, Fault.FULL])
@pytest.mark.parametrize("elsewhere", ELSEWHERE)
async def test_it_stays_bound_when_the_source_is_read_anew(elsewhere: str, fault: Fault) -> None:
    async with three() as stores:
        await lost_answer(stores, *BODIES)
        disk = stores.stores[0].disk
        disk.faults[disk.commit_count + 1] = fault
        disk.faults[disk.commit_count + 2] = fault
        await stores.stage("own", numbered("other"))
        for _ in range(3):
            await stores.quiet()
        await change(stores, elsewhere)
        assert await receiver_of(stores, "a") == []
        await stores.restart(1)
        for _ in range(4):
            await stores.pass_time(100.0)
        found = await stores.everything()
        assert {body: found[body] for body in BODIES} == dict.fromkeys(BODIES, 1)
        assert await stores.peek("b") == BODIES


@covers("P17", "M1")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST])
async def test_what_has_arrived_goes_nowhere_else_when_it_could_not_be_settled(fault: Fault) -> None:
    async with three() as stores:
        answer = await stores.stage("a", numbered("m0"))
        disk = stores.stores[0].disk
        disk.faults[disk.commit_count + 2] = fault
        await stores.quiet()
        assert answer.is_accepted
        await stores.change("a", settings(forward_to="c"))
        await stores.quiet()
        await stores.pass_time(100.0)
        assert await stores.everything() == {"m0": 1}
        assert await stores.peek("b") == ["m0"]


@covers("P17")
@pytest.mark.parametrize("is_gone", [True, False])
async def test_what_comes_behind_it_waits_so_that_nothing_is_taken_for_old(is_gone: bool) -> None:
    """Another store takes numbers in their order only."""
    async with three() as stores:
        await lost_request(stores, "m0")
        await change(stores, "c")
        for body in ("m1", "m2"):
            await stores.stage("a", numbered(body))
        await stores.quiet()
        assert await stores.peek("c") == []
        if is_gone:
            del stores.entities["b"]
        else:
            await stores.restart(1)
        await stores.pass_time(100.0)
        assert await stores.peek("a") == []
        assert await stores.peek("c") == (["m0", "m1", "m2"] if is_gone else ["m1", "m2"])
        if not is_gone:
            assert await stores.peek("b") == ["m0"]


@covers("P17")
async def test_who_receives_from_the_source_gets_what_is_not_in_doubt() -> None:
    async with three() as stores:
        await lost_answer(stores, "m0")
        await stores.stage("a", numbered("m1"))
        await stores.quiet()
        await change(stores, "")
        got = await receiver_of(stores, "a")
        assert got == ["m1"]
        del stores.entities["b"]
        stores.retry()
        await stores.quiet()
        assert got == ["m1", "m0"], "there is nobody left who could have it"
        await stores.pass_time(1.0)
        assert stores.stores[0].broker.forwarding._jobs == {}


@covers("P17", "P15")
async def test_messages_for_other_fragments_of_the_destination_go_on() -> None:
    entities = {"a": Placed(settings(forward_to="b"), (0,)), "b": Placed(settings(), (1, 2))}
    async with SeveralStores(3, **entities) as stores:
        await stores.send("a", "1")
        stores.lose_answers = 1
        await stores.send("a", "2")
        await stores.kill(1)
        await stores.send("a", "3", "4", "5")
        assert (await stores.peek("a"), await stores.peek("b", MAIN, 1)) == (["2", "4"], ["1", "3", "5"])
        await stores.restart(1)
        await stores.pass_time(100.0)
        assert (await stores.peek("a"), await stores.peek("b", MAIN, 0)) == ([], ["2", "4"])


@covers("P17", "M1")
@pytest.mark.parametrize("rounds", range(20))
async def test_what_was_passed_by_while_it_was_in_doubt_comes_next(rounds: int) -> None:
    """Whenever the third comes: if it arrived before the second, that one would be taken for old."""
    async with SeveralStores(3, a=Placed(settings("b"), (0,)), b=Placed(settings(), (1, 2))) as stores:
        stores.lose_answers = 1
        await stores.send("a", "first", session_id=OF_THE_SECOND)
        await stores.send("a", "second", session_id=OF_THE_SECOND)
        assert await stores.peek("b", index=1) == ["first"], "what comes behind it waits"
        stores.clock.advance(10.0)
        stores.broker_of("a").forwarding.retry_due()
        for _ in range(rounds):
            await asyncio.sleep(0)
        await stores.send("a", "third", session_id=OF_THE_SECOND)
        await stores.pass_time(100.0)
        assert await stores.peek("b", index=1) == ["first", "second", "third"]


@covers("P17", "M10")
async def test_of_what_is_in_doubt_a_destination_that_is_nearly_full_takes_what_fits() -> None:
    small = settings(max_size_bytes=700)
    entities = {"a": Placed(settings(forward_to="b"), (0,)), "b": Placed(small, (1,))}
    async with SeveralStores(2, **entities) as stores:
        stores.lose_requests = 1
        for number in range(20):
            await stores.stage("a", numbered(f"{number:02}" + "x" * 60))
        await stores.quiet()
        for _ in range(8):
            await stores.pass_time(61.0)
        there = await stores.peek("b")
        assert there
        everything = await stores.everything()
        assert sorted(everything.values()) == [1] * 20
        assert there == sorted(everything)[: len(there)]


@covers("P17", "M10")
async def test_dead_letters_in_doubt_stay_bound_too() -> None:
    async with three() as stores:
        await stores.change("a", settings(forward_dead_letters_to="b"))
        await stores.send("a", "m0")
        stores.lose_answers = 1
        (await stores.open("a")).settle(await lock_next(stores, "a"), TO_DEAD_LETTERS, None)
        await stores.quiet()
        await stores.kill(1)
        await stores.change("a", settings(forward_dead_letters_to="c"))
        await stores.pass_time(100.0)
        await stores.restart(1)
        await stores.pass_time(100.0)
        assert await stores.everything() == {"m0": 1}
        assert await stores.peek("b") == ["m0"]


# Another by the same name.


def in_doubt(is_taken: bool, **more: Placed) -> SeveralStores:
    """What is sent next may have arrived in b, which has one fragment."""
    stores = SeveralStores(3, a=Placed(settings(forward_to="b"), (0,)), b=Placed(settings(), (1,)), **more)
    stores.lose_answers, stores.lose_requests = int(is_taken), int(not is_taken)
    return stores


@covers("P10", "P17")
@pytest.mark.parametrize("is_taken", [True, False])
async def test_its_key_decides_the_fragment_when_the_destination_was_created_again(is_taken: bool) -> None:
    async with in_doubt(is_taken) as stores:
        await stores.send("a", *BODIES, session_id=OF_THE_SECOND)
        assert await stores.peek("b") == (BODIES if is_taken else [])
        await stores.create_again("b", Placed(settings(), (1, 2)))
        stores.retry()
        await stores.pass_time(100.0)
        assert (await stores.peek("b", MAIN, 0), await stores.peek("b", MAIN, 1)) == ([], BODIES)
        assert await stores.peek("a") == []
        assert stores.stores[0].broker.forwarding._jobs == {}


@covers("P10", "P17", "M1")
@pytest.mark.parametrize("is_taken", [True, False])
async def test_what_comes_behind_it_does_not_overtake_it_to_another_by_the_same_name(is_taken: bool) -> None:
    """It would be taken for old there, and lost."""
    async with in_doubt(is_taken) as stores:
        await stores.send("a", "m0", session_id=OF_THE_SECOND)
        await stores.create_again("b", Placed(settings(), (1, 2)))
        await stores.send("a", "m1", session_id=OF_THE_SECOND)
        await stores.pass_time(100.0)
        assert (await stores.peek("b", MAIN, 0), await stores.peek("b", MAIN, 1)) == ([], ["m0", "m1"])


@covers("P17")
async def test_another_by_the_same_name_need_not_wait_for_what_the_first_one_did() -> None:
    async with in_doubt(False) as stores:
        await stores.send("a", "m0")
        await stores.create_again("b", Placed(settings(), (2,)))
        await stores.send("a", "m1")
        assert await stores.peek("b") == ["m0", "m1"]


@covers("P17", "M10")
async def test_messages_sent_via_an_entity_reach_another_by_the_same_name_too() -> None:
    async with in_doubt(False, via=Placed(settings(), (0,))) as stores:
        await stores.send("via", "m0", via="b", session_id=OF_THE_SECOND)
        await stores.create_again("b", Placed(settings(), (1, 2)))
        await stores.send("via", "m1", via="b", session_id=OF_THE_SECOND)
        await stores.pass_time(100.0)
        assert (await stores.peek("b", MAIN, 0), await stores.peek("b", MAIN, 1)) == ([], ["m0", "m1"])


# Given back.


@covers("P17", "M12")
async def test_a_receiver_gets_what_forwarding_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwarding is taken away while the message is on its way, and then it is refused."""
    async with three() as stores:
        sent: list[SendOperation] = []
        monkeypatch.setattr(Wire, "send", lambda _self, operation: sent.append(operation))
        await stores.stage("a", numbered("m0"))
        while not sent:
            await stores.stores[0].broker.next_turn()
        monkeypatch.undo()
        new = settings()
        new.path = "a"
        stores.entities["a"].settings = (await stores.open("a")).settings = new
        got: list[str] = []
        fragment = await stores.open("a")
        consumer = CallbackConsumer(False, lambda message, _lock: got.append(body_of(message)))
        fragment.consumers(MAIN).add(consumer)
        consumer.credit = 1
        stores.broker_of("a").want(fragment)
        await stores.stores[0].broker.next_turn()
        assert got == []
        sent[0].reply.sent(sent[0], FragmentUnavailable("not there"))
        await stores.quiet()
        assert got == ["m0"]


@covers("P17", "M7")
async def test_a_session_gets_what_forwarding_gives_back() -> None:
    entities = {
        "a": Placed(settings(forward_to="b", requires_session=True), (0,)),
        "b": Placed(settings(requires_session=True), (1,)),
    }
    async with SeveralStores(2, **entities) as stores:
        stores.lose_answers = 1
        await stores.send("a", "m0", session_id="s")
        await stores.kill(1)
        await stores.change("a", settings(requires_session=True))
        fragment = await stores.open("a")
        traffic = LocalTraffic(fragment, stores.broker_of("a").want, stores.broker_of("a").session_serving.want)
        holds: list[SessionHold] = []
        traffic.wish_session(SessionWish(None, True, holds.append, lambda _error: None))
        await stores.quiet()
        assert holds == []
        del stores.entities["b"]
        await stores.pass_time(100.0)
        assert [hold.session_id for hold in holds] == ["s"]
        got: list[str] = []
        consumer = CallbackConsumer(False, lambda message, _lock: got.append(body_of(message)))
        traffic.hold_session(holds[0], consumer)
        consumer.credit = 10
        traffic.feed(consumer, MAIN, False)
        await stores.quiet()
        assert got == ["m0"]
