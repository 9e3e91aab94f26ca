"""Who may forward to whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tandembus.broker.settings import FragmentSettings
from tandembus.descriptions import EntityDescription, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import BusError, InvalidArgument, InvalidOperation
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.entries import Entry
from tandembus.namespace.forwarding import check_forwarding
from tandembus.namespace.fragment_settings import fragment_settings
from tandembus.namespace.paths import SubQueue
from tests.covers import covers
from tests.unit.namespace.entity_fragment import fragment_of
from tests.unit.namespace.namespace_lives import Attached, Machine

LIMITS = Limits()
NOW = 1_700_000_000.0


async def queue(catalog: Catalog, name: str, forward_to: str | None = None) -> None:
    description = QueueDescription(name, forward_to=forward_to)
    await catalog.finish_create(await catalog.begin_create(description, LIMITS, NOW), NOW)


async def topic(catalog: Catalog, name: str, **forwards: str) -> None:
    await catalog.finish_create(await catalog.begin_create_topic(TopicDescription(name), LIMITS, NOW), NOW)
    for subscription, target in forwards.items():
        description = SubscriptionDescription(name, subscription, forward_to=target)
        entry = await catalog.begin_create_subscription(description, [], LIMITS, NOW)
        await catalog.finish_create(entry, NOW)


def chain(length: int) -> list[tuple[str, str | None]]:
    """q0 forwards to q1, and so on: so many hops."""
    return [(f"q{number}", f"q{number + 1}") for number in range(length)] + [(f"q{length}", None)]


async def build(names: list[tuple[str, str | None]]) -> Catalog:
    catalog = Catalog(Machine().records, NOW)
    for name, target in names:
        await queue(catalog, name, target)
    return catalog


@covers("M10")
@pytest.mark.parametrize(
    "forwarding",
    [
        lambda target: QueueDescription("new", forward_to=target),
        lambda target: QueueDescription("new", forward_dead_lettered_messages_to=target),
    ],
    ids=["messages", "dead letters"],
)
async def test_a_target_must_be_a_queue_or_topic_that_is_there(forwarding: Callable[[str], QueueDescription]) -> None:
    catalog = await build([("there", None)])
    await topic(catalog, "news", audit="there")
    for target in ("there", "THERE", "news"):
        check_forwarding(catalog, forwarding(target), None, LIMITS)
    for target in ("nowhere", "news/subscriptions/audit"):
        with pytest.raises(InvalidArgument, match=f"'{target}', which is no queue or topic"):
            check_forwarding(catalog, forwarding(target), None, LIMITS)


@covers("M10")
async def test_a_target_that_went_meanwhile_does_not_forbid_other_changes() -> None:
    catalog = await build([("there", None)])
    old = QueueDescription("new", forward_to="gone", forward_dead_lettered_messages_to="gone")
    check_forwarding(catalog, replace(old, max_delivery_count=3), old, LIMITS)
    check_forwarding(catalog, replace(old, forward_to=None), old, LIMITS)
    with pytest.raises(InvalidArgument):
        check_forwarding(catalog, replace(old, forward_to="gone-too"), old, LIMITS)


@covers("M10")
async def test_four_hops_are_allowed_and_five_are_not() -> None:
    catalog = await build(chain(3))
    check_forwarding(catalog, QueueDescription("new", forward_to="q0"), None, LIMITS)
    catalog = await build(chain(4))
    with pytest.raises(InvalidArgument, match="more than 4 times"):
        check_forwarding(catalog, QueueDescription("new", forward_to="q0"), None, LIMITS)
    check_forwarding(catalog, QueueDescription("new", forward_to="q0"), None, Limits(max_forward_hops=5))


@covers("M10")
async def test_hops_before_and_behind_count_together() -> None:
    catalog = await build([*chain(2), ("a", "b"), ("b", None)])
    old = QueueDescription("b")
    check_forwarding(catalog, replace(old, forward_to="q0"), old, LIMITS)
    catalog = await build([*chain(2), ("z", "a"), ("a", "b"), ("b", None)])
    with pytest.raises(InvalidArgument, match="more than 4 times"):
        check_forwarding(catalog, replace(old, forward_to="q0"), old, LIMITS)


@covers("M10")
async def test_the_longest_of_several_ways_counts() -> None:
    catalog = await build([*chain(2), ("detour", "q0"), ("end", None)])
    await topic(catalog, "news", short="q1", long="detour")
    with pytest.raises(InvalidArgument):
        check_forwarding(catalog, QueueDescription("new", forward_to="news"), None, LIMITS)
    catalog = await build([*chain(2), ("end", None)])
    await topic(catalog, "news", short="q1", long="q0")
    check_forwarding(catalog, QueueDescription("new", forward_to="news"), None, LIMITS)


@covers("M10")
async def test_messages_must_not_come_back() -> None:
    catalog = await build([("a", "b"), ("b", "c"), ("c", None)])
    old = QueueDescription("c")
    for target in ("a", "B"):
        with pytest.raises(InvalidArgument, match="would come back"):
            check_forwarding(catalog, replace(old, forward_to=target), old, LIMITS)
    check_forwarding(catalog, replace(old, forward_dead_lettered_messages_to="a"), old, LIMITS)


@covers("M10")
async def test_messages_must_not_come_back_through_a_topic() -> None:
    catalog = await build([("a", "news"), ("b", None)])
    await topic(catalog, "news", other="b")
    for name in ("audit", "other"):
        with pytest.raises(InvalidArgument, match="would come back"):
            check_forwarding(catalog, SubscriptionDescription("NEWS", name, forward_to="a"), None, LIMITS)
    check_forwarding(catalog, SubscriptionDescription("news", "audit", forward_to="b"), None, LIMITS)


@covers("M10")
async def test_a_circle_that_is_there_already_does_not_hang_the_check() -> None:
    catalog = await build([("a", "b"), ("b", "a"), ("end", None)])
    with pytest.raises(InvalidArgument):
        check_forwarding(catalog, QueueDescription("new", forward_to="a"), None, LIMITS)
    check_forwarding(catalog, QueueDescription("new", forward_to="end"), None, LIMITS)


@covers("M10")
async def test_changing_where_an_entity_forwards_to_forgets_the_old_way() -> None:
    catalog = await build([("a", "b"), ("b", None), ("c", "a")])
    old = QueueDescription("a", forward_to="b")
    with pytest.raises(InvalidArgument):
        check_forwarding(catalog, replace(old, forward_to="c"), old, LIMITS)
    other = QueueDescription("b")
    with pytest.raises(InvalidArgument):
        check_forwarding(catalog, replace(other, forward_to="a"), other, LIMITS)
    await catalog.update_queue(replace(old, forward_to=None), NOW)
    check_forwarding(catalog, replace(other, forward_to="a"), other, LIMITS)


@covers("M10")
async def test_what_forwards_has_receivers_at_its_dead_letters_only() -> None:
    async with Machine().life() as life:
        await queue(life.catalog, "there")
        await queue(life.catalog, "orders", "there")
        await life.broker.make_fragment(life.catalog.get_queue("orders").fragment_key, 1, 0)
        entity = await life.namespace.entity("orders")
        entity.check_can_send()
        with pytest.raises(InvalidOperation, match="forwards its messages to 'there'"):
            entity.check_can_receive()
        for sub_queue in (SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER):
            entity.check_can_receive(sub_queue.lane)


@covers("M10")
async def test_turning_forwarding_on_cuts_the_receivers_but_not_those_of_the_dead_letters() -> None:
    async with Machine().life() as life:
        for name in ("orders", "there"):
            await life.namespace.create_queue(QueueDescription(name))
        entity = await life.namespace.entity("orders")
        links = [Attached(True), Attached(False), Attached(False, SubQueue.DEAD_LETTER.lane)]
        for link in links:
            entity.attach(link, life.clock.now())
        await life.namespace.update_queue(QueueDescription("orders", forward_to="there"))
        errors: list[list[BusError]] = [link.errors for link in links]
        assert [len(one) for one in errors] == [0, 1, 0]
        assert isinstance(errors[1][0], InvalidOperation)
        assert fragment_of(entity).settings.forward_to == "there"


def settings_of(description: EntityDescription) -> FragmentSettings:
    return fragment_settings(Entry(description, 1, 1, 0.0, 0.0), LIMITS)


@covers("M7", "M8", "M9", "M10")
def test_fragments_are_told_what_they_need_to_know() -> None:
    settings = settings_of(
        QueueDescription(
            "q",
            lock_duration_s=30.0,
            requires_session=True,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window_s=20.0,
            forward_dead_lettered_messages_to="dead",
            default_message_time_to_live_s=1.5,
            max_size_in_megabytes=2048,
        )
    )
    assert (settings.lock_duration_s, settings.requires_session, settings.duplicate_window_ms) == (30.0, True, 20_000)
    assert (settings.forward_to, settings.forward_dead_letters_to) == ("", "dead")
    assert (settings.default_ttl_ms, settings.max_size_bytes) == (1_500, 2048 << 20)
    of_topic = settings_of(TopicDescription("t", requires_duplicate_detection=True))
    assert (of_topic.duplicate_window_ms, of_topic.max_size_bytes) == (600_000, 1024 << 20)
    for description in (
        QueueDescription("q", enable_partitioning=True),
        TopicDescription("t", enable_partitioning=True),
    ):
        assert settings_of(description).is_partitioned
    assert not of_topic.is_partitioned
    of_subscription = settings_of(
        SubscriptionDescription(
            "t", "s", forward_to="q", max_delivery_count=3, dead_lettering_on_message_expiration=True
        )
    )
    assert (of_subscription.forward_to, of_subscription.max_delivery_count) == ("q", 3)
    assert of_subscription.dead_letter_expired
    assert of_subscription.dead_letter_filter_errors
    assert of_subscription.duplicate_window_ms == 0
