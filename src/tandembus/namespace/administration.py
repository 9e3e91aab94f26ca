"""Entities and rules come, change and go, in steps that a crash can interrupt anywhere.

The catalog's record says what was meant, and the next start finishes or undoes it. Only what is durable there is told
to the fragments, and nothing is stored of what was refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    check_supported,
    check_update,
    subscription_path,
)
from tandembus.descriptions import default_rule as rule_for_everything
from tandembus.errors import BusError, EntityNotFound
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog, Entry, QueueEntry, SubscriptionEntry, TopicEntry
from tandembus.namespace.dropping import Dropper
from tandembus.namespace.forwarding import Forwarding, check_forwarding
from tandembus.namespace.opening import OpenEntities
from tandembus.rules import compile_rule
from tandembus.security.scopes import fold

log = logging.getLogger("tandembus.namespace")

E = TypeVar("E", bound=Entry)


class Administration:
    def __init__(self, name: str, catalog: Catalog, broker: MessageBroker, limits: Limits, clock: Clock) -> None:
        self.name = name
        self.catalog = catalog
        self.broker = broker
        self.limits = limits
        self.clock = clock
        self._open = OpenEntities(name, catalog, broker, limits, clock)
        self._dropper = Dropper(catalog, broker, clock)
        self._forwarding_lock = asyncio.Lock()

    def not_found(self, path: str) -> EntityNotFound:
        return self._open.not_found(path)

    # Queues.

    async def create_queue(self, description: QueueDescription) -> QueueEntry:
        description = description.validated(self.limits)
        check_supported(description)
        async with self._forwarding(description, None):
            return await self._make(await self.catalog.begin_create(description, self.limits, self.clock.now()))

    async def update_queue(self, description: QueueDescription) -> QueueEntry:
        description = description.validated(self.limits)
        old = self.catalog.find_queue(description.name)
        if old is None:
            raise self.not_found(description.name)
        check_update(old.description, description)
        check_supported(description)
        async with self._forwarding(description, old.description):
            entry = await self.catalog.update_queue(description, self.clock.now())
            self._open.changed(entry)
        await self._resume(entry)
        return entry

    async def delete_queue(self, name: str) -> None:
        entry = self.catalog.find_queue(name)
        if entry is None:
            raise self.not_found(name)
        self._check_store()
        tombstones = await self.catalog.delete_queue(name, self.clock.now())
        self._open.ended(entry, self.not_found(name))
        self._dropper.start(tombstones)

    # Topics.

    async def create_topic(self, description: TopicDescription) -> TopicEntry:
        description = description.validated(self.limits)
        check_supported(description)
        return await self._make(await self.catalog.begin_create_topic(description, self.limits, self.clock.now()))

    async def update_topic(self, description: TopicDescription) -> TopicEntry:
        description = description.validated(self.limits)
        async with self._open.changing(fold(description.name)):
            check_update(self._topic(description.name).description, description)
            check_supported(description)
            entry = await self.catalog.update_topic(description, self.clock.now())
            self._open.changed(entry)
            return entry

    async def delete_topic(self, name: str) -> None:
        """With all its subscriptions, and all at once."""
        async with self._open.changing(fold(name)):
            topic = self._topic(name)
            self._check_store()
            subscriptions = self.catalog.subscriptions(name)
            tombstones = await self.catalog.delete_topic(name, self.clock.now())
            for entry in (topic, *subscriptions):
                self._open.ended(entry, self.not_found(entry.description.path))
            # The topic first: then nobody counts any more who of the others still has a message.
            self._dropper.start(tombstones[::-1])

    # Subscriptions.

    async def create_subscription(
        self, description: SubscriptionDescription, default_rule: RuleDescription | None = None
    ) -> SubscriptionEntry:
        """It gets what is sent from now on, if the default rule lets it through; without one, everything."""
        description = description.validated(self.limits)
        check_supported(description)
        rule = self._checked_rule(default_rule or rule_for_everything())
        async with self._open.changing(fold(description.topic_name)):
            self._topic(description.topic_name)
            async with self._forwarding(description, None):
                entry = await self.catalog.begin_create_subscription(description, [rule], self.limits, self.clock.now())
                return await self._make(entry)

    async def update_subscription(self, description: SubscriptionDescription) -> SubscriptionEntry:
        description = description.validated(self.limits)
        async with self._open.changing(fold(description.topic_name)):
            old = self._subscription(description.topic_name, description.name).description
            check_update(old, description)
            check_supported(description)
            async with self._forwarding(description, old):
                entry = await self.catalog.update_subscription(description, self.clock.now())
                self._open.changed(entry)
        await self._resume(entry)
        return entry

    async def delete_subscription(self, topic: str, name: str) -> None:
        async with self._open.changing(fold(topic)):
            entry = self._subscription(topic, name)
            self._check_store()
            tombstones = await self.catalog.delete_subscription(topic, name, self.clock.now())
            self._open.ended(entry, self.not_found(entry.description.path))
            self._dropper.start(tombstones)

    # Rules.

    def rules(self, topic: str, subscription: str, skip: int = 0, top: int | None = None) -> Sequence[RuleDescription]:
        """Sorted by name, one page. Raises EntityNotFound for a subscription that is not there."""
        self._subscription(topic, subscription)
        return self.catalog.rules(topic, subscription, skip, top)

    async def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Raises InvalidArgument for what does not compile, and then nothing is stored."""
        rule = self._checked_rule(rule)
        async with self._open.changing(fold(topic)):
            entry = self._subscription(topic, subscription)
            created = await self.catalog.create_rule(topic, subscription, rule, self.limits, self.clock.now())
            await self._open.rules_changed(entry)
            return created

    async def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Another filter and action for the rule of this name. Messages that are there already stay."""
        rule = self._checked_rule(rule)
        async with self._open.changing(fold(topic)):
            entry = self._subscription(topic, subscription)
            changed = await self.catalog.update_rule(topic, subscription, rule, self.limits, self.clock.now())
            await self._open.rules_changed(entry)
            return changed

    async def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        async with self._open.changing(fold(topic)):
            entry = self._subscription(topic, subscription)
            await self.catalog.delete_rule(topic, subscription, name, self.clock.now())
            await self._open.rules_changed(entry)

    # What they share.

    def _topic(self, name: str) -> TopicEntry:
        entry = self.catalog.find_topic(name)
        if entry is None:
            raise self.not_found(name)
        return entry

    def _subscription(self, topic: str, name: str) -> SubscriptionEntry:
        entry = self.catalog.find_subscription(topic, name)
        if entry is None:
            raise self.not_found(subscription_path(topic, name))
        return entry

    def _checked_rule(self, rule: RuleDescription) -> RuleDescription:
        rule = rule.validated(self.limits)
        compile_rule(rule)
        return rule

    def _check_store(self) -> None:
        """What cannot be dropped is not deleted: its name would be free while the store is out of reach."""
        if self.broker.failure is not None:
            raise self.broker.failure

    async def _resume(self, entry: QueueEntry | SubscriptionEntry) -> None:
        """What may forward from now on does so once it is open, and it may have left the memory while it paused. The
        change is durable: that it cannot be opened right now must not make it look undone."""
        description = entry.description
        targets = (description.forward_to, description.forward_dead_lettered_messages_to)
        if description.status.can_receive and targets != (None, None):
            try:
                await self._open.open(entry.key)
            except BusError as error:
                log.warning("'%s' does not forward its messages yet: %s", description.path, error)

    @asynccontextmanager
    async def _forwarding(self, new: Forwarding, old: Forwarding | None) -> AsyncIterator[None]:
        """One at a time where forwarding is asked for: two that are fine on their own may make a circle together."""
        if new.forward_to is None and new.forward_dead_lettered_messages_to is None:
            yield
            return
        async with self._forwarding_lock:
            check_forwarding(self.catalog, new, old, self.limits)
            yield

    async def _make(self, entry: E) -> E:
        """Its fragment, then the catalog's word that it exists; or nothing of it remains."""
        try:
            await self.broker.make_fragment(entry.fragment_key, entry.incarnation, 0)
            made = await self.catalog.finish_create(entry, self.clock.now())
            if isinstance(made, SubscriptionEntry):
                await self._open.subscribed(made)
            return made
        except BaseException:
            self._dropper.start(await self.catalog.abandon_create(entry, self.clock.now()))
            raise
