"""Copies of the catalog: each change, applied in order, gives the same content and says what it means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    default_rule,
)
from tandembus.errors import StoreUnavailable
from tandembus.limits import Limits
from tandembus.namespace.applying import known_keys
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.catalog_change import (
    CatalogChange,
    CatalogEvent,
    EntityChanged,
    EntityCreated,
    EntityEnded,
    FragmentBuried,
    PolicyChanged,
    RulesChanged,
)
from tandembus.namespace.catalog_view import CatalogView
from tandembus.store.memory_records import MemoryRecords
from tests.covers import covers

LIMITS = Limits()
NOW = 1_700_000_000.0


class Copy:
    """A copy that is told of every change."""

    def __init__(self, catalog: Catalog) -> None:
        self.view = CatalogView.empty()
        self.changes: list[CatalogChange] = []
        self.told: list[CatalogEvent] = []
        self._catalog = catalog
        catalog.listeners.append(self._take)

    def _take(self, change: CatalogChange, events: Sequence[CatalogEvent]) -> None:
        self.changes.append(change)
        understood = self.view.apply(change)
        assert understood == list(events)
        assert content(self.view) == content(self._catalog)
        self.told += understood

    def news(self) -> list[CatalogEvent]:
        told, self.told = self.told, []
        return told


def content(view: CatalogView) -> object:
    directory = view._directory
    return (
        directory.facts,
        sorted(known_keys(directory)),
        list(directory.entries()),
        directory.creating,
        directory.tombstones,
        directory.accessed_at,
        directory.policies.page(),
        directory.by_fragment,
        directory.with_idle_time,
        [view.rules(one.topic_key, one.name_key) for topic in view.topics() for one in view.subscriptions(topic.key)],
    )


@pytest.fixture
async def catalog() -> Catalog:
    return Catalog(MemoryRecords(), NOW)


async def followed(catalog: Catalog) -> Copy:
    copy = Copy(catalog)
    copy.view.apply(await catalog.snapshot())
    return copy


async def create_queue(catalog: Catalog, description: QueueDescription) -> None:
    await catalog.finish_create(await catalog.begin_create(description, LIMITS, NOW), NOW)


async def create_topic(catalog: Catalog, name: str, *subscriptions: str) -> None:
    await catalog.finish_create(await catalog.begin_create_topic(TopicDescription(name), LIMITS, NOW), NOW)
    for one in subscriptions:
        wanted = SubscriptionDescription(name, one)
        entry = await catalog.begin_create_subscription(wanted, [default_rule()], LIMITS, NOW)
        await catalog.finish_create(entry, NOW)


def rule(name: str, expression: str = "a = 1") -> RuleDescription:
    return RuleDescription(name, SqlFilter(expression))


async def test_a_copy_knows_what_the_catalog_knows_and_what_each_change_means(catalog: Catalog) -> None:
    copy = await followed(catalog)
    entry = await catalog.begin_create(QueueDescription("Orders", auto_delete_on_idle_s=600.0), LIMITS, NOW)
    assert copy.news() == []  # it is not there yet
    active = await catalog.finish_create(entry, NOW)
    assert copy.news() == [EntityCreated(active)]
    updated = await catalog.update_queue(QueueDescription("orders", max_delivery_count=3), NOW + 1)
    assert copy.news() == [EntityChanged(updated)]
    assert copy.view.get_queue("orders").description.max_delivery_count == 3
    tombstones = await catalog.delete_queue("orders", NOW + 2)
    assert copy.news() == [EntityEnded(updated), FragmentBuried(tombstones[0])]
    await catalog.forget(tombstones, NOW + 3)
    assert copy.news() == []
    assert copy.view.tombstones() == []


async def test_a_copy_knows_topics_subscriptions_rules_and_policies(catalog: Catalog) -> None:
    copy = await followed(catalog)
    await create_topic(catalog, "news", "all", "some")
    created = copy.news()
    assert [type(one) for one in created] == [EntityCreated] * 3
    subscription = catalog.get_subscription("news", "some")
    await catalog.create_rule("news", "some", rule("first"), LIMITS, NOW)
    assert copy.news() == [RulesChanged(subscription)]
    await catalog.update_rule("news", "some", rule("FIRST", "b = 2"), LIMITS, NOW)
    assert copy.news() == [RulesChanged(subscription)]
    await catalog.delete_rule("news", "some", "$Default", NOW)
    assert copy.news() == [RulesChanged(subscription)]
    await catalog.put_policy(AuthorizationRule("reader", "k", "", frozenset({"Listen"})), NOW)
    await catalog.remove_policy("reader", NOW)
    assert copy.news() == [PolicyChanged("reader")] * 2
    await catalog.delete_topic("news", NOW)
    assert [type(one) for one in copy.news()] == [EntityEnded] * 3 + [FragmentBuried] * 3


async def test_a_creation_that_is_given_up_is_known_to_copies_only_by_its_tombstone(catalog: Catalog) -> None:
    copy = await followed(catalog)
    entry = await catalog.begin_create(QueueDescription("orders"), LIMITS, NOW)
    tombstones = await catalog.abandon_create(entry, NOW)
    assert copy.news() == [FragmentBuried(tombstones[0])]


async def test_every_change_has_the_next_version(catalog: Catalog) -> None:
    copy = await followed(catalog)
    first = catalog.version
    await create_queue(catalog, QueueDescription("orders"))
    await catalog.record_accesses({"orders": NOW + 5}, NOW)
    await catalog.forget(await catalog.delete_queue("orders", NOW), NOW)
    assert [one.version for one in copy.changes] == list(range(first + 1, first + 1 + len(copy.changes)))
    assert copy.view.version == catalog.version


async def test_a_change_that_does_not_follow_on_the_last_one_is_refused(catalog: Catalog) -> None:
    copy = await followed(catalog)
    await create_queue(catalog, QueueDescription("orders"))
    before = content(copy.view)
    for version in (copy.view.version, copy.view.version + 2):
        with pytest.raises(StoreUnavailable, match="cannot take version"):
            copy.view.apply(CatalogChange(version, {}, ()))
    assert content(copy.view) == before


async def test_who_missed_some_changes_gets_just_these(catalog: Catalog) -> None:
    await create_queue(catalog, QueueDescription("orders"))
    view = CatalogView.empty()
    view.apply(await catalog.snapshot())
    await create_topic(catalog, "news", "all")
    missed = await catalog.catch_up(view.namespace_id, view.version)
    assert [one.is_whole for one in missed] == [False] * 4
    for change in missed:
        view.apply(change)
    assert content(view) == content(catalog)
    assert await catalog.catch_up(view.namespace_id, view.version) == []


@pytest.mark.parametrize("namespace_id", ["another", "the same"])
async def test_who_missed_more_than_is_known_takes_all_of_it(catalog: Catalog, namespace_id: str) -> None:
    await create_queue(catalog, QueueDescription("orders"))
    known = catalog.namespace_id if namespace_id == "the same" else namespace_id
    version = catalog.version if namespace_id == "another" else catalog.version + 10
    (whole,) = await catalog.catch_up(known, version)
    assert whole.is_whole
    view = CatalogView.empty()
    view.apply(whole)
    assert content(view) == content(catalog)


async def test_a_whole_catalog_tells_only_what_is_different(catalog: Catalog) -> None:
    await create_queue(catalog, QueueDescription("same"))
    await create_queue(catalog, QueueDescription("updated"))
    await create_queue(catalog, QueueDescription("again"))
    await create_topic(catalog, "news", "all", "some", "gone")
    view = CatalogView.empty()
    view.apply(await catalog.snapshot())
    kept = (view.get_queue("same"), view.get_rule("news", "all", "$Default"))
    updated = await catalog.update_queue(QueueDescription("updated", max_delivery_count=3), NOW)
    old = catalog.get_queue("again")
    await catalog.delete_queue("again", NOW)
    await create_queue(catalog, QueueDescription("AGAIN"))
    await catalog.create_rule("news", "some", rule("more"), LIMITS, NOW)
    gone = catalog.get_subscription("news", "gone")
    await catalog.delete_subscription("news", "gone", NOW)
    events = view.apply(await catalog.snapshot())
    assert content(view) == content(catalog)
    assert view.get_queue("same") is kept[0]
    assert view.get_rule("news", "all", "$Default") is kept[1]  # what was compiled of it is still good
    told = {type(one): [] for one in events}  # type: ignore[var-annotated]
    for one in events:
        told[type(one)].append(one)
    assert told.pop(EntityChanged) == [EntityChanged(updated)]
    assert told.pop(EntityCreated) == [EntityCreated(catalog.get_queue("again"))]
    assert told.pop(EntityEnded) == [EntityEnded(gone), EntityEnded(old)]
    assert told.pop(RulesChanged) == [RulesChanged(catalog.get_subscription("news", "some"))]
    assert [one.tombstone.path for one in told.pop(FragmentBuried)] == ["again", "news/Subscriptions/gone"]
    assert told == {}


@covers("P7", "P26")
async def test_every_fragment_of_an_entity_is_found_by_its_key(catalog: Catalog) -> None:
    await create_queue(catalog, QueueDescription("orders"))
    entry = catalog.get_queue("orders")
    assert list(entry.fragment_keys) == [entry.fragment_key]
    assert catalog.find_by_fragment(entry.fragment_key) is entry
    assert catalog.find_by_fragment(entry.fragment_key + 1) is None
