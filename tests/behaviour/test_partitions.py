"""Partitioned entities: which fragment takes what, and what clients see when some of them are out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tandembus.descriptions import EntityStatus
from tandembus.errors import (
    BusError,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    OperationTimeout,
    QuotaExceeded,
    StoreUnavailable,
)
from tests.behaviour.driver import Bus, Fault, Queue, message, ping
from tests.behaviour.shapes import SPREAD, on_shapes
from tests.covers import covers

FRAGMENTS = 16

pytestmark = on_shapes(*SPREAD)


async def spread(queue: Queue, count: int, **options: Any) -> list[str]:
    bodies = [f"m{number:03}" for number in range(count)]
    await queue.send(*bodies, is_spread=True, **options)
    return bodies


async def fragments(queue: Queue) -> Counter[int]:
    """How many messages each fragment holds."""
    return Counter(one.fragment for one in await queue.peek_all())


async def keys(queue: Queue, bus: Bus, store: int) -> list[str]:
    """Some keys of fragments in this store."""
    await queue.send(*[message(f"k{number}", key=f"k{number}") for number in range(20)])
    found = [one.body for one in await queue.peek_all() if one.fragment % 2 == store]
    await queue.bodies()
    await bus.advance(0.1)
    return found


# Sending.


@covers("P5", "N10")
async def test_without_a_key_fragments_take_turns_pings_among_them(queue: Queue) -> None:
    await spread(queue, 80)
    assert await fragments(queue) == Counter(dict.fromkeys(range(FRAGMENTS), 5))
    await queue.send(ping(), message("a", is_spread=True), message("b", is_spread=True))
    assert sorted((await fragments(queue)).values()) == [5] * 14 + [6] * 2


@covers("P5", "P10")
@pytest.mark.parametrize("kind", ["key", "session"])
async def test_a_key_or_session_always_lands_in_its_fragment(bus: Bus, queue: Queue, kind: str) -> None:
    for _ in range(2):
        await queue.send(*[message(name + part, **{kind: name}) for name in "abc" for part in "12345"])
        await bus.kill()
    places: dict[str, set[int]] = {}
    for one in await queue.peek_all():
        places.setdefault(one.body[0], set()).add(one.fragment)
    assert [len(place) for place in places.values()] == [1, 1, 1]


@covers("P27")
async def test_a_batch_goes_whole_to_one_fragment_and_has_one_key(queue: Queue) -> None:
    for options in ({"is_spread": True}, {"key": "a"}, {"session": "b"}):
        await queue.send_batch(*"1234", **options)
    assert set((await fragments(queue)).values()) <= {4, 8, 12}
    for mixed in ([message("a", key="a"), message("b", key="b")], [message("a", session="a"), "b"]):
        with pytest.raises(InvalidOperation):
            await queue.send_batch(*mixed)
    assert len(await queue.held()) == 12


@covers("P10", "P27", "M8")
async def test_a_batch_of_different_message_ids_is_split_and_its_repetition_adds_only_what_was_missing(
    bus: Bus,
) -> None:
    queue = await bus.queue(requires_duplicate_detection=True)
    bodies = [f"m{number:02}" for number in range(50)]
    bus.disk(1).faults[bus.disk(1).commit_count + 1] = Fault.UNKNOWN_LOST
    answer = await queue.stage(*bodies, is_spread=True)
    await bus.advance(30.0)
    assert isinstance(answer.error, BusError)
    assert 0 < len(await queue.held()) < 50
    await queue.send_batch(*bodies, is_spread=True)
    assert sorted(await queue.held()) == bodies
    assert len(await fragments(queue)) > 8


# Outages.


@covers("P14", "P15", "P27")
async def test_a_batch_for_a_fragment_that_is_known_to_be_out_is_refused_before_anything_is_stored(bus: Bus) -> None:
    queue = await bus.queue(requires_duplicate_detection=True)
    bodies = [f"m{number}" for number in range(50)]
    assert len(set(await queue.schedule(*bodies, in_s=60.0, is_spread=True))) == 50
    await queue.delete()
    queue = await bus.queue(requires_duplicate_detection=True)
    assert await queue.held() == []
    await bus.take_out(1)
    for request in (queue.send_batch(*bodies, is_spread=True), queue.schedule(*bodies, in_s=60.0, is_spread=True)):
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await request
    await bus.bring_back()
    assert await queue.held() == []


@covers("P3", "P13", "P19")
async def test_without_a_key_a_send_succeeds_while_any_fragment_is_up(bus: Bus, queue: Queue) -> None:
    bodies = await spread(queue, 32)
    await bus.take_out(1)
    await queue.send(*[f"late{number}" for number in range(16)], is_spread=True)
    entity = await queue.entity()
    assert entity.is_limited()
    counts = await queue.counts()
    assert (counts.active, counts.missing_fragments) == (32, 8)
    assert len(await queue.held()) == 32, "a peek passes over what is out"
    await bus.take_out(0)
    for refused in (message("nobody", is_spread=True), ping()):
        with pytest.raises(StoreUnavailable):
            await queue.send(refused)
    for request in (queue.counts(), queue.peek(), queue.delete_batch()):
        with pytest.raises((StoreUnavailable, OperationTimeout)):
            await request
    await bus.bring_back()
    assert not entity.is_limited()
    assert sorted(await queue.bodies()) == sorted([*bodies, *[f"late{number}" for number in range(16)]])


@covers("P14", "P15", "P20")
async def test_with_a_key_only_the_share_of_the_lost_fragments_fails_and_nothing_is_moved(
    bus: Bus, queue: Queue
) -> None:
    up, down = await keys(queue, bus, 0), await keys(queue, bus, 1)
    await bus.take_out(1)
    for key in down:
        for refused in (message("x", key=key), message("", session=key, content_type=ping().content_type)):
            with pytest.raises(StoreUnavailable, match="is unavailable, and nothing was changed"):
                await queue.send(refused)
    await queue.send(*[message(key, key=key) for key in up])
    await bus.bring_back()
    await queue.send(*[message(key, key=key) for key in down])
    assert sorted(await queue.bodies()) == sorted(up + down)


@covers("M1", "P13", "F3")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT, Fault.FULL])
async def test_what_a_failed_commit_held_is_stored_once_there_or_elsewhere(
    bus: Bus, queue: Queue, fault: Fault
) -> None:
    entity = await queue.entity()
    assert not entity.is_limited()
    bus.disk(1).faults[bus.disk(1).commit_count + 1] = fault
    answers = [await queue.stage(f"m{number:02}", is_spread=True) for number in range(64)]
    await bus.advance(30.0)
    assert all(answer.is_accepted for answer in answers)
    assert sorted(await queue.bodies()) == [f"m{number:02}" for number in range(64)]


@covers("M13", "P8", "P13")
async def test_a_full_fragment_is_passed_over_and_refuses_what_is_pinned_to_it(bus: Bus) -> None:
    queue = await bus.queue(max_size_in_megabytes=1)
    with pytest.raises(QuotaExceeded):
        await queue.send("a", "b", "c", padding=400_000, key="full")
    (place,) = {one.fragment for one in await queue.peek_all()}
    await queue.send(*"0123456789abcde", is_spread=True, padding=400_000)
    assert (await fragments(queue))[place] == 2
    assert sorted((await fragments(queue)).values()) == [1] * 15 + [2]


# Receiving and settling.


@covers("P6", "P26")
async def test_a_settlement_goes_to_the_fragment_that_gave_the_lock(bus: Bus, queue: Queue) -> None:
    bodies = await spread(queue, 32)
    found = await queue.receive()
    assert {one.fragment for one in found} == set(range(FRAGMENTS))
    for one in found[::2]:
        await one.complete()
        with pytest.raises(MessageLockLost):
            await one.complete()
    until_ms = bus.now_ms() + 60_000
    assert [await one.renew() for one in found[1::2]] == [until_ms] * 16
    await bus.advance(61.0)
    left = {one.body for one in found[1::2]}
    assert {one.body for one in await queue.receive()} == left
    assert left < set(bodies)


@covers("P6", "M2")
@pytest.mark.parametrize("end", ["leaves", "idle", "expires"])
async def test_what_is_kept_ready_goes_back_uncounted(bus: Bus, queue: Queue, end: str) -> None:
    """A receiver's credit is asked of every fragment; what it cannot take is kept ready for a while."""
    await spread(queue, 16, ttl_s=12.0 if end == "expires" else None)
    first = await queue.receiver()
    assert len(await first.take(1)) == 1
    if end == "leaves":
        await first.leave()
    else:
        await bus.advance(15.0)
    second = await queue.receive()
    assert {one.delivery_count for one in second} == ({0} if end != "expires" else set())
    assert len(second) == (15 if end != "expires" else 0)


