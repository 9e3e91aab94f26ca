"""Config.json: what is taken from it, and how its mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.config import ConfigurationError
from tandembus.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.limits import Limits
from tandembus.node.emulator import EmulatorConfig, read_emulator_config
from tandembus.node.emulator.document import QUEUE_PROPERTIES
from tests.covers import covers
from tests.unit.node.emulator.config_json import QUEUE, TOPIC, changed, config, queue, topic, write

LIMITS = Limits(min_duplicate_window_s=5.0)


def read(folder: Path, document: Any, limits: Limits = LIMITS) -> EmulatorConfig:
    return read_emulator_config(write(folder, document), limits)


def refusal(folder: Path, document: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read(folder, document)
    message = str(refused.value)
    prefix = f"{folder / 'Config.json'}: "
    assert all(line.startswith((prefix, "... and ")) for line in message.splitlines()), message
    return message.replace(prefix, "")


@covers("B2")
def test_every_property_of_a_queue_is_taken_over(tmp_path: Path) -> None:
    (wanted,) = read(tmp_path, config(QUEUE)).queues
    assert wanted.description == QueueDescription(
        "queue.1",
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live_s=1800.0,
        duplicate_detection_history_time_window_s=5.0,
        lock_duration_s=30.0,
        max_delivery_count=5,
    )


@covers("B2")
@pytest.mark.parametrize("bare", [{"Name": "bare"}, {"Name": "bare", "Properties": {}}])
def test_what_the_file_does_not_say_is_as_the_emulator_has_it(tmp_path: Path, bare: dict[str, Any]) -> None:
    (wanted,) = read(tmp_path, config(bare)).queues
    assert wanted.description == QueueDescription(
        "bare",
        default_message_time_to_live_s=3600.0,
        duplicate_detection_history_time_window_s=20.0,
        lock_duration_s=60.0,
        max_delivery_count=3,
    )
    assert wanted.given == frozenset()


@covers("B2")
def test_what_only_the_emulator_insists_on_may_be_missing_or_more(tmp_path: Path) -> None:
    many = [queue(f"queue-{number}", DefaultMessageTimeToLive="P14D") for number in range(120)]
    document = changed(config(*many), "UserConfig.Logging", ...)
    document = changed(document, "UserConfig.Namespaces[0].Name", "another-name")
    document = changed(document, "UserConfig.Namespaces[0].Topics", ...)
    found = read(tmp_path, document)
    assert (found.namespace_name, len(found.queues), found.topics) == ("another-name", 120, ())


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, config(QUEUE))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_emulator_config(path, LIMITS).queues) == 1


@covers("B2", "M9")
def test_every_property_of_topics_subscriptions_and_rules_is_taken_over(tmp_path: Path) -> None:
    (topic,) = read(tmp_path, config(topics=[TOPIC])).topics
    assert topic.description == TopicDescription(
        "topic.1",
        default_message_time_to_live_s=3600.0,
        duplicate_detection_history_time_window_s=20.0,
        requires_duplicate_detection=True,
    )
    first, second = topic.subscriptions
    assert first.description == SubscriptionDescription(
        "topic.1",
        "subscription.1",
        dead_lettering_on_message_expiration=True,
        default_message_time_to_live_s=1800.0,
        lock_duration_s=45.0,
        max_delivery_count=4,
        requires_session=True,
    )
    assert (second.description.max_delivery_count, second.rules) == (3, ())
    correlation, sql = (rule.description for rule in first.rules)
    assert correlation.filter == CorrelationFilter(
        content_type="application/text",
        correlation_id="id1",
        label="subject1",
        message_id="msgid1",
        reply_to="someQueue",
        reply_to_session_id="sessionId",
        session_id="session1",
        to="xyz",
        properties=(("text", "value1"), ("number", 5), ("half", 0.5), ("yes", True)),
    )
    assert sql == RuleDescription(
        "user-prop-filter-1",
        SqlFilter("sys.MessageId = '123456' AND userProp1 = 'value1'"),
        SqlAction("SET sys.To = 'Entity'"),
    )


NAMESPACE = "UserConfig.Namespaces[0]"
SUBSCRIPTION = f"{NAMESPACE}.Topics[0].Subscriptions[0]"
FIRST_RULE = f"{SUBSCRIPTION}.Rules[0].Properties"
SECOND_RULE = f"{SUBSCRIPTION}.Rules[1].Properties"
SQL_EXPRESSION = f"{SECOND_RULE}.SqlFilter.SqlExpression"


@covers("B2", "M9")
@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (f"{NAMESPACE}.Topics", {}, f"{NAMESPACE}.Topics: an object is not a list"),
        (f"{NAMESPACE}.Topics[0].Rules", [], f"{NAMESPACE}.Topics[0].Rules: this key is not known"),
        (f"{NAMESPACE}.Topics[0].Properties.LockDuration", "PT1M", "Properties.LockDuration: this key is not known"),
        (f"{NAMESPACE}.Topics[0].Subscriptions", None, f"{NAMESPACE}.Topics[0].Subscriptions: null is not a list"),
        (f"{SUBSCRIPTION}.Name", "a/b", f"{SUBSCRIPTION}.Name: The subscription name 'a/b' is not valid"),
        (f"{SUBSCRIPTION}.Name", "x" * 51, "has 51 characters; at most 50 are allowed"),
        (f"{SUBSCRIPTION}.Name", "Subscription.2", f"{NAMESPACE}.Topics[0].Subscriptions[1].Name: 'subscription.2' is"),
        (f"{SUBSCRIPTION}.Properties.RequiresDuplicateDetection", True, "RequiresDuplicateDetection: this key is not"),
        (f"{SUBSCRIPTION}.Properties.LockDuration", "PT1S", f"{SUBSCRIPTION}.Properties.LockDuration: LockDuration is"),
        (f"{SUBSCRIPTION}.Rules[1].Name", "APP-prop-filter-1", f"{SUBSCRIPTION}.Rules[1].Name: 'APP-prop-filter-1' is"),
        (f"{SUBSCRIPTION}.Rules[0].Name", "a?b", f"{SUBSCRIPTION}.Rules[0].Name: The rule name 'a?b' is not valid"),
        (FIRST_RULE, ..., f"{SUBSCRIPTION}.Rules[0]: 'Properties' is missing; add it"),
        (f"{FIRST_RULE}.FilterType", ..., f"{FIRST_RULE}: 'FilterType' is missing; add it"),
        (f"{FIRST_RULE}.FilterType", "True", f'{FIRST_RULE}.FilterType: "True" is not one of Correlation, Sql'),
        (f"{FIRST_RULE}.FilterType", "Sql", f"{FIRST_RULE}: FilterType is Sql, so 'SqlFilter' must be there; add it"),
        (f"{FIRST_RULE}.FilterTyp", {}, f"{FIRST_RULE}.FilterTyp: this key is not known; did you mean 'FilterType'?"),
        (f"{FIRST_RULE}.CorrelationFilter", {}, "CorrelationFilter: A CorrelationFilter needs at least one property"),
        (f"{FIRST_RULE}.CorrelationFilter.Subject", "x", "CorrelationFilter.Subject: this key is not known"),
        (f"{FIRST_RULE}.CorrelationFilter.Label", 5, "CorrelationFilter.Label: 5 is not text"),
        (f"{FIRST_RULE}.CorrelationFilter.Properties", [], "CorrelationFilter.Properties: a list is not an object"),
        (f"{FIRST_RULE}.CorrelationFilter.Properties.a", [], "Properties.a: only text, numbers, true and false"),
        (f"{FIRST_RULE}.CorrelationFilter.Properties.a", None, "Properties.a: only text, numbers, true and false"),
        (f"{SECOND_RULE}.SqlFilter", "1=1", f'{SECOND_RULE}.SqlFilter: "1=1" is not an object'),
        (f"{SECOND_RULE}.SqlFilter.SqlExpression", ..., f"{SECOND_RULE}.SqlFilter: 'SqlExpression' is missing"),
        (f"{SECOND_RULE}.SqlFilter.SqlExpression", "", f"{SECOND_RULE}.SqlFilter.SqlExpression: The SqlExpression of"),
        (f"{SECOND_RULE}.SqlFilter.SqlExpression", "a = ", f"{SECOND_RULE}.SqlFilter.SqlExpression: Rule 'user-prop"),
        (f"{SECOND_RULE}.SqlFilter.SqlExpression", "a" * 2000, "up to 1024 characters"),
        (
            f"{SECOND_RULE}.Action.SqlExpression",
            "SET",
            f"{SECOND_RULE}.Action.SqlExpression: Rule 'user-prop-filter-1'",
        ),
        (f"{SECOND_RULE}.Action", [], f"{SECOND_RULE}.Action: a list is not an object"),
    ],
)
def test_a_mistake_in_a_topic_is_told_with_its_place_and_what_would_be_right(
    tmp_path: Path, place: str, value: Any, told: str
) -> None:
    assert told in refusal(tmp_path, changed(config(topics=[TOPIC]), place, value))


@covers("B2")
def test_a_topic_cannot_have_the_name_of_a_queue(tmp_path: Path) -> None:
    told = refusal(tmp_path, config(queue("orders"), topics=[topic("Orders")]))
    assert told.startswith(f"{NAMESPACE}.Topics[0].Name: 'Orders' is the name of {NAMESPACE}.Queues[0].Name, too")


PROPERTIES = f"{NAMESPACE}.Queues[0].Properties"


@covers("B2", "F17")
@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("UserConfig", ..., "'UserConfig' is missing; add it"),
        ("Other", {}, "Other: this key is not known; remove it. Known here: UserConfig"),
        ("UserConfig", [], "UserConfig: a list is not an object"),
        ("UserConfig", None, "UserConfig: null is not an object"),
        ("UserConfig.Namespaces", ..., "UserConfig: 'Namespaces' is missing; add it"),
        ("UserConfig.Namespaces", [], "UserConfig.Namespaces: there are 0 namespaces; exactly one"),
        ("UserConfig.Namespaces", {}, "UserConfig.Namespaces: an object is not a list"),
        ("UserConfig.Namespaces", [{}, {}], "UserConfig.Namespaces: there are 2 namespaces; exactly one"),
        ("UserConfig.Namespace", [], "UserConfig.Namespace: this key is not known; did you mean 'Namespaces'?"),
        ("UserConfig.Logging", {}, "UserConfig.Logging: 'Type' is missing; add it"),
        ("UserConfig.Logging.Type", "Disk", 'UserConfig.Logging.Type: "Disk" is not one of File, Console, File,Con'),
        ("UserConfig.Logging.Level", "Debug", "UserConfig.Logging.Level: this key is not known; remove it."),
        (f"{NAMESPACE}.Name", ..., f"{NAMESPACE}: 'Name' is missing; add it"),
        (f"{NAMESPACE}.Name", 5, f"{NAMESPACE}.Name: 5 is not text"),
        (f"{NAMESPACE}.queues", [], f"{NAMESPACE}.queues: this key is not known; did you mean 'Queues'?"),
        (f"{NAMESPACE}.Queues", {}, f"{NAMESPACE}.Queues: an object is not a list"),
        (f"{NAMESPACE}.Queues", None, f"{NAMESPACE}.Queues: null is not a list"),
        (f"{NAMESPACE}.Queues[0]", "queue.1", f'{NAMESPACE}.Queues[0]: "queue.1" is not an object'),
        (f"{NAMESPACE}.Queues[0].Name", ..., f"{NAMESPACE}.Queues[0]: 'Name' is missing; add it"),
        (f"{NAMESPACE}.Queues[0].Name", "", f"{NAMESPACE}.Queues[0].Name: An entity needs a name."),
        (f"{NAMESPACE}.Queues[0].Name", "a b", f"{NAMESPACE}.Queues[0].Name: The entity name 'a b' is not valid"),
        (f"{NAMESPACE}.Queues[0].Name", "x" * 261, "has 261 characters; at most 260 are allowed"),
        (f"{NAMESPACE}.Queues[0].Proprties", {}, "Proprties: this key is not known; did you mean 'Properties'?"),
        (f"{PROPERTIES}.LockDuration", "PT10M", f"{PROPERTIES}.LockDuration: LockDuration is 600 s; allowed: 5 s to"),
        (f"{PROPERTIES}.LockDuration", "1 minute", f"{PROPERTIES}.LockDuration: the value: '1 minute' is not a dur"),
        (f"{PROPERTIES}.LockDuration", 60, f"{PROPERTIES}.LockDuration: 60 is not text"),
        (f"{PROPERTIES}.LockDuration", "-PT1M", f"{PROPERTIES}.LockDuration: the value: '-PT1M' is negative"),
        (f"{PROPERTIES}.LockDuration", "P99999999D", f"{PROPERTIES}.LockDuration: it cannot be for ever"),
        (f"{PROPERTIES}.DuplicateDetectionHistoryTimeWindow", "PT4S", "TimeWindow is 4 s; allowed: 5 s to 604800 s"),
        (f"{PROPERTIES}.DefaultMessageTimeToLive", "PT0S", "DefaultMessageTimeToLive is 0 s; allowed: more than 0 s"),
        (f"{PROPERTIES}.MaxDeliveryCount", "3", f'{PROPERTIES}.MaxDeliveryCount: "3" is not a whole number'),
        (f"{PROPERTIES}.MaxDeliveryCount", 3.0, f"{PROPERTIES}.MaxDeliveryCount: 3.0 is not a whole number"),
        (f"{PROPERTIES}.MaxDeliveryCount", True, f"{PROPERTIES}.MaxDeliveryCount: true is not a whole number"),
        (f"{PROPERTIES}.MaxDeliveryCount", 0, f"{PROPERTIES}.MaxDeliveryCount: MaxDeliveryCount is 0; allowed: 1 to"),
        (f"{PROPERTIES}.RequiresSession", "false", f'{PROPERTIES}.RequiresSession: "false" is not true or false'),
        (f"{PROPERTIES}.RequiresSession", 0, f"{PROPERTIES}.RequiresSession: 0 is not true or false"),
        (f"{PROPERTIES}.EnablePartitioning", "no", f'{PROPERTIES}.EnablePartitioning: "no" is not true or false'),
        (f"{PROPERTIES}.MaxSize", 1024, f"{PROPERTIES}.MaxSize: this key is not known"),
        (f"{PROPERTIES}.Status", "active", f'{PROPERTIES}.Status: "active" is not one of Active, Disabled'),
        (f"{PROPERTIES}.AuthorizationRules", [{"KeyName": "a"}], "AuthorizationRules[0]: 'Rights' is missing; add it"),
        (f"{NAMESPACE}.AuthorizationRules", [{"KeyName": "a", "Rights": ["Look"]}], 'Rights[0]: "Look" is not one of'),
        (f"{NAMESPACE}.AuthorizationRules", [{"KeyName": " ", "Rights": ["Send"]}], "has 1 to 256 letters, digits"),
        (f"{PROPERTIES}.ForwardTo", "a b", f"{PROPERTIES}.ForwardTo: The entity name 'a b' is not valid"),
        (f"{PROPERTIES}.ForwardTo", 7, f"{PROPERTIES}.ForwardTo: 7 is not text"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_would_be_right(
    tmp_path: Path, place: str, value: Any, told: str
) -> None:
    assert told in refusal(tmp_path, changed(config(QUEUE), place, value))


@covers("B2")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1, column 1: not JSON"),
        ('{"UserConfig": {\n  // entities\n  "Namespaces": []}}', "line 2, column 3: not JSON"),
        ('{"UserConfig": {\n  // entities\n  "Namespaces": []}}', "JSON has no comments: remove it"),
        ('{"UserConfig": /* all */ {}}', "JSON has no comments"),
        ('{"UserConfig": {},\n}', "no comma behind the last entry"),
        ('{"UserConfig": {"Namespaces": [1, ]}}', "no comma behind the last entry"),
        ('{"UserConfig": {}', "line 1, column 18: not JSON"),
        ("{'UserConfig': {}}", "line 1, column 2: not JSON"),
        ('{"UserConfig": NaN}', "NaN is not a value of JSON"),
        ('{"UserConfig": ' + "[" * 100_000, "not JSON"),
        ('{"UserConfig": {}, "UserConfig": {}}', "the key 'UserConfig' is there twice; remove one"),
        ("[]", "a list is not an object"),
    ],
)
def test_what_is_not_json_is_told_by_line_and_column(tmp_path: Path, text: str, told: str) -> None:
    assert told in refusal(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json: cannot be read: No such file"):
        read_emulator_config(tmp_path / "none.json", LIMITS)
    (tmp_path / "Config.json").write_bytes(b'{"UserConfig": "\xff"}')
    with pytest.raises(ConfigurationError, match="not UTF-8 text: invalid start byte at byte 16"):
        read_emulator_config(tmp_path / "Config.json", LIMITS)
    (tmp_path / "Config.json").write_bytes(b" " * 2_000_000)
    with pytest.raises(ConfigurationError, match="larger than"):
        read_emulator_config(tmp_path / "Config.json", LIMITS)


@covers("B2")
def test_names_that_differ_in_letters_only_are_the_same(tmp_path: Path) -> None:
    told = refusal(tmp_path, config(queue("Orders"), queue("other"), queue("orders")))
    assert told == f"{NAMESPACE}.Queues[2].Name: 'orders' is the name of {NAMESPACE}.Queues[0].Name, too; rename one"


@covers("B2")
def test_all_mistakes_are_told_at_once_up_to_a_bound(tmp_path: Path) -> None:
    wrong = [queue(f"queue-{number}", LockDuration="PT1H") for number in range(25)]
    told = refusal(tmp_path, config(queue("right"), *wrong)).splitlines()
    assert len(told) == 21
    assert told[0].startswith(f"{NAMESPACE}.Queues[1].Properties.LockDuration: ")
    assert told[-1] == "... and 5 more"


@covers("B2", "M9")
def test_one_mistake_does_not_hide_another_in_the_same_entity_or_below_it(tmp_path: Path) -> None:
    wrong = {**TOPIC, "Properties": {"Size": 1, "RequiresDuplicateDetection": 1, "DefaultMessageTimeToLive": "soon"}}
    below = changed(
        config(queue("q", LockDuration="PT1H", MaxDeliveryCount="3"), topics=[wrong]), SQL_EXPRESSION, "a >"
    )
    told = [line.partition(": ")[0].removeprefix(f"{NAMESPACE}.") for line in refusal(tmp_path, below).splitlines()]
    properties = "Topics[0].Properties"
    assert sorted(told) == sorted(
        [
            "Queues[0].Properties.LockDuration",
            "Queues[0].Properties.MaxDeliveryCount",
            f"{properties}.Size",
            f"{properties}.RequiresDuplicateDetection",
            f"{properties}.DefaultMessageTimeToLive",
            SQL_EXPRESSION.removeprefix(f"{NAMESPACE}."),
        ]
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
PLACES = [
    "UserConfig",
    "UserConfig.Namespaces",
    "UserConfig.Logging.Type",
    NAMESPACE,
    f"{NAMESPACE}.Queues",
    f"{NAMESPACE}.Queues[0]",
    PROPERTIES,
    *[f"{PROPERTIES}.{key}" for key in QUEUE_PROPERTIES],
]


@given(place=st.sampled_from(PLACES), value=JSON)
def test_any_value_at_any_place_is_taken_or_refused_with_the_place(
    tmp_path_factory: pytest.TempPathFactory, place: str, value: object
) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        read(folder, changed(config(QUEUE), place, value))
    except ConfigurationError as error:
        assert place.split("[")[0] in str(error)  # noqa: PT017
