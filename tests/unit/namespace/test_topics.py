"""Topics, subscriptions and rules come, change and go, whenever the process may die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tandembus.broker.locks import COMPLETE, RELEASE
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
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
    StoreDamaged,
    StoreUnavailable,
)
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tandembus.namespace.paths import SubQueue
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import DEAD_LETTER
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Attached, Life, Machine

NEWS = TopicDescription("News")
AUDIT = SubscriptionDescription("news", "Audit")
MAIL = SubscriptionDescription("news", "Mail")
AUDIT_PATH, MAIL_PATH = "news/subscriptions/audit", "news/subscriptions/mail"
NOTHING = RuleDescription("nothing", FalseFilter())
EVERYTHING = RuleDescription("everything", TrueFilter())


async def make_topic(life: Life) -> None:
    await life.namespace.create_topic(NEWS)
    for description in (AUDIT, MAIL):
        await life.namespace.create_subscription(description)


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
        assert (topic.fragment.settings.default_ttl_ms, link.change_count) == (60_000, 1)
        for description in (AUDIT, MAIL):
            await life.namespace.update_subscription(replace(description, lock_duration_s=10.0))
        assert audit.fragment.settings.lock_duration_s == 10.0
        mail = await life.namespace.entity(MAIL_PATH)
        assert mail.fragment.settings.lock_duration_s == 10.0


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
        topic = (await life.namespace.entity("news")).fragment
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
        fragment = (await life.namespace.entity(AUDIT_PATH)).fragment
        changed = replace(rule, filter=SqlFilter("a = @b", (("b", True),)))
        await life.namespace.update_rule("news", "audit", changed)
        (compiled,) = fragment.rules.rules
        assert isinstance(compiled.description.filter, SqlFilter)
        assert compiled.description.filter.parameters[0][1] is True


# A crash between any two steps.


async def fill(life: Life) -> None:
    """'a' only in Audit, 'b' in both, 'dead' among Audit's dead letters, 'later' scheduled."""
    await make_topic(life)
    await life.send("news", "a", "b", "dead")
    mails = await life.receive(MAIL_PATH, 3)
    audits = await life.receive(AUDIT_PATH, 3)
    for lock, settlement in zip(mails, (COMPLETE, RELEASE, COMPLETE), strict=True):
        await life.settle(MAIL_PATH, lock, settlement)
    for lock, settlement in zip(audits, (RELEASE, RELEASE, TO_DEAD_LETTERS), strict=True):
        await life.settle(AUDIT_PATH, lock, settlement)
    await life.send("news", "later", scheduled_in_s=1000.0)


async def assert_filled(life: Life) -> None:
    assert await life.peek(MAIL_PATH) == ["b"]
    assert await life.peek(AUDIT_PATH) == ["a", "b"]
    assert await life.peek(AUDIT_PATH, DEAD_LETTER) == ["dead"]


def close_all(life: Life) -> None:
    life.clock.advance(life.machine.limits.fragment_idle_s + 1)
    life.namespace._open.let_go_of_unused(life.clock.now())
    assert life.broker.fragments() == []


def assert_empty(machine: Machine, life: Life) -> None:
    disk = machine.disk
    assert (disk.bodies, disk.blocks, disk.overlays, disk.heads) == ({}, {}, {}, {})
    assert life.catalog.tombstones() == []


Step = Callable[[Life], Awaitable[object]]


async def crash_at_every_commit(before: Step, step: Step, after: Callable[[Life, bool, bool], Awaitable[None]]) -> int:
    """Do the step with the power going out after ever more commits, the last one lost or kept; look at the next life
    (told whether the step was through, and whether the last commit was kept). Returns how many commits it takes."""
    for is_last_kept in (False, True):
        commits, is_through = 0, False
        while not is_through:
            machine = Machine()
            async with machine.life() as life:
                await before(life)
                machine.power.fail_after(commits, is_last_kept)
                try:
                    await step(life)
                    await life.dropped_or_out_of_power()
                    is_through = not machine.power.is_out
                except BusError:
                    assert machine.power.is_out
                commits += 1
            async with machine.life() as life:
                await life.dropped()
                await after(life, is_through, is_last_kept)
    return commits - 1


async def nothing(_life: Life) -> None:
    return


@covers("M9")
async def test_a_crash_while_a_topic_is_created_leaves_a_whole_topic_or_none() -> None:
    async def after(life: Life, is_through: bool, _is_last_kept: bool) -> None:
        if life.catalog.find_topic("news") is None:
            assert not is_through
            assert_empty(life.machine, life)
            await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(AUDIT)
        await life.send("news", "a")
        assert await life.peek(AUDIT_PATH) == ["a"]
        assert len(life.machine.disk.heads) == 2

    commits = await crash_at_every_commit(nothing, lambda life: life.namespace.create_topic(NEWS), after)
    assert commits == 3, "begun, made and finished"


