"""Descriptions as a Config.json: what `document` reads back to the same.

The emulator's own keys are always written, since its defaults differ from the service's; further ones only where they
say something, so that the emulator takes the file of a namespace that uses nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from typing import Final

from tandembus.descriptions import (
    DEFAULT_RULE_NAME,
    AuthorizationRule,
    CorrelationFilter,
    EntityDescription,
    EntityStatus,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from tandembus.front_end.http.values import format_duration, format_moment, format_time_span
from tandembus.node.emulator.document import QUEUE_PROPERTIES, SUBSCRIPTION_PROPERTIES, TOPIC_PROPERTIES

Json = dict[str, object]
Subscriptions = Sequence[tuple[SubscriptionDescription, Sequence[RuleDescription]]]

PROPERTIES: Final[Mapping[type[EntityDescription], Mapping[str, tuple[str, object]]]] = {
    QueueDescription: QUEUE_PROPERTIES,
    TopicDescription: TOPIC_PROPERTIES,
    SubscriptionDescription: SUBSCRIPTION_PROPERTIES,
}
EVERYTHING: Final[Json] = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}
NOTHING: Final[Json] = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=0"}}
_EMULATORS_OWN: Final = frozenset(
    (
        "DeadLetteringOnMessageExpiration",
        "DefaultMessageTimeToLive",
        "DuplicateDetectionHistoryTimeWindow",
        "ForwardDeadLetteredMessagesTo",
        "ForwardTo",
        "LockDuration",
        "MaxDeliveryCount",
        "RequiresDuplicateDetection",
        "RequiresSession",
    )
)


def write_emulator_config(
    name: str,
    policies: Iterable[AuthorizationRule],
    queues: Iterable[QueueDescription],
    topics: Iterable[tuple[TopicDescription, Subscriptions]],
) -> Json:
    namespace: Json = {"Name": name}
    if told := _policies(policies):
        namespace["AuthorizationRules"] = told
    namespace["Queues"] = [_entity(queue.name, queue) for queue in queues]
    namespace["Topics"] = [
        {
            **_entity(topic.name, topic),
            "Subscriptions": [
                {**_entity(subscription.name, subscription), **_rules(rules)} for subscription, rules in subscriptions
            ],
        }
        for topic, subscriptions in topics
    ]
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}


def properties_of(description: EntityDescription, attributes: frozenset[str] | None = None) -> Json:
    """All that has to be said, or all `attributes`."""
    defaults = {each.name: each.default for each in fields(description) if each.default is not MISSING}
    found: Json = {}
    for key, (attribute, _) in PROPERTIES[type(description)].items():
        value = getattr(description, attribute)
        is_needed = key in _EMULATORS_OWN or value != defaults[attribute]
        if is_needed if attributes is None else attribute in attributes:
            found[key] = _setting(attribute, value)
    return found


def rules_of(rules: Sequence[RuleDescription]) -> dict[str, Json]:
    """By name. Where there is none, one that takes nothing stands for them: a file that lists none means all."""
    return {rule.name: _rule(rule) for rule in rules} or {DEFAULT_RULE_NAME: NOTHING}


def _entity(name: str, description: EntityDescription) -> Json:
    return {"Name": name, "Properties": properties_of(description)}


def _setting(attribute: str, value: object) -> object:
    if attribute.endswith("_s"):
        assert value is None or isinstance(value, int | float)
        return format_duration(value)
    if isinstance(value, tuple):
        return _policies(value)
    return value.value if isinstance(value, EntityStatus) else "" if value is None else value


def _policies(policies: Iterable[AuthorizationRule]) -> list[Json]:
    return [
        {"KeyName": policy.key_name, "Rights": sorted(policy.rights)}
        for policy in sorted(policies, key=lambda policy: policy.key_name)
    ]


def _rules(rules: Sequence[RuleDescription]) -> Json:
    found = rules_of(rules)
    if found == {DEFAULT_RULE_NAME: EVERYTHING}:
        return {}
    return {"Rules": [{"Name": name, "Properties": found[name]} for name in sorted(found)]}


def _rule(rule: RuleDescription) -> Json:
    match rule.filter:
        case TrueFilter():
            written: Json = dict(EVERYTHING)
        case FalseFilter():
            written = dict(NOTHING)
        case SqlFilter():
            written = {"FilterType": "Sql", "SqlFilter": _expression(rule.filter)}
        case CorrelationFilter():
            compared: Json = {**rule.filter.fields}
            if rule.filter.properties:
                compared["Properties"] = _values(rule.filter.properties)
            written = {"FilterType": "Correlation", "CorrelationFilter": compared}
    if rule.action is not None:
        written["Action"] = _expression(rule.action)
    return written


def _expression(sql: SqlFilter | SqlAction) -> Json:
    parameters: Json = {"Parameters": _values(sql.parameters)} if sql.parameters else {}
    return {"SqlExpression": sql.expression, **parameters}


def _values(values: Iterable[tuple[str, object]]) -> Json:
    return {key: _value(value) for key, value in sorted(values)}


def _value(value: object) -> object:
    if isinstance(value, datetime):
        return {"Type": "dateTime", "Value": format_moment(value)}
    if isinstance(value, timedelta):
        return {"Type": "duration", "Value": format_time_span(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"Type": "double", "Value": "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"}
    return value