@covers("P6", "P7")
async def test_receivers_share_what_there_is_and_get_no_more_than_their_credit(bus: Bus, queue: Queue) -> None:
    hungry, idle = await queue.receiver(), await queue.receiver()
    hungry.want(40)
    bodies = await spread(queue, 60)
    assert (len(hungry.received), len(idle.received)) == (40, 0)
    assert len(await idle.take(5)) == 5
    hungry.want(20)
    await bus.quiet()
    assert sorted(hungry.bodies + idle.bodies) == bodies


@covers("P6", "P23")
async def test_a_drain_gives_all_there_is_within_the_credit(bus: Bus, queue: Queue) -> None:
    bodies = await spread(queue, 20)
    receiver, other = await queue.receiver(), await queue.receiver(is_destructive=True)
    receiver.want(12, is_draining=True)
    await bus.advance(1.0)
    assert (len(receiver.received), receiver.drain_count) == (12, 1)
    other.want(50, is_draining=True)
    await bus.advance(1.0)
    assert (len(other.received), other.drain_count) == (8, 1)
    assert sorted(receiver.bodies + other.bodies) == bodies
    await bus.take_out(1)
    receiver.want(5, is_draining=True)
    await bus.advance(1.0)
    assert receiver.drain_count == 2, "a fragment that is out is not waited for"