@covers("M9")
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
async def test_a_crash_while_a_subscription_is_created_leaves_a_whole_one_or_none(is_open: bool) -> None:
    new = SubscriptionDescription("news", "new")

    async def before(life: Life) -> None:
        await fill(life)
        if not is_open:
            close_all(life)

    async def after(life: Life, is_through: bool, _is_last_kept: bool) -> None:
        if life.catalog.find_subscription("news", "new") is None:
            assert not is_through
            assert len(life.machine.disk.heads) == 3
            assert not [key for key in life.machine.records.documents if key[:1] == b"r" and b"one" in key]
            await life.namespace.create_subscription(new, replace(EVERYTHING, name="one"))
        assert [rule.name for rule in life.namespace.rules("news", "new")] == ["one"]
        await assert_filled(life)
        await life.send("news", "c")
        assert await life.peek("news/subscriptions/new") == ["c"]

    commits = await crash_at_every_commit(
        before, lambda life: life.namespace.create_subscription(new, replace(EVERYTHING, name="one")), after
    )
    assert commits == 3, "begun, made and finished"


@covers("M9")
async def test_a_crash_while_a_topic_is_deleted_leaves_all_of_it_or_nothing() -> None:
    async def after(life: Life, is_through: bool, is_last_kept: bool) -> None:
        if life.catalog.find_topic("news") is not None:
            assert not is_through
            assert not is_last_kept, "once deleted, deleted"
            await assert_filled(life)
        else:
            assert_empty(life.machine, life)
            assert not [key for key in life.machine.records.documents if key[:1] in b"tsrx"]

    assert await crash_at_every_commit(fill, lambda life: life.namespace.delete_topic("news"), after) > 10


@covers("M9")
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
async def test_a_crash_while_a_subscription_is_deleted_leaves_the_others_what_is_theirs(is_open: bool) -> None:
    async def before(life: Life) -> None:
        await fill(life)
        if not is_open:
            close_all(life)

    async def after(life: Life, is_through: bool, is_last_kept: bool) -> None:
        if life.catalog.find_subscription("news", "audit") is not None:
            assert not is_through
            assert not is_last_kept, "once deleted, deleted"
            await assert_filled(life)
            return
        assert await life.peek(MAIL_PATH) == ["b"]
        await life.quiet()
        topic = (await life.namespace.entity("news")).fragment
        assert (topic.main.live_count, topic.main.scheduled_count) == (2, 1)
        assert len(life.machine.disk.heads) == 2
        assert life.catalog.tombstones() == []

    commits = await crash_at_every_commit(
        before, lambda life: life.namespace.delete_subscription("news", "audit"), after
    )
    assert commits > 4


@covers("M9")
async def test_a_crash_while_a_rule_changes_leaves_the_old_or_the_new_rules() -> None:
    changes: list[tuple[Step, list[str]]] = [
        (lambda life: life.namespace.create_rule("news", "audit", NOTHING), ["$Default", "nothing"]),
        (lambda life: life.namespace.delete_rule("news", "audit", "$Default"), []),
    ]
    for change, names in changes:

        async def after(life: Life, is_through: bool, is_last_kept: bool, names: list[str] = names) -> None:
            rules = [rule.name for rule in life.namespace.rules("news", "audit")]
            assert rules == (names if is_through or is_last_kept else ["$Default"])
            await assert_filled(life)

        assert await crash_at_every_commit(fill, change, after) == 1


@covers("M9")
async def test_a_creation_that_fails_while_the_process_lives_leaves_nothing() -> None:
    creations: list[Step] = [
        lambda life: life.namespace.create_topic(TopicDescription("other")),
        lambda life: life.namespace.create_subscription(SubscriptionDescription("news", "new")),
    ]
    for create in creations:
        async with Machine().life() as life:
            await make_topic(life)
            life.machine.disk.faults[life.machine.disk.commit_count + 1] = Fault.UNKNOWN_LOST
            with pytest.raises(StoreUnavailable):
                await create(life)
            assert [entry.key for entry in life.catalog.topics()] == ["news"]
            assert life.catalog.subscription_count("news") == 2
            assert len(life.catalog.tombstones()) == 1


@covers("M9")
async def test_nothing_is_deleted_while_the_store_is_out_of_reach() -> None:
    deletions: list[Step] = [
        lambda life: life.namespace.delete_topic("news"),
        lambda life: life.namespace.delete_subscription("news", "audit"),
    ]
    for delete in deletions:
        async with Machine().life() as life:
            await make_topic(life)
            life.broker.give_up(life.broker.store, StoreUnavailable("the cable is out"))
            for _ in range(5):
                await asyncio.sleep(0)
            assert life.broker.failure is not None
            with pytest.raises(StoreUnavailable):
                await delete(life)
            assert life.catalog.subscription_count("news") == 2


