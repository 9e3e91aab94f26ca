"""Messages that go on to another entity: in order, once, and with the right to arrive."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.broker import browsing
from tandembus.broker.locks import ABANDON, MessageLock
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.operations import CallbackConsumer
from tandembus.broker.transfer_pass import PASS_MESSAGES
from tandembus.errors import BusError, EntityDisabled, EntityNotFound, ServerBusy
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER, TRANSFER_DEAD_LETTER
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, message, properties_of
from tests.unit.broker.one_topic import ALL, rule_set
from tests.unit.broker.several_queues import SeveralQueues, delivered, numbered, settings

BODIES = [f"m{number:02}" for number in range(25)]


def chain(*names: str) -> SeveralQueues:
    """Each forwards to the next."""
    return SeveralQueues(
        {name: settings(forward_to=after) for name, after in zip(names, (*names[1:], ""), strict=True)}
    )


async def lock_next(queues: SeveralQueues, name: str, lane: int = MAIN) -> MessageLock:
    locks: list[MessageLock] = []
    fragment = await queues.open(name)
    consumer = CallbackConsumer(False, lambda _message, lock: locks.append(lock))
    fragment.consumers(lane).add(consumer)
    consumer.credit = 1
    queues.broker.want(fragment)
    await queues.quiet()
    fragment.consumers(lane).remove(consumer)
    return locks[0]


# The way of a message.


@covers("M10")
async def test_messages_go_on_in_order_and_leave_nothing_behind() -> None:
    async with chain("a", "b", "c") as queues:
        await queues.send("a", *BODIES)
        assert await queues.contents() == {"a": [[], [], [], []], "b": [[], [], [], []], "c": [BODIES, [], [], []]}
        assert (await queues.open("a")).live_bytes() == 0


@covers("M10")
async def test_more_than_one_pass_takes_is_moved_pass_by_pass() -> None:
    async with chain("a", "b") as queues:
        bodies = [f"{number:04}" for number in range(PASS_MESSAGES + 7)]
        await queues.send("a", *bodies)
        assert await queues.peek("a") == []
        assert await queues.peek("b") == bodies


@covers("M10")
async def test_what_lay_there_before_forwarding_was_asked_for_goes_on_too() -> None:
    async with SeveralQueues({"a": settings(), "b": settings()}) as queues:
        await queues.send("a", "x", "y")
        await queues.change("a", settings(forward_to="b"))
        await queues.quiet()
        assert await queues.peek("b") == ["x", "y"]
        await queues.change("a", settings())
        await queues.send("a", "z")
        assert (await queues.peek("a"), await queues.peek("b")) == (["z"], ["x", "y"])


@covers("M10")
async def test_a_forwarded_message_keeps_its_first_number_and_its_content() -> None:
    async with chain("a", "b", "c") as queues:
        await queues.send("b", "before")
        await queues.send("a", "x")
        (_, moved) = await queues.messages("c")
        assert (int(moved.number), int(moved.hops)) == (2, 2)
        assert delivered(moved)["x-opt-enqueue-sequence-number"] == 1, "as at the first entity"
        assert delivered(moved)["x-opt-sequence-number"] == 2
        assert moved.sections == numbered("x").sections


@covers("M10")
async def test_what_a_receiver_changed_before_goes_along_and_its_deliveries_do_not() -> None:
    async with SeveralQueues({"a": settings(), "b": settings()}) as queues:
        await queues.send("a", "x")
        lock = await lock_next(queues, "a")
        lock.changes = {"colour": "red"}
        (await queues.open("a")).settle(lock, ABANDON, None)
        await queues.quiet()
        await queues.change("a", settings(forward_to="b"))
        await queues.quiet()
        (moved,) = await queues.messages("b")
        assert properties_of(moved) == {"colour": "red"}
        assert int(moved.delivery_count) == 0
        assert not queues.disk.overlays


@covers("M6", "M10")
async def test_the_time_to_live_counts_anew_and_the_smallest_on_the_way_wins() -> None:
    queues = SeveralQueues(
        {"a": settings("b", default_ttl_ms=50_000), "b": settings("c", default_ttl_ms=90_000), "c": settings()}
    )
    async with queues:
        await queues.send("a", "short", ttl_ms=10_000)
        await queues.send("a", "long", ttl_ms=80_000)
        lives = [int(one.expires_at - one.enqueued_at) for one in await queues.messages("c")]
        assert lives == [10_000, 50_000]


@covers("M6", "M10")
async def test_what_has_expired_is_not_forwarded() -> None:
    async with SeveralQueues({"a": settings(dead_letter_expired=True), "b": settings()}) as queues:
        await queues.send("a", "late", ttl_ms=1_000)
        await queues.send("a", "in time")
        queues.clock.advance(2.0)
        await queues.change("a", settings(forward_to="b", dead_letter_expired=True))
        await queues.quiet()
        assert await queues.peek("b") == ["in time"]
        assert await queues.peek("a", DEAD_LETTER) == ["late"]


@covers("M5", "M10")
async def test_a_scheduled_message_goes_on_when_its_time_has_come() -> None:
    async with chain("a", "b") as queues:
        at_ms = queues.clock.now_ms() + 5_000
        await queues.stage("a", message("x", scheduled_at_ms=at_ms))
        await queues.quiet()
        assert await queues.peek("b") == []
        await queues.pass_time(6.0)
        assert await queues.peek("b") == ["x"]


@covers("M10")
async def test_what_goes_on_is_not_kept_in_memory_and_is_received_when_it_no_longer_does() -> None:
    async with SeveralQueues({"a": settings("b", "b", dead_letter_expired=True), "b": settings()}) as queues:
        queues.refusals["b"] = ServerBusy("busy")
        await queues.send("a", "x", "y")
        await queues.send("a", "dead", ttl_ms=1_000)
        await queues.send("a", "via", via="b")
        await queues.pass_time(2.0)
        source = await queues.open("a")
        assert [int(lane.live_count) for lane in source.lanes] == [2, 1, 1, 0]
        assert [len(lane.ready) for lane in source.lanes] == [0, 0, 0, 0]
        await queues.change("a", settings())
        await queues.send("a", "z")
        for body, number in (("x", 1), ("y", 2), ("z", 4)):
            assert int((await lock_next(queues, "a")).number) == number, body
        assert int((await lock_next(queues, "a", DEAD_LETTER)).number) == 1


@covers("M10")
async def test_deferred_and_locked_messages_stay_until_they_come_back() -> None:
    async with SeveralQueues({"a": settings(), "b": settings()}) as queues:
        await queues.send("a", "locked", "free")
        lock = await lock_next(queues, "a")
        await queues.change("a", settings(forward_to="b"))
        await queues.quiet()
        assert (await queues.peek("a"), await queues.peek("b")) == (["locked"], ["free"])
        (await queues.open("a")).settle(lock, ABANDON, None)
        await queues.quiet()
        assert (await queues.peek("a"), await queues.peek("b")) == ([], ["free", "locked"])


# Hops and loops.


@covers("M10")
async def test_four_hops_are_allowed_and_a_fifth_is_not() -> None:
    async with chain("a", "b", "c", "d", "e") as queues:
        await queues.send("a", "x")
        assert await queues.peek("e") == ["x"]
    async with chain("a", "b", "c", "d", "e", "f") as queues:
        await queues.send("a", "x")
        await queues.send("b", "y")
        assert await queues.peek("f") == ["y"]
        (stuck,) = await queues.messages("e", TRANSFER_DEAD_LETTER)
        assert properties_of(stuck)["DeadLetterReason"] == "MaxTransferHopCountExceeded"
        assert properties_of(stuck)["DeadLetterErrorDescription"] == "The message was forwarded 4 times already."


@covers("M10")
async def test_a_loop_ends_with_the_hops() -> None:
    async with SeveralQueues({"a": settings("b"), "b": settings("a")}) as queues:
        await queues.send("a", "x", "y")
        assert await queues.contents() == {"a": [[], [], [], ["x", "y"]], "b": [[], [], [], []]}
    async with SeveralQueues({"a": settings("a")}) as queues:
        await queues.send("a", "x")
        assert await queues.contents() == {"a": [[], [], [], ["x"]]}


# Destinations that refuse.


@covers("M10")
async def test_without_a_destination_messages_go_to_the_transfer_dead_letters() -> None:
    async with SeveralQueues({"a": settings("nowhere")}) as queues:
        await queues.send("a", "x", "y")
        assert await queues.contents() == {"a": [[], [], [], ["x", "y"]]}
        (first, _) = await queues.messages("a", TRANSFER_DEAD_LETTER)
        assert properties_of(first)["DeadLetterReason"] == "TransferDestinationNotFound"
        assert (
            properties_of(first)["DeadLetterErrorDescription"] == "The messaging entity 'nowhere' could not be found."
        )
        assert queues.forwarded == []


@covers("M10")
async def test_a_destination_that_is_deleted_on_the_way_gets_nothing_more() -> None:
    async with chain("a", "b") as queues:
        await queues.send("a", "x")
        await queues.delete("b")
        await queues.send("a", "y")
        assert await queues.contents() == {"a": [[], [], [], ["y"]]}


@covers("M10")
async def test_a_destination_deleted_between_staging_and_commit_loses_nothing() -> None:
    async with SeveralQueues({"a": settings(), "b": settings()}) as queues:
        await queues.send("a", "x")
        await queues.change("a", settings(forward_to="b"))
        source, destination = await queues.open("a"), await queues.open("b")
        for _ in range(100):
            if not source.moves.staged:
                await asyncio.sleep(0)
        assert source.moves.staged
        queues.queues.pop("b")
        destination.fail(EntityNotFound("gone"))
        queues.broker.by_key.pop(int(destination.key))
        await queues.quiet()
        assert await queues.contents() == {"a": [[], [], [], ["x"]]}


@covers("M7", "M10")
async def test_a_session_queue_takes_what_has_a_session() -> None:
    async with SeveralQueues({"a": settings("b"), "b": settings(requires_session=True)}) as queues:
        await queues.stage("a", numbered("x", session_id="s"))
        await queues.stage("a", numbered("y"))
        await queues.stage("a", numbered("z", session_id="s"))
        await queues.quiet()
        assert [message.number for message in await queues.messages("b")] == [1, 2]
        (refused,) = await queues.messages("a", TRANSFER_DEAD_LETTER)
        assert properties_of(refused)["DeadLetterReason"] == "TransferNotAllowed"
        assert "SessionId" in str(properties_of(refused)["DeadLetterErrorDescription"])


@covers("M10")
@pytest.mark.parametrize("refusal", [EntityDisabled("disabled"), ServerBusy("busy")])
async def test_a_destination_that_takes_nothing_for_now_is_asked_ever_more_rarely(refusal: BusError) -> None:
    async with chain("a", "b") as queues:
        queues.refusals["b"] = refusal
        await queues.send("a", "x")
        asked: list[int] = []
        for _ in range(130):
            before = queues.find_count
            await queues.pass_time(1.0)
            asked.append(queues.find_count - before)
        assert [second for second, count in enumerate(asked, 1) if count] == [1, 3, 7, 15, 31, 63, 123]
        assert await queues.contents() == {"a": [["x"], [], [], []], "b": [[], [], [], []]}
        del queues.refusals["b"]
        await queues.pass_time(60.0)
        assert await queues.peek("b") == ["x"]


@covers("M10")
async def test_a_destination_that_changes_is_asked_at_once() -> None:
    async with chain("a", "b") as queues:
        queues.refusals["b"] = EntityDisabled("disabled")
        await queues.send("a", "x")
        del queues.refusals["b"]
        await queues.change("b", settings())
        await queues.quiet()
        assert await queues.peek("b") == ["x"]


@covers("M10", "M13")
async def test_a_full_destination_is_filled_up_in_order_as_it_empties() -> None:
    size = len(numbered("m00").sections)
    async with SeveralQueues({"a": settings("b"), "b": settings(max_size_bytes=3 * size)}) as queues:
        await queues.send("a", *BODIES[:6])
        assert (await queues.peek("b"), await queues.peek("a")) == (BODIES[:3], BODIES[3:6])
        for left in range(3, 6):
            lock = await lock_next(queues, "b")
            (await queues.open("b")).remove(lock, None)
            await queues.quiet()
            assert await queues.peek("b") == BODIES[left - 2 : left + 1]
        assert await queues.peek("a") == []


@covers("M10", "M13")
async def test_short_of_room_nothing_is_moved() -> None:
    async with chain("a", "b") as queues:
        queues.refusals["b"] = ServerBusy("busy")
        await queues.send("a", "x")
        del queues.refusals["b"]
        queues.disk.free_bytes, queues.disk.reserve_bytes = 10, 100
        await queues.pass_time(60.0)
        assert await queues.peek("a") == ["x"]
        queues.disk.free_bytes = 1 << 40
        await queues.pass_time(60.0)
        assert await queues.peek("b") == ["x"]


@covers("M8", "M10")
async def test_duplicates_are_detected_where_messages_arrive() -> None:
    async with SeveralQueues({"a": settings("b"), "b": settings(duplicate_window_ms=60_000)}) as queues:
        await queues.send("b", "x")
        await queues.send("a", "x", "y", "y", "z")
        assert await queues.peek("b") == ["x", "y", "z"]
        assert await queues.peek("a") == []
        await queues.crash()
        await queues.send("a", "z", "w")
        assert await queues.peek("b") == ["x", "y", "z", "w"]


# Dead letters and what is sent via.


@covers("M3", "M10")
async def test_dead_letters_go_on_and_say_where_they_come_from() -> None:
    async with SeveralQueues({"a": settings("", "b"), "b": settings("c"), "c": settings()}) as queues:
        await queues.send("a", "x", "y")
        lock = await lock_next(queues, "a")
        lock.reason, lock.description = "Broken", "cannot be read"
        (await queues.open("a")).settle(lock, TO_DEAD_LETTERS, None)
        await queues.quiet()
        assert await queues.contents() == {"a": [["y"], [], [], []], "b": [[], [], [], []], "c": [["x"], [], [], []]}
        (dead,) = await queues.messages("c")
        assert properties_of(dead) == {"DeadLetterReason": "Broken", "DeadLetterErrorDescription": "cannot be read"}
        assert delivered(dead)["x-opt-deadletter-source"] == "a"


@covers("M10", "M11")
async def test_what_is_sent_via_an_entity_leaves_through_its_transfer_lane() -> None:
    async with SeveralQueues({"via": settings(), "b": settings(), "c": settings()}) as queues:
        queues.refusals["b"] = queues.refusals["c"] = EntityDisabled("disabled")
        for number, body in enumerate(BODIES[:6]):
            await queues.send("via", body, via="c" if number % 2 else "b")
        assert await queues.peek("via", TRANSFER) == BODIES[:6]
        del queues.refusals["c"]
        await queues.pass_time(60.0)
        assert await queues.peek("c") == BODIES[1:6:2], "who waits for another destination holds nobody up"
        assert await queues.peek("via", TRANSFER) == BODIES[0:6:2]
        del queues.refusals["b"]
        await queues.pass_time(60.0)
        assert await queues.contents() == {
            "via": [[], [], [], []],
            "b": [BODIES[0:6:2], [], [], []],
            "c": [BODIES[1:6:2], [], [], []],
        }
        assert "x-opt-transfer-destination" not in delivered((await queues.messages("b"))[0])


@covers("M10", "M11")
async def test_many_for_a_destination_that_waits_do_not_hide_those_behind() -> None:
    async with SeveralQueues({"via": settings(), "b": settings(), "c": settings()}) as queues:
        queues.refusals["b"] = EntityDisabled("disabled")
        blocked = [f"{number:04}" for number in range(PASS_MESSAGES + 20)]
        await queues.send("via", *blocked, via="b")
        await queues.send("via", "free", via="c")
        assert await queues.peek("c") == ["free"]
        assert int((await queues.open("via")).transfer.live_count) == len(blocked)


@covers("M5", "M6", "M11")
async def test_a_message_sent_via_has_its_schedule_and_time_to_live_at_its_destination() -> None:
    async with SeveralQueues({"via": settings(), "b": settings(default_ttl_ms=5_000)}) as queues:
        at_ms = queues.clock.now_ms() + 3_000
        await queues.stage("via", message("later", ttl_ms=60_000, scheduled_at_ms=at_ms), via="b")
        await queues.quiet()
        assert int((await queues.open("b")).main.scheduled_count) == 1
        await queues.pass_time(3.0)
        (arrived,) = await queues.messages("b")
        assert int(arrived.expires_at - arrived.enqueued_at) == 5_000
        lock = await lock_next(queues, "b")
        assert int(lock.number) == int(arrived.number)


# Topics.


@covers("M9", "M10")
async def test_a_topic_distributes_what_is_forwarded_to_it_and_its_subscriptions_forward() -> None:
    queues = SeveralQueues({"a": settings("t"), "t": settings(), "red": settings(), "all": settings()})
    subscriptions = [
        (11, settings("red"), rule_set("sys.MessageId LIKE 'r%'")),
        (12, settings("all"), ALL),
        (13, settings(), ALL),
    ]
    queues.topics["t"] = [(key, one, rules) for key, one, rules in subscriptions]
    async with queues:
        await queues.send("a", "r1", "g1", "r2")
        assert await queues.peek("red") == ["r1", "r2"]
        assert await queues.peek("all") == ["r1", "g1", "r2"]
        topic = await queues.open("t")
        assert topic.fan_out is not None
        own = topic.fan_out.subscriptions[13]
        assert [int(one.hops) for one in await queues.messages_of(own)] == [1, 1, 1]
        assert [int(one.hops) for one in await queues.messages("red")] == [2, 2]
        assert int(topic.main.live_count) == 3, "the bodies are there once, for the subscription that does not forward"


@covers("M9", "M10")
async def test_a_subscription_that_refuses_its_forward_keeps_it_among_its_transfer_dead_letters() -> None:
    queues = SeveralQueues({"t": settings()})
    queues.topics["t"] = [(11, settings("nowhere"), ALL)]
    async with queues:
        await queues.send("t", "x")
        topic = await queues.open("t")
        assert topic.fan_out is not None
        (refused,) = await queues.messages_of(topic.fan_out.subscriptions[11], TRANSFER_DEAD_LETTER)
        assert properties_of(refused)["DeadLetterReason"] == "TransferDestinationNotFound"
        assert int(topic.main.live_count) == 0


# Trouble and the meter.


@covers("M10")
async def test_each_hop_is_metered_by_size() -> None:
    async with chain("a", "b", "c") as queues:
        await queues.send("a", "x", "y")
        await queues.stage("a", numbered("large", padding=70_000))
        await queues.quiet()
        totals: dict[str, list[int]] = {}
        for path, messages, operations, size_bytes in queues.forwarded:
            total = totals.setdefault(path, [0, 0, 0])
            for position, figure in enumerate((messages, operations, size_bytes)):
                total[position] += figure
        size_bytes = 2 * len(numbered("x").sections) + len(numbered("large", padding=70_000).sections)
        assert totals == {"a": [3, 4, size_bytes], "b": [3, 4, size_bytes]}


@covers("M10")
async def test_a_queue_whose_messages_wait_for_a_destination_stays_in_memory() -> None:
    async with chain("a", "b") as queues:
        queues.refusals["b"] = ServerBusy("busy")
        await queues.send("a", "x")
        queues.broker.close_fragment(queues.keys["a"])
        del queues.refusals["b"]
        await queues.pass_time(1.0)
        assert await queues.peek("b") == ["x"]


@covers("M10")
async def test_a_destination_that_a_commit_is_about_to_reach_stays_in_memory() -> None:
    async with chain("a", "b") as queues:
        await queues.open("b")
        queues.disk.faults[queues.disk.commit_count + 2] = Fault.HANG
        answer = await queues.stage("a", numbered("x"))
        await queues.disk.is_hanging.wait()
        assert answer.is_accepted
        for name in ("a", "b"):
            before = await queues.open(name)
            assert not queues.broker.close_fragment(queues.keys[name])
            assert await queues.open(name) is before
        queues.disk.go_on.set()
        await queues.quiet()
        await queues.send("b", "y")
        assert (await queues.peek("a"), await queues.peek("b")) == ([], ["x", "y"])


@covers("M10")
async def test_forwarding_goes_on_when_a_queue_is_opened_in_the_next_life() -> None:
    async with chain("a", "b") as queues:
        queues.refusals["b"] = ServerBusy("busy")
        await queues.send("a", *BODIES)
        await queues.crash()
        queues.refusals.clear()
        await queues.open("a")
        await queues.quiet()
        assert (await queues.peek("a"), await queues.peek("b")) == ([], BODIES)


def everything() -> SeveralQueues:
    """A main lane, dead letters and a transfer lane lead to a queue that detects duplicates; one of them by way of a
    topic, in which another subscription keeps a copy."""
    queues = SeveralQueues(
        {
            "a": settings("t"),
            "t": settings(),
            "dead": settings(forward_dead_letters_to="end", dead_letter_expired=True),
            "via": settings(),
            "end": settings(duplicate_window_ms=600_000),
        }
    )
    queues.topics["t"] = [(11, settings("end"), ALL), (12, settings(), ALL)]
    return queues


async def fill(queues: SeveralQueues) -> None:
    """Everything has something to move, and nothing moves yet."""
    queues.refusals.update({"t": ServerBusy("busy"), "end": ServerBusy("busy")})
    await queues.send("a", *[f"a{number}" for number in range(9)])
    await queues.send("via", *[f"v{number}" for number in range(9)], via="end")
    await queues.send("dead", *[f"d{number}" for number in range(9)], ttl_ms=1_000)
    await queues.pass_time(2.0)
    assert len(await queues.peek("dead", DEAD_LETTER)) == 9


async def finish(queues: SeveralQueues) -> None:
    """Until all is where it belongs, whatever happened to a commit."""
    for _ in range(4):
        while queues.broker.failure is None and not queues.broker.forwarding.is_quiet():
            await queues.broker.next_turn()
        if queues.broker.failure is not None:
            await queues.crash()
        for name in queues.queues:
            await queues.open(name)
        await queues.pass_time(60.0)


@covers("M1", "M10", "F2", "F3")
@pytest.mark.parametrize(
    "faults",
    [[Fault.FULL], [Fault.FULL, Fault.FULL], [Fault.UNKNOWN_LOST], [Fault.UNKNOWN_KEPT]],
    ids=lambda faults: "-".join(fault.name for fault in faults),
)
async def test_whichever_commit_fails_each_message_arrives_once_and_in_order(faults: list[Fault]) -> None:
    failing = 0
    is_reached = True
    while is_reached:
        failing += 1
        queues = everything()
        async with queues:
            await fill(queues)
            first = queues.disk.commit_count + failing
            queues.disk.faults.update({first + position: fault for position, fault in enumerate(faults)})
            queues.refusals.clear()
            queues.broker.forwarding.retry_all()
            sends = [await queues.stage("end", numbered(f"s{number}")) for number in range(3)]
            await finish(queues)
            is_reached = queues.disk.commit_count >= first
            arrived = await queues.peek("end")
            for kind in "avd":
                assert [body for body in arrived if body[0] == kind] == [f"{kind}{number}" for number in range(9)]
            if all(answer.is_accepted for answer in sends):
                assert [body for body in arrived if body[0] == "s"] == ["s0", "s1", "s2"]
            topic = await queues.open("t")
            assert topic.fan_out is not None
            kept = await queues.messages_of(topic.fan_out.subscriptions[12])
            assert [body_of(one) for one in kept] == [f"a{number}" for number in range(9)]
            contents = await queues.contents()
            assert [contents[name] for name in ("a", "dead", "via")] == [[[], [], [], []]] * 3
            assert queues.broker.damage_count == 0
            queues.disk.faults.clear()
            await queues.send("end", *arrived)
            assert await queues.peek("end") == arrived, "whatever came is known by its id"
    assert failing > 4


@covers("M10")
async def test_nobody_is_asked_any_more_for_messages_that_were_deleted() -> None:
    async with SeveralQueues({"a": settings(forward_to="b"), "b": settings()}) as queues:
        queues.refusals["b"] = ServerBusy("not now")
        await queues.send("a", "x", "y")
        await browsing.delete_batch(queues.broker, await queues.open("a"), MAIN, 10, 1 << 60)
        del queues.refusals["b"]
        await queues.pass_time(61.0)
        asked = queues.find_count
        await queues.pass_time(61.0)
        assert queues.find_count == asked
