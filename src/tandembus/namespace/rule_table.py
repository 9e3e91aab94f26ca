"""The rules of a subscription, and how many of each kind there are: what quotas and administration ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tandembus.descriptions import CorrelationFilter, RuleDescription, SqlFilter
from tandembus.namespace.named import Named
from tandembus.security.scopes import fold


@dataclass(frozen=True, slots=True)
class RuleCounts:
    sql: int = 0
    correlation: int = 0
    plain: int = 0
    """True and false filters: they cost nothing to evaluate."""

    @property
    def total(self) -> int:
        return self.sql + self.correlation + self.plain

    def __add__(self, other: RuleCounts) -> RuleCounts:
        return RuleCounts(self.sql + other.sql, self.correlation + other.correlation, self.plain + other.plain)

    def __sub__(self, other: RuleCounts) -> RuleCounts:
        return RuleCounts(self.sql - other.sql, self.correlation - other.correlation, self.plain - other.plain)


def total_of(counts: Sequence[RuleCounts]) -> RuleCounts:
    """In plain sums: a topic has up to thousands of subscriptions, and every new rule asks."""
    return RuleCounts(
        sum([one.sql for one in counts]), sum([one.correlation for one in counts]), sum([one.plain for one in counts])
    )


def count_of(rule: RuleDescription) -> RuleCounts:
    if isinstance(rule.filter, SqlFilter):
        return RuleCounts(sql=1)
    return RuleCounts(correlation=1) if isinstance(rule.filter, CorrelationFilter) else RuleCounts(plain=1)


@final
class Rules:
    """The rules of one subscription."""

    __slots__ = ("by_name", "counts")

    def __init__(self) -> None:
        self.by_name: Named[RuleDescription] = Named()
        self.counts = RuleCounts()

    def put(self, rule: RuleDescription) -> None:
        self.pop(rule.name)
        self.by_name.put(fold(rule.name), rule)
        self.counts += count_of(rule)

    def pop(self, name: str) -> None:
        old = self.by_name.pop(fold(name))
        if old is not None:
            self.counts -= count_of(old)
