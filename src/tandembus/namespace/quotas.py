"""How much a namespace may hold. How much an entity may hold is its fragment's to check, where the bytes
are."""

from __future__ import annotations

from tandembus.errors import QuotaExceeded
from tandembus.limits import Limits
from tandembus.namespace.rule_table import RuleCounts


def check_entity_count(entity_count: int, limits: Limits) -> None:
    """Whether one more queue or topic may be created."""
    _check("The namespace has", "entities", entity_count, limits.max_entities, "max_entities")


def check_partitioned_count(partitioned_count: int, limits: Limits) -> None:
    """Whether one more partitioned queue or topic may be created; each counts as one entity, too."""
    most = limits.max_partitioned_entities
    _check("The namespace has", "partitioned entities", partitioned_count, most, "max_partitioned_entities")


def check_subscription_count(topic: str, subscription_count: int, limits: Limits) -> None:
    """Whether one more subscription may be created."""
    has = f"The topic '{topic}' has"
    _check(has, "subscriptions", subscription_count, limits.max_subscriptions, "max_subscriptions")


def check_rule_counts(topic: str, counts: RuleCounts, added: RuleCounts, limits: Limits) -> None:
    """Whether so many more rules may be added to a topic's subscriptions. True and false filters cost nothing to
    evaluate."""
    has = f"The topic '{topic}' has"
    if added.sql:
        kind = "rules with a SQL filter"
        _check(has, kind, counts.sql + added.sql - 1, limits.max_sql_rules, "max_sql_rules")
    if added.correlation:
        kind = "rules with a correlation filter"
        most = limits.max_correlation_rules
        _check(has, kind, counts.correlation + added.correlation - 1, most, "max_correlation_rules")


def check_plain_rule_count(subscription: str, rule_count: int, limits: Limits) -> None:
    """Whether one more rule with a true or false filter may be added: each with an action makes another copy of every
    message."""
    has = f"The subscription '{subscription}' has"
    _check(has, "rules with a true or false filter", rule_count, limits.max_plain_rules, "max_plain_rules")


def _check(has: str, kind: str, count: int, most: int, setting: str) -> None:
    if count >= most:
        raise QuotaExceeded(
            f"{has} {count} {kind}; at most {most} are allowed. Delete some, or raise the limit {setting}."
        )
