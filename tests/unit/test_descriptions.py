"""What a queue, a topic or a subscription may be asked to be."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.descriptions import (
    NEVER_S,
    AuthorizationRule,
    EntityKind,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    check_update,
    from_record,
    shown_size_in_megabytes,
    subscription_from_record,
    to_record,
    topic_from_record,
    validate_name,
    validate_subscription_name,
    with_size_as_created,
)
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits
from tests.covers import covers

LIMITS = Limits()
QUEUE = QueueDescription("orders")
TOPIC = TopicDescription("news")
SUBSCRIPTION = SubscriptionDescription("news", "audit")
RULE = AuthorizationRule("till", "k", "l", frozenset({"Send"}), 1.0, 2.0)


@covers("M2", "M6", "M13")
def test_the_defaults_are_those_of_the_service_and_valid() -> None:
    assert QUEUE.validated(LIMITS) == QUEUE
    assert (QUEUE.lock_duration_s, QUEUE.max_delivery_count, QUEUE.max_size_in_megabytes) == (60.0, 10, 1024)
    assert QUEUE.default_message_time_to_live_s is None
    assert QUEUE.auto_delete_on_idle_s is None
    assert QUEUE.duplicate_detection_history_time_window_s == 600.0
    assert QUEUE.enable_batched_operations
    assert QUEUE.max_message_size_bytes(LIMITS) == 262_144


@pytest.mark.parametrize(
    "name",
    [
        "q",
        "Q1",
        "a.b",
        "a-b_c~d",
        "a/b/c",
        "contoso/x-servicebus-transfer/0",
        "x" * 260,
        "1",
        "queue.1",
        "subscriptions",
        "_a-",
    ],
)
def test_good_names(name: str) -> None:
    validate_name(name, LIMITS)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        "x" * 261,
        "a b",
        "a\\b",
        "a?b",
        "a#b",
        "a%b",
        "a&b",
        "a;b",
        "a'b",
        'a"b',
        "a<b",
        "$a",
        "a$",
        "a/$management",
        "a/$DeadLetterQueue",
        "é",
        "\uff51",
        "\u212a",
        "a\n",
        "\x00",
        "a\x00b",
        ".",
        "..",
        "a/..",
        "./a",
        "a/../b",
        "a/subscriptions/b",
        "a/Subscriptions",
        "a:b",
        "a@b",
        "a*b",
        "a+b",
        "a=b",
        "a,b",
        "x" * 100_000,
    ],
)
def test_bad_names_are_refused_with_a_short_text(name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        validate_name(name, LIMITS)
    assert len(str(refused.value)) < 600


@covers("M2", "M6", "M13")
@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("lock_duration_s", [5.0, 60.0, 300.0], [0.0, 4.999, 300.001, -1.0, float("nan"), float("inf")]),
        ("max_delivery_count", [1, 10, 2_147_483_647], [0, -1, 2_147_483_648]),
        ("max_size_in_megabytes", [1024, 2048, 3072, 4096, 5120], [0, -1024, 1, 1023, 1025, 6144, 80 * 1024]),
        ("default_message_time_to_live_s", [0.001, 1.0, 1e9], [0.0, -1.0, float("nan")]),
        ("auto_delete_on_idle_s", [300.0, 86_400.0], [0.0, 299.9, -5.0, float("nan")]),
        (
            "duplicate_detection_history_time_window_s",
            [20.0, 604_800.0],
            [19.9, 604_800.1, 0.0, float("nan")],
        ),
        ("user_metadata", ["x" * 1024, "é" * 1024], ["x" * 1025]),
        ("is_anonymous_accessible", [False], [True]),
        ("max_message_size_in_kilobytes", [None, 256], [0, 255, 257, 1024, -1]),
        ("forward_to", ["other", "a/b", "orders"], ["a//b", "$x"]),
        ("forward_dead_lettered_messages_to", ["other", "ORDERS"], ["a b"]),
        ("authorization_rules", [(), (RULE,)], [(RULE, RULE), (RULE, replace(RULE, key_name="Till"))]),
    ],
)
def test_values_in_range_are_taken_and_others_refused(field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        replace(QUEUE, **{field: value}).validated(LIMITS)
    for value in bad:
        with pytest.raises(InvalidArgument):
            replace(QUEUE, **{field: value}).validated(LIMITS)


@covers("M15")
@pytest.mark.parametrize(
    "rule",
    [
        replace(RULE, key_name=""),
        replace(RULE, key_name="a;b"),
        replace(RULE, rights=frozenset()),
        replace(RULE, rights=frozenset({"All"})),
        replace(RULE, primary_key=""),
        replace(RULE, secondary_key="with space"),
        replace(RULE, primary_key="semi;colon"),
    ],
)
def test_authorization_rules_are_checked(rule: AuthorizationRule) -> None:
    with pytest.raises(InvalidArgument):
        replace(QUEUE, authorization_rules=(rule,)).validated(LIMITS)


def test_there_can_be_twelve_authorization_rules() -> None:
    rules = tuple(replace(RULE, key_name=f"rule{number}") for number in range(13))
    replace(QUEUE, authorization_rules=rules[:12]).validated(LIMITS)
    with pytest.raises(InvalidArgument):
        replace(QUEUE, authorization_rules=rules).validated(LIMITS)


@covers("M13")
def test_limits_can_be_raised() -> None:
    limits = Limits(
        size_choices_megabytes=(1, 10_240), max_lock_duration_s=600.0, max_message_size_bytes=4 * 1024 * 1024
    )
    wide = replace(QUEUE, max_size_in_megabytes=10_240, lock_duration_s=600.0, max_message_size_in_kilobytes=2048)
    assert wide.validated(limits).max_message_size_bytes(limits) == 2048 * 1024
    assert QUEUE.max_message_size_bytes(limits) == 4 * 1024 * 1024
    for kilobytes in (1023, 4097):
        with pytest.raises(InvalidArgument, match="1024 to 4096"):
            replace(wide, max_message_size_in_kilobytes=kilobytes).validated(limits)


def test_an_entity_never_takes_more_than_the_namespace_does_now() -> None:
    kept = replace(QUEUE, max_message_size_in_kilobytes=2048)
    assert kept.max_message_size_bytes(LIMITS) == 262_144


@covers("M6")
@pytest.mark.parametrize("never", [NEVER_S, NEVER_S + 10_085.47758, 1e15, float("inf")])
def test_durations_that_mean_never_become_none(never: float) -> None:
    given = replace(QUEUE, default_message_time_to_live_s=never, auto_delete_on_idle_s=never)
    assert given.validated(LIMITS) == QUEUE


def test_empty_texts_mean_none() -> None:
    given = replace(QUEUE, forward_to="", forward_dead_lettered_messages_to="", user_metadata="")
    assert given.validated(LIMITS) == QUEUE


@covers("P8")
@pytest.mark.parametrize("kind", [QueueDescription, TopicDescription])
@pytest.mark.parametrize("size", [1024, 2048, 5120])
def test_a_partitioned_entity_shows_the_size_of_all_fragments_and_takes_it_back(kind: Any, size: int) -> None:
    old = kind("orders", max_size_in_megabytes=size, enable_partitioning=True)
    assert shown_size_in_megabytes(old) == 16 * size
    sent_back = replace(old, max_size_in_megabytes=16 * size, user_metadata="new")
    assert with_size_as_created(old, sent_back) == replace(old, user_metadata="new")
    larger = replace(old, max_size_in_megabytes=3072)
    assert with_size_as_created(old, larger) is larger


@covers("P8")
def test_a_plain_entity_shows_its_size_as_it_is() -> None:
    assert shown_size_in_megabytes(QUEUE) == 1024
    larger = replace(QUEUE, max_size_in_megabytes=16 * 1024)
    assert with_size_as_created(QUEUE, larger) is larger
    with pytest.raises(InvalidArgument, match="MaxSizeInMegabytes is 16384; allowed: 1024, 2048"):
        larger.validated(LIMITS)


@pytest.mark.parametrize("field", ["requires_session", "requires_duplicate_detection", "enable_partitioning"])
@pytest.mark.parametrize("before", [True, False])
def test_what_is_fixed_at_creation_cannot_be_updated(field: str, before: bool) -> None:
    old: dict[str, Any] = {field: before}
    new: dict[str, Any] = {field: not before}
    check_update(replace(QUEUE, **old), replace(QUEUE, **old, lock_duration_s=30.0))
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        check_update(replace(QUEUE, **old), replace(QUEUE, **new))


@pytest.mark.parametrize(
    ("status", "can_send", "can_receive"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_status_says_what_clients_may_do(status: EntityStatus, can_send: bool, can_receive: bool) -> None:
    assert (status.can_send, status.can_receive) == (can_send, can_receive)


DESCRIPTIONS = st.builds(
    QueueDescription,
    name=st.text(max_size=20),
    lock_duration_s=st.floats(allow_nan=False),
    default_message_time_to_live_s=st.none() | st.floats(0, 1e12),
    max_delivery_count=st.integers(1, 2**31 - 1),
    requires_session=st.booleans(),
    status=st.sampled_from(EntityStatus),
    user_metadata=st.none() | st.text(max_size=50),
    authorization_rules=st.lists(
        st.builds(
            AuthorizationRule,
            st.text(max_size=5),
            st.text(max_size=5),
            st.text(max_size=5),
            st.frozensets(st.sampled_from(["Send", "Listen", "Manage"])),
        ),
        max_size=3,
    ).map(tuple),
)


@given(DESCRIPTIONS)
def test_a_description_survives_as_a_record(description: QueueDescription) -> None:
    assert from_record(to_record(description)) == description


def test_a_record_of_an_older_or_a_neighbouring_version_is_read() -> None:
    assert from_record({"name": "orders"}) == QUEUE
    assert from_record({"name": "orders", "added_later": 5}) == QUEUE
    assert set(to_record(QUEUE)) == {one.name for one in dataclasses.fields(QueueDescription)}


@covers("F17")
def test_keys_do_not_show_in_a_representation() -> None:
    rule = AuthorizationRule("till", "planted-one", "planted-two", frozenset({"Send"}))
    assert "planted" not in repr(replace(QUEUE, authorization_rules=(rule,)))


@covers("M9")
def test_the_defaults_of_topics_and_subscriptions_are_those_of_the_service_and_valid() -> None:
    assert TOPIC.validated(LIMITS) == TOPIC
    assert (TOPIC.max_size_in_megabytes, TOPIC.support_ordering, TOPIC.status) == (1024, True, EntityStatus.ACTIVE)
    assert TOPIC.max_message_size_bytes(LIMITS) == 262_144
    assert SUBSCRIPTION.validated(LIMITS) == SUBSCRIPTION
    assert (SUBSCRIPTION.lock_duration_s, SUBSCRIPTION.max_delivery_count) == (60.0, 10)
    assert SUBSCRIPTION.dead_lettering_on_filter_evaluation_exceptions


@covers("M9")
def test_a_description_knows_its_kind_and_its_path() -> None:
    assert (QUEUE.kind, QUEUE.path) == (EntityKind.QUEUE, "orders")
    assert (TOPIC.kind, TOPIC.path) == (EntityKind.TOPIC, "news")
    assert (SUBSCRIPTION.kind, SUBSCRIPTION.path) == (EntityKind.SUBSCRIPTION, "news/Subscriptions/audit")


@covers("M9")
@pytest.mark.parametrize("name", ["s", "a.b-c_d~e", "x" * 50, "subscriptions", "rules", "1"])
def test_good_subscription_names(name: str) -> None:
    validate_subscription_name(name)


@covers("M9")
@pytest.mark.parametrize(
    "name", ["", "x" * 51, "a/b", "a b", "$Default", "é", ".", "..", "a\n", "a%2Fb", "x" * 100_000]
)
def test_bad_subscription_names_are_refused_with_a_short_text(name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        replace(SUBSCRIPTION, name=name).validated(LIMITS)
    assert len(str(refused.value)) < 600


@covers("M9")
@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("name", ["a/b", "x" * 260], ["", "a//b", "x" * 261, "a/Subscriptions/b"]),
        ("default_message_time_to_live_s", [0.001], [0.0, -1.0, float("nan")]),
        ("auto_delete_on_idle_s", [300.0], [299.9, float("nan")]),
        ("duplicate_detection_history_time_window_s", [20.0, 604_800.0], [19.9, 604_800.1]),
        ("max_size_in_megabytes", [1024, 5120], [0, 1025]),
        ("max_message_size_in_kilobytes", [None, 256], [0, 257]),
        ("user_metadata", ["x" * 1024], ["x" * 1025]),
        ("authorization_rules", [(RULE,)], [(RULE, RULE)]),
    ],
)
def test_values_of_a_topic_in_range_are_taken_and_others_refused(field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        replace(TOPIC, **{field: value}).validated(LIMITS)
    for value in bad:
        with pytest.raises(InvalidArgument):
            replace(TOPIC, **{field: value}).validated(LIMITS)


@covers("M9", "M10")
@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("topic_name", ["a/b"], ["", "a//b", "$x"]),
        ("lock_duration_s", [5.0, 300.0], [4.9, 300.1, float("nan")]),
        ("max_delivery_count", [1, 2_147_483_647], [0, 2_147_483_648]),
        ("default_message_time_to_live_s", [0.001], [0.0, float("nan")]),
        ("auto_delete_on_idle_s", [300.0], [299.9]),
        ("user_metadata", ["x" * 1024], ["x" * 1025]),
        ("forward_to", ["other", "a/b", "news"], ["a b"]),
        ("forward_dead_lettered_messages_to", ["other", "NEWS"], ["$x"]),
    ],
)
def test_values_of_a_subscription_in_range_are_taken_and_others_refused(
    field: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        replace(SUBSCRIPTION, **{field: value}).validated(LIMITS)
    for value in bad:
        with pytest.raises(InvalidArgument):
            replace(SUBSCRIPTION, **{field: value}).validated(LIMITS)


@covers("M10")
def test_what_requires_sessions_can_forward() -> None:
    for description in (QUEUE, SUBSCRIPTION):
        forwarding = replace(description, requires_session=True, forward_to="a", forward_dead_lettered_messages_to="b")
        assert forwarding.validated(LIMITS) == forwarding


@covers("M9")
def test_words_for_never_and_none_become_one_in_topics_and_subscriptions() -> None:
    never: dict[str, Any] = {
        "default_message_time_to_live_s": NEVER_S,
        "auto_delete_on_idle_s": float("inf"),
        "user_metadata": "",
    }
    assert replace(TOPIC, **never).validated(LIMITS) == TOPIC
    nothing: dict[str, Any] = {"forward_to": "", "forward_dead_lettered_messages_to": ""}
    assert replace(SUBSCRIPTION, **never, **nothing).validated(LIMITS) == SUBSCRIPTION


@covers("M9")
@pytest.mark.parametrize(
    ("description", "field"),
    [
        (TOPIC, "requires_duplicate_detection"),
        (TOPIC, "enable_partitioning"),
        (SUBSCRIPTION, "requires_session"),
    ],
)
def test_what_is_fixed_in_topics_and_subscriptions_cannot_be_updated(
    description: TopicDescription | SubscriptionDescription, field: str
) -> None:
    changed: dict[str, Any] = {field: True}
    check_update(description, replace(description, user_metadata="new"))
    with pytest.raises(InvalidArgument, match="cannot be changed from false to true"):
        check_update(description, replace(description, **changed))
    with pytest.raises(InvalidArgument, match="cannot be changed from true to false"):
        check_update(replace(description, **changed), description)


@covers("M9")
def test_topics_and_subscriptions_survive_as_records() -> None:
    topic = replace(TOPIC, authorization_rules=(RULE,), status=EntityStatus.SEND_DISABLED, user_metadata="é")
    assert topic_from_record(to_record(topic)) == topic
    subscription = replace(SUBSCRIPTION, forward_to="x", requires_session=True, status=EntityStatus.DISABLED)
    assert subscription_from_record(to_record(subscription)) == subscription
    assert topic_from_record({"name": "news", "added_later": 5}) == TOPIC
    assert subscription_from_record({"topic_name": "news", "name": "audit"}) == SUBSCRIPTION
