"""Entities in use: opened when somebody comes, found again while somebody is there, let go of when nobody is.

A topic and its subscriptions are one family: opened together, since they share numbers and bodies, and let go of
together. Whatever changes a family (opening it, a subscription that comes or goes, other rules) runs one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.topics import add_subscription, open_topic
from tandembus.clock import Clock
from tandembus.errors import BusError, EntityNotFound
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.limits import Limits
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.compiled_rules import CompiledRules
from tandembus.namespace.entity import Entity
from tandembus.namespace.entries import Entry, SubscriptionEntry, TopicEntry
from tandembus.namespace.fragment_settings import fragment_settings
from tandembus.security.scopes import fold


class OpenEntities:
    def __init__(self, name: str, catalog: CatalogView, broker: MessageBroker, limits: Limits, clock: Clock) -> None:
        self._name = name
        self._catalog = catalog
        self._broker = broker
        self._limits = limits
        self._clock = clock
        self._entities: dict[str, Entity] = {}
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._compiled = CompiledRules(catalog)
        self.newest_stray = 0
        """The highest key of a fragment in the store that the catalog does not know; 0: it knows all."""
        broker.open_by_key = self._open_by_key

    def find(self, path: str) -> Entity | None:
        """The entity, if it is in use."""
        return self._entities.get(fold(path))

    def all(self) -> Sequence[Entity]:
        return list(self._entities.values())

    def changing(self, topic_key: str) -> asyncio.Lock:
        """Held while a topic's family changes."""
        return self._changing.setdefault(topic_key, asyncio.Lock())

    async def open(self, path: str) -> Entity:
        """The entity of this path, its fragment open. Raises EntityNotFound."""
        entity = self._entities.get(fold(path)) or await self._open(path)
        # Who has asked for it comes to use it: it must not be let go of before that.
        entity.found_at = self._clock.now()
        return entity

    async def _open(self, path: str) -> Entity:
        entry = self._catalog.find(path)
        if isinstance(entry, TopicEntry):
            return await self._open_topic(entry)
        if isinstance(entry, SubscriptionEntry):
            return await self._open_subscription(entry)
        if entry is None:
            raise self.not_found(path)
        settings = fragment_settings(entry.description, self._limits)
        return self._opened(entry, await self._broker.open_fragment(entry.fragment_key, 0, settings))

    def not_found(self, path: str) -> EntityNotFound:
        # JS recognises an unknown entity by this wording alone (wire contract 2.1).
        return EntityNotFound(
            f"The messaging entity 'sb://{self._name}/{path}' could not be found. Check the name, or create it first."
        )

    async def _open_topic(self, entry: TopicEntry) -> Entity:
        async with self.changing(entry.key):
            self._catalog.check_complete(entry.key)
            subscriptions = self._catalog.subscriptions(entry.key)
            parts = [
                (
                    one.fragment_key,
                    fragment_settings(one.description, self._limits),
                    await self._compiled.rule_set(one),
                )
                for one in subscriptions
            ]
            settings = fragment_settings(entry.description, self._limits)
            # A subscription is younger than its topic: the stray may be one of this topic's.
            may_have_others = self.newest_stray > entry.fragment_key
            fragment = await open_topic(self._broker, entry.fragment_key, 0, settings, parts, may_have_others)
            return self._opened(entry, fragment)

    async def _open_subscription(self, entry: SubscriptionEntry) -> Entity:
        topic = await self.open(entry.topic_key)
        fan_out = topic.fragment.fan_out
        assert fan_out is not None
        fragment = fan_out.subscriptions.get(entry.fragment_key)
        if fragment is None:
            raise self.not_found(entry.description.path)  # deleted meanwhile
        return self._opened(entry, fragment)

    def _opened(self, entry: Entry, fragment: Fragment) -> Entity:
        """What was opened may have been deleted or changed while it was being read."""
        current = self._catalog.find(entry.key)
        if current is None or current.incarnation != entry.incarnation:
            self._broker.close_fragment(entry.fragment_key)
            raise self.not_found(entry.description.path)
        if current is not entry:
            fragment.settings = fragment_settings(current.description, self._limits)
        broker = self._broker
        traffic = LocalTraffic(fragment, broker.want, broker.session_serving.want)
        requests = LocalRequests(broker, fragment)
        new = Entity(current, traffic, requests, fragment, self._catalog.accessed_at(entry.key))
        return self._entities.setdefault(entry.key, new)

    async def _open_by_key(self, fragment_key: int) -> Fragment | None:
        """For due work of fragments that nobody has used yet. What is due in a topic that cannot be opened waits: that
        is no failure of the store."""
        entry = self._catalog.find_by_fragment(fragment_key)
        if entry is None or not self._catalog.is_complete(_topic_of(entry)):
            return None
        try:
            return (await self.open(entry.key)).fragment
        except EntityNotFound:
            return None

    # Changes, once they are durable.

    def changed(self, entry: Entry) -> None:
        """A new description. A subscription's fragment is there when its topic's is, also when nobody uses it."""
        entity = self._entities.get(entry.key)
        fragment = self._subscription_fragment(entry) if isinstance(entry, SubscriptionEntry) else None
        if entity is not None:
            entity.changed(entry, self._limits)
            fragment = entity.fragment
        elif fragment is not None:
            fragment.settings = fragment_settings(entry.description, self._limits)
        if fragment is not None:
            self._broker.forwarding.look(fragment)
        self._broker.forwarding.retry_all()

    async def subscribed(self, entry: SubscriptionEntry) -> None:
        """A new subscription; called with the family held."""
        topic = self._entities.get(entry.topic_key)
        if topic is not None:
            settings = fragment_settings(entry.description, self._limits)
            rules = await self._compiled.rule_set(entry)
            add_subscription(self._broker, topic.fragment, entry.fragment_key, settings, rules)

    async def rules_changed(self, entry: SubscriptionEntry) -> None:
        """Called with the family held."""
        fragment = self._subscription_fragment(entry)
        if fragment is not None:
            fragment.rules = await self._compiled.rule_set(entry)

    def ended(self, entry: Entry, error: BusError) -> None:
        """It was deleted: nobody finds it any more, and its links are cut."""
        if isinstance(entry, SubscriptionEntry):
            self._compiled.forget(entry)
        entity = self._entities.pop(entry.key, None)
        if entity is not None:
            entity.ended(error)
        self._broker.forwarding.retry_all()

    def _subscription_fragment(self, entry: SubscriptionEntry) -> Fragment | None:
        topic = self._entities.get(entry.topic_key)
        if topic is None or topic.fragment.fan_out is None:
            return None
        return topic.fragment.fan_out.subscriptions.get(entry.fragment_key)

    # Letting go.

    def let_go_of_unused(self, now: float) -> None:
        """What nobody has used for a while leaves the memory, a topic with all its subscriptions."""
        families: dict[str, list[Entity]] = {}
        for entity in self._entities.values():
            families.setdefault(_topic_of(entity.entry), []).append(entity)
        for key, family in families.items():
            is_unused = all(
                one.is_unused() and now - one.last_needed_at >= self._limits.fragment_idle_s for one in family
            )
            lock = self._changing.get(key)
            if not is_unused or (lock is not None and lock.locked()):
                continue
            if self._broker.close_fragment(family_head(family).entry.fragment_key):
                for one in family:
                    del self._entities[one.entry.key]


def _topic_of(entry: Entry) -> str:
    """A subscription's topic; a queue or topic stands for itself."""
    return entry.topic_key if isinstance(entry, SubscriptionEntry) else entry.key


def family_head(family: Sequence[Entity]) -> Entity:
    """The topic: a subscription is open only while it is."""
    return next(one for one in family if not isinstance(one.entry, SubscriptionEntry))
