"""Entities and rules come, change and go, in steps that a crash can interrupt anywhere.

The catalog's record says what was meant, and the next start finishes or undoes it. Only what is durable there is told
to the owners of the stores and to the front ends, and nothing is stored of what was refused. What is asked for is done
on all fragments or, where one of them is out of reach, refused before anything has changed. What was begun is carried
through as a whole, whether or not whoever asked for it is still there: only a crash interrupts it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from tandembus.clock import Clock
from tandembus.descriptions import (
    AuthorizationRule,
    EntityKind,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    check_update,
    subscription_path,
    with_size_as_created,
)
from tandembus.descriptions import default_rule as rule_for_everything
from tandembus.errors import BusError, OperationTimeout, StoreUnavailable, anew
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog, Entry, QueueEntry, SubscriptionEntry, TopicEntry
from tandembus.namespace.following import Followers
from tandembus.namespace.forwarding import Forwarding, check_forwarding
from tandembus.namespace.opening import not_found
from tandembus.namespace.placement import Stores
from tandembus.namespace.store_port import StorePort
from tandembus.rules import compile_rule
from tandembus.security.scopes import fold
from tandembus.tasks import uninterrupted

log = logging.getLogger("tandembus.namespace")

E = TypeVar("E", bound=Entry)


class Administration:
    """In the one process that has the catalog itself."""

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        ports: Mapping[int, StorePort],
        for_new: Sequence[int],
        followers: Followers,
        limits: Limits,
        clock: Clock,
    ) -> None:
        """`ports`: by the number of their store; `for_new`: those that new entities are spread over."""
        self._name = name
        self._catalog = catalog
        self._ports = ports
        self._for_new = for_new
        self._followers = followers
        self._limits = limits
        self._clock = clock
        self._forwarding_lock = asyncio.Lock()
        self._families: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._forsaken: list[Entry] = []
        """Creations that failed, when that could not be written down."""

    # Queues.

    @uninterrupted
    async def create_queue(self, description: QueueDescription) -> QueueEntry:
        description = description.validated(self._limits)
        async with self._changing(fold(description.name)), self._forwarding(description, None):
            now = self._clock.now()
            return await self._make(await self._catalog.begin_create(description, self._limits, now, self._stores()))

    @uninterrupted
    async def update_queue(self, description: QueueDescription) -> QueueEntry:
        async with self._changing(fold(description.name)):
            old = self._queue(description.name)
            description = with_size_as_created(old.description, description).validated(self._limits)
            check_update(old.description, description)
            async with self._forwarding(description, old.description):
                await self._check_stores(old)
                entry = await self._catalog.update_queue(description, self._clock.now())
            return await self._told(entry)

    @uninterrupted
    async def delete_queue(self, name: str) -> None:
        async with self._changing(fold(name)):
            await self._check_stores(self._queue(name))
            await self._catalog.delete_queue(name, self._clock.now())
            await self._followers.confirmed()

    # Topics.

    @uninterrupted
    async def create_topic(self, description: TopicDescription) -> TopicEntry:
        description = description.validated(self._limits)
        async with self._changing(fold(description.name)):
            now = self._clock.now()
            entry = await self._catalog.begin_create_topic(description, self._limits, now, self._stores())
            return await self._make(entry)

    @uninterrupted
    async def update_topic(self, description: TopicDescription) -> TopicEntry:
        async with self._changing(fold(description.name)):
            old = self._topic(description.name)
            description = with_size_as_created(old.description, description).validated(self._limits)
            check_update(old.description, description)
            await self._check_stores(old)
            return await self._told(await self._catalog.update_topic(description, self._clock.now()))

    @uninterrupted
    async def delete_topic(self, name: str) -> None:
        """With all its subscriptions, and all at once."""
        async with self._changing(fold(name)):
            await self._check_stores(self._topic(name))
            await self._catalog.delete_topic(name, self._clock.now())
            await self._followers.confirmed()

    # Subscriptions.

    @uninterrupted
    async def create_subscription(
        self, description: SubscriptionDescription, default_rule: RuleDescription | None = None
    ) -> SubscriptionEntry:
        """It gets what is sent from now on, if the default rule lets it through; without one, everything."""
        description = description.validated(self._limits)
        rule = self._checked_rule(default_rule or rule_for_everything())
        async with self._changing(fold(description.topic_name)):
            await self._check_stores(self._topic(description.topic_name))
            async with self._forwarding(description, None):
                now = self._clock.now()
                entry = await self._catalog.begin_create_subscription(description, [rule], self._limits, now)
                return await self._make(entry)

    @uninterrupted
    async def update_subscription(self, description: SubscriptionDescription) -> SubscriptionEntry:
        description = description.validated(self._limits)
        async with self._changing(fold(description.topic_name)):
            old = self._subscription(description.topic_name, description.name)
            check_update(old.description, description)
            async with self._forwarding(description, old.description):
                await self._check_stores(old)
                entry = await self._catalog.update_subscription(description, self._clock.now())
            return await self._told(entry)

    @uninterrupted
    async def delete_subscription(self, topic: str, name: str) -> None:
        async with self._changing(fold(topic)):
            await self._check_stores(self._subscription(topic, name))
            await self._catalog.delete_subscription(topic, name, self._clock.now())
            await self._followers.confirmed()

    # Rules.

    @uninterrupted
    async def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Raises InvalidArgument for what does not compile, and then nothing is stored."""
        rule = self._checked_rule(rule)
        async with self._changing(fold(topic)):
            await self._check_stores(self._subscription(topic, subscription))
            now = self._clock.now()
            created = await self._catalog.create_rule(topic, subscription, rule, self._limits, now)
            await self._followers.confirmed()
            return created

    @uninterrupted
    async def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Another filter and action for the rule of this name. Messages that are there already stay."""
        rule = self._checked_rule(rule)
        async with self._changing(fold(topic)):
            await self._check_stores(self._subscription(topic, subscription))
            now = self._clock.now()
            changed = await self._catalog.update_rule(topic, subscription, rule, self._limits, now)
            await self._followers.confirmed()
            return changed

    @uninterrupted
    async def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        async with self._changing(fold(topic)):
            await self._check_stores(self._subscription(topic, subscription))
            await self._catalog.delete_rule(topic, subscription, name, self._clock.now())
            await self._followers.confirmed()

    # What is not an entity.

    @uninterrupted
    async def put_policy(self, policy: AuthorizationRule) -> None:
        """Of the namespace, new or in place of the one of this name."""
        await self._catalog.put_policy(policy, self._clock.now())
        await self._followers.confirmed()

    @uninterrupted
    async def remove_policy(self, name: str) -> None:
        """Raises EntityNotFound."""
        await self._catalog.remove_policy(name, self._clock.now())
        await self._followers.confirmed()

    @uninterrupted
    async def record_accesses(self, times: Mapping[str, float]) -> None:
        await self._catalog.record_accesses(times, self._clock.now())

    async def keep_house(self) -> None:
        """What could not be undone when it failed."""
        forsaken, self._forsaken = self._forsaken, []
        for entry in forsaken:
            await self._abandon(entry)

    # What they share.

    def _queue(self, name: str) -> QueueEntry:
        entry = self._catalog.find_queue(name)
        if entry is None:
            raise not_found(self._name, name)
        return entry

    def _topic(self, name: str) -> TopicEntry:
        entry = self._catalog.find_topic(name)
        if entry is None:
            raise not_found(self._name, name)
        return entry

    def _subscription(self, topic: str, name: str) -> SubscriptionEntry:
        entry = self._catalog.find_subscription(topic, name)
        if entry is None:
            raise not_found(self._name, subscription_path(topic, name))
        return entry

    def _checked_rule(self, rule: RuleDescription) -> RuleDescription:
        rule = rule.validated(self._limits)
        compile_rule(rule)
        return rule

    def _changing(self, key: str) -> asyncio.Lock:
        """Held while a queue is created or changes, or a topic, its subscriptions or their rules: when the catalog
        takes the change, what was checked is still so, and it is the same life of that name. A second client that
        creates it waits for the first, so an entity that is reported as existing can be read."""
        return self._families.setdefault(key, asyncio.Lock())

    @asynccontextmanager
    async def _forwarding(self, new: Forwarding, old: Forwarding | None) -> AsyncIterator[None]:
        """One at a time where forwarding is asked for: two that are fine on their own may make a circle together."""
        if new.forward_to is None and new.forward_dead_lettered_messages_to is None:
            yield
            return
        async with self._forwarding_lock:
            check_forwarding(self._catalog, new, old, self._limits)
            yield

    # Stores.

    def _stores(self) -> Stores:
        reachable = [store for store in self._for_new if self._port(store).failure() is None]
        return Stores(self._for_new, reachable)

    def _port(self, store: int) -> StorePort:
        port = self._ports.get(store)
        if port is None:
            raise StoreUnavailable(f"Messaging store {store} is not there.")
        return port

    async def _check_stores(self, entry: Entry) -> None:
        """What cannot be done everywhere is not done anywhere. Raises StoreUnavailable."""
        await self._on_each(entry, _check)

    async def _on_each(self, entry: Entry, act: Callable[[StorePort, Entry], Awaitable[None]]) -> None:
        """On each store of the entity, all at once; when this returns or raises, it is over on all of them."""
        ports = [self._port(store) for store in dict.fromkeys(entry.stores)]
        _raise_any(entry, ports, [port.failure() for port in ports])
        outcomes = await asyncio.gather(*(act(port, entry) for port in ports), return_exceptions=True)
        _raise_any(entry, ports, outcomes)

    async def _make(self, entry: E) -> E:
        """Its fragments, then the catalog's word that it exists; or nothing of it remains."""
        try:
            await self._on_each(entry, _make)
            made = await self._catalog.finish_create(entry, self._clock.now())
        except BaseException:
            await self._abandon(entry)
            raise
        if made.is_partitioned and len(set(made.stores)) == 1 and made.kind is not EntityKind.SUBSCRIPTION:
            log.warning(
                "all fragments of '%s' lie in messaging store %d, as the namespace has no other for new entities: "
                "--brokers and --stores give it more, and then it has to be created again",
                made.description.path,
                made.stores[0],
            )
        return await self._told(made)

    async def _abandon(self, entry: Entry) -> None:
        """Tried again later where that cannot be written down now."""
        try:
            await self._catalog.abandon_create(entry, self._clock.now())
            await self._followers.confirmed()
        except StoreUnavailable as error:
            log.warning("'%s' could not be created, nor that undone yet: %s", entry.description.path, error)
            self._forsaken.append(entry)

    async def _told(self, entry: E) -> E:
        await self._followers.confirmed()
        return entry


