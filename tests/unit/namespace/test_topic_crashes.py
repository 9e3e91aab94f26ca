"""Whenever the process may die, or the store fail: a topic, subscription or rule is there as a whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tandembus.broker import message_broker
from tandembus.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import (
    BusError,
    StoreDamaged,
    StoreUnavailable,
)
from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Life, Machine
from tests.unit.namespace.news_topic import (
    AUDIT,
    AUDIT_PATH,
    EVERYTHING,
    MAIL_PATH,
    NEWS,
    NOTHING,
    assert_empty,
    assert_filled,
    close_all,
    fill,
    make_topic,
)

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

    assert await crash_at_every_commit(fill, lambda life: life.namespace.delete_topic("news"), after) > 5


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
        topic = fragment_of(await life.namespace.entity("news"))
        assert (topic.main.live_count, topic.main.scheduled_count) == (2, 1)
        assert len(life.machine.disk.heads) == 2
        assert life.catalog.tombstones() == []

    commits = await crash_at_every_commit(
        before, lambda life: life.namespace.delete_subscription("news", "audit"), after
    )
    assert commits >= 4


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
            await life.dropped()
            assert len(life.catalog.tombstones()) == 0


@covers("M9")
async def test_nothing_is_deleted_while_the_store_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 60.0)
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
        machine.clock.advance(1000.0)  # 'later' is due
        await life.broker.catch_up()
        await life.namespace.create_queue(QueueDescription("others"))
        await life.send("others", "x", scheduled_in_s=1.0)
        machine.clock.advance(1.0)
        await life.broker.catch_up()
        assert (life.broker.failure, await life.peek("others")) == (None, ["x"])
        machine.clock.advance(-1001.0)
    machine.records.documents[b"s" + AUDIT_PATH.encode()] = kept
    machine.records.damaged = []
    async with machine.life() as life:
        await assert_filled(life)