@covers("P6", "F3")
@pytest.mark.parametrize("is_destructive", [False, True])
async def test_after_an_outage_every_message_comes_to_those_who_still_wait(
    bus: Bus, queue: Queue, is_destructive: bool
) -> None:
    receiver = await queue.receiver(is_destructive)
    await receiver.take(100)
    await bus.take_out(1)
    await bus.bring_back()
    bodies = await spread(queue, 48)
    await bus.advance(1.0)
    assert sorted(receiver.bodies) == bodies


# Requests over fragments.


@covers("M4", "P22", "P26")
@pytest.mark.parametrize("step", [1, 7, 100])
async def test_repeated_peeks_walk_everything_in_the_order_of_sequence_numbers(queue: Queue, step: int) -> None:
    bodies = await spread(queue, 50, padding=500)
    for position, one in enumerate(await queue.receive()):
        if position % 3 == 0:
            await one.complete()
            bodies.remove(one.body)
    numbers: list[int] = []
    found: list[str] = []
    while page := await queue.peek(numbers[-1] + 1 if numbers else 0, step, 2500):
        assert len(page) <= min(step, 4)
        numbers += [one.number for one in page]
        found += [one.body for one in page]
    assert numbers == sorted(numbers)
    assert sorted(found) == bodies
    assert await queue.peek(FRAGMENTS << 48) == []


@covers("M3", "P22", "P26")
@pytest.mark.parametrize("is_destructive", [False, True])
async def test_deferred_messages_of_several_fragments_come_in_the_order_asked_all_or_none(
    bus: Bus, queue: Queue, is_destructive: bool
) -> None:
    await spread(queue, 20)
    numbers = {}
    for one in await queue.receive():
        await one.defer()
        numbers[one.body] = one.number
    wanted = ["m013", "m002", "m019"]
    for missing in (numbers["m002"] + 99, 40 << 48 | 1):
        with pytest.raises(MessageNotFound, match=str(missing)):
            await queue.receive_deferred(*[numbers[one] for one in wanted], missing)
    found = await queue.receive_deferred(*[numbers[one] for one in wanted], is_destructive=is_destructive)
    assert [one.body for one in found] == wanted
    await bus.kill()
    assert len(await queue.held()) == (17 if is_destructive else 20)


@covers("M5", "P22")
async def test_scheduled_messages_are_spread_and_cancelled_all_or_none(bus: Bus, queue: Queue) -> None:
    numbers = [(await queue.schedule(f"m{number:02}", in_s=10.0, is_spread=True))[0] for number in range(32)]
    assert {number >> 48 for number in numbers} == set(range(FRAGMENTS))
    with pytest.raises(MessageNotFound):
        await queue.cancel(*numbers[:3], numbers[3] + 99)
    await queue.cancel(*numbers[:3])
    await bus.take_out(1)
    assert (await queue.schedule("around", in_s=10.0, is_spread=True))[0] >> 48 in range(FRAGMENTS)
    await bus.bring_back()
    assert sorted(await queue.bodies()) == ["around", *[f"m{number:02}" for number in range(3, 32)]]


