"""Topics, subscriptions and rules come, change and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tandembus.descriptions import (
    CorrelationFilter,
    EntityKind,
    EntityStatus,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    InvalidOperation,
    QuotaExceeded,
)
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.paths import SubQueue
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Attached, Machine
from tests.unit.namespace.news_topic import (
    AUDIT,
    AUDIT_PATH,
    EVERYTHING,
    MAIL,
    MAIL_PATH,
    NEWS,
    NOTHING,
    assert_empty,
    close_all,
    fill,
    make_topic,
)

# Creating, updating, deleting.


@covers("M9")
async def test_every_subscription_gets_what_is_sent_to_the_topic_also_in_the_next_life() -> None:
    machine = Machine()
    async with machine.life() as life:
        await make_topic(life)
        await life.send("news", "a", "b")
        assert await life.peek(AUDIT_PATH) == await life.peek(MAIL_PATH) == ["a", "b"]
    async with machine.life() as life:
        await life.send("NEWS", "c")
        assert await life.peek("News/Subscriptions/Audit") == await life.peek(MAIL_PATH) == ["a", "b", "c"]


@covers("M9")
async def test_a_new_subscription_gets_what_is_sent_from_then_on() -> None:
    async with Machine().life() as life:
        await life.namespace.create_topic(NEWS)
        await life.send("news", "before")
        await life.namespace.create_subscription(AUDIT)
        await life.send("news", "after")
        assert await life.peek(AUDIT_PATH) == ["after"]


@covers("M9")
async def test_entities_know_their_kind() -> None:
    async with Machine().life() as life:
        await make_topic(life)
        await life.namespace.create_queue(QueueDescription("orders"))
        kinds = [(await life.namespace.entity(path)).kind for path in ("news", AUDIT_PATH, "orders")]
        assert kinds == [EntityKind.TOPIC, EntityKind.SUBSCRIPTION, EntityKind.QUEUE]


@covers("M9")
async def test_nobody_sends_to_a_subscription_or_receives_from_a_topic() -> None:
    async with Machine().life() as life:
        await make_topic(life)
        topic, subscription = await life.namespace.entity("news"), await life.namespace.entity(AUDIT_PATH)
        topic.check_can_send()
        subscription.check_can_receive()
        with pytest.raises(InvalidOperation, match="sent to its topic"):
            subscription.check_can_send()
        for sub_queue in SubQueue:
            with pytest.raises(InvalidOperation, match="received from its subscriptions"):
                topic.check_can_receive(sub_queue.lane)


@covers("M9")
async def test_what_is_not_there_is_not_found_by_name() -> None:
    async with Machine().life() as life:
        namespace = life.namespace
        await namespace.create_topic(NEWS)
        await namespace.create_queue(QueueDescription("orders"))
        missing: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("nowhere", lambda: namespace.delete_topic("nowhere")),
            ("orders", lambda: namespace.delete_topic("orders")),
            ("nowhere", lambda: namespace.update_topic(TopicDescription("nowhere"))),
            ("orders", lambda: namespace.create_subscription(SubscriptionDescription("orders", "s"))),
            ("news/Subscriptions/Audit", lambda: namespace.update_subscription(AUDIT)),
            ("news/Subscriptions/x", lambda: namespace.delete_subscription("news", "x")),
            ("news/Subscriptions/x", lambda: namespace.create_rule("news", "x", NOTHING)),
            ("news/subscriptions/x", lambda: namespace.entity("news/subscriptions/x")),
            ("news/subscriptions", lambda: namespace.entity("news/subscriptions")),
        ]
        for path, call in missing:
            with pytest.raises(EntityNotFound, match=f"'sb://bus/{path}' could not be found"):
                await call()
        with pytest.raises(EntityNotFound, match="could not be found"):
            namespace.rules("news", "x")
        with pytest.raises(EntityNotFound):
            await namespace.delete_queue("news")


@covers("M9", "M13")
async def test_names_are_taken_and_numbers_limited() -> None:
    async with Machine(Limits(max_entities=2, max_subscriptions=1)).life() as life:
        await life.namespace.create_topic(NEWS)
        with pytest.raises(EntityAlreadyExists):
            await life.namespace.create_queue(QueueDescription("NEWS"))
        await life.namespace.create_subscription(AUDIT)
        with pytest.raises(EntityAlreadyExists):
            await life.namespace.create_subscription(replace(AUDIT, name="AUDIT"))
        with pytest.raises(QuotaExceeded):
            await life.namespace.create_subscription(MAIL)
        await life.namespace.create_topic(TopicDescription("other"))
        with pytest.raises(QuotaExceeded):
            await life.namespace.create_topic(TopicDescription("third"))


@covers("M9")
async def test_an_update_holds_for_open_fragments_at_once_and_links_are_told() -> None:
    async with Machine().life() as life:
        await make_topic(life)
        topic, audit = await life.namespace.entity("news"), await life.namespace.entity(AUDIT_PATH)
        link = Attached(is_sender=True)
        topic.attach(link, life.clock.now())
        await life.namespace.update_topic(replace(NEWS, default_message_time_to_live_s=60.0))
        assert (fragment_of(topic).settings.default_ttl_ms, link.change_count) == (60_000, 1)
        for description in (AUDIT, MAIL):
            await life.namespace.update_subscription(replace(description, lock_duration_s=10.0))
        assert fragment_of(audit).settings.lock_duration_s == 10.0
        mail = await life.namespace.entity(MAIL_PATH)
        assert fragment_of(mail).settings.lock_duration_s == 10.0


@covers("M9")
async def test_what_is_fixed_at_creation_cannot_be_updated() -> None:
    async with Machine().life() as life:
        await make_topic(life)
        with pytest.raises(InvalidArgument, match="RequiresDuplicateDetection"):
            await life.namespace.update_topic(replace(NEWS, requires_duplicate_detection=True))
        with pytest.raises(InvalidArgument, match="RequiresSession"):
            await life.namespace.update_subscription(replace(AUDIT, requires_session=True))
        assert not life.catalog.get_topic("news").description.requires_duplicate_detection


@covers("M9")
@pytest.mark.parametrize("status", EntityStatus)
async def test_a_topics_status_is_about_sending_and_a_subscriptions_about_receiving(status: EntityStatus) -> None:
    async with Machine().life() as life:
        await make_topic(life)
        sender, receiver = Attached(is_sender=True), Attached(is_sender=False)
        topic, audit = await life.namespace.entity("news"), await life.namespace.entity(AUDIT_PATH)
        topic.attach(sender, life.clock.now())
        audit.attach(receiver, life.clock.now())
        await life.namespace.update_topic(replace(NEWS, status=status))
        await life.namespace.update_subscription(replace(AUDIT, status=status))
        assert [type(error) for error in sender.errors] == ([] if status.can_send else [EntityDisabled])
        assert [type(error) for error in receiver.errors] == ([] if status.can_receive else [EntityDisabled])
        await life.send("news", "kept for later")
        assert await life.peek(AUDIT_PATH) == ["kept for later"]


@covers("M9")
async def test_deleting_a_topic_cuts_all_links_of_its_family() -> None:
    async with Machine().life() as life:
        await make_topic(life)
        links = [Attached(is_sender=True), Attached(is_sender=False)]
        for path, link in zip(("news", AUDIT_PATH), links, strict=True):
            (await life.namespace.entity(path)).attach(link, life.clock.now())
        await life.namespace.delete_topic("news")
        assert [type(link.errors[0]) for link in links] == [EntityNotFound, EntityNotFound]
        for path in ("news", AUDIT_PATH, MAIL_PATH):
            with pytest.raises(EntityNotFound):
                await life.namespace.entity(path)


@covers("M9")
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
async def test_a_deleted_topic_leaves_nothing_in_the_store(is_open: bool) -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
        if not is_open:
            close_all(life)
        await life.namespace.delete_topic("news")
        await life.dropped()
        assert_empty(machine, life)
        assert life.broker.fragments() == []


@covers("M9")
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
async def test_a_deleted_subscription_takes_with_it_what_nobody_else_has(is_open: bool) -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
        if not is_open:
            close_all(life)
        await life.namespace.delete_subscription("NEWS", "AUDIT")
        await life.dropped()
        assert await life.peek(MAIL_PATH) == ["b"]
        await life.quiet()
        topic = fragment_of(await life.namespace.entity("news"))
        assert (topic.main.live_count, (await life.namespace.counts("news")).scheduled) == (2, 1)
        assert len(machine.disk.heads) == 2
        with pytest.raises(EntityNotFound):
            await life.namespace.entity(AUDIT_PATH)
        await life.send("news", "d")
        assert await life.peek(MAIL_PATH) == ["b", "d"]


@covers("M9")
async def test_a_topic_and_a_subscription_made_again_show_nothing_of_their_earlier_lives() -> None:
    async with Machine().life() as life:
        await fill(life)
        await life.namespace.delete_subscription("news", "audit")
        await life.namespace.create_subscription(AUDIT)
        assert await life.namespace.counts(AUDIT_PATH) == EntityCounts()
        await life.dropped()
        assert (await life.peek(AUDIT_PATH), await life.peek(AUDIT_PATH, DEAD_LETTER)) == ([], [])
        await life.send("news", "new")
        assert await life.peek(AUDIT_PATH) == ["new"]
        await life.namespace.delete_topic("news")
        await make_topic(life)
        assert await life.send("news", "newer") == [1]
        await life.dropped()
        assert await life.peek(AUDIT_PATH) == await life.peek(MAIL_PATH) == ["newer"]


# Rules.


@covers("M9")
async def test_rules_hold_from_the_moment_they_are_there() -> None:
    machine = Machine()
    async with machine.life() as life:
        namespace = life.namespace
        await namespace.create_topic(NEWS)
        await namespace.create_subscription(AUDIT, NOTHING)
        assert [rule.name for rule in namespace.rules("news", "audit")] == ["nothing"]
        await life.send("news", "no rule lets it through")
        await namespace.create_rule("NEWS", "AUDIT", EVERYTHING)
        await life.send("news", "let through")
        await namespace.update_rule("news", "audit", replace(EVERYTHING, filter=FalseFilter()))
        await life.send("news", "not any more")
        await namespace.update_rule("news", "audit", replace(NOTHING, filter=SqlFilter("sys.SequenceNumber > 0")))
        await life.send("news", "by number")
        await namespace.delete_rule("news", "audit", "NOTHING")
        await life.send("news", "gone with the rule")
        assert await life.peek(AUDIT_PATH) == ["let through", "by number"]
    async with machine.life() as life:
        await life.send("news", "still none")
        assert await life.peek(AUDIT_PATH) == ["let through", "by number"]
        assert [rule.name for rule in life.namespace.rules("news", "audit")] == ["everything"]


@covers("M9", "F15")
@pytest.mark.parametrize(
    "bad",
    [
        RuleDescription("r", SqlFilter("a = ")),
        RuleDescription("r", SqlFilter("nosuch(a) = 1")),
        RuleDescription("r", SqlFilter("sys.NoSuch = 1")),
        RuleDescription("r", SqlFilter("a = @b")),
        RuleDescription("r", TrueFilter(), SqlAction("SET")),
        RuleDescription("r", CorrelationFilter()),
        RuleDescription("r", SqlFilter("a = '" + "x" * 1020 + "'")),
        RuleDescription("x" * 51, TrueFilter()),
        RuleDescription("", TrueFilter()),
    ],
)
async def test_a_bad_rule_is_refused_and_nothing_is_stored(bad: RuleDescription) -> None:
    machine = Machine()
    async with machine.life() as life:
        await make_topic(life)
        version, before = life.catalog.version, dict(machine.records.documents)
        for change in (
            lambda: life.namespace.create_rule("news", "audit", bad),
            lambda: life.namespace.update_rule("news", "audit", bad),
            lambda: life.namespace.create_subscription(SubscriptionDescription("news", "new"), bad),
        ):
            with pytest.raises(BusError) as refused:
                await change()
            assert isinstance(refused.value, (InvalidArgument, EntityNotFound))
        assert life.catalog.version == version
        assert machine.records.documents == before


@covers("M9", "M13")
async def test_too_many_rules_are_refused() -> None:
    async with Machine(Limits(max_sql_rules=1)).life() as life:
        await make_topic(life)
        await life.namespace.create_rule("news", "audit", RuleDescription("one", SqlFilter("a = 1")))
        with pytest.raises(QuotaExceeded):
            await life.namespace.create_rule("news", "mail", RuleDescription("two", SqlFilter("a = 1")))
        with pytest.raises(EntityAlreadyExists):
            await life.namespace.create_rule("news", "audit", RuleDescription("ONE", TrueFilter()))


@covers("M9")
async def test_a_changed_rule_is_not_taken_for_an_equal_one() -> None:
    """1 and true are equal in Python, and not in a filter."""
    async with Machine().life() as life:
        await life.namespace.create_topic(NEWS)
        rule = RuleDescription("r", SqlFilter("a = @b", (("b", 1),)))
        await life.namespace.create_subscription(AUDIT, rule)
        fragment = fragment_of(await life.namespace.entity(AUDIT_PATH))
        changed = replace(rule, filter=SqlFilter("a = @b", (("b", True),)))
        await life.namespace.update_rule("news", "audit", changed)
        (compiled,) = fragment.rules.rules
        assert isinstance(compiled.description.filter, SqlFilter)
        assert compiled.description.filter.parameters[0][1] is True
