"""A Config.json brought about in a namespace that is new, that has it already, and that cannot have it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tandembus.config import ConfigurationError
from tandembus.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from tandembus.limits import Limits
from tandembus.namespace.namespace import Namespace
from tandembus.node.emulator import Provisioned, provision, read_emulator_config
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Machine
from tests.unit.node.emulator.config_json import config, queue, rule, subscription, topic, write

LIMITS = Limits(
    min_duplicate_window_s=5.0, max_entities=4, max_partitioned_entities=2, max_subscriptions=3, max_sql_rules=4
)
NAMESPACE = "UserConfig.Namespaces[0]"


@pytest.fixture
async def namespace() -> AsyncIterator[Namespace]:
    async with Machine(LIMITS).life() as life:
        yield life.namespace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


async def bring_about(namespace: Namespace, folder: Path, document: Any) -> Provisioned:
    return await provision(namespace, read_emulator_config(write(folder, document), namespace.limits))


def described(namespace: Namespace, name: str) -> QueueDescription:
    return namespace.catalog.get_queue(name).description


@covers("B2")
async def test_what_is_missing_is_created(namespace: Namespace, folder: Path) -> None:
    done = await bring_about(namespace, folder, config(queue("a", MaxDeliveryCount=7), queue("b")))
    assert (done.created, str(done)) == (["a", "b"], "2 created, 0 updated, 0 unchanged")
    assert described(namespace, "a").max_delivery_count == 7
    assert described(namespace, "b").default_message_time_to_live_s == 3600.0


@covers("B2")
async def test_the_same_file_again_changes_nothing(namespace: Namespace, folder: Path) -> None:
    document = config(queue("a", LockDuration="PT10S"), queue("b"))
    await bring_about(namespace, folder, document)
    version = namespace.catalog.version
    done = await bring_about(namespace, folder, document)
    assert (done.unchanged, namespace.catalog.version) == (["a", "b"], version)


@covers("B2")
async def test_what_differs_is_updated_and_nothing_else_of_it(namespace: Namespace, folder: Path) -> None:
    await namespace.create_queue(QueueDescription("A", user_metadata="kept", max_delivery_count=9))
    await namespace.create_queue(QueueDescription("elsewhere"))
    before = described(namespace, "a")
    done = await bring_about(namespace, folder, config(queue("a", LockDuration="PT10S")))
    assert done.updated == ["A"]
    assert described(namespace, "a") == replace(before, lock_duration_s=10.0)
    assert namespace.catalog.queue_count() == 2


@covers("B2")
@pytest.mark.parametrize(
    ("second", "told"),
    [
        (queue("fixed", RequiresDuplicateDetection=False), "cannot be changed from true to false"),
    ],
)
async def test_what_cannot_be_ends_the_start_before_anything_is_created(
    namespace: Namespace, folder: Path, second: dict[str, Any], told: str
) -> None:
    await namespace.create_queue(QueueDescription("fixed", requires_duplicate_detection=True))
    with pytest.raises(ConfigurationError) as refused:
        await bring_about(namespace, folder, config(queue("first"), second))
    assert str(refused.value).startswith(f"{folder / 'Config.json'}: {NAMESPACE}.Queues[1]")
    assert told in str(refused.value)
    assert namespace.catalog.find("first") is None


@covers("B2")
async def test_more_entities_than_the_namespace_may_have_are_refused_together(
    namespace: Namespace, folder: Path
) -> None:
    await namespace.create_queue(QueueDescription("there"))
    with pytest.raises(ConfigurationError, match="at most 4 are allowed"):
        await bring_about(namespace, folder, config(*[queue(f"queue-{number}") for number in range(4)]))
    assert namespace.catalog.queue_count() == 1
    done = await bring_about(namespace, folder, config(*[queue(f"queue-{number}") for number in range(3)]))
    assert len(done.created) == 3


@covers("B2", "P7")
async def test_a_file_can_ask_for_partitioned_entities(namespace: Namespace, folder: Path) -> None:
    topics = [topic("t", subscription("s"), EnablePartitioning=True)]
    document = config(queue("a", EnablePartitioning=True), topics=topics)
    await bring_about(namespace, folder, document)
    for path in ("a", "t", "t/Subscriptions/s"):
        entry = namespace.catalog.find(path)
        assert entry is not None
        assert len(entry.stores) == 16
    done = await bring_about(namespace, folder, document)
    assert (done.created, done.updated) == ([], [])


@covers("B2", "P7", "P25")
@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (
            [queue("first"), queue("plain", EnablePartitioning=True)],
            "EnablePartitioning of 'plain' cannot be changed from false to true",
        ),
        (
            [queue(name, EnablePartitioning=True) for name in "abc"],
            "The namespace has 2 partitioned entities; at most 2 are allowed",
        ),
    ],
)
async def test_partitioned_entities_that_cannot_be_end_the_start_before_anything_is_created(
    namespace: Namespace, folder: Path, wanted: list[Any], told: str
) -> None:
    await namespace.create_queue(QueueDescription("plain"))
    with pytest.raises(ConfigurationError) as refused:
        await bring_about(namespace, folder, config(*wanted))
    assert f"{folder / 'Config.json'}: {NAMESPACE}" in str(refused.value)
    assert told in str(refused.value)
    assert [one.key for one in namespace.catalog.queues()] == ["plain"]


# Forwarding.


@covers("B2", "M10")
async def test_entities_forward_to_each_other_in_any_order(namespace: Namespace, folder: Path) -> None:
    document = config(
        queue("first", ForwardTo="events"),
        queue("parking"),
        topics=[topic("events", subscription("s", ForwardTo="parking", ForwardDeadLetteredMessagesTo="parking"))],
    )
    done = await bring_about(namespace, folder, document)
    assert done.created == ["first", "parking", "events", "events/Subscriptions/s"]
    assert described(namespace, "first").forward_to == "events"
    forwarding = namespace.catalog.get_subscription("events", "s").description
    assert (forwarding.forward_to, forwarding.forward_dead_lettered_messages_to) == ("parking", "parking")
    again = await bring_about(namespace, folder, document)
    assert (again.created, again.updated) == ([], [])


@covers("B2", "M10")
@pytest.mark.parametrize(
    ("queues", "place", "told"),
    [
        ([queue("a", ForwardTo="none")], "Queues[0].Properties.ForwardTo", "no queue or topic of this namespace"),
        (
            [queue("a", ForwardDeadLetteredMessagesTo="none")],
            "Queues[0].Properties.ForwardDeadLetteredMessagesTo",
            "no queue or topic of this namespace",
        ),
        (
            [queue("a", ForwardTo="b"), queue("b", ForwardTo="c"), queue("c", ForwardTo="a")],
            "Queues[0].Properties.ForwardTo",
            "its messages would come back",
        ),
        ([queue("a", ForwardTo="back")], "Queues[0].Properties.ForwardTo", "its messages would come back"),
    ],
    ids=["to nowhere", "dead letters to nowhere", "a circle", "a circle with what is there"],
)
async def test_forwarding_that_cannot_be_ends_the_start_before_anything_is_created(
    namespace: Namespace, folder: Path, queues: list[dict[str, Any]], place: str, told: str
) -> None:
    await namespace.create_queue(QueueDescription("a"))
    await namespace.create_queue(QueueDescription("back", forward_to="a"))
    with pytest.raises(ConfigurationError) as refused:
        await bring_about(namespace, folder, config(*queues))
    assert f": {NAMESPACE}.{place}: " in str(refused.value)
    assert told in str(refused.value)
    assert namespace.catalog.queue_count() == 2


# Topics.


def rules_of(namespace: Namespace, subscription_name: str) -> list[RuleDescription]:
    return [replace(found, created_at=0.0) for found in namespace.rules("t", subscription_name)]


@covers("B2", "M9")
async def test_topics_come_with_their_subscriptions_and_only_the_rules_that_are_listed(
    namespace: Namespace, folder: Path
) -> None:
    one, two = rule("one", "a = 1"), rule("two", "a = 2", "SET b = 3")
    document = config(topics=[topic("t", subscription("ruled", one, two), subscription("plain"))])
    done = await bring_about(namespace, folder, document)
    assert done.created == ["t", "t/Subscriptions/ruled", "t/Subscriptions/plain"]
    assert rules_of(namespace, "ruled") == [
        RuleDescription("one", SqlFilter("a = 1")),
        RuleDescription("two", SqlFilter("a = 2"), SqlAction("SET b = 3")),
    ]
    assert rules_of(namespace, "plain") == [RuleDescription("$Default", TrueFilter())]


@covers("B2", "M9")
async def test_of_a_topic_that_is_there_what_is_missing_is_created_and_what_differs_updated(
    namespace: Namespace, folder: Path
) -> None:
    first = config(topics=[topic("t", subscription("s", rule("one", "a = 1"), rule("two", "a = 2")))])
    await bring_about(namespace, folder, first)
    await namespace.create_rule("t", "s", RuleDescription("by hand", TrueFilter()))
    again = await bring_about(namespace, folder, first)
    assert again.unchanged == ["t", "t/Subscriptions/s", "t/Subscriptions/s/Rules/one", "t/Subscriptions/s/Rules/two"]
    changed_rules = (rule("ONE", "a = 1"), rule("two", "a = 9"), rule("three", "a = 3"))
    second = topic("T", subscription("S", *changed_rules, MaxDeliveryCount=8), DefaultMessageTimeToLive="PT5M")
    done = await bring_about(namespace, folder, config(topics=[second]))
    assert done.created == ["T/Subscriptions/S/Rules/three"]
    assert done.updated == ["t", "t/Subscriptions/s", "T/Subscriptions/S/Rules/two"]
    assert done.unchanged == ["T/Subscriptions/S/Rules/ONE"]
    filters = {found.name: found.filter for found in rules_of(namespace, "s")}
    assert filters == {
        "one": SqlFilter("a = 1"),
        "two": SqlFilter("a = 9"),
        "three": SqlFilter("a = 3"),
        "by hand": TrueFilter(),
    }
    assert namespace.catalog.get_subscription("t", "s").description.max_delivery_count == 8
    assert namespace.catalog.get_topic("t").description.default_message_time_to_live_s == 300.0


@covers("B2", "M9")
@pytest.mark.parametrize(
    ("topics", "place", "told"),
    [
        ([topic("there")], "Topics[0].Name", "the namespace has a queue of that name; rename this topic"),
        ([topic("t", *[subscription(f"s{number}") for number in range(4)])], "Topics[0]", "at most 3 are allowed"),
        (
            [topic("t", subscription("s", *[rule(f"r{number}", "a = 1") for number in range(5)]))],
            "Topics[0]",
            "at most 4 are allowed",
        ),
        (
            [topic("t", subscription("s", RequiresSession=True)), topic("fixed", subscription("s"))],
            "Topics[1].Subscriptions[0]",
            "cannot be changed",
        ),
    ],
    ids=["another kind", "too many subscriptions", "too many rules", "fixed"],
)
async def test_a_topic_that_cannot_be_ends_the_start_before_anything_is_created(
    namespace: Namespace, folder: Path, topics: list[dict[str, Any]], place: str, told: str
) -> None:
    await namespace.create_queue(QueueDescription("there"))
    await namespace.create_topic(TopicDescription("fixed"))
    await namespace.create_subscription(SubscriptionDescription("fixed", "s", requires_session=True))
    if topics[-1]["Name"] == "fixed":
        topics[-1]["Subscriptions"][0]["Properties"]["RequiresSession"] = False
    with pytest.raises(ConfigurationError) as refused:
        await bring_about(namespace, folder, config(queue("first"), topics=topics))
    assert f": {NAMESPACE}.{place}" in str(refused.value)
    assert told in str(refused.value)
    assert namespace.catalog.find("first") is None