@covers("M3", "P22")
@pytest.mark.parametrize("count", [1, 10, 1000])
async def test_a_batch_is_deleted_wherever_its_messages_are(bus: Bus, queue: Queue, count: int) -> None:
    await spread(queue, 40)
    receiver = await queue.receiver()
    await receiver.take(1)  # others are kept ready for it now
    await receiver.leave()
    assert await queue.delete_batch(count) == min(count, 39)
    assert len(await queue.held()) == 40 - min(count, 39)


# Transactions.


@covers("M11", "P16")
async def test_a_transaction_is_carried_out_in_the_fragment_of_its_key(bus: Bus, queue: Queue) -> None:
    await queue.send("a", key="k")
    one = await queue.receive_one()
    await queue.transaction([message("b", key="k"), message("c", key="k")], [(one, "complete")])
    assert {found.fragment for found in await queue.peek_all()} == {one.fragment}
    assert await queue.held() == ["b", "c"]
    with pytest.raises(InvalidOperation):
        await queue.transaction([message("d", is_spread=True)])
    assert await queue.held() == ["b", "c"]


@covers("P16")
async def test_a_settlement_in_another_fragment_is_refused_and_nothing_is_carried_out(queue: Queue) -> None:
    await spread(queue, 2)
    first, second = await queue.receive()
    with pytest.raises(InvalidOperation):
        await queue.transaction([], [(first, "complete"), (second, "complete")])
    await first.complete()
    await second.complete()
    assert await queue.held() == []


@covers("P16", "P27")
async def test_what_passes_through_goes_by_its_own_key_or_by_what_is_settled_with_it(bus: Bus, queue: Queue) -> None:
    await bus.queue("other", status=EntityStatus.SEND_DISABLED)
    await queue.send("a", key="k")
    one = await queue.receive_one()
    await queue.transaction([message("b", is_spread=True)], [(one, "complete")], via="other")
    (held,) = await queue.transfers.peek_all()
    assert (held.body, held.fragment) == ("b", one.fragment)
    same, others = message("c", via_key="k", is_spread=True), ("j", None)
    await queue.send_batch(same, same, via="other")
    assert {found.fragment for found in await queue.transfers.peek_all()} == {one.fragment}
    for other in others:
        mixed = message("d", via_key=other, is_spread=True)
        for batch in ((same, mixed), (mixed, same)):
            with pytest.raises(InvalidOperation):
                await queue.send_batch(*batch, via="other")
    assert len(await queue.transfers.held()) == 3


# Sessions.


@covers("M7", "P11", "P22")
async def test_sessions_live_in_fragments_and_are_found_wherever_they_are(bus: Bus) -> None:
    queue = await bus.queue(requires_session=True)
    names = [f"s{number:02}" for number in range(30)]
    for name in names:
        await queue.send("1", "2", session=name)
        await bus.advance(0.01)
    assert sorted(await queue.sessions()) == names
    found = [await queue.accept() for _ in names]
    assert sorted(one.session for one in found) == names
    for one in found:
        assert [seen.body for seen in await one.take(5)] == ["1", "2"]
    for one in found:
        await one.set_state(one.session.encode())
    await bus.take_out(1)
    lost = [one for one in found if one.loss is not None]
    assert 0 < len(lost) < 30
    kept = next(one for one in found if one.loss is None)
    assert await kept.state() == kept.session.encode()
    await bus.bring_back()
    again = await queue.accept(lost[0].session)
    assert await again.state() == again.session.encode()
    assert [seen.body for seen in await again.take(5)] == ["1", "2"]


@covers("M7", "P11")
async def test_whoever_waits_gets_a_session_of_any_fragment_once_also_after_an_outage(bus: Bus) -> None:
    queue = await bus.queue(requires_session=True)
    waiting = [await queue.wish() for _ in range(6)]
    await waiting[2].give_up()
    await bus.take_out(1)
    await bus.bring_back()
    for number in range(5):
        await queue.send("1", session=f"s{number}")
        await bus.advance(2.0)
    answered = [one for one in waiting if one.session is not None]
    assert sorted(one.session or "" for one in answered) == [f"s{number}" for number in range(5)]
