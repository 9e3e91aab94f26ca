"""Queues, topics, subscriptions and rules as answers: tables and fields for people, records for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Final

from tandembus.cli.output import print_fields, print_json, print_table, say
from tandembus.cli.parameters import count_words, duration_words, moment_text
from tandembus.cli.settings import MB_PER_GB, NOT_OPTIONS, SIZE_MB
from tandembus.cli.target import Target
from tandembus.client.durations import NEVER
from tandembus.client.entities import EntityInfo, QueueSettings, Settings, SubscriptionSettings, TopicSettings
from tandembus.descriptions import CorrelationFilter, FalseFilter, Filter, RuleDescription, SqlFilter, TrueFilter

Entity = EntityInfo[QueueSettings] | EntityInfo[TopicSettings] | EntityInfo[SubscriptionSettings]
AVAILABLE: Final = "Available"
RULE_HEADINGS: Final = ("rule", "filter", "action")


def settings_of(entity: Entity) -> dict[str, object]:
    """By name; without what has commands of its own, such as policies with their keys."""
    names = [each.name for each in fields(entity.settings) if each.name not in NOT_OPTIONS]
    return {name: getattr(entity.settings, name) for name in names}


def entity_record(entity: Entity, topic: str | None = None) -> dict[str, object]:
    """An entity in JSON: its settings beside its name, `null` for "never", counts and times."""
    settings = {name: None if value == NEVER else value for name, value in settings_of(entity).items()}
    times = {"created_at": entity.created_at, "updated_at": entity.updated_at, "accessed_at": entity.accessed_at}
    names = {"name": entity.name} if topic is None else {"topic": topic, "name": entity.name}
    more: dict[str, object] = {} if entity.fragment_count is None else {"fragments": entity.fragment_count}
    more["availability_status"] = entity.availability_status
    if _is_topic(entity.settings):
        more["subscription_count"] = entity.subscription_count
    return {**names, **settings, **more, "counts": _counts(entity), **times}


def entity_fields(entity: Entity, topic: str | None = None) -> dict[str, object]:
    """The same for people: durations in words, counts one by one."""
    shown: dict[str, object] = {} if topic is None else {"topic": topic}
    shown["name"] = entity.name
    for name, value in settings_of(entity).items():
        if name.endswith("_s") and isinstance(value, float):
            shown[name.removesuffix("_s").replace("_", " ")] = duration_words(value)
        elif name == SIZE_MB and isinstance(value, int):
            shown["maximum size"] = _size_words(value, entity.fragment_count or 1)
        else:
            shown[name.replace("_", " ")] = value
    if entity.fragment_count is not None:
        shown["fragments"] = entity.fragment_count
    shown["availability"] = entity.availability_status
    for name, value in _counts(entity).items():
        shown["size" if name == "size_bytes" else f"{name.replace('_', ' ')} messages"] = _known(entity, value)
    if _is_topic(entity.settings):
        shown["subscriptions"] = entity.subscription_count
    return {**shown, "created": entity.created_at, "updated": entity.updated_at, "accessed": entity.accessed_at}


def _size_words(size_mb: int, fragment_count: int) -> str:
    """A partitioned entity's is that of all its fragments together."""
    if fragment_count == 1:
        return _gb(size_mb)
    return f"{_gb(size_mb)} ({fragment_count} fragments of {_gb(size_mb // fragment_count)})"


def _gb(size_mb: int) -> str:
    return f"{size_mb // MB_PER_GB} GB" if size_mb % MB_PER_GB == 0 else f"{size_mb} MB"


def _known(entity: Entity, count: int | None) -> object:
    return count_words(count, entity.is_limited)


def _counts(entity: Entity) -> dict[str, int | None]:
    """A subscription has no size of its own: its messages are stored with its topic."""
    counts = asdict(entity.counts)
    if isinstance(entity.settings, SubscriptionSettings):
        del counts["size_bytes"]
    return counts


def show_entity(target: Target, entity: Entity, said: str = "", topic: str | None = None) -> None:
    if target.as_json:
        print_json(entity_record(entity, topic))
        return
    if said:
        say((said, "green"), " ", (entity.name, "bold"))
    print_fields(entity_fields(entity, topic))


def show_created(target: Target, entity: Entity, look: str, topic: str | None = None) -> None:
    """On a terminal only what was done: the settings of something new are mostly defaults. `look` shows them."""
    if target.as_json or not sys.stdout.isatty():
        show_entity(target, entity, "created", topic)
        return
    say(("created", "green"), " ", (entity.name, "bold"))
    if topic is not None:
        say((f"`tandembus receive {topic}/subscriptions/{entity.name}` receives from it", "dim"))
    say((f"`tandembus {look}` tells its settings", "dim"))