@covers("F6", "M9")
async def test_a_topic_with_a_damaged_subscription_is_not_opened_and_loses_nothing() -> None:
    machine = Machine()
    async with machine.life() as life:
        await fill(life)
    kept = machine.records.documents.pop(b"s" + AUDIT_PATH.encode())
    machine.records.damaged = [b"s" + AUDIT_PATH.encode()]
    async with machine.life() as life:
        for path in ("news", MAIL_PATH):
            with pytest.raises(StoreDamaged):
                await life.namespace.entity(path)
    machine.records.documents[b"s" + AUDIT_PATH.encode()] = kept
    machine.records.damaged = []
    async with machine.life() as life:
        await assert_filled(life)


# Use and idleness.


@covers("M6", "M9")
async def test_a_topic_is_idle_when_neither_it_nor_its_subscriptions_are_used() -> None:
    async with Machine().life() as life:
        deleted: list[str] = []
        life.namespace.on_deleted = deleted.append
        await life.namespace.create_topic(replace(NEWS, auto_delete_on_idle_s=300.0))
        await life.namespace.create_subscription(AUDIT)
        receiver = Attached(is_sender=False)
        audit = await life.namespace.entity(AUDIT_PATH)
        audit.attach(receiver, life.clock.now())
        life.clock.advance(3600.0)
        await life.namespace.keep_house()
        audit.detach(receiver, life.clock.now())
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.find_topic("news") is not None
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert life.catalog.find("news") is life.catalog.find(AUDIT_PATH) is None
        assert sorted(deleted) == ["news", AUDIT_PATH]


@covers("M6", "M9")
async def test_an_idle_subscription_goes_alone() -> None:
    async with Machine().life() as life:
        await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(replace(AUDIT, auto_delete_on_idle_s=300.0))
        await life.namespace.create_subscription(MAIL)
        (await life.namespace.entity("news")).attach(Attached(is_sender=True), life.clock.now())
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.subscription_count("news") == 2
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert [entry.description.name for entry in life.catalog.subscriptions("news")] == ["Mail"]
        await life.send("news", "a")
        assert await life.peek(MAIL_PATH) == ["a"]


@covers("M6", "M9")
async def test_changing_an_entity_or_its_rules_is_use() -> None:
    async with Machine().life() as life:
        idle = replace(AUDIT, auto_delete_on_idle_s=300.0)
        await life.namespace.create_topic(NEWS)
        await life.namespace.create_subscription(idle)
        for change in (
            lambda: life.namespace.update_subscription(replace(idle, max_delivery_count=3)),
            lambda: life.namespace.create_rule("news", "audit", NOTHING),
            lambda: life.namespace.delete_rule("news", "audit", "nothing"),
        ):
            life.clock.advance(299.0)
            await change()
            await life.namespace.keep_house()
        life.clock.advance(299.0)
        await life.namespace.keep_house()
        assert life.catalog.find_subscription("news", "audit") is not None
        life.clock.advance(1.0)
        await life.namespace.keep_house()
        assert life.catalog.find_subscription("news", "audit") is None


@covers("M9")
async def test_a_family_leaves_the_memory_together_and_only_when_nobody_uses_any_of_it() -> None:
    async with Machine(Limits(fragment_idle_s=60.0)).life() as life:
        await fill(life)
        audit = await life.namespace.entity(AUDIT_PATH)
        receiver = Attached(is_sender=False)
        audit.attach(receiver, life.clock.now())
        life.clock.advance(61.0)
        await life.namespace.keep_house()
        assert await life.namespace.entity(AUDIT_PATH) is audit
        assert len(life.broker.fragments()) == 3
        audit.detach(receiver, life.clock.now())
        life.clock.advance(61.0)
        await life.namespace.keep_house()
        assert life.broker.fragments() == []
        await assert_filled(life)


@covers("M5", "M9")
async def test_a_scheduled_message_of_a_topic_that_left_the_memory_comes_on_time() -> None:
    async with Machine(Limits(fragment_idle_s=60.0)).life() as life:
        await make_topic(life)
        await life.send("news", "later", scheduled_in_s=100.0)
        life.clock.advance(100.0)
        await life.namespace.keep_house()
        assert life.broker.fragments() == []
        await life.broker._due.work()
        await life.quiet()
        assert await life.peek(AUDIT_PATH) == ["later"]


# Counts.


@covers("M9", "M13")
async def test_counts_of_a_topic_and_of_its_subscriptions() -> None:
    async with Machine().life() as life:
        await fill(life)
        topic, audit, mail = [await life.namespace.counts(path) for path in ("news", AUDIT_PATH, MAIL_PATH)]
        assert (topic.active, topic.scheduled, topic.dead_letter) == (0, 1, 0)
        assert (audit.active, audit.scheduled, audit.dead_letter) == (2, 0, 1)
        assert (mail.active, mail.dead_letter) == (1, 0)
        assert topic.size_bytes > 0
        assert life.catalog.subscription_count("news") == 2
