"""Descriptions of topics and subscriptions in XML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from azure.servicebus.management._generated.models import SubscriptionDescriptionEntry, TopicDescriptionEntry

from tandembus.descriptions import (
    AuthorizationRule,
    EntityDescription,
    EntityKind,
    EntityStatus,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    shown_size_in_megabytes,
)
from tandembus.errors import InvalidArgument, MalformedData
from tandembus.front_end.http.atom import ATOM, INSTANCE, SERVICE_BUS, Entry, Origin, entry_document
from tandembus.front_end.http.entity_xml import EntityRequest, EntityView, read_entity, write_entity
from tandembus.front_end.http.xml_reader import read_xml
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tests.covers import covers

LIMITS = Limits()
ORIGIN = Origin("https", "localhost:5300", "2021-05", "contoso")
TOPIC_ORDER = """
    DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
    EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules
    Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount
    CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
    EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes
"""
SUBSCRIPTION_ORDER = """
    LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
    DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status ForwardTo
    CreatedAt UpdatedAt AccessedAt CountDetails ForwardDeadLetteredMessagesTo AutoDeleteOnIdle
    EntityAvailabilityStatus UserMetadata
"""
TOPIC_REQUIRED_BY_JS = """
    DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
    EnableBatchedOperations SupportOrdering EnablePartitioning EnableExpress CreatedAt UpdatedAt AccessedAt CountDetails
"""
SUBSCRIPTION_REQUIRED_BY_JS = """
    LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
    DeadLetteringOnFilterEvaluationExceptions MaxDeliveryCount EnableBatchedOperations Status AutoDeleteOnIdle
    EntityAvailabilityStatus MessageCount CreatedAt UpdatedAt AccessedAt CountDetails
