"""Queue descriptions in XML: what the SDKs read, and what we read of theirs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from azure.servicebus.management._generated.models import QueueDescriptionEntry, QueueDescriptionFeed
from hypothesis import given
from hypothesis import strategies as st

from tandembus.descriptions import AuthorizationRule, EntityStatus, QueueDescription, shown_size_in_megabytes
from tandembus.front_end.http.atom import (
    ATOM,
    COUNTS,
    SERVICE_BUS,
    Entry,
    Origin,
    Page,
    entry_document,
    error_document,
    feed_document,
)
from tandembus.front_end.http.entity_xml import EntityView, read_entity, write_entity
from tandembus.front_end.http.xml_reader import read_xml
from tandembus.limits import Limits
from tandembus.namespace.entity import EntityCounts
from tests.covers import covers

LIMITS = Limits()
ORIGIN = Origin("https", "localhost:5300", "2021-05", "contoso")
ORDER = """
    LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
    DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount
    EnableBatchedOperations SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt
    UpdatedAt AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning
    EntityAvailabilityStatus EnableExpress ForwardTo UserMetadata ForwardDeadLetteredMessagesTo
    MaxMessageSizeInKilobytes
"""
REQUIRED_BY_JS = """
    LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
    DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount
    EnableBatchedOperations EnablePartitioning EnableExpress CreatedAt UpdatedAt AccessedAt CountDetails
