"""The rules of subscriptions, compiled once and kept: adding one must not compile thousands of others again."""

from __future__ import annotations

import asyncio
import logging

from tandembus.descriptions import RuleDescription
from tandembus.errors import InvalidArgument
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import SubscriptionEntry
from tandembus.rules import Rule, RuleSet, compile_rule

log = logging.getLogger("tandembus.namespace")

COMPILED_AT_ONCE = 200
"""Rules compiled before others get their turn."""


class CompiledRules:
    def __init__(self, catalog: CatalogView) -> None:
        self._catalog = catalog
        self._compiled: dict[int, dict[str, Rule]] = {}
        """By the subscription's fragment key, then by name."""
        self._since_pause = 0
        self._compiling = asyncio.Lock()

    async def rule_set(self, entry: SubscriptionEntry) -> RuleSet:
        """The rules that the catalog holds for the subscription now. One at a time: who comes for the same ones, such
        as for another fragment, finds them compiled."""
        async with self._compiling:
            return await self._rule_set(entry)

    async def _rule_set(self, entry: SubscriptionEntry) -> RuleSet:
        known = self._compiled.get(entry.fragment_key, {})
        compiled: dict[str, Rule] = {}
        rules = self._catalog.rules(entry.description.topic_name, entry.description.name)
        for description in rules:
            await self._pause_now_and_then()
            rule = known.get(description.name)
            # The very same description: equal ones may differ in the types of their values (1 and true).
            if rule is None or rule.description is not description:
                rule = _compiled(entry, description)
            if rule is not None:
                compiled[description.name] = rule
        self._compiled[entry.fragment_key] = compiled
        return RuleSet(list(compiled.values()))

    async def _pause_now_and_then(self) -> None:
        self._since_pause += 1
        if self._since_pause >= COMPILED_AT_ONCE:
            self._since_pause = 0
            await asyncio.sleep(0)

    def forget(self, entry: SubscriptionEntry) -> None:
        self._compiled.pop(entry.fragment_key, None)


def _compiled(entry: SubscriptionEntry, description: RuleDescription) -> Rule | None:
    """A rule is checked when it is made; one that an earlier version took and this one does not is left out, so that
    it does not take the topic with it."""
    try:
        return compile_rule(description)
    except InvalidArgument as error:
        log.error("a rule of '%s' is left out: %s", entry.description.path, error)
        return None
