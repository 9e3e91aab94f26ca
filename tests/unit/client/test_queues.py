"""Queue settings as Atom entries: what is written is read back, nothing is said that was not asked for."""

from xml.etree import ElementTree

import pytest

from tandembus.client.queues import (
    ATOM,
    CONNECT,
    NEVER,
    QueueSettings,
    duration_of,
    duration_text,
    queue_entry,
    queue_of,
)
from tandembus.errors import EntityNotFound, MalformedData

RESPONSE = """<entry xmlns="http://www.w3.org/2005/Atom"><id>http://h/orders</id>
<title type="text">orders</title>
<content type="application/xml">
<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">
<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>
<RequiresSession>false</RequiresSession>
<DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>
<MaxDeliveryCount>10</MaxDeliveryCount><SizeInBytes>2048</SizeInBytes><Status>Active</Status>
<CreatedAt>2024-01-01T00:00:00Z</CreatedAt>
<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">
<d2p1:ActiveMessageCount>3</d2p1:ActiveMessageCount><d2p1:DeadLetterMessageCount>1</d2p1:DeadLetterMessageCount>
</CountDetails></QueueDescription></content></entry>"""


def test_a_queue_is_read_from_its_entry() -> None:
    queue = queue_of(ElementTree.fromstring(RESPONSE))
    assert queue.name == "orders"
    assert (queue.settings.lock_duration_s, queue.settings.max_size_mb) == (30.0, 1024)
    assert queue.settings.default_time_to_live_s == NEVER
    assert queue.settings.requires_session is False
    assert queue.settings.forward_to is None
    assert (queue.counts.active, queue.counts.dead_letter, queue.counts.scheduled) == (3, 1, 0)
    assert (queue.counts.size_bytes, queue.created_at) == (2048, "2024-01-01T00:00:00Z")


def test_an_empty_feed_in_place_of_a_queue_means_it_is_not_there() -> None:
    with pytest.raises(EntityNotFound):
        queue_of(ElementTree.fromstring('<feed xmlns="http://www.w3.org/2005/Atom"/>'))


def test_an_entry_names_only_the_settings_that_were_chosen_in_the_service_order() -> None:
    settings = QueueSettings(max_delivery_count=5, lock_duration_s=30.0, requires_session=True, user_metadata="a<b")
    description = ElementTree.fromstring(queue_entry(settings)).find(f"{ATOM}content/{CONNECT}QueueDescription")
    assert description is not None
    assert [(each.tag.removeprefix(CONNECT), each.text) for each in description] == [
        ("LockDuration", "PT30S"),
        ("RequiresSession", "true"),
        ("MaxDeliveryCount", "5"),
        ("UserMetadata", "a<b"),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1M", 60.0),
        ("P14D", 1_209_600.0),
        ("PT0S", 0.0),
        ("P1DT2H3M4.5S", 93_784.5),
        ("P10675199DT2H48M5.477581S", NEVER),
    ],
)
def test_durations_of_the_service_are_read(text: str, seconds: float) -> None:
    assert duration_of(text) == seconds


@pytest.mark.parametrize("seconds", [0.0, 0.25, 59.0, 86_400.0, 93_784.5, NEVER])
def test_a_written_duration_is_read_back(seconds: float) -> None:
    assert duration_of(duration_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "PT1X", "P1Y"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(MalformedData):
        duration_of(text)