"""
FULL = QueueDescription(
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
    authorization_rules=(
        AuthorizationRule("all", "a2V5MQ==", "a2V5Mg==", frozenset(["Send", "Listen", "Manage"]), 5e8, 6e8),
        AuthorizationRule("send", "a2V5Mw==", "a2V5NA==", frozenset(["Send"]), 5e8, 6e8),
    ),
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
COUNTED = EntityCounts(5, 4, 3, 2, 1, 12_345)


def entry_of(description: QueueDescription, counts: EntityCounts = COUNTED) -> Entry:
    state = EntityView(description, counts, 1_700_000_000.0, 1_700_000_001.5, 1_700_000_002.0)
    return Entry(
        description.name,
        description.name,
        1_700_000_000.0,
        1_700_000_001.5,
        write_entity(state, ORIGIN, LIMITS),
    )


def document_of(description: QueueDescription) -> bytes:
    return entry_document(entry_of(description), ORIGIN)


def read_back(data: bytes, name: str = "orders/eu") -> QueueDescription:
    return read_entity(read_xml(data, LIMITS.max_management_body_bytes, LIMITS.max_xml_depth)).queue(name)


def description_in(data: bytes) -> ElementTree.Element:
    found = ElementTree.fromstring(data).find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}QueueDescription")
    assert found is not None
    return found


def without_times(description: QueueDescription) -> QueueDescription:
    rules = [replace(rule, created_at=0.0, modified_at=0.0) for rule in description.authorization_rules]
    return replace(description, authorization_rules=tuple(rules))


def test_all_elements_are_written_in_the_order_of_the_contract() -> None:
    names = [child.tag for child in description_in(document_of(FULL))]
    assert names == [f"{{{SERVICE_BUS}}}{name}" for name in ORDER.split()]


@covers("B1")
def test_a_plain_queue_has_every_element_that_the_js_sdk_cannot_do_without() -> None:
    names = {child.tag.partition("}")[2] for child in description_in(document_of(QueueDescription("orders")))}
    assert names >= set(REQUIRED_BY_JS.split())
    assert not names & {"ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata"}


@covers("B1")
def test_count_details_declare_their_prefix_themselves_and_nothing_else() -> None:
    text = document_of(FULL).decode()
    found = re.search(r"<CountDetails([^>]*)>(.*?)</CountDetails>", text)
    assert found is not None
    assert found.group(1) == f' xmlns:d2p1="{COUNTS}"'
    assert re.findall(r"<(d2p1:\w+)>(\d+)<", found.group(2)) == [
        ("d2p1:ActiveMessageCount", "5"),
        ("d2p1:DeadLetterMessageCount", "4"),
        ("d2p1:ScheduledMessageCount", "3"),
        ("d2p1:TransferMessageCount", "2"),
        ("d2p1:TransferDeadLetterMessageCount", "1"),
    ]
    assert text.count(COUNTS) == 1


def test_the_message_count_is_the_sum_of_what_a_receiver_could_find() -> None:
    found = description_in(document_of(FULL)).find(f"{{{SERVICE_BUS}}}MessageCount")
    assert found is not None
    assert found.text == str(5 + 4 + 3 + 2)


def test_a_description_read_back_is_the_one_that_was_written() -> None:
    assert read_back(document_of(FULL)) == without_times(as_shown(FULL))


def test_absent_elements_get_the_defaults_of_the_service() -> None:
    document = f'<e:entry xmlns:e="{ATOM}"><e:content><QueueDescription xmlns="{SERVICE_BUS}"/></e:content></e:entry>'
    assert read_back(document.encode(), "orders") == QueueDescription("orders")


def test_elements_are_found_by_their_namespace_under_any_prefix_and_in_any_order() -> None:
    document = (
        f'<a:entry xmlns:a="{ATOM}" xmlns:b="{SERVICE_BUS}"><a:updated>now</a:updated><a:content a:type="x">'
        "<b:QueueDescription><b:MaxDeliveryCount> 3 </b:MaxDeliveryCount><b:Future><b:x/></b:Future>"
        '<MaxDeliveryCount xmlns="urn:else">9</MaxDeliveryCount><b:LockDuration>PT20S</b:LockDuration>'
        "</b:QueueDescription></a:content></a:entry>"
    )
    assert read_back(document.encode(), "q") == QueueDescription("q", lock_duration_s=20.0, max_delivery_count=3)


def test_an_element_that_says_nil_is_as_good_as_absent() -> None:
    document = (
        f'<entry xmlns="{ATOM}" xmlns:p4="http://www.w3.org/2001/XMLSchema-instance"><content>'
        f'<QueueDescription xmlns="{SERVICE_BUS}"><ForwardTo p4:nil="true"/><LockDuration p4:nil="1"/>'
        "</QueueDescription></content></entry>"
    )
    assert read_back(document.encode(), "q") == QueueDescription("q")


@pytest.mark.parametrize(
    "target",
    [
        "archive",
        "sb://localhost:5300/archive",
        "sb://other.servicebus.windows.net/archive",
        "https://h/archive/",
    ],
)
def test_a_forwarding_target_is_its_path_whatever_host_the_client_put_before_it(target: str) -> None:
    document = document_of(replace(FULL, forward_to="X")).replace(b"sb://localhost:5300/X", target.encode())
    assert read_back(document).forward_to == "archive"


def test_an_empty_forwarding_target_removes_it() -> None:
    document = document_of(FULL).replace(b"sb://localhost:5300/archive", b"")
    assert read_back(document).forward_to is None


def test_a_forwarding_target_is_written_as_an_absolute_address() -> None:
    assert b"<ForwardTo>sb://localhost:5300/archive</ForwardTo>" in document_of(FULL)


@covers("B1")
def test_the_python_sdk_reads_every_property_of_our_entry() -> None:
    entry: Any = QueueDescriptionEntry.deserialize(ElementTree.fromstring(document_of(FULL)))
    queue = entry.content.queue_description
    assert entry.title == "orders/eu"
    assert (queue.lock_duration.total_seconds(), queue.max_delivery_count) == (30.0, 7)
    assert (queue.requires_session, queue.requires_duplicate_detection, queue.enable_batched_operations) == (
        True,
        True,
        False,
    )
    assert (queue.status, queue.user_metadata) == ("SendDisabled", FULL.user_metadata)
    assert queue.forward_to.endswith("/archive")
    assert (queue.size_in_bytes, queue.message_count) == (12_345, 14)
    details = queue.message_count_details
    assert (details.active_message_count, details.dead_letter_message_count) == (5, 4)
    assert (details.scheduled_message_count, details.transfer_message_count) == (3, 2)
    assert details.transfer_dead_letter_message_count == 1
    assert [(rule.key_name, rule.rights) for rule in queue.authorization_rules] == [
        ("all", ["Manage", "Send", "Listen"]),
        ("send", ["Send"]),
    ]
    assert queue.created_at.timestamp() == 1_700_000_000.0
    assert queue.updated_at.timestamp() == 1_700_000_001.5


@given(st.integers(min_value=0, max_value=10_000_000_000))
def test_the_python_sdk_reads_our_durations(milliseconds: int) -> None:
    document = document_of(QueueDescription("q", lock_duration_s=milliseconds / 1000))
    entry: Any = QueueDescriptionEntry.deserialize(ElementTree.fromstring(document))
    read = entry.content.queue_description.lock_duration
    assert read.total_seconds() == pytest.approx(milliseconds / 1000)


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


def test_an_entry_s_id_is_an_absolute_address_that_ends_in_its_name() -> None:
    found = ElementTree.fromstring(document_of(FULL)).find(f"{{{ATOM}}}id")
    assert found is not None
    assert found.text == "https://localhost:5300/orders/eu?api-version=2021-05"


def test_an_error_has_no_namespace_and_escapes_its_detail() -> None:
    root = ElementTree.fromstring(error_document(404, "a <b> & c\x00"))
    assert (root.tag, root.findtext("Code"), root.findtext("Detail")) == ("Error", "404", "a <b> & c\ufffd")


rule_texts = st.text("abcXYZ019._-", min_size=1, max_size=20)
rules = st.builds(
    AuthorizationRule,
    rule_texts,
    rule_texts,
    rule_texts,
    st.frozensets(st.sampled_from(["Send", "Listen", "Manage"]), min_size=1),
)
seconds = st.integers(1, 10**9).map(float)
xml_texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1)


@given(
    st.builds(
        QueueDescription,
        st.just("q"),
        lock_duration_s=seconds,
        max_size_in_megabytes=st.integers(1, 2**31),
        requires_duplicate_detection=st.booleans(),
        requires_session=st.booleans(),
        default_message_time_to_live_s=st.none() | seconds,
        dead_lettering_on_message_expiration=st.booleans(),
        duplicate_detection_history_time_window_s=seconds,
        max_delivery_count=st.integers(1, 2**31 - 1),
        enable_batched_operations=st.booleans(),
        authorization_rules=st.lists(rules, max_size=3).map(tuple),
        status=st.sampled_from(EntityStatus),
        support_ordering=st.booleans(),
        auto_delete_on_idle_s=st.none() | seconds,
        enable_partitioning=st.booleans(),
        enable_express=st.booleans(),
        forward_to=st.none() | rule_texts,
        user_metadata=st.none() | xml_texts,
        forward_dead_lettered_messages_to=st.none() | rule_texts,
        max_message_size_in_kilobytes=st.integers(1, 2**20),
    )
)
def test_any_description_survives_the_way_through_xml(description: QueueDescription) -> None:
    assert read_back(document_of(description), "q") == as_shown(description)


def as_shown(description: QueueDescription) -> QueueDescription:
    """A partitioned queue shows how much all its fragments hold."""
    return replace(description, max_size_in_megabytes=shown_size_in_megabytes(description))
