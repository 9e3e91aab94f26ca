"""Entities in Atom XML: what the SDKs read of ours, what we read of theirs, and what a client of ours asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from azure.servicebus.management._generated.models import (
    QueueDescriptionEntry,
    QueueDescriptionFeed,
    SubscriptionDescriptionEntry,
    TopicDescriptionEntry,
)
from hypothesis import given
from hypothesis import strategies as st

from tandembus.descriptions import (
    AuthorizationRule,
    EntityDescription,
    EntityKind,
    EntityStatus,
    QueueDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    shown_size_in_megabytes,
)
from tandembus.descriptions.atom import ATOM, INSTANCE, ORDERS, SERVICE_BUS, SINCE
from tandembus.descriptions.xml_reader import read_xml
from tandembus.errors import InvalidArgument, MalformedData
from tandembus.front_end.http.atom import COUNTS, Entry, Origin, Page, entry_document, error_document, feed_document
from tandembus.front_end.http.entity_xml import EntityRequest, EntityView, read_entity, write_entity
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tests.covers import covers

LIMITS = Limits()
ORIGIN = Origin("https", "localhost:5300", "2024-05", "contoso")
REQUIRED_BY_JS = {
    EntityKind.QUEUE: """
        LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
        DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations
        EnablePartitioning EnableExpress CreatedAt UpdatedAt AccessedAt CountDetails
    """,
    EntityKind.TOPIC: """
        DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
        EnableBatchedOperations SupportOrdering EnablePartitioning EnableExpress CreatedAt UpdatedAt AccessedAt
        CountDetails
    """,
    EntityKind.SUBSCRIPTION: """
        LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
        DeadLetteringOnFilterEvaluationExceptions MaxDeliveryCount EnableBatchedOperations Status AutoDeleteOnIdle
        EntityAvailabilityStatus MessageCount CreatedAt UpdatedAt AccessedAt CountDetails
    """,
}
POLICIES = (
    AuthorizationRule("all", "a2V5MQ==", "a2V5Mg==", frozenset(["Send", "Listen", "Manage"])),
    AuthorizationRule("send", "a2V5Mw==", "a2V5NA==", frozenset(["Send"])),
)
QUEUE = QueueDescription(
    "orders/eu",
    lock_duration_s=30.0,
    max_size_in_megabytes=2048,
    requires_duplicate_detection=True,
    requires_session=True,
    default_message_time_to_live_s=3_600.0,
    dead_lettering_on_message_expiration=True,
    duplicate_detection_history_time_window_s=120.0,
    max_delivery_count=7,
    enable_batched_operations=False,
    authorization_rules=POLICIES,
    status=EntityStatus.SEND_DISABLED,
    support_ordering=False,
    auto_delete_on_idle_s=600.0,
    enable_partitioning=True,
    enable_express=True,
    forward_to="archive",
    user_metadata='a <b> & "c" \u00e9 ]]> \U0001f600',
    forward_dead_lettered_messages_to="dead/letters",
    max_message_size_in_kilobytes=256,
)
TOPIC = TopicDescription(
    "events/eu",
    default_message_time_to_live_s=3_600.0,
    max_size_in_megabytes=2048,
    requires_duplicate_detection=True,
    duplicate_detection_history_time_window_s=120.0,
    enable_batched_operations=False,
    status=EntityStatus.SEND_DISABLED,
    support_ordering=False,
    auto_delete_on_idle_s=600.0,
    enable_partitioning=True,
    enable_express=True,
    user_metadata="<topic>",
    max_message_size_in_kilobytes=256,
    authorization_rules=POLICIES,
    filtering_messages_before_publishing=True,
)
SUBSCRIPTION = SubscriptionDescription(
    "events/eu",
    "audit",
    lock_duration_s=30.0,
    requires_session=True,
    default_message_time_to_live_s=60.0,
    dead_lettering_on_message_expiration=True,
    dead_lettering_on_filter_evaluation_exceptions=False,
    max_delivery_count=7,
    enable_batched_operations=False,
    status=EntityStatus.RECEIVE_DISABLED,
    forward_to="archive",
    forward_dead_lettered_messages_to="dead/letters",
    auto_delete_on_idle_s=600.0,
    user_metadata="<subscription>",
)
FULL: list[EntityDescription] = [QUEUE, TOPIC, SUBSCRIPTION]
PLAIN: list[EntityDescription] = [QueueDescription("q"), TopicDescription("t"), SubscriptionDescription("t", "s")]
COUNTED = EntityCounts(5, 4, 3, 2, 1, 12_345)


def entry_of(description: EntityDescription, origin: Origin = ORIGIN) -> Entry:
    view = EntityView(description, COUNTED, 1.7e9, 1.7e9 + 1.5, 1.7e9 + 2, 3, 4, 5)
    return Entry(description.path, description.name, 1.7e9, 1.7e9 + 1.5, write_entity(view, origin, LIMITS))


def document_of(description: EntityDescription, origin: Origin = ORIGIN) -> bytes:
    return entry_document(entry_of(description, origin), origin)


def elements_of(description: EntityDescription, origin: Origin = ORIGIN) -> dict[str, str | None]:
    found = ElementTree.fromstring(document_of(description, origin)).find(f"{{{ATOM}}}content/")
    assert found is not None
    return {child.tag.removeprefix(f"{{{SERVICE_BUS}}}"): child.text for child in found}


def read(data: bytes) -> EntityRequest:
    return read_entity(read_xml(data, LIMITS.max_management_body_bytes, LIMITS.max_xml_depth))


def request(kind: str, inner: str) -> bytes:
    return (
        f'<e:entry xmlns:e="{ATOM}" xmlns:xsi="{INSTANCE}"><e:content type="application/xml">'
        f'<{kind} xmlns="{SERVICE_BUS}">{inner}</{kind}></e:content></e:entry>'
    ).encode()


def settings_in(kind: str, inner: str) -> Mapping[str, Any]:
    return read(request(kind, inner)).settings


@covers("B1")
@pytest.mark.parametrize("description", FULL, ids=lambda one: one.kind.value)
def test_all_elements_are_written_in_the_order_of_the_service(description: EntityDescription) -> None:
    names = [name for name in ORDERS[description.kind] if name != "DefaultRuleDescription"]
    assert list(elements_of(description)) == names


@covers("B1")
@pytest.mark.parametrize("description", PLAIN, ids=lambda one: one.kind.value)
def test_a_plain_entity_has_every_element_that_the_js_sdk_cannot_do_without(description: EntityDescription) -> None:
    names = set(elements_of(description, replace(ORIGIN, api_version="2021-05")))
    assert names >= set(REQUIRED_BY_JS[description.kind].split())
    assert not names & {"ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata"}


@covers("B1")
@pytest.mark.parametrize("version", ["2012-03", "2013-10", "2017-04", "2021-05", "2024-05", "newest"])
@pytest.mark.parametrize("description", FULL, ids=lambda one: one.kind.value)
def test_elements_that_an_api_version_does_not_have_are_left_out(description: EntityDescription, version: str) -> None:
    every = elements_of(description)
    expected = {name: text for name, text in every.items() if SINCE.get(name, "") <= version}
    assert elements_of(description, replace(ORIGIN, api_version=version)) == expected
    assert ("MaxMessageSizeInKilobytes" in expected) == ("MaxMessageSizeInKilobytes" in every and version >= "2021-05")
    assert ("SqlFilterCount" in expected) == (description is TOPIC and version >= "2024-05")


@covers("B1")
def test_the_api_version_of_each_element_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/http.md").read_text()
    rows = re.findall(r"^\| `(\d{4}-\d\d)` \| (.*) \|$", text, re.MULTILINE)
    assert {name: version for version, cell in rows for name in re.findall(r"`(\w+)`", cell)} == SINCE


@covers("B1")
def test_an_update_keeps_settings_that_its_api_version_does_not_have() -> None:
    plain = read(request("QueueDescription", ""))
    assert plain.settings_beside(QUEUE, "2024-05") == {"authorization_rules": POLICIES}
    assert plain.settings_beside(QUEUE, "2017-04")["max_message_size_in_kilobytes"] == 256
    assert "enable_express" not in plain.settings_beside(QUEUE, "2017-04")
    named = read(request("TopicDescription", "<AuthorizationRules/>"))
    assert named.settings_beside(TOPIC, "2024-05")["authorization_rules"] == ()


@covers("B1")
def test_count_details_declare_their_prefix_themselves_and_nothing_else() -> None:
    text = document_of(QUEUE).decode()
    found = re.search(r"<CountDetails([^>]*)>(.*?)</CountDetails>", text)
    assert found is not None
    assert found.group(1) == f' xmlns:d2p1="{COUNTS}"'
    assert re.findall(r"<d2p1:(\w+)>(\d+)<", found.group(2)) == [
        ("ActiveMessageCount", "5"),
        ("DeadLetterMessageCount", "4"),
        ("ScheduledMessageCount", "3"),
        ("TransferMessageCount", "2"),
        ("TransferDeadLetterMessageCount", "1"),
    ]
    assert text.count(COUNTS) == 1
    assert elements_of(QUEUE)["MessageCount"] == str(5 + 4 + 3 + 2)


def test_a_description_read_back_is_the_one_that_was_written() -> None:
    for described in (QUEUE, TOPIC):
        settings = read(document_of(described)).settings
        size = shown_size_in_megabytes(described)
        assert replace(described, **settings) == replace(described, max_size_in_megabytes=size)
    assert SubscriptionDescription("events/eu", "audit", **read(document_of(SUBSCRIPTION)).settings) == SUBSCRIPTION


@pytest.mark.parametrize("description", PLAIN, ids=lambda one: one.kind.value)
def test_a_request_names_only_the_elements_that_it_has(description: EntityDescription) -> None:
    root = {EntityKind.QUEUE: "Queue", EntityKind.TOPIC: "Topic", EntityKind.SUBSCRIPTION: "Subscription"}
    found = read(request(f"{root[description.kind]}Description", ""))
    assert (found.kind, found.settings, found.default_rule) == (description.kind, {}, None)


def test_elements_are_found_by_their_namespace_under_any_prefix_and_in_any_order() -> None:
    document = (
        f'<a:entry xmlns:a="{ATOM}" xmlns:b="{SERVICE_BUS}"><a:updated>now</a:updated><a:content a:type="x">'
        "<b:QueueDescription><b:MaxDeliveryCount> 3 </b:MaxDeliveryCount><b:Future><b:x/></b:Future>"
        '<MaxDeliveryCount xmlns="urn:else">9</MaxDeliveryCount><b:LockDuration>PT20S</b:LockDuration>'
        "</b:QueueDescription></a:content></a:entry>"
    )
    assert read(document.encode()).settings == {"lock_duration_s": 20.0, "max_delivery_count": 3}


@pytest.mark.parametrize(
    ("kind", "inner", "settings"),
    [
        ("QueueDescription", '<ForwardTo xsi:nil="true"/><LockDuration xsi:nil="1"/>', {}),
        ("QueueDescription", "<ForwardTo>archive</ForwardTo>", {"forward_to": "archive"}),
        ("QueueDescription", "<ForwardTo>sb://localhost:5300/a%20b/c</ForwardTo>", {"forward_to": "a b/c"}),
        ("QueueDescription", "<ForwardTo>https://h/archive/</ForwardTo>", {"forward_to": "archive"}),
        ("QueueDescription", "<ForwardTo></ForwardTo>", {"forward_to": None}),
        ("QueueDescription", "<Status>sendDISABLED</Status>", {"status": EntityStatus.SEND_DISABLED}),
        ("TopicDescription", "<LockDuration>x</LockDuration><ForwardTo>y</ForwardTo>", {}),
        ("TopicDescription", "<IsAnonymousAccessible>false</IsAnonymousAccessible>", {}),
        ("SubscriptionDescription", "<MaxSizeInMegabytes>x</MaxSizeInMegabytes>", {}),
        (
            "TopicDescription",
            "<DefaultMessageTimeToLive>P10675199DT2H48M5.477581S</DefaultMessageTimeToLive>",
            {"default_message_time_to_live_s": None},
        ),
    ],
)
def test_settings_are_read_from_whatever_clients_send(kind: str, inner: str, settings: dict[str, object]) -> None:
    assert settings_in(kind, inner) == settings


@pytest.mark.parametrize(
    ("kind", "inner", "error"),
    [
        ("TopicDescription", "<IsAnonymousAccessible>true</IsAnonymousAccessible>", InvalidArgument),
        ("QueueDescription", "<ForwardTo>%ff</ForwardTo>", InvalidArgument),
        ("QueueDescription", "<Status>Sleepy</Status>", InvalidArgument),
        ("RuleDescription", "", MalformedData),
        ("topicdescription", "", MalformedData),
    ],
)
def test_what_makes_no_sense_is_refused(kind: str, inner: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        settings_in(kind, inner)


@covers("B1")
def test_the_rule_that_a_subscription_begins_with_comes_with_its_description() -> None:
    rule = (
        '<DefaultRuleDescription><Filter xsi:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter>'
        '<Action xsi:type="SqlRuleAction"><SqlExpression>SET b = 2</SqlExpression></Action>%s</DefaultRuleDescription>'
    )
    for name, text in (("mine", "<Name>mine</Name>"), ("$Default", "")):
        found = read(request("SubscriptionDescription", rule % text)).default_rule
        assert found is not None
        assert (found.name, found.filter, found.action) == (name, SqlFilter("a = 1"), SqlAction("SET b = 2"))
    empty = read(request("SubscriptionDescription", "<DefaultRuleDescription/>")).default_rule
    assert empty is not None
    assert (empty.name, empty.filter, empty.action) == ("$Default", TrueFilter(), None)


@covers("B1")
@pytest.mark.parametrize("description", FULL, ids=lambda one: one.kind.value)
def test_the_python_sdk_reads_every_property(description: EntityDescription) -> None:
    models: dict[EntityKind, tuple[Any, str]] = {
        EntityKind.QUEUE: (QueueDescriptionEntry, "queue_description"),
        EntityKind.TOPIC: (TopicDescriptionEntry, "topic_description"),
        EntityKind.SUBSCRIPTION: (SubscriptionDescriptionEntry, "subscription_description"),
    }
    model, part = models[description.kind]
    entry: Any = model.deserialize(ElementTree.fromstring(document_of(description)))
    found = getattr(entry.content, part)
    assert entry.title == description.name
    for field in fields(description):
        expected = getattr(description, field.name)
        if field.name in ("name", "topic_name"):
            continue
        if field.name == "authorization_rules":
            shown = [(rule.key_name, rule.rights) for rule in found.authorization_rules]
            assert shown == [("all", ["Manage", "Send", "Listen"]), ("send", ["Send"])]
        elif field.name.endswith("_s"):
            assert getattr(found, field.name.removesuffix("_s")).total_seconds() == expected
        elif field.name.startswith("forward"):
            assert getattr(found, field.name) == f"sb://localhost:5300/{expected}"
        elif field.name == "max_size_in_megabytes":
            assert found.max_size_in_megabytes == 16 * expected
        elif field.name != "filtering_messages_before_publishing":
            assert getattr(found, field.name) == (expected.value if field.name == "status" else expected)
    details = found.message_count_details
    assert (details.active_message_count, details.dead_letter_message_count) == (5, 4)
    assert (details.scheduled_message_count, details.transfer_message_count) == (3, 2)
    assert found.created_at.timestamp() == 1.7e9


@given(st.integers(min_value=0, max_value=10_000_000_000))
def test_the_python_sdk_reads_our_durations(milliseconds: int) -> None:
    document = document_of(QueueDescription("q", lock_duration_s=milliseconds / 1000))
    entry: Any = QueueDescriptionEntry.deserialize(ElementTree.fromstring(document))
    assert entry.content.queue_description.lock_duration.total_seconds() == pytest.approx(milliseconds / 1000)


def page(count: int, has_more: bool, skip: int = 100, top: int = 100) -> bytes:
    entries = [entry_of(QueueDescription(f"queue-{number}")) for number in range(count)]
    return feed_document("$Resources/queues", "Queues", Page(entries, skip, top, has_more), ORIGIN, 1_700_000_000.0)


@covers("B1")
def test_a_feed_with_a_next_page_has_exactly_two_links_and_the_second_leads_there() -> None:
    feed: Any = QueueDescriptionFeed.deserialize(ElementTree.fromstring(page(3, True)))
    assert [link.rel for link in feed.link] == ["self", "next"]
    assert "$skip=200&$top=100" in feed.link[1].href
    assert feed.link[1].href.startswith("https://localhost:5300/$Resources/queues?")
    assert [entry.title for entry in feed.entry] == ["queue-0", "queue-1", "queue-2"]


@covers("B1")
@pytest.mark.parametrize("count", [0, 3])
def test_the_last_page_of_a_feed_has_one_link(count: int) -> None:
    feed = ElementTree.fromstring(page(count, False))
    assert len(feed.findall(f"{{{ATOM}}}link")) == 1
    assert len(feed.findall(f"{{{ATOM}}}entry")) == count
    # Links of entries are the entries' own.
    assert len(feed.findall(f"{{{ATOM}}}entry/{{{ATOM}}}link")) == count


@covers("B1")
@pytest.mark.parametrize(
    ("description", "path"), [(QUEUE, "orders/eu"), (SUBSCRIPTION, "events/eu/Subscriptions/audit")]
)
def test_an_id_is_an_absolute_address_with_the_capitals_that_the_js_sdk_looks_for(
    description: EntityDescription, path: str
) -> None:
    found = ElementTree.fromstring(document_of(description)).findtext(f"{{{ATOM}}}id")
    assert found == f"https://localhost:5300/{path}?api-version=2024-05"


def test_an_error_has_no_namespace_and_escapes_its_detail() -> None:
    root = ElementTree.fromstring(error_document(404, "a <b> & c\x00"))
    assert (root.tag, root.findtext("Code"), root.findtext("Detail")) == ("Error", "404", "a <b> & c\ufffd")


seconds = st.integers(1, 10**9).map(float)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1)


@given(texts, seconds, st.none() | seconds, st.sampled_from(EntityStatus), st.booleans(), st.integers(1, 2**31 - 1))
def test_any_setting_survives_the_way_through_xml(
    text: str, lock_s: float, idle_s: float | None, status: EntityStatus, flag: bool, count: int
) -> None:
    queue = QueueDescription(
        "q",
        lock_duration_s=lock_s,
        auto_delete_on_idle_s=idle_s,
        status=status,
        requires_session=flag,
        max_delivery_count=count,
        user_metadata=text,
        max_message_size_in_kilobytes=count,
    )
    assert QueueDescription("q", **read(document_of(queue)).settings) == queue