"""
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
    authorization_rules=(AuthorizationRule("all", "a2V5MQ==", "a2V5Mg==", frozenset(["Send", "Manage"])),),
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


def document_of(description: EntityDescription) -> bytes:
    view = EntityView(description, EntityCounts(5, 4, 3, 2, 1, 12_345), 1.7e9, 1.7e9 + 1.5, 1.7e9 + 2, 3, 4, 5)
    content = write_entity(view, ORIGIN, LIMITS)
    return entry_document(Entry(description.path, description.name, 1.7e9, 1.7e9, content), ORIGIN)


def read(data: bytes) -> EntityRequest:
    return read_entity(read_xml(data, LIMITS.max_management_body_bytes, LIMITS.max_xml_depth))


def names_in(data: bytes, kind: str) -> list[str]:
    found = ElementTree.fromstring(data).find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}{kind}")
    assert found is not None
    return [child.tag.partition("}")[2] for child in found]


def request(kind: str, inner: str) -> bytes:
    return (
        f'<e:entry xmlns:e="{ATOM}" xmlns:xsi="{INSTANCE}"><e:content type="application/xml">'
        f'<{kind} xmlns="{SERVICE_BUS}">{inner}</{kind}></e:content></e:entry>'
    ).encode()


@covers("B1")
def test_all_elements_are_written_in_the_order_of_the_contract() -> None:
    assert names_in(document_of(TOPIC), "TopicDescription") == TOPIC_ORDER.split()
    assert names_in(document_of(SUBSCRIPTION), "SubscriptionDescription") == SUBSCRIPTION_ORDER.split()


@covers("B1")
def test_plain_ones_have_every_element_that_the_js_sdk_cannot_do_without() -> None:
    topic = names_in(document_of(TopicDescription("t")), "TopicDescription")
    assert set(topic) >= set(TOPIC_REQUIRED_BY_JS.split())
    subscription = names_in(document_of(SubscriptionDescription("t", "s")), "SubscriptionDescription")
    assert set(subscription) >= set(SUBSCRIPTION_REQUIRED_BY_JS.split())
    assert not {"ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata"} & {*topic, *subscription}


@covers("B1")
def test_the_id_has_the_capitals_that_the_js_sdk_looks_for() -> None:
    found = ElementTree.fromstring(document_of(SUBSCRIPTION)).findtext(f"{{{ATOM}}}id")
    assert found == "https://localhost:5300/events/eu/Subscriptions/audit?api-version=2021-05"


def test_a_description_read_back_is_the_one_that_was_written() -> None:
    shown = replace(TOPIC, max_size_in_megabytes=shown_size_in_megabytes(TOPIC))
    assert read(document_of(TOPIC)).topic("events/eu") == shown
    assert read(document_of(SUBSCRIPTION)).subscription("events/eu", "audit") == SUBSCRIPTION


def test_absent_elements_get_the_defaults_of_the_service() -> None:
    assert read(request("TopicDescription", "")).topic("t") == TopicDescription("t")
    subscription = read(request("SubscriptionDescription", ""))
    assert subscription.subscription("t", "s") == SubscriptionDescription("t", "s")
    assert (subscription.kind, subscription.default_rule) == (EntityKind.SUBSCRIPTION, None)


def test_authorization_rules_that_are_not_spoken_of_stay() -> None:
    present = TOPIC.authorization_rules
    assert read(request("TopicDescription", "")).topic("t", present).authorization_rules == present
    assert read(request("TopicDescription", "<AuthorizationRules/>")).topic("t", present).authorization_rules == ()


def test_elements_of_other_kinds_are_skipped() -> None:
    inner = "<LockDuration>x</LockDuration><ForwardTo>y</ForwardTo><RequiresSession>z</RequiresSession>"
    assert read(request("TopicDescription", inner)).topic("t") == TopicDescription("t")
    inner = "<MaxSizeInMegabytes>x</MaxSizeInMegabytes><EnablePartitioning>y</EnablePartitioning>"
    expected = SubscriptionDescription("t", "s")
    assert read(request("SubscriptionDescription", inner)).subscription("t", "s") == expected


@covers("B1")
def test_the_rule_that_a_subscription_begins_with_comes_with_its_description() -> None:
    rule = (
        '<DefaultRuleDescription><Filter xsi:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter>'
        '<Action xsi:type="SqlRuleAction"><SqlExpression>SET b = 2</SqlExpression></Action>%s</DefaultRuleDescription>'
    )
    found = read(request("SubscriptionDescription", rule % "<Name>mine</Name>")).default_rule
    assert found is not None
    assert (found.name, found.filter, found.action) == ("mine", SqlFilter("a = 1"), SqlAction("SET b = 2"))
    unnamed = read(request("SubscriptionDescription", rule % "")).default_rule
    assert unnamed is not None
    assert replace(unnamed, name="mine") == found
    assert unnamed.name == "$Default"
    empty = read(request("SubscriptionDescription", "<DefaultRuleDescription/>")).default_rule
    assert empty is not None
    assert (empty.name, empty.filter, empty.action) == ("$Default", TrueFilter(), None)


def test_nobody_gets_in_without_a_claim() -> None:
    with pytest.raises(InvalidArgument, match="IsAnonymousAccessible"):
        read(request("TopicDescription", "<IsAnonymousAccessible>true</IsAnonymousAccessible>"))
    read(request("TopicDescription", "<IsAnonymousAccessible>false</IsAnonymousAccessible>"))


@pytest.mark.parametrize("kind", ["RuleDescription", "NamespaceInfo", "Queue", "topicdescription"])
def test_what_describes_no_entity_is_refused(kind: str) -> None:
    with pytest.raises(MalformedData):
        read(request(kind, ""))


@covers("B1")
def test_the_python_sdk_reads_every_property_of_a_topic() -> None:
    entry: Any = TopicDescriptionEntry.deserialize(ElementTree.fromstring(document_of(TOPIC)))
    topic = entry.content.topic_description
    assert entry.title == "events/eu"
    assert (topic.subscription_count, topic.size_in_bytes, topic.status) == (3, 12_345, "SendDisabled")
    assert (topic.requires_duplicate_detection, topic.support_ordering, topic.user_metadata) == (True, False, "<topic>")
    assert topic.message_count_details.scheduled_message_count == 3
    assert topic.authorization_rules[0].rights == ["Manage", "Send"]


@covers("B1")
def test_the_python_sdk_reads_every_property_of_a_subscription() -> None:
    entry: Any = SubscriptionDescriptionEntry.deserialize(ElementTree.fromstring(document_of(SUBSCRIPTION)))
    subscription = entry.content.subscription_description
    assert entry.title == "audit"
    assert (subscription.lock_duration.total_seconds(), subscription.max_delivery_count) == (30.0, 7)
    assert subscription.dead_lettering_on_filter_evaluation_exceptions is False
    assert (subscription.forward_to, subscription.message_count) == ("sb://localhost:5300/archive", 14)
    assert subscription.message_count_details.dead_letter_message_count == 4
