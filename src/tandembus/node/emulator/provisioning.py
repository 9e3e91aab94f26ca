"""Brings about what a Config.json asks for: creates what is missing, changes what differs, deletes nothing.

A namespace with a data folder starts with the same file again and again. So everything is compared with what is there
first, and a demand that cannot be met ends the start before anything is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

from tandembus.descriptions import AuthorizationRule, EntityDescription, RuleDescription, check_update
from tandembus.errors import BusError
from tandembus.namespace.entries import Entry
from tandembus.namespace.namespace import Namespace
from tandembus.node.emulator.document import (
    EmulatorConfig,
    Wanted,
    WantedQueue,
    WantedRule,
    WantedSubscription,
    WantedTopic,
)
from tandembus.node.emulator.places import Place
from tandembus.node.emulator.rehearsal import Rehearsal

D = TypeVar("D", bound=EntityDescription)
Act = Callable[[], Awaitable[object]]


@dataclass
class Provisioned:
    """What was done, by the paths of entities; a new subscription's rules are part of it."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = (("created", self.created), ("updated", self.updated), ("unchanged", self.unchanged))
        return ", ".join(f"{len(paths)} {word}" for word, paths in parts)


async def provision(namespace: Namespace, config: EmulatorConfig) -> Provisioned:
    """Raises ConfigurationError, before anything is changed where that can be known."""
    plan = _Plan(namespace, config)
    plan.make()
    await plan.carry_out()
    return plan.done


class _Plan:
    """All comparisons first, then all steps. Entities forward to each other in any order, so forwarding is set when
    all of them are there."""

    def __init__(self, namespace: Namespace, config: EmulatorConfig) -> None:
        self._namespace = namespace
        self._config = config
        self._rehearsal = Rehearsal(namespace.catalog, namespace.limits)
        self._steps: list[tuple[Place, Act]] = []
        self._last_steps: list[tuple[Place, Act]] = []
        self.done = Provisioned()

    def make(self) -> None:
        names = {policy.key_name for policy in self._namespace.policies()}
        for policy in self._config.policies:
            if policy.key_name not in names:
                self._steps.append((self._config.place, partial(self._namespace.put_policy, policy)))
        for queue in self._config.queues:
            self._queue(queue)
        for topic in self._config.topics:
            self._topic(topic)
            for subscription in topic.subscriptions:
                self._subscription(subscription)
        self._rehearsal.check(self._config)

    async def carry_out(self) -> None:
        for place, act in (*self._steps, *self._last_steps):
            try:
                await act()
            except BusError as error:
                raise place.fault(str(error)) from error

    def _queue(self, wanted: WantedQueue) -> None:
        namespace, description = self._namespace, wanted.description
        old = self._old(wanted, namespace.catalog.find(description.name), description)
        if old is None:
            first = replace(description, forward_to=None, forward_dead_lettered_messages_to=None)
            self._create(wanted, description, lambda: namespace.create_queue(first))
            if first != description:
                self._last_steps.append((wanted.place, lambda: namespace.update_queue(description)))
        else:
            changed = _with_given(wanted, old, description)
            self._update(wanted, old, changed, lambda: namespace.update_queue(changed))

    def _topic(self, wanted: WantedTopic) -> None:
        namespace, description = self._namespace, wanted.description
        old = self._old(wanted, namespace.catalog.find(description.name), description)
        if old is None:
            self._create(wanted, description, lambda: namespace.create_topic(description))
        else:
            changed = _with_given(wanted, old, description)
            self._update(wanted, old, changed, lambda: namespace.update_topic(changed))

    def _subscription(self, wanted: WantedSubscription) -> None:
        namespace, description = self._namespace, wanted.description
        entry = namespace.catalog.find_subscription(description.topic_name, description.name)
        old = self._old(wanted, entry, description)
        if old is None:
            first = replace(description, forward_to=None, forward_dead_lettered_messages_to=None)
            first_rule = wanted.rules[0].description if wanted.rules else None
            self._create(wanted, description, lambda: namespace.create_subscription(first, first_rule))
            for rule in wanted.rules[1:]:
                self._steps.append((rule.place, self._creating(wanted, rule.description)))
            if first != description:
                self._last_steps.append((wanted.place, lambda: namespace.update_subscription(description)))
        else:
            changed = _with_given(wanted, old, description)
            self._update(wanted, old, changed, lambda: namespace.update_subscription(changed))
            for rule in wanted.rules:
                self._rule(wanted, rule)
        self._rehearsal.put_rules(description, [rule.description for rule in wanted.rules])

    def _rule(self, subscription: WantedSubscription, wanted: WantedRule) -> None:
        namespace, owner, rule = self._namespace, subscription.description, wanted.description
        path = f"{owner.path}/Rules/{rule.name}"
        old = namespace.catalog.find_rule(owner.topic_name, owner.name, rule.name)
        if old is None:
            self._steps.append((wanted.place, self._creating(subscription, rule)))
            self.done.created.append(path)
        elif replace(rule, name=old.name, created_at=old.created_at) == old:
            self.done.unchanged.append(path)
        else:
            act = lambda: namespace.update_rule(owner.topic_name, owner.name, rule)  # noqa: E731
            self._steps.append((wanted.place, act))
            self.done.updated.append(path)

    def _creating(self, subscription: WantedSubscription, rule: RuleDescription) -> Act:
        owner = subscription.description
        return lambda: self._namespace.create_rule(owner.topic_name, owner.name, rule)

    def _create(self, wanted: Wanted, description: EntityDescription, act: Act) -> None:
        self._rehearsal.put(description)
        self._steps.append((wanted.place, act))
        self.done.created.append(description.path)

    def _update(self, wanted: Wanted, old: EntityDescription, changed: EntityDescription, act: Act) -> None:
        if changed == old:
            self.done.unchanged.append(old.path)
            return
        self._check_change(wanted.place, old, changed)
        self._rehearsal.put(changed)
        self._last_steps.append((wanted.place, act))
        self.done.updated.append(old.path)

    def _check_change(self, place: Place, old: EntityDescription, changed: EntityDescription) -> None:
        try:
            check_update(old, changed)
            changed.validated(self._namespace.limits)
        except BusError as error:
            raise place.fault(str(error)) from error

    def _old(self, wanted: Wanted, found: Entry | None, description: D) -> D | None:
        """As it is now; None where there is no such entity yet."""
        if found is None:
            return None
        if isinstance(found.description, type(description)):
            return cast(D, found.description)
        raise wanted.place.member("Name").fault(
            f"the namespace has a {found.kind.value} of that name; rename this {description.kind.value}, or delete "
            f"the {found.kind.value} first"
        )


def _with_given(wanted: Wanted, old: D, description: D) -> D:
    """What is there, changed in what the file names."""
    given = {name: getattr(description, name) for name in wanted.given}
    if policies := given.get("authorization_rules"):
        given["authorization_rules"] = _with_their_keys(getattr(old, "authorization_rules", ()), policies)
    return replace(old, **given)


def _with_their_keys(
    old: tuple[AuthorizationRule, ...], wanted: tuple[AuthorizationRule, ...]
) -> tuple[AuthorizationRule, ...]:
    """Policies that are there keep their keys, and those that the file does not name stay."""
    rights = {policy.key_name: policy.rights for policy in wanted}
    names = {policy.key_name for policy in old}
    kept = [replace(policy, rights=rights.get(policy.key_name, policy.rights)) for policy in old]
    return (*kept, *[policy for policy in wanted if policy.key_name not in names])
