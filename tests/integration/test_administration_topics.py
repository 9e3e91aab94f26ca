"""Topics, subscriptions and rules with the unmodified administration clients of the Python SDK, over TLS."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tandembus.security.sas import ROOT_POLICY
from tests.covers import covers
from tests.integration.serving import RunningNamespace
from tests.integration.test_administration import NEVER, plain, token_of

VALUES: dict[str, Any] = {
    "text": "<a> & é",
    "@at": "as the SDK's own samples name them",
    "int": 5,
    "negative": -5,
    "long": 2**40,
    "double": 1.5,
    "yes": True,
    "no": False,
    "moment": datetime(2030, 1, 31, 12, 0, 1, tzinfo=UTC),
    "span": timedelta(days=1, hours=2, seconds=3),
}


@pytest.fixture
def client(running_namespace: RunningNamespace) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        running_namespace.admin_connection_string, connection_verify=str(running_namespace.ca_path)
    ) as client:
        yield client


@pytest.fixture
def topic(client: ServiceBusAdministrationClient) -> Iterator[str]:
    """A topic with a subscription `audit`, gone afterwards."""
    name = f"topics/{uuid.uuid4().hex[:12]}"
    client.create_topic(name)
    client.create_subscription(name, "audit")
    yield name
    try:
        client.delete_topic(name)
    except ResourceNotFoundError:
        pass


@covers("B1", "M9")
def test_a_topic_has_the_defaults_of_the_service(client: ServiceBusAdministrationClient, topic: str) -> None:
    found = client.get_topic(topic)
    assert found.name == topic
    assert found.max_size_in_megabytes == 1024
    assert found.duplicate_detection_history_time_window == timedelta(minutes=10)
    for never in (found.default_message_time_to_live, found.auto_delete_on_idle):
        assert isinstance(never, timedelta)
        assert never > NEVER
    assert (found.requires_duplicate_detection, found.enable_partitioning) == (False, False)
    assert (found.enable_batched_operations, found.support_ordering) == (True, True)
    assert (found.status, found.availability_status) == (EntityStatus.ACTIVE, "Available")
    assert found.max_message_size_in_kilobytes == 256


@covers("B1", "M9")
def test_a_topic_keeps_what_it_was_created_with(client: ServiceBusAdministrationClient) -> None:
    name = f"topics-{uuid.uuid4().hex[:12]}"
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="worker",
        primary_key="d29ya2VyIG9uZQ==",
        secondary_key="d29ya2VyIHR3bw==",
    )
    client.create_topic(
        name,
        default_message_time_to_live=timedelta(minutes=11),
        max_size_in_megabytes=3072,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=12),
        auto_delete_on_idle=timedelta(minutes=10),
        user_metadata="<topic>",
        authorization_rules=[rule],
        support_ordering=False,
    )
    found = client.get_topic(name)
    assert found.default_message_time_to_live == timedelta(minutes=11)
    assert (found.max_size_in_megabytes, found.requires_duplicate_detection) == (3072, True)
    assert found.duplicate_detection_history_time_window == timedelta(minutes=12)
    assert found.auto_delete_on_idle == timedelta(minutes=10)
    assert (found.user_metadata, found.support_ordering) == ("<topic>", False)
    assert found.authorization_rules is not None
    assert found.authorization_rules[0].key_name == "worker"
    found.status = EntityStatus.SEND_DISABLED
    client.update_topic(found, user_metadata="changed")
    updated = client.get_topic(name)
    assert (updated.status, updated.user_metadata) == (EntityStatus.SEND_DISABLED, "changed")
    assert updated.authorization_rules is not None
    assert updated.authorization_rules[0].primary_key == rule.primary_key
    client.delete_topic(name)
    with pytest.raises(ResourceNotFoundError):
        client.get_topic(name)


@covers("B1", "M9")
def test_a_subscription_keeps_what_it_was_created_with(client: ServiceBusAdministrationClient, topic: str) -> None:
    client.create_subscription(
        topic,
        "all-settings",
        lock_duration=timedelta(seconds=13),
        requires_session=True,
        default_message_time_to_live=timedelta(minutes=11),
        dead_lettering_on_message_expiration=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
        max_delivery_count=14,
        enable_batched_operations=False,
        user_metadata="<subscription>",
        auto_delete_on_idle=timedelta(minutes=10),
    )
    found = client.get_subscription(topic.upper(), "ALL-settings")
    assert found.lock_duration == timedelta(seconds=13)
    assert found.default_message_time_to_live == timedelta(minutes=11)
    assert found.auto_delete_on_idle == timedelta(minutes=10)
    assert (found.requires_session, found.dead_lettering_on_message_expiration) == (True, True)
    assert (found.dead_lettering_on_filter_evaluation_exceptions, found.enable_batched_operations) == (False, False)
    assert (found.max_delivery_count, found.user_metadata) == (14, "<subscription>")
    before = client.get_subscription(topic, "audit")
    before.max_delivery_count = 3
    client.update_subscription(topic, before, status=EntityStatus.RECEIVE_DISABLED)
    after = client.get_subscription(topic, "audit")
    assert (after.max_delivery_count, after.status) == (3, EntityStatus.RECEIVE_DISABLED)
    client.delete_subscription(topic, "audit")
    with pytest.raises(ResourceNotFoundError):
        client.get_subscription(topic, "audit")
    assert [one.name for one in client.list_subscriptions(topic)] == ["all-settings"]


@covers("B1", "M9")
def test_rules_keep_their_filters_actions_and_typed_values(client: ServiceBusAdministrationClient, topic: str) -> None:
    filters: dict[str, Any] = {
        "true": TrueRuleFilter(),
        "false": FalseRuleFilter(),
        "sql": SqlRuleFilter("a = @text OR b < 5", parameters=VALUES),
        "correlation": CorrelationRuleFilter(
            correlation_id="c",
            message_id="m",
            to="t",
            reply_to="rt",
            label="l",
            session_id="s",
            reply_to_session_id="rs",
            content_type="ct",
            properties=VALUES,
        ),
    }
    for name, wanted in filters.items():
        action = SqlRuleAction("SET a = @text", parameters=VALUES) if name == "sql" else None
        client.create_rule(topic, "audit", name, filter=wanted, action=action)
    for found in (
        {name: client.get_rule(topic, "audit", name) for name in filters},
        {rule.name: rule for rule in client.list_rules(topic, "audit") if rule.name != "$Default"},
    ):
        assert isinstance(found["true"].filter, TrueRuleFilter)
        assert isinstance(found["false"].filter, FalseRuleFilter)
        sql, correlation = found["sql"].filter, found["correlation"].filter
        assert isinstance(sql, SqlRuleFilter)
        assert (sql.sql_expression, dict(sql.parameters or {})) == ("a = @text OR b < 5", VALUES)
        action = found["sql"].action
        assert isinstance(action, SqlRuleAction)
        assert (action.sql_expression, dict(action.parameters or {})) == ("SET a = @text", VALUES)
        assert isinstance(correlation, CorrelationRuleFilter)
        assert dict(correlation.properties or {}) == VALUES
        assert (correlation.correlation_id, correlation.label, correlation.content_type) == ("c", "l", "ct")
        assert found["true"].created_at_utc is not None
        assert found["true"].created_at_utc.year > 2020
    rule = client.get_rule(topic, "audit", "sql")
    rule.filter = SqlRuleFilter("a = 7")
    client.update_rule(topic, "audit", rule)
    changed = client.get_rule(topic, "audit", "sql")
    assert isinstance(changed.filter, SqlRuleFilter)
    assert changed.filter.sql_expression == "a = 7"
    assert isinstance(changed.action, SqlRuleAction)
    client.delete_rule(topic, "audit", "sql")
    with pytest.raises(ResourceNotFoundError):
        client.get_rule(topic, "audit", "sql")


@covers("B1")
def test_an_update_that_changes_nothing_changes_nothing(client: ServiceBusAdministrationClient, topic: str) -> None:
    before, subscription = client.get_topic(topic), client.get_subscription(topic, "audit")
    rule = client.get_rule(topic, "audit", "$Default")
    client.update_topic(before)
    client.update_subscription(topic, subscription)
    client.update_rule(topic, "audit", rule)
    assert dict(client.get_topic(topic).items()) == dict(before.items())
    assert dict(client.get_subscription(topic, "audit").items()) == dict(subscription.items())
    assert isinstance(client.get_rule(topic, "audit", "$Default").filter, TrueRuleFilter)


@covers("B1")
def test_lists_are_complete_over_several_pages(client: ServiceBusAdministrationClient, topic: str) -> None:
    for number in range(120):
        client.create_subscription(topic, f"s{number:03}")
        client.create_rule(topic, "audit", f"r{number:03}", filter=SqlRuleFilter("1 = 1"))
    names = [f"s{number:03}" for number in range(120)]
    assert [one.name for one in client.list_subscriptions(topic)] == ["audit", *names]
    assert [one.name for one in client.list_subscriptions_runtime_properties(topic)] == ["audit", *names]
    assert len(list(client.list_rules(topic, "audit"))) == 121
    assert [len(list(page)) for page in client.list_subscriptions(topic).by_page()] == [100, 21]
    listed = [one.name for one in client.list_topics()]
    assert topic in listed
    assert [one.name for one in client.list_topics_runtime_properties()] == listed
    assert client.get_topic_runtime_properties(topic).subscription_count == 121


@covers("B1", "M9")
def test_runtime_properties_count_the_messages(
    client: ServiceBusAdministrationClient, running_namespace: RunningNamespace, topic: str
) -> None:
    client.create_subscription(topic, "nothing")
    client.delete_rule(topic, "nothing", "$Default")
    with (
        ServiceBusClient.from_connection_string(running_namespace.connection_string) as sdk,
        sdk.get_topic_sender(topic) as sender,
        sdk.get_subscription_receiver(topic, "audit", max_wait_time=5) as receiver,
    ):
        sender.send_messages([ServiceBusMessage(f"message {number}") for number in range(5)])
        (dead,) = receiver.receive_messages(max_message_count=1)
        receiver.dead_letter_message(dead, reason="counted")
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
    counted = client.get_subscription_runtime_properties(topic, "audit")
    assert (counted.active_message_count, counted.dead_letter_message_count) == (4, 1)
    assert counted.total_message_count == 5
    assert client.get_subscription_runtime_properties(topic, "nothing").total_message_count == 0
    of_topic = client.get_topic_runtime_properties(topic)
    assert (of_topic.subscription_count, of_topic.scheduled_message_count) == (2, 1)
    assert of_topic.size_in_bytes is not None
    assert of_topic.size_in_bytes > 0
    for properties in (counted, of_topic):
        times = (properties.created_at_utc, properties.updated_at_utc, properties.accessed_at_utc)
        assert all(at is not None and at.year > 2020 for at in times)


@covers("B1")
def test_what_is_there_is_a_conflict_and_what_is_not_is_not_found(
    client: ServiceBusAdministrationClient, topic: str
) -> None:
    for create in (
        lambda: client.create_topic(topic.upper()),
        lambda: client.create_queue(topic),
        lambda: client.create_subscription(topic, "AUDIT"),
        lambda: client.create_rule(topic, "audit", "$Default"),
    ):
        with pytest.raises(ResourceExistsError):
            create()
    for look in (
        lambda: client.get_topic("nobody"),
        lambda: client.get_subscription(topic, "nobody"),
        lambda: client.get_rule(topic, "audit", "nobody"),
        lambda: client.delete_rule(topic, "audit", "nobody"),
        lambda: client.delete_subscription(topic, "nobody"),
        lambda: client.create_subscription("nobody", "s"),
        lambda: list(client.list_rules(topic, "nobody")),
        lambda: list(client.list_subscriptions("nobody")),
    ):
        with pytest.raises(HttpResponseError) as refused:
            look()
        assert isinstance(refused.value, ResourceNotFoundError) or refused.value.status_code == 404


@covers("B1", "M13")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lock_duration": timedelta(minutes=10)}, "LockDuration"),
        ({"auto_delete_on_idle": timedelta(minutes=1)}, "AutoDeleteOnIdle"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount"),
        ({"forward_to": "nobody"}, "nobody"),
    ],
)
def test_settings_that_are_not_allowed_are_refused_by_name(
    client: ServiceBusAdministrationClient, topic: str, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(HttpResponseError, match=text) as refused:
        client.create_subscription(topic, "bad", **settings)
    assert refused.value.status_code == 400
    with pytest.raises(ResourceNotFoundError):
        client.get_subscription(topic, "bad")


@covers("B1", "M9")
@pytest.mark.parametrize(
    "bad",
    [
        SqlRuleFilter("a = ="),
        SqlRuleFilter("magic(a)"),
        SqlRuleFilter("sys.Nonsense = 1"),
        SqlRuleFilter("a = 'x" + "y" * 1024 + "'"),
        CorrelationRuleFilter(),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_and_leaves_nothing(
    client: ServiceBusAdministrationClient, topic: str, bad: Any
) -> None:
    with pytest.raises(HttpResponseError) as refused:
        client.create_rule(topic, "audit", "bad", filter=bad)
    assert refused.value.status_code == 400
    assert [rule.name for rule in client.list_rules(topic, "audit")] == ["$Default"]


@covers("M15")
def test_a_topic_s_own_policy_is_good_for_its_subscriptions(
    client: ServiceBusAdministrationClient, running_namespace: RunningNamespace, topic: str
) -> None:
    found = client.get_topic(topic)
    key = "Ym90aCB3YXlzIHdvcms="
    found.authorization_rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[AccessRights.SEND, AccessRights.LISTEN],
            key_name="worker",
            primary_key=key,
            secondary_key=key,
        )
    ]
    client.update_topic(found)
    theirs = running_namespace.connection_string.replace(ROOT_POLICY, "worker").replace(running_namespace.key, key)
    with (
        ServiceBusClient.from_connection_string(theirs) as sdk,
        sdk.get_topic_sender(topic) as sender,
        sdk.get_subscription_receiver(topic, "audit", max_wait_time=5) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("allowed"))
        (message,) = receiver.receive_messages(max_message_count=1)
        receiver.complete_message(message)
    token = token_of(running_namespace, topic, "worker", key)
    assert plain(running_namespace, "GET", f"/{topic}/subscriptions/audit", token)[0] == 401


@covers("B1", "M9")
async def test_the_asynchronous_client_administers_as_well(running_namespace: RunningNamespace) -> None:
    topic = f"topics-{uuid.uuid4().hex[:12]}"
    async with AsyncAdministrationClient.from_connection_string(
        running_namespace.admin_connection_string, connection_verify=str(running_namespace.ca_path)
    ) as client:
        created = await client.create_topic(topic, user_metadata="x")
        created.user_metadata = "y"
        await client.update_topic(created)
        assert (await client.get_topic(topic)).user_metadata == "y"
        for name in ("one", "two"):
            await client.create_subscription(topic, name)
        subscription = await client.get_subscription(topic, "one")
        subscription.max_delivery_count = 4
        await client.update_subscription(topic, subscription)
        assert (await client.get_subscription(topic, "one")).max_delivery_count == 4
        assert [one.name async for one in client.list_subscriptions(topic)] == ["one", "two"]
        await client.create_rule(topic, "one", "mine", filter=SqlRuleFilter("a = @text", parameters=VALUES))
        rule = await client.get_rule(topic, "one", "mine")
        assert isinstance(rule.filter, SqlRuleFilter)
        assert dict(rule.filter.parameters or {}) == VALUES
        rule.filter = CorrelationRuleFilter(label="l", properties=VALUES)
        await client.update_rule(topic, "one", rule)
        names = [one.name async for one in client.list_rules(topic, "one")]
        assert names == ["$Default", "mine"]
        runtime = await client.get_topic_runtime_properties(topic)
        assert runtime.subscription_count == 2
        assert topic in [one.name async for one in client.list_topics_runtime_properties()]
        await client.delete_rule(topic, "one", "mine")
        await client.delete_subscription(topic, "one")
        with pytest.raises(ResourceNotFoundError):
            await client.get_subscription(topic, "one")
        await client.delete_topic(topic)
        with pytest.raises(ResourceNotFoundError):
            await client.get_topic(topic)
