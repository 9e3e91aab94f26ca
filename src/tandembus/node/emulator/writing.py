"""Writes descriptions as a Config.json, which `document` reads back to the same descriptions.

The emulator's own keys are always written, since its defaults differ from the service's; further ones only where they
say something, so that the emulator takes the file of a namespace that uses nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tandembus.descriptions import (
    DEFAULT_RULE_NAME,
    AuthorizationRule,
    CorrelationFilter,
    EntityDescription,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from tandembus.descriptions.durations import format_duration
from tandembus.descriptions.settings import NOT_THE_EMULATORS, Kind, Setting, defaults_of
from tandembus.descriptions.values import kind_and_text
from tandembus.node.emulator.document import keys_of

Json = dict[str, object]
Subscriptions = Sequence[tuple[SubscriptionDescription, Sequence[RuleDescription]]]

EVERYTHING: Final[Json] = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}
NOTHING: Final[Json] = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=0"}}


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
    """The settings that the file must name, or those in `attributes`."""
    defaults = defaults_of(type(description))
    found: Json = {}
    for key, setting in keys_of(type(description)).items():
        value = getattr(description, setting.name)
        is_needed = setting.emulator_default is not NOT_THE_EMULATORS or value != defaults[setting.name]
        if is_needed if attributes is None else setting.name in attributes:
            found[key] = _setting(setting, value)
    return found


def rules_of(rules: Sequence[RuleDescription]) -> dict[str, Json]:
    """Rules by name. A subscription without rules gets one that takes nothing: a file without rules means all."""
    return {rule.name: _rule(rule) for rule in rules} or {DEFAULT_RULE_NAME: NOTHING}


def _entity(name: str, description: EntityDescription) -> Json:
    return {"Name": name, "Properties": properties_of(description)}


def _setting(setting: Setting, value: Any) -> object:
    match setting.kind:
        case Kind.DURATION:
            return format_duration(value)
        case Kind.POLICIES:
            return _policies(value)
        case Kind.STATUS:
            return value.value
        case _:
            return "" if value is None else value


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
    """JSON's own word for it where there is one: the emulator knows no other."""
    kind, text = kind_and_text(value)
    if kind in ("short", "int", "long"):
        return int(text)
    if kind in ("float", "double") and text not in ("NaN", "INF", "-INF"):
        return float(text)
    return value if isinstance(value, bool) else text if kind == "string" else {"Type": kind, "Value": text}
