"""Topics, their subscriptions, and the rules between them."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from tandembus.descriptions import RuleDescription, SqlAction, TrueFilter
from tandembus.errors import BusError, EntityNotFound, InvalidOperation
from tests.behaviour.driver import Bus, Draft, Fault, Queue, message, ping
from tests.behaviour.shapes import UNPARTITIONED, on_shapes
from tests.covers import covers


@pytest.fixture
async def topic(bus: Bus) -> Queue:
    return await bus.topic()


async def red_and_all(bus: Bus, topic: Queue) -> tuple[Queue, Queue]:
    red = await bus.subscription(topic, "red", "colour = 'red'", max_delivery_count=1000)
    return red, await bus.subscription(topic, "all", max_delivery_count=1000)


def coloured(body: str, colour: object, **options: object) -> Draft:
    return message(body, properties={"colour": colour}, **options)


@covers("M9")
async def test_each_subscription_gets_what_its_rules_match_under_the_topics_numbers(bus: Bus, topic: Queue) -> None:
    red, everything = await red_and_all(bus, topic)
    commits = bus.commit_count
    await topic.send(coloured("a", "red"), coloured("b", "blue"), coloured("c", "red"))
    assert bus.commit_count == commits + 1
    assert bus.record_count("bodies") == 3, "each is stored once"
    numbers = {one.body: one.number for one in await everything.receive()}
    assert list(numbers) == ["a", "b", "c"]
    assert {one.body: one.number for one in await red.receive()} == {"a": numbers["a"], "c": numbers["c"]}


@covers("M9")
async def test_what_nobody_wants_is_accepted_and_not_kept(bus: Bus, topic: Queue) -> None:
    await topic.send(message("a"), ping())
    red = await bus.subscription(topic, "red", "colour = 'red'")
    await topic.send(coloured("b", "blue"), coloured("c", "red"))
    assert bus.record_count("bodies") == 1
    (one,) = await red.receive()
    assert (one.body, one.number & 0xFFFF) == ("c", 1)


@covers("M9")
async def test_subscriptions_settle_independently_and_the_last_one_ends_a_message(bus: Bus, topic: Queue) -> None:
    red, everything = await red_and_all(bus, topic)
    bodies = [f"m{number}" for number in range(30)]
    await topic.send(*[coloured(body, "red" if number % 3 == 0 else "blue") for number, body in enumerate(bodies)])
    for one in await red.receive(4):
        await one.complete()
    await bus.kill()
    assert await red.bodies() == bodies[12::3]
    await topic.send(coloured("new", "red"))
    assert await red.held() == ["new"]
    assert (await topic.counts()).size_bytes > 0
    assert await everything.bodies() == [*bodies, "new"]
    assert (await topic.counts()).size_bytes > 0
    await red.bodies()
    assert (await topic.counts()).size_bytes == 0


@covers("M9")
async def test_a_subscription_with_few_matches_among_many_drains_in_order(bus: Bus, topic: Queue) -> None:
    """Over more than one block."""
    red, _ = await red_and_all(bus, topic)
    late = await bus.subscription(topic, "late", "sys.MessageId = 'm1150'")
    await topic.send_batch(*[coloured(f"m{number}", "red" if number % 37 == 5 else "blue") for number in range(1200)])
    assert await red.bodies() == [f"m{number}" for number in range(1200) if number % 37 == 5]
    await bus.kill()
    assert await late.bodies() == ["m1150"]


@covers("M6", "M9")
async def test_a_subscription_may_have_a_shorter_time_to_live_than_its_topic(bus: Bus, topic: Queue) -> None:
    short = await bus.subscription(
        topic, "short", default_message_time_to_live_s=1.0, dead_lettering_on_message_expiration=True
    )
    everything = await bus.subscription(topic, "all")
    await topic.send(message("a"), message("b", ttl_s=0.5))
    await bus.advance(3.0)
    assert (await short.held(), sorted(await short.dead_letters.held())) == ([], ["a", "b"])
    assert (await everything.held(), await everything.dead_letters.held()) == (["a"], [])


@covers("M3", "M9")
@pytest.mark.parametrize("crashes", [False, True])
async def test_a_dead_letter_is_a_copy_that_outlives_the_topics_message(bus: Bus, topic: Queue, crashes: bool) -> None:
    red, everything = await red_and_all(bus, topic)
    await topic.send(coloured("a", "red"))
    await (await red.receive_one()).dead_letter("bad")
    await (await everything.receive_one()).complete()
    if crashes:
        await bus.kill()
    assert await red.dead_letters.held() == ["a"]
    assert (await topic.counts()).size_bytes > 0, "dead letters count towards the topic's size"
    await red.delete()
    assert (await topic.counts()).size_bytes == 0


@covers("M2", "M3", "M9")
async def test_delivery_counts_and_deferral_are_each_subscriptions_own(bus: Bus, topic: Queue) -> None:
    red, everything = await red_and_all(bus, topic)
    await topic.send(coloured("a", "red"))
    await (await red.receive_one()).abandon()
    other = await everything.receive_one()
    assert ((await red.receive_one()).delivery_count, other.delivery_count) == (1, 0)
    await other.defer()
    assert ((await everything.counts()).deferred, (await red.counts()).deferred) == (1, 0)


# Actions.


@covers("M9")
async def test_an_action_changes_only_its_subscriptions_copy_and_stores_no_second_body(bus: Bus, topic: Queue) -> None:
    changing = await bus.subscription(topic, "red", ("colour = 'red'", "SET size = 5; SET colour = 'dark red'"))
    everything = await bus.subscription(topic, "all")
    await topic.send(coloured("a", "red"))
    assert bus.record_count("bodies") == 1
    await bus.kill()
    assert (await changing.receive_one()).properties == {"size": 5, "colour": "dark red", "RuleName": "rule0"}
    assert (await everything.receive_one()).properties == {"colour": "red"}


@covers("M9")
async def test_a_copy_for_each_matching_rule_with_an_action_and_one_for_all_without(bus: Bus, topic: Queue) -> None:
    rules = (("1=1", "SET n = 1"), ("colour = 'red'", "SET sys.Label = 'x'; SET n = 2"), "colour = 'red'", "1=1")
    copies = await bus.subscription(topic, "copies", *rules)
    await topic.send(coloured("a", "red"), coloured("b", "red"))
    found = await copies.receive()
    assert [one.body for one in found] == ["a"] * 3 + ["b"] * 3
    assert sorted(str(one.properties.get("n")) for one in found) == ["1", "1", "2", "2", "None", "None"]
    for one in found:
        await one.complete()
    assert (await topic.counts()).size_bytes == 0


@covers("M6", "M7", "M9")
async def test_an_action_on_a_system_property_makes_a_message_of_its_own(bus: Bus, topic: Queue) -> None:
    wait = SqlAction("SET sys.TimeToLive = @wait", (("wait", timedelta(seconds=30)),))
    short = await bus.subscription(
        topic, "short", RuleDescription("short", TrueFilter(), wait), dead_lettering_on_message_expiration=True
    )
    unnamed = await bus.subscription(topic, "unnamed", ("1=1", "SET sys.SessionId = NULL"), requires_session=True)
    everything = await bus.subscription(topic, "all")
    await topic.send("a", session="s")
    assert (await unnamed.held(), await unnamed.dead_letters.held()) == ([], ["a"])
    await bus.advance(29.0)
    assert await short.held() == ["a"]
    await bus.advance(3.0)
    assert (await short.dead_letters.held(), await everything.held()) == (["a"], ["a"])


@covers("M9")
@pytest.mark.parametrize("is_dead_lettered", [True, False])
async def test_a_rule_that_cannot_be_evaluated_never_blocks_the_topic(
    bus: Bus, topic: Queue, is_dead_lettered: bool
) -> None:
    broken = await bus.subscription(
        topic, "broken", "colour + 1 > 2", dead_lettering_on_filter_evaluation_exceptions=is_dead_lettered
    )
    everything = await bus.subscription(topic, "all")
    await topic.send(coloured("a", "red"), coloured("b", 5))
    assert await broken.held() == ["b"]
    assert await broken.dead_letters.held() == (["a"] if is_dead_lettered else [])
    assert await everything.held() == ["a", "b"]


@covers("M5", "M9", "F15")
async def test_scheduled_messages_of_a_topic_with_many_rules_all_come(bus: Bus, topic: Queue) -> None:
    rules = [f"colour = '{number}'" for number in range(400)]
    many = await bus.subscription(topic, "many", *rules, "1 = 1")
    bodies = [f"m{number}" for number in range(60)]
    await topic.send_batch(*bodies, in_s=1.0)
    await bus.advance(3.0)
    assert await many.bodies() == bodies


@covers("M5", "M9")
@pytest.mark.parametrize("crashes", [False, True])
async def test_rules_are_evaluated_when_a_scheduled_message_is_activated(bus: Bus, topic: Queue, crashes: bool) -> None:
    red, everything = await red_and_all(bus, topic)
    await topic.send(coloured("a", "red", in_s=60.0))
    assert ((await topic.counts()).scheduled, await everything.held()) == (1, [])
    await bus.do(bus.namespace.delete_rule("news", "red", "rule0"))
    if crashes:
        await bus.kill()
    await bus.advance(61.0)
    assert ((await topic.counts()).scheduled, await red.held(), await everything.held()) == (0, [], ["a"])


# Subscriptions that come and go.


@covers("M9")
@pytest.mark.parametrize("crashes", [False, True])
async def test_subscriptions_come_and_go_and_with_one_goes_what_only_it_had(
    bus: Bus, topic: Queue, crashes: bool
) -> None:
    red, everything = await red_and_all(bus, topic)
    bodies = [f"m{number:02}" for number in range(40)]
    await topic.send(*[coloured(body, "red" if number % 2 else "tan") for number, body in enumerate(bodies)])
    size = (await topic.counts()).size_bytes
    receiver = await (await bus.subscription(topic, "new")).receiver()
    assert await receiver.take(10) == []
    await everything.delete()
    if crashes:
        await bus.kill()
        await bus.advance(1.0)
    with pytest.raises(EntityNotFound):
        await everything.held()
    assert (await topic.counts()).size_bytes == size / 2
    assert await red.bodies() == bodies[1::2]
    await topic.send(coloured("later", "blue"))
    assert crashes or receiver.bodies == ["later"]


# A store without room, and failures.


@covers("M9", "M13")
@on_shapes(*UNPARTITIONED)
@pytest.mark.parametrize("count", [2, 9, 20])
async def test_a_full_store_refuses_publications_whole_and_the_next_ones_fit(
    bus: Bus, topic: Queue, count: int
) -> None:
    red, everything = await red_and_all(bus, topic)
    await topic.send(coloured("before", "red"))
    bus.fail_next(Fault.FULL)
    refused = [coloured(f"blue{number}", "blue") for number in range(count)]
    with pytest.raises(BusError):
        await topic.send(*refused, coloured("red", "red"), coloured("later", "red", in_s=1000.0))
    await bus.advance(20.0)
    after = [f"m{number}" for number in range(12)]
    await topic.send(*[coloured(body, "red") for body in after])
    assert (await topic.counts()).scheduled == 0
    assert [one.body for one in await red.receive()] == ["before", *after]
    await bus.kill()
    assert await everything.bodies() == ["before", *after]


@covers("M5", "M7", "M9")
async def test_a_scheduled_copy_that_lacks_its_session_is_a_dead_letter(bus: Bus, topic: Queue) -> None:
    rules = ("1 = 1", ("1 = 1", "SET sys.SessionId = 'x'"), ("1 = 1", "SET n = 1"))
    sessions = await bus.subscription(topic, "sessions", *rules, requires_session=True)
    plain = await bus.subscription(topic, "plain")
    await topic.send("a", in_s=10.0)
    await bus.advance(11.0)
    assert (await sessions.held(), await sessions.dead_letters.held()) == (["a"], ["a", "a"])
    assert await plain.held() == ["a"]


@covers("M7", "M9")
async def test_a_batch_that_a_session_subscription_cannot_take_is_refused_whole(bus: Bus, topic: Queue) -> None:
    await bus.subscription(topic, "sessions", "colour = 'red'", requires_session=True)
    with pytest.raises(InvalidOperation):
        await topic.send_batch(coloured("a", "blue"), coloured("b", "red"))
    assert bus.record_count("bodies") == 0


@covers("M1", "M9")
@pytest.mark.parametrize("seed", range(4))
async def test_random_publications_and_settlements_with_crashes_lose_and_repeat_nothing(
    bus: Bus, topic: Queue, seed: int
) -> None:
    chance = random.Random(seed)
    red, everything = await red_and_all(bus, topic)
    other = await bus.subscription(topic, "other", max_delivery_count=1000)
    expected: dict[Queue, list[str]] = {red: [], everything: [], other: []}
    for life in range(5):
        for step in range(chance.randrange(3, 12)):
            if chance.random() < 0.5:
                for number in range(chance.randrange(1, 9)):
                    body, is_red = f"{life}-{step}-{number}", chance.random() < 0.4
                    await topic.send(coloured(body, "red" if is_red else "blue"))
                    for one in (everything, other, *((red,) if is_red else ())):
                        expected[one].append(body)
                continue
            subscription = chance.choice(list(expected))
            is_destructive = chance.random() < 0.3
            for taken in await subscription.receive(chance.randrange(1, 12), is_destructive):
                if not is_destructive:
                    await taken.settle("complete" if chance.random() < 0.7 else "release")
            expected[subscription] = await subscription.held()
        await bus.kill()
        for subscription, bodies in expected.items():
            assert await subscription.held() == bodies