def show_entities(target: Target, noun: str, found: Sequence[Entity], topic: str | None = None) -> None:
    if target.as_json:
        for each in found:
            print_json(entity_record(each, topic))
    elif not found:
        arguments = "NAME" if topic is None else f"{topic} NAME"
        say((f"no {noun}s; `tandembus {noun} create {arguments}` makes one", "dim"))
    else:
        _print_entities(noun, found, topic is None)


def _print_entities(noun: str, found: Sequence[Entity], has_size: bool) -> None:
    """What could not be forwarded, and what is out of reach, has a column only where there is some: it is rare, and
    must not go unseen."""
    columns: dict[str, list[object]] = {
        noun: [each.name for each in found],
        "status": [each.settings.status for each in found],
        "active": [_known(each, each.counts.active) for each in found],
        "dead-letter": [_known(each, each.counts.dead_letter) for each in found],
        "scheduled": [_known(each, each.counts.scheduled) for each in found],
    }
    if any(each.availability_status not in (None, AVAILABLE) for each in found):
        columns["availability"] = [each.availability_status for each in found]
    if any(each.counts.transfer_dead_letter for each in found):
        columns["transfer-dead-letter"] = [_known(each, each.counts.transfer_dead_letter) for each in found]
    if _is_topic(found[0].settings):
        columns["subscriptions"] = [each.subscription_count for each in found]
    if has_size:
        columns["size (bytes)"] = [_known(each, each.counts.size_bytes) for each in found]
    print_table(list(columns), [list(row) for row in zip(*columns.values(), strict=True)])


def _is_topic(settings: Settings) -> bool:
    return isinstance(settings, TopicSettings)


def show_deleted(target: Target, noun: str, name: str, **context: str) -> None:
    if target.as_json:
        print_json({**context, noun: name, "deleted": True})
    else:
        say(("deleted", "green"), " ", (name, "bold"))


def rule_record(rule: RuleDescription) -> dict[str, object]:
    """A rule in JSON. `filter` has a `kind` (sql, correlation, true, false) and what that kind compares."""
    action = None
    if rule.action is not None:
        action = {"expression": rule.action.expression, "parameters": _values(rule.action.parameters)}
    created_at = moment_text(rule.created_at) if rule.created_at else None
    return {"name": rule.name, "filter": _filter_record(rule.filter), "action": action, "created_at": created_at}


def _filter_record(filter: Filter) -> dict[str, object]:
    match filter:
        case SqlFilter():
            return {"kind": "sql", "expression": filter.expression, "parameters": _values(filter.parameters)}
        case CorrelationFilter():
            names = [each.name for each in fields(filter) if each.name != "properties"]
            named = {name: getattr(filter, name) for name in names if getattr(filter, name) is not None}
            return {"kind": "correlation", **named, "properties": _values(filter.properties)}
        case TrueFilter():
            return {"kind": "true"}
        case FalseFilter():
            return {"kind": "false"}


def _values(pairs: tuple[tuple[str, object], ...]) -> dict[str, object]:
    return {name: moment_text(value.timestamp()) if isinstance(value, datetime) else value for name, value in pairs}


def filter_text(filter: Filter) -> str:
    """A filter on one line."""
    match filter:
        case SqlFilter():
            return filter.expression + _parameters_text(filter.parameters)
        case CorrelationFilter():
            own = [f"{name.replace('_', ' ')} = {value}" for name, value in _correlated(filter).items()]
            return ", ".join(own)
        case TrueFilter():
            return "every message"
        case FalseFilter():
            return "no message"


def _correlated(filter: CorrelationFilter) -> dict[str, object]:
    record = _filter_record(filter)
    properties = record.pop("properties")
    record.pop("kind")
    return {**record, **(properties if isinstance(properties, dict) else {})}


def _parameters_text(pairs: tuple[tuple[str, object], ...]) -> str:
    return f" ({', '.join(f'{name} = {value}' for name, value in _values(pairs).items())})" if pairs else ""


def action_text(rule: RuleDescription) -> str | None:
    return None if rule.action is None else rule.action.expression + _parameters_text(rule.action.parameters)


def show_rule(target: Target, rule: RuleDescription, said: str = "") -> None:
    if target.as_json:
        print_json(rule_record(rule))
        return
    if said:
        say((said, "green"), " ", (rule.name, "bold"))
    created = moment_text(rule.created_at) if rule.created_at else None
    print_fields(
        {"name": rule.name, "filter": filter_text(rule.filter), "action": action_text(rule), "created": created}
    )


def show_rules(target: Target, rules: Sequence[RuleDescription]) -> None:
    if target.as_json:
        for rule in rules:
            print_json(rule_record(rule))
    elif not rules:
        say(("no rules: this subscription gets nothing; `tandembus rule add` makes one", "dim"))
    else:
        print_table(RULE_HEADINGS, [[rule.name, filter_text(rule.filter), action_text(rule)] for rule in rules])
