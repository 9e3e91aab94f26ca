"""Topic fan-out: who gets what, what is stored, and what is left when subscriptions settle, come and go."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from tandembus.amqp.encoding import timestamp
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    decode_message,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.broker.loading import load
from tandembus.broker.subscriptions import MAX_EVALUATIONS
from tandembus.broker.timers import DueWork
from tandembus.broker.topics import RELEASE_SLICE
from tandembus.descriptions import RuleDescription, SqlAction, TrueFilter
from tandembus.errors import InvalidOperation, StoreFull
from tandembus.message import Message, parse_message
from tandembus.rules import RuleSet, compile_rule
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import KEY, body_of, message, ping, properties_of, small
from tests.unit.broker.one_topic import ALL, OneTopic, rule_set

RED, ALWAYS, OTHER = 11, 12, 13


def coloured(body: str, colour: str | int, ttl_ms: int | None = None, at_ms: int | None = None) -> Message:
    payload = header_section(ttl_ms=ttl_ms) if ttl_ms is not None else b""
    if at_ms is not None:
        payload += message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(at_ms)})
    payload += properties_section(body) + application_properties_section({"colour": colour})
    return parse_message(payload + data_section(body.encode()))


def red_and_all() -> OneTopic:
    return OneTopic({RED: (small(), rule_set("colour = 'red'")), ALWAYS: (small(), ALL)})


def main_bodies(topic: OneTopic) -> int:
    """Bodies that the topic stores for its subscriptions."""
    return sum(1 for fragment, lane, _ in topic.disk.bodies if fragment == KEY and lane == MAIN)


@covers("M9")
async def test_each_subscription_gets_what_its_rules_match() -> None:
    async with red_and_all() as topic:
        await topic.publish(coloured("a", "red"), coloured("b", "blue"), coloured("c", "red"))
        assert await topic.subscription(RED).receiver().take(10) == ["a", "c"]
        assert await topic.subscription(ALWAYS).receiver().take(10) == ["a", "b", "c"]


@covers("M9")
async def test_a_body_is_stored_once_however_many_subscriptions_match() -> None:
    async with OneTopic({key: (small(), ALL) for key in range(20, 30)}) as topic:
        await topic.publish(*(message(f"m{number}") for number in range(30)))
        assert len(topic.disk.bodies) == 30
        for key in range(20, 30):
            assert len(await topic.subscription(key).peek()) == 30


@covers("M9")
async def test_what_no_rule_matches_takes_no_number_and_is_accepted() -> None:
    async with OneTopic({RED: (small(), rule_set("colour = 'red'"))}) as topic:
        await topic.publish(coloured("a", "blue"), coloured("b", "red"))
        assert main_bodies(topic) == 1
        receiver = topic.subscription(RED).receiver()
        assert await receiver.take(5) == ["b"]
        assert receiver.locks[0].number == 1


@covers("M9")
async def test_a_topic_without_subscriptions_accepts_and_keeps_nothing() -> None:
    async with OneTopic({}) as topic:
        await topic.publish(message("a"), ping())
        assert topic.disk.bodies == {}


@covers("M9")
async def test_a_message_is_gone_when_the_last_subscription_is_done_with_it() -> None:
    async with red_and_all() as topic:
        red, always = topic.subscription(RED), topic.subscription(ALWAYS)
        await topic.publish(*(coloured(f"m{number}", "red") for number in range(20)))
        first, second = red.receiver(), always.receiver()
        await first.take(100)
        for lock in first.locks:
            await red.complete(lock)
        assert topic.fragment.main.live_count == 20
        assert await always.peek() == [f"m{number}" for number in range(20)]
        await second.take(100)
        for lock in second.locks:
            await always.complete(lock)
        assert topic.fragment.main.live_count == 0
        assert topic.fragment.live_bytes() == 0
        await topic.do_due_work()
        assert main_bodies(topic) <= 8, "whole blocks are gone; the newest may wait for its neighbours"


@covers("M9")
async def test_subscriptions_settle_independently_across_a_restart() -> None:
    async with red_and_all() as topic:
        await topic.publish(*(coloured(f"m{number}", "red" if number % 3 == 0 else "blue") for number in range(30)))
        red = topic.subscription(RED)
        receiver = red.receiver()
        await receiver.take(4)
        for lock in receiver.locks:
            await red.complete(lock)
        later = await topic.after_crash()
    async with later:
        assert await later.subscription(RED).receiver().take(100) == [f"m{number}" for number in range(12, 30, 3)]
        assert await later.subscription(ALWAYS).receiver().take(100) == [f"m{number}" for number in range(30)]
        await later.publish(coloured("new", "red"))
        assert (await later.subscription(RED).peek())[-1] == "new"


@covers("M9")
async def test_a_subscription_with_few_matches_among_many_drains_in_order() -> None:
    async with red_and_all() as topic:
        red = topic.subscription(RED)
        receiver = red.receiver()
        expected = []
        for number in range(200):
            is_red = number % 37 == 5
            await topic.publish(coloured(f"m{number}", "red" if is_red else "blue"))
            if is_red:
                expected.append(f"m{number}")
        assert await receiver.take(100) == expected


@covers("M9", "P26")
async def test_a_subscription_shows_its_topics_numbers() -> None:
    async with red_and_all() as topic:
        await topic.publish(coloured("a", "blue"), coloured("b", "red"))
        red, always = topic.subscription(RED).receiver(), topic.subscription(ALWAYS).receiver()
        await red.take(5)
        await always.take(5)
        assert [int(lock.number) for lock in always.locks] == [1, 2]
        assert [int(lock.number) for lock in red.locks] == [2]


@covers("M9", "M6")
async def test_a_subscription_may_have_a_shorter_time_to_live_than_its_topic() -> None:
    short = small(default_ttl_ms=1000, dead_letter_expired=True)
    async with OneTopic({RED: (short, ALL), ALWAYS: (small(), ALL)}) as topic:
        await topic.publish(coloured("a", "red"), coloured("b", "red", ttl_ms=500))
        await topic.pass_time(2)
        assert await topic.subscription(RED).peek() == []
        assert sorted(await topic.subscription(RED).dead_letters()) == ["a", "b"]
        assert await topic.subscription(ALWAYS).peek() == ["a"], "b's own time was up; it was not dead-lettered here"


@covers("M9", "M3")
async def test_a_dead_letter_is_a_copy_that_outlives_the_topics_body() -> None:
    async with red_and_all() as topic:
        red, always = topic.subscription(RED), topic.subscription(ALWAYS)
        await topic.publish(coloured("a", "red"))
        await red.dead_letter(await red.receiver().take_one(), "bad")
        await always.complete(await always.receiver().take_one())
        assert topic.fragment.main.live_count == 0
        assert await red.dead_letters() == ["a"]
        assert topic.fragment.live_bytes() > 0, "dead letters count towards the topic's size"
        later = await topic.after_crash()
    async with later:
        assert await later.subscription(RED).dead_letters() == ["a"]
        assert later.fragment.live_bytes() > 0


@covers("M9", "M2")
async def test_delivery_counts_and_deferral_are_each_subscriptions_own() -> None:
    async with red_and_all() as topic:
        red, always = topic.subscription(RED), topic.subscription(ALWAYS)
        await topic.publish(coloured("a", "red"))
        receiver = red.receiver()
        await red.abandon(await receiver.take_one())
        assert (await receiver.take_one()).delivery_count == 1
        other = await always.receiver().take_one()
        assert other.delivery_count == 0
        await always.defer(other)
        assert always.fragment.main.deferred_count == 1
        assert red.fragment.main.deferred_count == 0


@covers("M9")
async def test_an_action_changes_only_its_subscriptions_copy_and_stores_no_second_body() -> None:
    changing = rule_set("colour = 'red'", "SET size = 5; SET colour = 'dark red'")
    async with OneTopic({RED: (small(), changing), ALWAYS: (small(), ALL)}) as topic:
        await topic.publish(coloured("a", "red"))
        assert main_bodies(topic) == 1
        red, always = topic.subscription(RED).receiver(), topic.subscription(ALWAYS).receiver()
        await red.take(1)
        await always.take(1)
        assert properties_of(red.messages[0]) == {"size": 5, "colour": "dark red", "RuleName": "rule0"}
        assert properties_of(always.messages[0]) == {"colour": "red"}
        later = await topic.after_crash()
    async with later:
        receiver = later.subscription(RED).receiver()
        await receiver.take(1)
        assert properties_of(receiver.messages[0]) == {"size": 5, "colour": "dark red", "RuleName": "rule0"}


@covers("M9")
async def test_a_copy_for_each_matching_rule_with_an_action_and_one_for_all_without() -> None:
    rules = rule_set("1=1", "SET n = 1", "colour = 'red'", "SET n = 2", "colour = 'red'", None, "1=1", None)
    async with OneTopic({RED: (small(), rules)}) as topic:
        await topic.publish(coloured("a", "red"))
        receiver = topic.subscription(RED).receiver()
        assert await receiver.take(10) == ["a", "a", "a"]
        assert sorted(str(properties_of(one).get("n")) for one in receiver.messages) == ["1", "2", "None"]
        for lock in receiver.locks:
            await topic.subscription(RED).complete(lock)
        assert topic.fragment.main.live_count == 0


@covers("M9")
async def test_an_action_on_a_system_property_makes_a_message_of_its_own() -> None:
    rules = rule_set("1=1", "SET sys.Label = 'changed'")
    async with OneTopic({RED: (small(), rules), ALWAYS: (small(), ALL)}) as topic:
        await topic.publish(coloured("a", "red"))
        red, always = topic.subscription(RED).receiver(), topic.subscription(ALWAYS).receiver()
        await red.take(1)
        await always.take(1)
        assert decode_message(red.messages[0].sections).property_at(3) == "changed"
        assert decode_message(always.messages[0].sections).property_at(3) is None
        assert body_of(red.messages[0]) == "a"


@covers("M9", "M6")
async def test_an_action_may_shorten_the_time_to_live_of_its_copy() -> None:
    action = SqlAction("SET sys.TimeToLive = @wait", (("wait", timedelta(seconds=30)),))
    rules = RuleSet([compile_rule(RuleDescription("short", TrueFilter(), action))])
    async with OneTopic({RED: (small(dead_letter_expired=True), rules), ALWAYS: (small(), ALL)}) as topic:
        await topic.publish(coloured("a", "red"))
        await topic.pass_time(29)
        assert await topic.subscription(RED).peek() == ["a"]
        await topic.pass_time(2)
        assert await topic.subscription(RED).dead_letters() == ["a"]
        assert await topic.subscription(ALWAYS).peek() == ["a"]


@covers("M9", "M7")
async def test_a_copy_whose_session_an_action_took_away_is_a_dead_letter() -> None:
    rules = rule_set("1=1", "SET sys.SessionId = NULL")
    async with OneTopic({RED: (small(requires_session=True), rules), ALWAYS: (small(), ALL)}) as topic:
        await topic.publish(message("a", session_id="s"))
        assert await topic.subscription(RED).peek() == []
        assert await topic.subscription(RED).dead_letters() == ["a"]
        assert await topic.subscription(ALWAYS).peek() == ["a"]


@covers("M9")
@pytest.mark.parametrize("is_dead_lettered", [True, False])
async def test_a_rule_that_cannot_be_evaluated_never_blocks_the_topic(is_dead_lettered: bool) -> None:
    settings = small(dead_letter_filter_errors=is_dead_lettered)
    async with OneTopic({RED: (settings, rule_set("colour + 1 > 2")), ALWAYS: (small(), ALL)}) as topic:
        await topic.publish(coloured("a", "red"), coloured("b", 5))
        assert await topic.subscription(RED).peek() == ["b"]
        assert await topic.subscription(RED).dead_letters() == (["a"] if is_dead_lettered else [])
        assert await topic.subscription(ALWAYS).peek() == ["a", "b"]


@covers("M9", "M5")
async def test_rules_are_evaluated_when_a_scheduled_message_is_activated() -> None:
    async with red_and_all() as topic:
        at_ms = topic.clock.now_ms() + 60_000
        await topic.publish(coloured("a", "red", at_ms=at_ms))
        assert topic.fragment.main.scheduled_count == 1
        assert await topic.subscription(ALWAYS).peek() == []
        topic.subscription(RED).fragment.rules = rule_set("colour = 'blue'")
        later = await topic.after_crash()
    async with later:
        later.subscription(RED).fragment.rules = rule_set("colour = 'blue'")
        await later.pass_time(61)
        assert later.fragment.main.scheduled_count == 0
        assert await later.subscription(RED).peek() == []
        assert await later.subscription(ALWAYS).receiver().take(5) == ["a"]


@covers("M9")
async def test_a_new_subscription_gets_what_is_sent_from_then_on() -> None:
    async with red_and_all() as topic:
        await topic.publish(*(coloured(f"old{number}", "red") for number in range(20)))
        other = await topic.subscribe(OTHER, ALL)
        receiver = other.receiver()
        assert await receiver.take(10) == []
        await topic.publish(coloured("new", "blue"))
        assert receiver.bodies == ["new"]


@covers("M9")
@pytest.mark.parametrize("crashes", [False, True])
async def test_with_a_subscription_goes_what_only_it_had(crashes: bool) -> None:
    topic = red_and_all()
    async with topic:
        await topic.publish(*(coloured(f"m{number}", "red" if number % 2 else "blue") for number in range(40)))
        await topic.unsubscribe(ALWAYS)
        if crashes:
            topic = await topic.after_crash()
    async with topic:
        await topic.quiet()
        assert topic.fragment.main.live_count == 20
        assert await topic.subscription(RED).receiver().take(100) == [f"m{number}" for number in range(1, 40, 2)]


@covers("M9", "M13")
async def test_a_full_store_refuses_a_publication_whole_and_the_next_one_fits() -> None:
    async with red_and_all() as topic:
        await topic.publish(coloured("before", "red"))
        topic.fault_next(Fault.FULL)
        refused = topic.stage(coloured("a", "red"), coloured("b", "blue"))
        assert isinstance(await refused.wait(), StoreFull)
        topic.broker.room.set_short(False)
        await topic.publish(coloured("after", "red"))
        assert await topic.subscription(RED).receiver().take(5) == ["before", "after"]
        assert await topic.subscription(ALWAYS).receiver().take(5) == ["before", "after"]
        later = await topic.after_crash()
    async with later:
        assert await later.subscription(ALWAYS).peek() == ["before", "after"]


@covers("M9", "M13")
@pytest.mark.parametrize("count", [2, 9, 20])
async def test_after_a_refused_publication_a_subscription_gets_what_it_would_have_passed_by(count: int) -> None:
    async with red_and_all() as topic:
        topic.fault_next(Fault.FULL)
        blue = [topic.stage(coloured(f"blue{number}", "blue")) for number in range(count)]
        answers = [*blue, topic.stage(coloured("red", "red")), topic.stage(coloured("later", "red", at_ms=1 << 45))]
        await topic.quiet()
        assert all(isinstance(answer.error, StoreFull) for answer in answers)
        topic.broker.room.set_short(False)
        await topic.publish(*(coloured(f"m{number}", "red") for number in range(12)))
        expected = [f"m{number}" for number in range(12)]
        assert (topic.fragment.main.live_count, topic.fragment.main.scheduled_count) == (12, 0)
        assert await topic.subscription(RED).receiver().take(50) == expected
        later = await topic.after_crash()
    async with later:
        assert await later.subscription(RED).peek() == expected
        assert await later.subscription(ALWAYS).peek() == expected


@covers("M9")
@pytest.mark.parametrize("actions", [("SET sys.Label = 'x'", "SET seen = 1"), ("SET seen = 1", "SET sys.Label = 'x'")])
async def test_copies_of_one_message_with_and_without_a_body_of_their_own(actions: tuple[str, str]) -> None:
    rules = rule_set("1 = 1", actions[0], "1 = 1", actions[1])
    async with OneTopic({RED: (small(), rules)}) as topic:
        await topic.publish(message("a"), message("b"))
        receiver = topic.subscription(RED).receiver()
        assert await receiver.take(10) == ["a", "a", "b", "b"]
        assert ["seen" in properties_of(one) for one in receiver.messages] == [True, False, True, False]


@covers("M9")
async def test_a_publication_takes_one_commit() -> None:
    async with red_and_all() as topic:
        await topic.publish(message("a"))
        before = topic.disk.commit_count
        await topic.publish(message("b"))
        assert topic.disk.commit_count == before + 1


@covers("M9")
async def test_with_a_subscription_goes_the_size_of_its_dead_letters() -> None:
    async with red_and_all() as topic:
        await topic.publish(message("a"))
        subscription = topic.subscription(ALWAYS)
        await subscription.dead_letter(await subscription.receiver().take_one())
        assert topic.fragment.live_bytes() > 0
        await topic.unsubscribe(ALWAYS)
        await topic.quiet()
        assert topic.fragment.live_bytes() == 0


@covers("M9", "M1")
async def test_a_topic_read_anew_while_a_subscription_goes_keeps_what_the_others_have() -> None:
    patient = small(block_size=1024)
    count = 2 * RELEASE_SLICE + 100
    async with OneTopic({ALWAYS: (patient, ALL), OTHER: (patient, ALL)}, patient) as topic:
        await topic.publish(*(message(f"m{number}") for number in range(count)))
        going = asyncio.create_task(topic.unsubscribe(OTHER))
        await asyncio.sleep(0)  # it has let go of the first slice
        await load(topic.broker, topic.fragment)
        await going
        await topic.quiet()
        assert topic.fragment.main.live_count == count


@covers("M9", "M7")
async def test_a_copy_with_a_session_of_its_own_arrives_beside_one_that_has_none() -> None:
    rules = rule_set("1 = 1", None, "1 = 1", "SET sys.SessionId = 'x'")
    async with OneTopic({RED: (small(requires_session=True), rules)}) as topic:
        await topic.schedule("a", in_s=10.0)
        await topic.pass_time(10.0)
        subscription = topic.subscription(RED)
        assert (await subscription.peek(), await subscription.dead_letters()) == (["a"], ["a"])


@covers("M9", "M7")
async def test_a_batch_that_a_session_subscription_cannot_take_is_refused_whole() -> None:
    async with OneTopic({RED: (small(requires_session=True), rule_set("colour = 'red'"))}) as topic:
        refused = topic.stage(coloured("a", "blue"), coloured("b", "red"))
        assert isinstance(await refused.wait(), InvalidOperation)
        assert topic.disk.bodies == {}


@covers("M9", "M1")
@pytest.mark.parametrize("seed", range(8))
async def test_random_publications_and_settlements_with_crashes_lose_and_repeat_nothing(seed: int) -> None:
    chance = random.Random(seed)
    patient = small(max_delivery_count=1000)
    topic = OneTopic({RED: (patient, rule_set("colour = 'red'")), ALWAYS: (patient, ALL), OTHER: (patient, ALL)})
    expected: dict[int, list[str]] = {RED: [], ALWAYS: [], OTHER: []}
    count = 0
    for _ in range(6):
        async with topic:
            for _ in range(chance.randrange(3, 12)):
                key = chance.choice(list(expected))
                if chance.random() < 0.5:
                    for _ in range(chance.randrange(1, 9)):
                        count += 1
                        is_red = chance.random() < 0.4
                        await topic.publish(coloured(f"m{count}", "red" if is_red else "blue"))
                        for one in expected:
                            if one != RED or is_red:
                                expected[one].append(f"m{count}")
                else:
                    queue = topic.subscription(key)
                    receiver = queue.receiver(is_destructive=chance.random() < 0.3)
                    taken = await receiver.take(chance.randrange(1, 12))
                    for body, lock in zip(taken, receiver.locks, strict=True):
                        if receiver.consumer.is_destructive:
                            expected[key].remove(body)
                        elif chance.random() < 0.7:
                            await queue.complete(lock)
                            expected[key].remove(body)
                    receiver.leave()
                    await queue.quiet()
            for key, bodies in expected.items():
                assert await topic.subscription(key).peek() == bodies
            live = set(expected[RED]) | set(expected[ALWAYS]) | set(expected[OTHER])
            assert topic.fragment.main.live_count == len(live)
            topic = await topic.after_crash()


@covers("M9", "M5", "F15")
async def test_scheduled_messages_of_a_topic_with_many_rules_come_a_few_at_a_time() -> None:
    rules = rule_set(*([f"colour = '{number}'", None][at] for number in range(999) for at in (0, 1)), "1 = 1")
    async with OneTopic({RED: (small(), rules)}) as topic:
        at_ms = topic.clock.now_ms() + 1000
        await topic.publish(*(message(f"m{number}", scheduled_at_ms=at_ms) for number in range(30)))
        stored = {number for _, _, number in topic.disk.bodies}
        topic.clock.advance(1.0)
        before = topic.disk.commit_count
        topic.disk.faults[before + 2] = Fault.HANG
        due = asyncio.create_task(DueWork(topic.broker, topic.clock).work())
        await asyncio.wait_for(topic.disk.is_hanging.wait(), 5.0)
        came = {number for _, _, number in topic.disk.bodies} - stored
        topic.disk.go_on.set()
        await due
        await topic.quiet()
        assert len(came) == MAX_EVALUATIONS // 1000
        assert await topic.subscription(RED).receiver().take(50) == [f"m{number}" for number in range(30)]
