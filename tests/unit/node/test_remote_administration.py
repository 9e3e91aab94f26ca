"""Administration that a front end asks for and another process carries out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument, MalformedData, NotSupported
from tandembus.node.remote_administration import ADMINISTER, AdministrationDesk, RemoteAdministration
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine


class Stage:
    """A front end's administration over values as they are on the wire."""

    def __init__(self, life: Life) -> None:
        self.catalog = life.catalog
        self.desk = AdministrationDesk(life.namespace.administration)
        self.remote = RemoteAdministration(self.ask)

    async def ask(self, name: str, value: object, _timeout_s: float) -> object:
        assert name == ADMINISTER
        return _over_the_wire(await self.desk.answer(_over_the_wire(value)))


def _over_the_wire(value: object) -> object:
    arrived, _ = decode(encode(value))
    return arrived


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Machine().life() as life:
        yield Stage(life)


@covers("P18")
async def test_queues_come_change_and_go(stage: Stage) -> None:
    made = await stage.remote.create_queue(QueueDescription("orders", lock_duration_s=30.0, user_metadata="ünï"))
    assert made == stage.catalog.find_queue("orders")
    changed = await stage.remote.update_queue(QueueDescription("orders", max_delivery_count=3))
    assert changed == stage.catalog.find_queue("orders")
    assert changed.description.max_delivery_count == 3
    await stage.remote.delete_queue("orders")
    assert stage.catalog.find_queue("orders") is None


@covers("P18", "P23")
async def test_topics_subscriptions_and_rules_come_change_and_go(stage: Stage) -> None:
    remote, catalog = stage.remote, stage.catalog
    assert await remote.create_topic(TopicDescription("news")) == catalog.find_topic("news")
    rule = RuleDescription("only", SqlFilter("a = 1"), SqlAction("SET b = 2"))
    made = await remote.create_subscription(SubscriptionDescription("news", "all"), rule)
    assert made == catalog.find_subscription("news", "all")
    assert [one.name for one in catalog.rules("news", "all")] == ["only"]
    added = await remote.create_rule("news", "all", RuleDescription("two", CorrelationFilter(correlation_id="x")))
    assert added == catalog.find_rule("news", "all", "two")
    changed = await remote.update_rule("news", "all", RuleDescription("two", SqlFilter("c IS NULL")))
    assert changed.filter == SqlFilter("c IS NULL")
    await remote.delete_rule("news", "all", "two")
    assert catalog.find_rule("news", "all", "two") is None
    await remote.create_subscription(SubscriptionDescription("news", "other"))
    updated = await remote.update_subscription(SubscriptionDescription("news", "other", max_delivery_count=5))
    assert updated.description.max_delivery_count == 5
    await remote.delete_subscription("news", "other")
    assert catalog.find_subscription("news", "other") is None
    assert (await remote.update_topic(TopicDescription("news", user_metadata="m"))).description.user_metadata == "m"
    await remote.delete_topic("news")
    assert catalog.find_topic("news") is None


@covers("P18", "M15")
async def test_policies_and_accesses_are_kept(stage: Stage) -> None:
    policy = AuthorizationRule("till", "k", "l", frozenset(["Send"]))
    await stage.remote.put_policy(policy)
    assert stage.catalog.policies() == [policy]
    await stage.remote.remove_policy("till")
    assert stage.catalog.policies() == []
    await stage.remote.create_queue(QueueDescription("orders"))
    later = stage.catalog.accessed_at("orders") + 100.0
    await stage.remote.record_accesses({"orders": later})
    assert stage.catalog.accessed_at("orders") == later


@covers("P18")
async def test_refusals_are_raised_where_it_was_asked(stage: Stage) -> None:
    await stage.remote.create_queue(QueueDescription("orders"))
    with pytest.raises(EntityAlreadyExists):
        await stage.remote.create_queue(QueueDescription("orders"))
    with pytest.raises(EntityNotFound):
        await stage.remote.delete_queue("nowhere")
    with pytest.raises(InvalidArgument):
        await stage.remote.create_queue(QueueDescription("other", lock_duration_s=100_000.0))


@pytest.mark.parametrize("value", [None, [], ["create_queue"], ["create_queue", b"[]"], ["create_queue", "{}"]])
async def test_what_is_no_request_is_refused(stage: Stage, value: object) -> None:
    with pytest.raises(MalformedData):
        await stage.desk.answer(value)


async def test_an_operation_of_a_newer_version_is_refused(stage: Stage) -> None:
    with pytest.raises(NotSupported, match="format_disks"):
        await stage.desk.answer(["format_disks", "[]"])