async def _make(port: StorePort, entry: Entry) -> None:
    await port.make(entry)


async def _check(port: StorePort, entry: Entry) -> None:
    await port.check(entry)


def _raise_any(entry: Entry, ports: Sequence[StorePort], outcomes: Sequence[BaseException | None]) -> None:
    """What went wrong first, with all that failed: whoever looks for the cause wants to know how far it goes."""
    failures: list[BusError] = []
    failed: list[StorePort] = []
    for port, outcome in zip(ports, outcomes, strict=True):
        if isinstance(outcome, BusError):
            failures.append(outcome)
            failed.append(port)
        elif outcome is not None:
            raise outcome
    if failures:
        raise unhealthy(entry, failed, failures[0])


def unhealthy(entry: Entry, ports: Sequence[StorePort], failure: BusError) -> BusError:
    """The same kind of error, naming what is not healthy where there are several. Whatever became of a step that nobody
    answered, the change as a whole was not made: that is no unknown outcome to whoever asked for it."""
    kind = StoreUnavailable if isinstance(failure, OperationTimeout) else type(failure)
    if not entry.is_partitioned:
        return kind(f"Nothing was changed. {failure}") if kind is not type(failure) else anew(failure)
    fragments = ", ".join(map(str, sorted(index for port in ports for index in entry.indexes_in(port.index))))
    return kind(
        f"Nothing was changed: of '{entry.description.path}', fragments {fragments} cannot be reached. {failure}"
    )
