"""Settings as descriptions: what is written is read back, nothing is said that was not asked for."""

from dataclasses import fields
from xml.etree import ElementTree

import pytest

from tandembus.client.access_policies import AccessPolicy, new_key
from tandembus.client.atom import ATOM, CONNECT, entry_with
from tandembus.client.durations import NEVER
from tandembus.client.entities import (
    DESCRIPTIONS,
    ELEMENTS,
    QueueSettings,
    Settings,
    SubscriptionSettings,
    TopicSettings,
    changed,
    description_of,
    entity_of,
)
from tandembus.descriptions import RuleDescription, SqlFilter
from tandembus.errors import EntityNotFound, MalformedData

HERE = "sb://localhost:5672"
RESPONSE = """<entry xmlns="http://www.w3.org/2005/Atom"><id>http://h/orders</id>
<title type="text">orders</title>
<content type="application/xml">
<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">
<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes>
<RequiresSession>false</RequiresSession>
<DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>
<MaxDeliveryCount>10</MaxDeliveryCount><SizeInBytes>2048</SizeInBytes><Status>Active</Status>
<ForwardTo>sb://localhost:5672/a/b</ForwardTo>
<CreatedAt>2024-01-01T00:00:00Z</CreatedAt>
<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">
<d2p1:ActiveMessageCount>3</d2p1:ActiveMessageCount><d2p1:DeadLetterMessageCount>1</d2p1:DeadLetterMessageCount>
</CountDetails></QueueDescription></content></entry>"""


def written(settings: Settings, rule: RuleDescription | None = None) -> list[tuple[str, str | None]]:
    entry = ElementTree.fromstring(entry_with(description_of(settings, HERE, rule)))
    description = entry.find(f"{ATOM}content/{CONNECT}{DESCRIPTIONS[type(settings)]}")
    assert description is not None
    return [(each.tag.removeprefix(CONNECT), each.text) for each in description]


def test_a_queue_is_read_from_its_entry() -> None:
    queue = entity_of(ElementTree.fromstring(RESPONSE), QueueSettings)
    assert queue.name == "orders"
    assert (queue.settings.lock_duration_s, queue.settings.max_size_mb) == (30.0, 1024)
    assert queue.settings.default_time_to_live_s == NEVER
    assert queue.settings.requires_session is False
    assert (queue.settings.forward_to, queue.settings.forward_dead_letters_to) == ("a/b", None)
    assert (queue.counts.active, queue.counts.dead_letter, queue.counts.scheduled) == (3, 1, 0)
    assert (queue.counts.size_bytes, queue.created_at) == (2048, "2024-01-01T00:00:00Z")
    assert queue.settings.policies is None


@pytest.mark.parametrize("kind", [QueueSettings, TopicSettings, SubscriptionSettings])
def test_an_empty_feed_in_place_of_an_entity_means_it_is_not_there(kind: type[QueueSettings]) -> None:
    with pytest.raises(EntityNotFound):
        entity_of(ElementTree.fromstring('<feed xmlns="http://www.w3.org/2005/Atom"/>'), kind)


def test_a_queue_in_place_of_a_topic_is_no_topic() -> None:
    with pytest.raises(EntityNotFound, match="TopicDescription"):
        entity_of(ElementTree.fromstring(RESPONSE), TopicSettings)


def test_a_number_that_is_none_is_told_as_the_fault_of_the_service() -> None:
    with pytest.raises(MalformedData, match="many"):
        entity_of(ElementTree.fromstring(RESPONSE.replace("2048", "many")), QueueSettings)


def test_an_entry_names_only_the_settings_that_were_chosen_in_the_service_order() -> None:
    settings = QueueSettings(max_delivery_count=5, lock_duration_s=30.0, requires_session=True, user_metadata="a<b")
    assert written(settings) == [
        ("LockDuration", "PT30S"),
        ("RequiresSession", "true"),
        ("MaxDeliveryCount", "5"),
        ("UserMetadata", "a<b"),
    ]


def test_a_target_to_forward_to_is_an_absolute_address() -> None:
    settings = SubscriptionSettings(forward_to="other", forward_dead_letters_to="t/s")
    assert written(settings) == [("ForwardTo", f"{HERE}/other"), ("ForwardDeadLetteredMessagesTo", f"{HERE}/t/s")]


def test_the_first_rule_of_a_subscription_stands_where_the_service_looks_for_it() -> None:
    settings = SubscriptionSettings(dead_lettering_on_filter_errors=False, max_delivery_count=3)
    names = [name for name, _ in written(settings, RuleDescription("large", SqlFilter("size > 5")))]
    assert names == ["DeadLetteringOnFilterEvaluationExceptions", "DefaultRuleDescription", "MaxDeliveryCount"]


EVERYTHING: list[Settings] = [
    QueueSettings(
        30.0, 2048, True, True, 60.0, True, 90.0, 3, False,
        (AccessPolicy("sends", ("Send",), new_key(), new_key()), AccessPolicy("all", ("Listen", "Manage", "Send"))),
        "Disabled", NEVER, False, True, "there", "mine", "elsewhere", 1024,
    ),
    TopicSettings(
        60.0, 2048, True, 90.0, False, True, (AccessPolicy("listens", ("Listen",), "k", "l"),),
        "SendDisabled", True, 300.0, False, True, "mine", 1024,
    ),
    SubscriptionSettings(30.0, True, 60.0, True, False, 3, False, "ReceiveDisabled", "there", "else", 300.0, "mine"),
]  # fmt: skip


@pytest.mark.parametrize("settings", EVERYTHING)
def test_every_setting_is_read_back_as_it_was_written(settings: Settings) -> None:
    assert all(getattr(settings, each.name) is not None for each in fields(settings))
    entry = ElementTree.fromstring(entry_with(description_of(settings, HERE)))
    assert entity_of(entry, type(settings)).settings == settings  # type: ignore[type-var]


def test_every_setting_has_its_element_and_every_element_its_setting() -> None:
    used = {each.name for kind in DESCRIPTIONS for each in fields(kind)}
    assert used == set(ELEMENTS)


def test_a_change_keeps_what_it_does_not_name_and_empties_what_it_names_empty() -> None:
    present = QueueSettings(lock_duration_s=30.0, forward_to="there", user_metadata="mine", max_delivery_count=3)
    now = changed(present, QueueSettings(forward_to="", max_delivery_count=5))
    assert now == QueueSettings(lock_duration_s=30.0, user_metadata="mine", max_delivery_count=5)


def test_the_keys_of_a_policy_are_not_shown_by_accident() -> None:
    policy = AccessPolicy("sends", ("Send",), "secret-1", "secret-2")
    assert "secret" not in repr(policy)
    assert "secret" not in repr(QueueSettings(policies=(policy,)))


def test_one_key_is_made_anew_and_the_other_stays() -> None:
    policy = AccessPolicy("sends", ("Send",), "one", "two")
    renewed = policy.with_new_key(secondary=False)
    assert renewed.secondary_key == "two"
    assert len(renewed.primary_key) == 44
    assert policy.with_new_key(secondary=True, key="three") == AccessPolicy("sends", ("Send",), "one", "three")
