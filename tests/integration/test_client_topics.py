"""Topics, subscriptions and rules, by the project's own client, against a running namespace."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from tandembus.amqp.encoding.values import int_
from tandembus.client import OutgoingMessage, ReceivedMessage, ServiceBus, SubQueue, connect, subscription_path
from tandembus.client.access_policies import AccessPolicy
from tandembus.client.administration import Administration
from tandembus.client.durations import NEVER
from tandembus.client.entities import QueueSettings, SubscriptionSettings, TopicSettings
from tandembus.client.policies import EntityPolicies
from tandembus.descriptions import (
    CorrelationFilter,
    FalseFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from tandembus.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument, InvalidOperation, Unauthorized
from tests.covers import covers
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

PATIENCE_S = 20.0
NOON = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)


def a_name() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


def bodies(messages: list[ReceivedMessage]) -> list[object]:
    return [message.body for message in messages]


@pytest.fixture
async def administration(running_namespace: RunningNamespace) -> AsyncIterator[Administration]:
    async with Administration(running_namespace.connection_string) as connected:
        yield connected


@pytest.fixture
async def client(running_namespace: RunningNamespace) -> AsyncIterator[ServiceBus]:
    async with await connect(running_namespace.connection_string, timeout_s=PATIENCE_S) as connected:
        yield connected


@pytest.fixture
async def topic(administration: Administration) -> AsyncIterator[str]:
    await administration.create_topic(name := a_name())
    yield name
    await administration.delete_topic(name)


async def drained(client: ServiceBus, topic: str, subscription: str) -> list[ReceivedMessage]:
    receiver = await client.receiver(subscription_path(topic, subscription))
    messages = await receiver.receive(100, 0.2)
    await receiver.complete(*messages)
    await receiver.close()
    return messages


@covers("M9")
class TestAdministration:
    async def test_a_topic_is_created_as_asked_changed_listed_and_deleted(self, administration: Administration) -> None:
        settings = TopicSettings(
            default_time_to_live_s=1_209_600.0,
            max_size_mb=2048,
            requires_duplicate_detection=True,
            duplicate_detection_window_s=30.0,
            batched_operations=False,
            user_metadata="<mine & yours>",
        )
        created = await administration.create_topic(name := a_name(), settings)
        for field in ("default_time_to_live_s", "max_size_mb", "duplicate_detection_window_s", "user_metadata"):
            assert getattr(created.settings, field) == getattr(settings, field)
        assert created.settings.auto_delete_on_idle_s == NEVER
        changed = await administration.update_topic(name, TopicSettings(status="SendDisabled", user_metadata=""))
        assert (changed.settings.status, changed.settings.user_metadata) == ("SendDisabled", None)
        assert changed.settings.max_size_mb == 2048
        assert name in [each.name async for each in administration.topics()]
        assert isinstance((await administration.get_entity(name)).settings, TopicSettings)
        await administration.delete_topic(name)
        with pytest.raises(EntityNotFound):
            await administration.get_topic(name)

    async def test_subscriptions_of_a_topic(self, administration: Administration, topic: str) -> None:
        settings = SubscriptionSettings(lock_duration_s=30.0, max_delivery_count=3, requires_session=True)
        created = await administration.create_subscription(topic, "audit", settings)
        assert (created.name, created.settings.lock_duration_s) == ("audit", 30.0)
        assert (created.settings.max_delivery_count, created.settings.requires_session) == (3, True)
        changed = await administration.update_subscription(topic, "audit", SubscriptionSettings(max_delivery_count=7))
        assert (changed.settings.max_delivery_count, changed.settings.lock_duration_s) == (7, 30.0)
        await administration.create_subscription(topic, "other")
        assert [each.name async for each in administration.subscriptions(topic)] == ["audit", "other"]
        assert (await administration.get_topic(topic)).subscription_count == 2
        await administration.delete_subscription(topic, "audit")
        with pytest.raises(EntityNotFound):
            await administration.get_subscription(topic, "audit")

    async def test_a_queue_and_a_topic_cannot_share_a_name(self, administration: Administration, topic: str) -> None:
        with pytest.raises(EntityAlreadyExists):
            await administration.create_queue(topic)
        with pytest.raises(EntityNotFound):
            await administration.get_queue(topic)

    async def test_rules_of_every_kind_are_told_as_they_were_made(
        self, administration: Administration, topic: str
    ) -> None:
        await administration.create_subscription(topic, "audit")
        values = (("s", "a<b"), ("n", 5), ("d", 0.5), ("b", True), ("t", NOON), ("span", timedelta(seconds=90)))
        rules = [
            RuleDescription("a-sql", SqlFilter("size > @least", (("@least", 5),)), SqlAction("SET a = 1")),
            RuleDescription("b-false", FalseFilter()),
            RuleDescription("c-correlated", CorrelationFilter("c", "m", "t", "r", "l", "s", "rs", "ct", values)),
        ]
        for rule in rules:
            made = await administration.create_rule(topic, "audit", rule)
            assert (made.name, made.filter, made.action) == (rule.name, rule.filter, rule.action)
            assert made.created_at > 0
        listed = [each async for each in administration.rules(topic, "audit")]
        assert [each.name for each in listed] == ["$Default", "a-sql", "b-false", "c-correlated"]
        assert [each.filter for each in listed] == [TrueFilter(), *[rule.filter for rule in rules]]
        changed = await administration.update_rule(topic, "audit", RuleDescription("b-false", TrueFilter()))
        assert (await administration.get_rule(topic, "audit", "b-false")).filter == changed.filter == TrueFilter()
        await administration.delete_rule(topic, "audit", "b-false")
        with pytest.raises(EntityNotFound):
            await administration.get_rule(topic, "audit", "b-false")
        with pytest.raises(EntityAlreadyExists):
            await administration.create_rule(topic, "audit", rules[0])
        with pytest.raises(InvalidArgument):
            await administration.create_rule(topic, "audit", RuleDescription("bad", SqlFilter("size >")))

    @covers("M10")
    async def test_a_target_to_forward_to_is_a_plain_path(self, administration: Administration, topic: str) -> None:
        await administration.create_queue(queue := a_name())
        settings = SubscriptionSettings(forward_to=queue, forward_dead_letters_to=queue)
        created = await administration.create_subscription(topic, "audit", settings)
        assert (created.settings.forward_to, created.settings.forward_dead_letters_to) == (queue, queue)
        changed = await administration.update_subscription(topic, "audit", SubscriptionSettings(forward_to=""))
        assert (changed.settings.forward_to, changed.settings.forward_dead_letters_to) == (None, queue)
        await administration.delete_subscription(topic, "audit")
        await administration.delete_queue(queue)


@covers("M9")
class TestMessages:
    async def test_each_subscription_gets_what_its_rules_match(
        self, client: ServiceBus, administration: Administration, topic: str
    ) -> None:
        await administration.create_subscription(topic, "all")
        large = RuleDescription("$Default", SqlFilter("size > 5"), SqlAction("SET seen = TRUE"))
        await administration.create_subscription(topic, "large", default_rule=large)
        sender = await client.sender(topic)
        await sender.send_many([OutgoingMessage(str(size), properties={"size": int_(size)}) for size in (5, 6)])
        assert bodies(await drained(client, topic, "all")) == [b"5", b"6"]
        (message,) = await drained(client, topic, "large")
        assert (message.body, message.properties) == (b"6", {"size": 6, "seen": True, "RuleName": "$Default"})

    async def test_a_subscription_is_settled_peeked_and_has_dead_letters(
        self, client: ServiceBus, administration: Administration, topic: str
    ) -> None:
        await administration.create_subscription(topic, "audit")
        path = subscription_path(topic, "audit")
        await (await client.sender(topic)).send_many([OutgoingMessage("a"), OutgoingMessage("b")])
        management = await client.management(path)
        assert bodies(await management.peek()) == [b"a", b"b"]
        receiver = await client.receiver(path)
        first, second = await receiver.receive(2, PATIENCE_S)
        await receiver.dead_letter(first, reason="why")
        await receiver.defer(second)
        (dead,) = await (await client.receiver(path, SubQueue.DEAD_LETTER)).receive(1, PATIENCE_S)
        assert dead.dead_letter_reason == "why"
        assert bodies(await management.receive_deferred([second.sequence_number])) == [b"b"]
        counts = (await administration.get_subscription(topic, "audit")).counts
        assert (counts.active, counts.dead_letter) == (1, 1)

    async def test_the_wrong_direction_is_refused(
        self, client: ServiceBus, administration: Administration, topic: str
    ) -> None:
        await administration.create_subscription(topic, "audit")
        with pytest.raises(InvalidOperation):
            await client.receiver(topic)
        with pytest.raises(InvalidOperation):
            await client.sender(subscription_path(topic, "audit"))

    async def test_rules_are_added_listed_and_removed_over_amqp(
        self, client: ServiceBus, administration: Administration, topic: str
    ) -> None:
        await administration.create_subscription(topic, "audit")
        management = await client.management(subscription_path(topic, "audit"))
        correlated = RuleDescription("red", CorrelationFilter(label="order", properties=(("colour", "red"),)))
        await management.add_rule(RuleDescription("large", SqlFilter("size > 5"), SqlAction("SET seen = TRUE")))
        await management.add_rule(correlated)
        await management.remove_rule("$Default")
        found = {each.name: each async for each in management.rules()}
        assert sorted(found) == ["large", "red"]
        assert found["red"].filter == correlated.filter
        assert (found["large"].filter, found["large"].action) == (SqlFilter("size > 5"), SqlAction("SET seen = TRUE"))
        with pytest.raises(EntityAlreadyExists):
            await management.add_rule(correlated)
        with pytest.raises(InvalidArgument):
            await management.add_rule(RuleDescription("bad", SqlFilter("size >")))
        with pytest.raises(EntityNotFound):
            await management.remove_rule("$Default")
        await (await client.sender(topic)).send(OutgoingMessage("x", subject="order", properties={"colour": "red"}))
        assert bodies(await drained(client, topic, "audit")) == [b"x"]


@covers("M15")
class TestPolicies:
    async def test_the_policy_of_a_queue_is_good_for_that_queue_until_its_key_is_made_anew(
        self, administration: Administration, running_namespace: RunningNamespace
    ) -> None:
        await administration.create_queue(name := a_name(), QueueSettings(user_metadata="kept"))
        policies = EntityPolicies(administration, name)
        assert await policies.all() == ()
        made = await policies.create(AccessPolicy("sends", ("Send",)))
        with pytest.raises(EntityAlreadyExists):
            await policies.create(AccessPolicy("sends", ("Send",)))

        def string(key: str) -> str:
            endpoint = f"Endpoint=sb://localhost:{running_namespace.port}/"
            return f"{endpoint};SharedAccessKeyName=sends;SharedAccessKey={key};UseDevelopmentEmulator=true"

        async def sends(key: str) -> None:
            async with await connect(string(key), timeout_s=PATIENCE_S) as client:
                await (await client.sender(name)).send(OutgoingMessage("x"))

        await sends(made.primary_key)
        await sends(made.secondary_key)
        renewed = await policies.regenerate("sends", secondary=False)
        assert (renewed.secondary_key, renewed.primary_key != made.primary_key) == (made.secondary_key, True)
        with pytest.raises(Unauthorized):
            await sends(made.primary_key)
        await sends(renewed.primary_key)
        await sends(made.secondary_key)
        async with await connect(string(renewed.primary_key), timeout_s=PATIENCE_S) as client:
            with pytest.raises(Unauthorized):
                await client.receiver(name)
        assert (await administration.get_queue(name)).settings.user_metadata == "kept"
        await policies.remove("sends")
        with pytest.raises(EntityNotFound):
            await policies.get("sends")
        with pytest.raises(Unauthorized):
            await sends(renewed.primary_key)
        await administration.delete_queue(name)
