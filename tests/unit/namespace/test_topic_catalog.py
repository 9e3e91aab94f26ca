"""Names, lives and numbers of topics, subscriptions and rules, over restarts, failures and damage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import lmdb
import pytest
import pytest_asyncio

from tandembus.descriptions import (
    CorrelationFilter,
    EntityKind,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    default_rule,
    rule_to_record,
)
from tandembus.errors import (
    BusError,
    EntityAlreadyExists,
    EntityNotFound,
    QuotaExceeded,
    StoreDamaged,
    StoreUnavailable,
)
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog, SubscriptionEntry, TopicEntry
from tandembus.namespace.catalog_records import entry_document, entry_key, facts_documents, rule_key
from tandembus.namespace.entries import Facts
from tandembus.namespace.rule_table import RuleCounts
from tandembus.store.embedded.catalog_store import CatalogStore
from tests.covers import covers
from tests.unit.namespace.test_catalog import FailingStore

T = TypeVar("T")
LIMITS = Limits(catalog_map_size_bytes=16 * 1024 * 1024)
NOW = 1_700_000_000.0
CHEAP = RuleDescription("cheap", SqlFilter("price < @most", (("most", 10),)), SqlAction("SET sale = TRUE"))
RED = RuleDescription("red", CorrelationFilter(label="red", properties=(("size", 5),)))


@pytest_asyncio.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    opened = Catalog.open(tmp_path, LIMITS, NOW)
    yield opened
    opened.close()


def reopened(catalog: Catalog, folder: Path, now: float = NOW + 100) -> Catalog:
    catalog.close()
    return Catalog.open(folder, LIMITS, now)


async def create_topic(catalog: Catalog, name: str = "News", limits: Limits = LIMITS) -> TopicEntry:
    entry = await catalog.begin_create_topic(TopicDescription(name), limits, NOW)
    return await catalog.finish_create(entry, NOW)


async def create_subscription(
    catalog: Catalog, topic: str, name: str, *rules: RuleDescription, limits: Limits = LIMITS
) -> SubscriptionEntry:
    description = SubscriptionDescription(topic, name)
    entry = await catalog.begin_create_subscription(description, rules or [default_rule()], limits, NOW)
    return await catalog.finish_create(entry, NOW)


async def create_queue(catalog: Catalog, name: str, limits: Limits = LIMITS) -> None:
    await catalog.finish_create(await catalog.begin_create(QueueDescription(name), limits, NOW), NOW)


@covers("M9")
async def test_topics_subscriptions_and_rules_are_found_in_whatever_letters_also_after_a_restart(
    catalog: Catalog, tmp_path: Path
) -> None:
    topic = await create_topic(catalog, "News/EU")
    subscription = await create_subscription(catalog, "NEWS/eu", "Audit", CHEAP, RED)
    again = reopened(catalog, tmp_path)
    for one in (catalog, again):
        assert one.find_topic("news/EU") == one.find("NEWS/eu") == topic
        assert one.find_subscription("news/eu", "AUDIT") == one.find("news/eu/SUBSCRIPTIONS/audit") == subscription
        assert one.find_rule("NEWS/EU", "audit", "Cheap") == replace(CHEAP, created_at=NOW)
        assert [rule.name for rule in one.rules("news/eu", "audit")] == ["cheap", "red"]
        assert one.find_queue("news/eu") is None
    assert subscription.description.path == "News/EU/Subscriptions/Audit"
    assert [one.kind for one in (topic, subscription)] == [EntityKind.TOPIC, EntityKind.SUBSCRIPTION]
    again.close()


@covers("M9")
async def test_queues_and_topics_share_their_names(catalog: Catalog) -> None:
    await create_topic(catalog, "news")
    await create_queue(catalog, "orders")
    with pytest.raises(EntityAlreadyExists):
        await create_queue(catalog, "NEWS")
    with pytest.raises(EntityAlreadyExists):
        await create_topic(catalog, "Orders")


@covers("M9")
async def test_a_subscription_needs_a_topic_and_a_name_of_its_own(catalog: Catalog) -> None:
    await create_queue(catalog, "orders")
    for topic in ("orders", "nowhere"):
        with pytest.raises(EntityNotFound):
            await create_subscription(catalog, topic, "audit")
    await create_topic(catalog)
    await create_topic(catalog, "other")
    await create_subscription(catalog, "news", "audit")
    await create_subscription(catalog, "other", "audit")
    with pytest.raises(EntityAlreadyExists):
        await create_subscription(catalog, "NEWS", "AUDIT")


@covers("M9")
async def test_every_kind_has_fragment_keys_of_its_own(catalog: Catalog) -> None:
    topic = await create_topic(catalog)
    subscription = await create_subscription(catalog, "news", "audit")
    await create_queue(catalog, "orders")
    queue = catalog.get_queue("orders")
    assert [one.fragment_key for one in (topic, subscription, queue)] == [1, 2, 3]
    assert [one.incarnation for one in (topic, subscription, queue)] == [1, 2, 3]


@covers("M9")
async def test_what_was_being_created_is_buried_by_a_restart_with_its_rules(catalog: Catalog, tmp_path: Path) -> None:
    topic = await create_topic(catalog)
    half_topic = await catalog.begin_create_topic(TopicDescription("half"), LIMITS, NOW)
    half = await catalog.begin_create_subscription(SubscriptionDescription("news", "half"), [CHEAP], LIMITS, NOW)
    assert catalog.find("news/subscriptions/half") is None
    again = reopened(catalog, tmp_path)
    assert again.find_topic("half") is None
    assert again.subscription_count("news") == 0
    assert {(one.fragment_key, one.topic_fragment_key) for one in again.tombstones()} == {
        (half_topic.fragment_key, 0),
        (half.fragment_key, topic.fragment_key),
    }
    assert stored_rules(again, tmp_path) == 0


@covers("M9")
async def test_deleting_a_topic_buries_its_subscriptions_in_the_same_commit(catalog: Catalog, tmp_path: Path) -> None:
    topic = await create_topic(catalog)
    subscriptions = [await create_subscription(catalog, "news", name, CHEAP) for name in ("a", "b")]
    half = await catalog.begin_create_subscription(SubscriptionDescription("news", "half"), [RED], LIMITS, NOW)
    await create_topic(catalog, "news2")
    await create_subscription(catalog, "news2", "a")
    version = catalog.version
    tombstones = await catalog.delete_topic("NEWS", NOW)
    assert catalog.version == version + 1
    assert {one.fragment_key for one in tombstones} == {one.fragment_key for one in (topic, *subscriptions, half)}
    with pytest.raises(EntityNotFound):
        await catalog.finish_create(half, NOW)
    again = reopened(catalog, tmp_path)
    assert again.find("news") is None
    assert again.find("news/subscriptions/a") is None
    assert again.find("news2/subscriptions/a") is not None
    assert len(again.tombstones()) == 4
    assert stored_rules(again, tmp_path) == 1


@covers("M9")
async def test_a_subscription_made_again_has_nothing_of_its_earlier_life(catalog: Catalog, tmp_path: Path) -> None:
    topic = await create_topic(catalog)
    first = await create_subscription(catalog, "news", "audit", CHEAP, RED)
    (tombstone,) = await catalog.delete_subscription("news", "AUDIT", NOW)
    assert (tombstone.fragment_key, tombstone.topic_fragment_key) == (first.fragment_key, topic.fragment_key)
    second = await create_subscription(catalog, "news", "audit")
    assert second.fragment_key > first.fragment_key
    again = reopened(catalog, tmp_path)
    assert again.rules("news", "audit") == [replace(default_rule(), created_at=NOW)]
    assert again.tombstones() == [tombstone]
    again.close()


@covers("M9")
async def test_updates_keep_the_life_and_the_letters_of_the_names(catalog: Catalog, tmp_path: Path) -> None:
    await create_topic(catalog, "News")
    await create_subscription(catalog, "news", "Audit")
    topic = await catalog.update_topic(TopicDescription("NEWS", user_metadata="x"), NOW + 1)
    subscription = await catalog.update_subscription(
        SubscriptionDescription("NEWS", "AUDIT", max_delivery_count=3), NOW + 2
    )
    assert (topic.description.name, topic.version, topic.updated_at) == ("News", 2, NOW + 1)
    assert subscription.description == SubscriptionDescription("News", "Audit", max_delivery_count=3)
    again = reopened(catalog, tmp_path)
    assert again.get_topic("news") == topic
    assert again.get_subscription("news", "audit") == subscription
    with pytest.raises(EntityNotFound):
        await again.update_subscription(SubscriptionDescription("news", "other"), NOW)
    with pytest.raises(EntityNotFound):
        await again.update_topic(TopicDescription("other"), NOW)
    again.close()


@covers("M9")
async def test_rules_come_change_and_go_with_one_commit_each(catalog: Catalog, tmp_path: Path) -> None:
    await create_topic(catalog)
    await create_subscription(catalog, "news", "audit")
    version = catalog.version
    await catalog.create_rule("news", "audit", CHEAP, LIMITS, NOW + 1)
    with pytest.raises(EntityAlreadyExists):
        await catalog.create_rule("news", "audit", replace(RED, name="CHEAP"), LIMITS, NOW + 2)
    changed = await catalog.update_rule("NEWS", "AUDIT", replace(RED, name="CHEAP"), LIMITS, NOW + 3)
    assert (changed.name, changed.created_at, changed.filter) == ("cheap", NOW + 1, RED.filter)
    await catalog.delete_rule("news", "audit", "$default", NOW + 4)
    assert catalog.version == version + 3
    for one in (catalog, reopened(catalog, tmp_path)):
        assert one.rules("news", "audit") == [changed]
        assert one.rule_counts("news") == RuleCounts(correlation=1)
    one.close()


@covers("M9")
async def test_what_is_not_there_is_not_found(catalog: Catalog) -> None:
    await create_topic(catalog)
    await create_subscription(catalog, "news", "audit")
    with pytest.raises(EntityNotFound, match="news/Subscriptions/nobody"):
        catalog.rules("news", "nobody")
    with pytest.raises(EntityNotFound):
        await catalog.create_rule("news", "nobody", CHEAP, LIMITS, NOW)
    with pytest.raises(EntityNotFound, match="Rules/cheap"):
        await catalog.update_rule("news", "audit", CHEAP, LIMITS, NOW)
    with pytest.raises(EntityNotFound):
        await catalog.delete_rule("news", "audit", "cheap", NOW)
    with pytest.raises(EntityNotFound):
        await catalog.delete_topic("nowhere", NOW)
    with pytest.raises(EntityNotFound):
        await catalog.delete_subscription("news", "nobody", NOW)
    assert catalog.find_rule("nowhere", "audit", "cheap") is None


@covers("M9")
async def test_pages_of_every_kind_are_sorted_by_name(catalog: Catalog) -> None:
    for name in ("b", "C", "a"):
        await create_topic(catalog, name)
        await create_subscription(catalog, "b" if name != "a" else "a", name)
    for name in ("z", "Y", "x"):
        await catalog.create_rule("b", "b", replace(CHEAP, name=name), LIMITS, NOW)
    assert [entry.description.name for entry in catalog.topics()] == ["a", "b", "C"]
    assert [entry.description.name for entry in catalog.topics(1, 1)] == ["b"]
    assert [entry.description.name for entry in catalog.subscriptions("B")] == ["b", "C"]
    assert [rule.name for rule in catalog.rules("b", "b")] == ["$Default", "x", "Y", "z"]
    assert [rule.name for rule in catalog.rules("b", "b", 1, 2)] == ["x", "Y"]
    assert (catalog.topic_count(), catalog.subscription_count("b"), catalog.subscription_count("c")) == (3, 2, 0)


@covers("M9", "M13")
async def test_topics_count_among_the_entities_and_subscriptions_do_not(catalog: Catalog) -> None:
    limits = replace(LIMITS, max_entities=2, max_subscriptions=2)
    await create_topic(catalog, "news", limits)
    for name in ("a", "b"):
        await create_subscription(catalog, "news", name, limits=limits)
    with pytest.raises(QuotaExceeded, match=r"at most 2 .* max_subscriptions"):
        await create_subscription(catalog, "news", "c", limits=limits)
    await create_queue(catalog, "orders", limits)
    with pytest.raises(QuotaExceeded, match="max_entities"):
        await create_topic(catalog, "more", limits)
    await catalog.delete_subscription("news", "a", NOW)
    half = await catalog.begin_create_subscription(SubscriptionDescription("news", "c"), [], limits, NOW)
    with pytest.raises(QuotaExceeded):
        await create_subscription(catalog, "news", "d", limits=limits)
    await catalog.abandon_create(half, NOW)
    await create_subscription(catalog, "news", "d", limits=limits)


@covers("M9", "M13", "F15")
async def test_rules_that_cost_nothing_to_evaluate_are_not_endless(catalog: Catalog) -> None:
    limits = replace(LIMITS, max_plain_rules=2)
    await create_topic(catalog)
    await create_subscription(catalog, "news", "a")
    await create_subscription(catalog, "news", "b")
    await catalog.create_rule("news", "a", default_rule("all"), limits, NOW)
    with pytest.raises(QuotaExceeded, match="max_plain_rules"):
        await catalog.create_rule("news", "a", default_rule("more"), limits, NOW)
    await catalog.create_rule("news", "a", CHEAP, limits, NOW)
    with pytest.raises(QuotaExceeded, match="max_plain_rules"):
        await catalog.update_rule("news", "a", default_rule(CHEAP.name), limits, NOW)
    await catalog.update_rule("news", "a", default_rule("all"), limits, NOW)
    await catalog.create_rule("news", "b", default_rule("all"), limits, NOW)


@covers("M9", "M13", "F15")
async def test_rules_are_limited_per_topic_and_kind(catalog: Catalog) -> None:
    limits = replace(LIMITS, max_sql_rules=2, max_correlation_rules=1)
    await create_topic(catalog)
    await create_subscription(catalog, "news", "a", CHEAP, limits=limits)
    await create_subscription(catalog, "news", "b", CHEAP, default_rule(), limits=limits)
    with pytest.raises(QuotaExceeded, match="max_sql_rules"):
        await catalog.create_rule("news", "b", replace(CHEAP, name="more"), limits, NOW)
    with pytest.raises(QuotaExceeded):
        await create_subscription(catalog, "news", "c", CHEAP, limits=limits)
    assert catalog.subscription_count("news") == 2
    await catalog.create_rule("news", "b", RED, limits, NOW)
    with pytest.raises(QuotaExceeded, match="max_correlation_rules"):
        await catalog.create_rule("news", "a", RED, limits, NOW)
    await catalog.update_rule("news", "b", replace(CHEAP, action=None), limits, NOW)
    with pytest.raises(QuotaExceeded):
        await catalog.update_rule("news", "b", replace(CHEAP, name="red"), limits, NOW)
    await catalog.create_rule("news", "a", default_rule("all"), limits, NOW)
    await catalog.delete_subscription("news", "a", NOW)
    await catalog.update_rule("news", "b", replace(CHEAP, name="red"), limits, NOW)


async def life_of_a_topic(catalog: Catalog) -> None:
    """Every kind of change once; what failed without a trace is done again, what was done is left."""
    if catalog.find_topic("news") is None:
        entry = await again(lambda: catalog.begin_create_topic(TopicDescription("news"), LIMITS, NOW))
        try:
            await catalog.finish_create(entry, NOW)
        except StoreUnavailable:
            await catalog.abandon_create(entry, NOW)
            await create_topic(catalog, "news")
    for name in ("audit", "gone"):
        description = SubscriptionDescription("news", name)
        created = await again(
            partial(catalog.begin_create_subscription, description, [default_rule(), CHEAP], LIMITS, NOW)
        )
        try:
            await catalog.finish_create(created, NOW)
        except StoreUnavailable:
            await catalog.abandon_create(created, NOW)
            await create_subscription(catalog, "news", name, default_rule(), CHEAP)
    await unless_done(lambda: catalog.create_rule("news", "audit", RED, LIMITS, NOW), (EntityAlreadyExists,))
    changed = replace(CHEAP, action=None)
    await unless_done(lambda: catalog.update_rule("news", "audit", changed, LIMITS, NOW))
    await unless_done(lambda: catalog.delete_rule("news", "audit", "$Default", NOW), (EntityNotFound,))
    await unless_done(lambda: catalog.update_topic(TopicDescription("news", user_metadata="x"), NOW))
    await unless_done(lambda: catalog.update_subscription(SubscriptionDescription("news", "audit", 30.0), NOW))
    await unless_done(lambda: catalog.delete_subscription("news", "gone", NOW), (EntityNotFound,))
    for tombstone in catalog.tombstones():
        await unless_done(partial(catalog.forget, [tombstone], NOW))
    await unless_done(lambda: catalog.record_accesses({"news/subscriptions/audit": NOW + 1}, NOW))


async def again(change: Callable[[], Awaitable[T]]) -> T:
    try:
        return await change()
    except StoreUnavailable:
        return await change()


async def unless_done(change: Callable[[], Awaitable[object]], done: tuple[type[BusError], ...] = ()) -> None:
    try:
        await again(change)
    except done:
        pass


def seen_from_outside(catalog: Catalog) -> object:
    return (
        catalog.topics(),
        catalog.subscriptions("news"),
        catalog.rules("news", "audit"),
        catalog.rule_counts("news"),
        catalog.tombstones(),
        catalog.accessed_at("news/subscriptions/audit"),
        catalog.version,
    )


@covers("M9")
@pytest.mark.parametrize("is_durable", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("fails_at", range(1, 18))
async def test_after_a_commit_of_unknown_outcome_memory_is_what_is_durable(
    tmp_path: Path, fails_at: int, is_durable: bool
) -> None:
    Catalog(CatalogStore(tmp_path, LIMITS.catalog_map_size_bytes), NOW).close()
    store = FailingStore(CatalogStore(tmp_path, LIMITS.catalog_map_size_bytes), fails_at, is_durable)
    catalog = Catalog(store, NOW)
    await life_of_a_topic(catalog)
    remembered = seen_from_outside(catalog)
    restarted = reopened(catalog, tmp_path)
    assert seen_from_outside(restarted) == remembered
    assert [entry.description.name for entry in restarted.subscriptions("news")] == ["audit"]
    assert [rule.name for rule in restarted.rules("news", "audit")] == ["cheap", "red"]
    assert restarted.get_subscription("news", "audit").description.lock_duration_s == 30.0
    assert restarted.tombstones() == []
    assert stored_rules(restarted, tmp_path) == 2


@covers("F6", "M9")
@pytest.mark.parametrize("broken", ["subscription", "rule"])
async def test_a_topic_with_a_damaged_subscription_or_rule_is_not_served(
    catalog: Catalog, tmp_path: Path, broken: str
) -> None:
    for topic in ("news", "other"):
        await create_topic(catalog, topic)
        await create_subscription(catalog, topic, "audit", CHEAP)
    key = catalog.get_subscription("news", "audit").fragment_key
    catalog.close()
    flip(tmp_path, b"snews/subscriptions/audit" if broken == "subscription" else rule_key(key, "cheap"))
    damaged = Catalog.open(tmp_path, LIMITS, NOW)
    assert len(damaged.damaged) >= 1
    with pytest.raises(StoreDamaged, match="subscription or rule of 'NEWS' is damaged"):
        damaged.check_complete("NEWS")
    damaged.check_complete("other")
    if broken == "subscription":
        with pytest.raises(StoreDamaged):
            await create_subscription(damaged, "news", "audit")
    damaged.close()


@covers("F6", "M9")
async def test_subscriptions_of_a_damaged_topic_are_kept_and_not_served(catalog: Catalog, tmp_path: Path) -> None:
    await create_topic(catalog)
    await create_subscription(catalog, "news", "audit")
    catalog.close()
    flip(tmp_path, b"tnews")
    damaged = Catalog.open(tmp_path, LIMITS, NOW)
    assert damaged.find("news/subscriptions/audit") is None
    assert {one.key[:1] for one in damaged.damaged} == {b"t", b"s", b"r"}
    assert damaged.tombstones() == []
    with pytest.raises(StoreDamaged):
        await create_topic(damaged, "News")
    with pytest.raises(StoreDamaged):
        await create_queue(damaged, "News")
    assert stored_rules(damaged, tmp_path) == 1


@covers("M13")
async def test_an_entity_with_an_idle_time_is_listed_until_it_has_none_or_is_gone(catalog: Catalog) -> None:
    await create_topic(catalog)
    await create_subscription(catalog, "news", "audit")
    assert catalog.entries_with_idle_time() == []
    await catalog.update_topic(TopicDescription("news", auto_delete_on_idle_s=300.0), NOW)
    with_idle = SubscriptionDescription("news", "audit", auto_delete_on_idle_s=300.0)
    await catalog.update_subscription(with_idle, NOW)
    assert [entry.key for entry in catalog.entries_with_idle_time()] == ["news", "news/subscriptions/audit"]
    await catalog.update_topic(TopicDescription("news"), NOW)
    await catalog.delete_subscription("news", "audit", NOW)
    assert catalog.entries_with_idle_time() == []


def stored_rules(catalog: Catalog, folder: Path) -> int:
    """How many rules the store really holds; the catalog is closed for it."""
    catalog.close()
    store = CatalogStore(folder, LIMITS.catalog_map_size_bytes)
    documents, _ = store.read_all()
    store.close()
    return sum(key[:1] == b"r" for key in documents)


def flip(folder: Path, key: bytes) -> None:
    with lmdb.open(str(folder)) as environment, environment.begin(write=True) as txn:
        value = bytearray(txn.get(key) or b"")
        value[30] ^= 1
        txn.put(key, bytes(value))


@covers("M9", "M13")
async def test_ten_thousand_topics_and_two_thousand_subscriptions_are_listed_page_by_page(tmp_path: Path) -> None:
    limits = replace(LIMITS, catalog_map_size_bytes=128 * 1024 * 1024)
    Catalog.open(tmp_path, limits, NOW).close()
    fill(tmp_path, 10_000, 2_000)
    catalog = Catalog.open(tmp_path, limits, NOW)
    assert (catalog.topic_count(), catalog.subscription_count("topic00000")) == (10_000, 2_000)
    for skip in range(0, 10_000, 100):
        assert catalog.topics(skip, 100)[0].description.name == f"topic{skip:05}"
    for skip in range(0, 2_000, 100):
        page = catalog.subscriptions("TOPIC00000", skip, 100)
        assert [one.description.name for one in page] == [f"s{number:04}" for number in range(skip, skip + 100)]
    for number in range(2_000):
        assert catalog.find(f"topic00000/subscriptions/s{number:04}") is not None
    with pytest.raises(QuotaExceeded):
        await create_topic(catalog, "one-more", limits)
    with pytest.raises(QuotaExceeded):
        await create_subscription(catalog, "topic00000", "one-more", limits=limits)
    catalog.close()


def fill(folder: Path, topic_count: int, subscription_count: int) -> None:
    """What so many creations leave behind, in one commit; the subscriptions are the first topic's."""
    topics = [TopicEntry(TopicDescription(f"topic{n:05}"), n + 1, n + 1, NOW, NOW) for n in range(topic_count)]
    numbers = range(topic_count + 1, topic_count + subscription_count + 1)
    subscriptions = [
        SubscriptionEntry(SubscriptionDescription("topic00000", f"s{place:04}"), number, number, NOW, NOW)
        for place, number in enumerate(numbers)
    ]
    puts = {entry_key(entry): entry_document(entry) for entry in (*topics, *subscriptions)}
    puts.update({rule_key(one.fragment_key, "$Default"): rule_to_record(default_rule()) for one in subscriptions})
    puts.update(facts_documents(Facts("id", NOW, numbers.stop, numbers.stop, numbers.stop)))
    store = CatalogStore(folder, 128 * 1024 * 1024)
    store.commit(puts)
    store.close()
