"""Brings about what a Config.json asks for: creates what is missing, changes what differs, deletes nothing.

A namespace with a data folder starts with the same file again and again. So everything is compared with what is there
first, and a demand that cannot be met ends the start before anything is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tandembus.descriptions import EntityDescription, QueueDescription, check_supported, check_update
from tandembus.errors import BusError
from tandembus.namespace.entries import Entry
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.quotas import check_entity_count
from tandembus.node.emulator.document import EmulatorConfig, Wanted, WantedQueue
from tandembus.node.emulator.places import Place
from tandembus.security.scopes import fold

_FORWARDS: Final = {"forward_to": "ForwardTo", "forward_dead_lettered_messages_to": "ForwardDeadLetteredMessagesTo"}

D = TypeVar("D", bound=EntityDescription)
Act = Callable[[], Awaitable[object]]


@dataclass
class Provisioned:
    """What was done, by the paths of the entities."""

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
        self._steps: list[tuple[Place, Act]] = []
        self._last_steps: list[tuple[Place, Act]] = []
        self._new_count = 0
        self._names = {fold(queue.description.name) for queue in config.queues}
        self._names |= {fold(topic.description.name) for topic in config.topics}
        self.done = Provisioned()

    def make(self) -> None:
        for queue in self._config.queues:
            self._plan_queue(queue)
        catalog = self._namespace.catalog
        if self._new_count:
            after = catalog.queue_count() + catalog.topic_count() + self._new_count
            self._demand(self._config.place, lambda: check_entity_count(after - 1, self._namespace.limits))

    async def carry_out(self) -> None:
        for place, act in (*self._steps, *self._last_steps):
            try:
                await act()
            except BusError as error:
                raise place.fault(str(error)) from error

    def _plan_queue(self, wanted: WantedQueue) -> None:
        namespace, description = self._namespace, wanted.description
        self._check_targets(wanted, description)
        found = namespace.catalog.find(description.name)
        if found is None:
            first = replace(description, forward_to=None, forward_dead_lettered_messages_to=None)
            self._create(wanted, description, lambda: namespace.create_queue(first))
            if first != description:
                self._last_steps.append((wanted.place, lambda: namespace.update_queue(description)))
        else:
            old = self._same_kind(wanted, found, description)
            changed = replace(old, **_given_values(wanted, description))  # type: ignore[arg-type]
            self._update(wanted, old, changed, lambda: namespace.update_queue(changed))

    def _create(self, wanted: Wanted, description: EntityDescription, act: Act) -> None:
        self._new_count += 1
        self._steps.append((wanted.place, act))
        self.done.created.append(description.path)

    def _update(self, wanted: Wanted, old: EntityDescription, changed: EntityDescription, act: Act) -> None:
        if changed == old:
            self.done.unchanged.append(old.path)
            return
        self._demand(wanted.place, lambda: check_update(old, changed))
        self._demand(wanted.place, lambda: check_supported(changed.validated(self._namespace.limits)))
        self._last_steps.append((wanted.place, act))
        self.done.updated.append(old.path)

    def _same_kind(self, wanted: Wanted, found: Entry, description: D) -> D:
        if isinstance(found.description, type(description)):
            return found.description
        raise wanted.place.member("Name").fault(
            f"the namespace has a {found.kind.value} of that name; rename this {description.kind.value}, or delete "
            f"the {found.kind.value} first"
        )

    def _check_targets(self, wanted: Wanted, description: QueueDescription) -> None:
        for name, key in _FORWARDS.items():
            target = getattr(description, name)
            if target is None or fold(target) in self._names:
                continue
            if self._namespace.catalog.find(target) is None:
                place = wanted.place.member("Properties").member(key)
                raise place.fault(
                    f"there is no queue or topic named {target!r}; add it to the file, or create it first"
                )

    def _demand(self, place: Place, check: Callable[[], None]) -> None:
        try:
            check()
        except BusError as error:
            raise place.fault(str(error)) from error


def _given_values(wanted: Wanted, description: EntityDescription) -> dict[str, object]:
    return {name: getattr(description, name) for name in wanted.given}
