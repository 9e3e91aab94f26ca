"""The fragments of one store, in the process that owns it.

A fragment is opened when somebody needs it, follows what the catalog says of its entity, and leaves the memory when
nobody has used it for a while. A topic's fragment and those of its subscriptions with the same index are one family:
opened together, since they share numbers and bodies, and let go of together. Whatever changes a family (opening it, a
subscription that comes or goes, other rules) runs one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from weakref import WeakValueDictionary

from tandembus.broker.beginning_anew import begin_anew
from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.topics import SubscriptionPart, add_subscription, family_of, open_topic
from tandembus.clock import Clock
from tandembus.descriptions import TopicDescription
from tandembus.errors import BusError, EntityNotFound
from tandembus.limits import Limits
from tandembus.namespace.catalog_change import (
    CatalogEvent,
    EntityChanged,
    EntityCreated,
    EntityEnded,
    FragmentBuried,
    RulesChanged,
)
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.compiled_rules import CompiledRules
from tandembus.namespace.dropping import Dropper
from tandembus.namespace.entries import Entry, SubscriptionEntry, TopicEntry
from tandembus.namespace.fragment_settings import fragment_settings
from tandembus.store.messaging_store import LANES, Changes, FragmentHead

log = logging.getLogger("tandembus.namespace")


class FragmentHost:
    def __init__(
        self,
        store: int,
        broker: MessageBroker,
        view: CatalogView,
        limits: Limits,
        clock: Clock,
        compiled: CompiledRules | None = None,
    ) -> None:
        """`compiled`: shared by the hosts of a process, so that a rule is compiled once."""
        self.store = store
        self.broker = broker
        self.dropper = Dropper(broker)
        self.newest_key = 0
        """The highest key of a fragment in the store: none up to here may be given out again."""
        self._view = view
        self.limits = limits
        self.clock = clock
        self._compiled = compiled or CompiledRules(view)
        self._changing: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._newest_stray = 0
        self._pins: Counter[int] = Counter()
        self._used_at: dict[int, float] = {}
        self._resuming: set[asyncio.Task[None]] = set()
        broker.open_by_key = self.open_by_key
        broker.on_reopened.append(self.dropper.retry)

    # From one life to the next.

    async def start(self) -> None:
        """Compare with what is there, and finish what an earlier life left undone."""
        await self._compare_with_store()
        self._resume_dropping()

    async def stop(self) -> None:
        for task in list(self._resuming):
            task.cancel()
        await asyncio.gather(*self._resuming, return_exceptions=True)
        await self.dropper.stop()

    def _resume_dropping(self) -> None:
        """What the catalog has buried in this store."""
        self.dropper.start([one for one in self._view.tombstones() if one.store == self.store])
        self.dropper.retry()

    async def _compare_with_store(self) -> None:
        """What the catalog does not know (it may be an older one, from a backup) is kept, and reported. What it knows
        and the store has not, such as after a store was lost, begins anew."""
        heads = {head.fragment for head in await self.broker.store.heads()}
        buried = {tombstone.fragment_key for tombstone in self._view.tombstones()}
        for fragment_key in sorted(heads - buried):
            if not self._has(fragment_key):
                log.warning(
                    "store %d holds fragment %d, which the catalog does not know; it is kept", self.store, fragment_key
                )
                self._newest_stray = max(self._newest_stray, fragment_key)
        self.newest_key = max(heads, default=0)
        missing = [head for entry in self._view.entries() for head in self._heads(entry) if head.fragment not in heads]
        if missing:
            log.error(
                "store %d has lost %d fragments with all their messages; they begin anew", self.store, len(missing)
            )
            await begin_anew(self.broker, missing)

    def _has(self, fragment_key: int) -> bool:
        entry = self._view.find_by_fragment(fragment_key)
        return entry is not None and self._is_here(entry, fragment_key)

    def _is_here(self, entry: Entry, fragment_key: int) -> bool:
        return entry.stores[fragment_key - entry.fragment_key] == self.store

    # Making.

    async def make(self, entry: Entry) -> None:
        """Durably, so that a fragment the catalog names is always there. Raises StoreUnavailable."""
        await self._commit_heads(self._heads(entry))

    def _heads(self, entry: Entry) -> list[FragmentHead]:
        return [
            FragmentHead(entry.fragment_key + index, entry.incarnation, index, False)
            for index in entry.indexes_in(self.store)
        ]

    async def _commit_heads(self, heads: Sequence[FragmentHead]) -> None:
        changes = Changes()
        changes.heads.extend(heads)
        await self.broker.commit_alone(changes)

    # Opening.

    async def open_by_key(self, fragment_key: int) -> Fragment | None:
        """For who knows no more than the key: a channel, or due work. None for what is not there, or not any more, or
        cannot be opened although the store works: what is due there waits."""
        fragment = self.find(fragment_key)
        if fragment is not None:
            return fragment
        entry = self._view.find_by_fragment(fragment_key)
        if entry is None or not self._is_here(entry, fragment_key) or not self._view.is_complete(topic_key_of(entry)):
            return None
        try:
            return await self.open(entry, fragment_key - entry.fragment_key)
        except EntityNotFound:
            return None

    def find(self, fragment_key: int) -> Fragment | None:
        """The fragment, if it is open; it is used from now on."""
        fragment = self.broker.by_key.get(fragment_key)
        if fragment is not None:
            self._used_at[fragment_key] = self.clock.now()
        return fragment

    async def open(self, entry: Entry, index: int) -> Fragment:
        """The entity's fragment with this index. One of a store that is out of reach is opened, too: it says so, and is
        read when the store is back. Raises EntityNotFound, StoreDamaged for a topic that is not complete."""
        fragment_key = entry.fragment_key + index
        fragment = self.broker.by_key.get(fragment_key) or await self._open(entry, index)
        self._used_at[fragment_key] = self.clock.now()
        current = self._view.find_by_fragment(fragment_key)
        if current is None:
            self.broker.close_fragment(fragment_key)
            raise _ended(entry)
        if current is not entry:  # changed while it was being read
            fragment.settings = fragment_settings(current, self.limits)
        return fragment

    async def _open(self, entry: Entry, index: int) -> Fragment:
        if isinstance(entry, SubscriptionEntry):
            return await self._open_subscription(entry, index)
        async with self.changing(entry.fragment_key + index):
            if isinstance(entry, TopicEntry):
                return await self._open_topic(entry, index)
            settings = fragment_settings(entry, self.limits)
            return await self.broker.open_fragment(entry.fragment_key + index, index, settings)

    async def _open_topic(self, entry: TopicEntry, index: int) -> Fragment:
        self._view.check_complete(entry.key)
        settings = fragment_settings(entry, self.limits)
        parts = [await self._part(one, index) for one in self._view.subscriptions(entry.key)]
        # A subscription is younger than its topic: the stray may be one of this topic's.
        may_have_others = self._newest_stray > entry.fragment_key
        return await open_topic(self.broker, entry.fragment_key + index, index, settings, parts, may_have_others)

    async def _part(self, entry: SubscriptionEntry, index: int) -> SubscriptionPart:
        settings = fragment_settings(entry, self.limits)
        return entry.fragment_key + index, settings, await self._compiled.rule_set(entry)

    async def _open_subscription(self, entry: SubscriptionEntry, index: int) -> Fragment:
        topic = self._view.find_topic(entry.topic_key)
        if topic is None:
            raise _ended(entry)
        fan_out = (await self.open(topic, index)).fan_out
        fragment = fan_out.subscriptions.get(entry.fragment_key + index) if fan_out is not None else None
        if fragment is None:
            raise _ended(entry)
        return fragment

    def changing(self, fragment_key: int) -> asyncio.Lock:
        """Held while the family of a topic's fragment changes."""
        return self._changing.setdefault(fragment_key, asyncio.Lock())

    # What the catalog says.

    async def apply(self, events: Sequence[CatalogEvent]) -> None:
        """Changes, once they are durable: in effect here when this returns."""
        for event in events:
            if isinstance(event, EntityCreated):
                await self._created(event.entry)
            elif isinstance(event, EntityChanged):
                await self._changed(event.entry)
            elif isinstance(event, RulesChanged):
                await self._rules_changed(event.entry)
            elif isinstance(event, EntityEnded) and isinstance(event.entry, SubscriptionEntry):
                self._compiled.forget(event.entry)
        buried = [one.tombstone for one in events if isinstance(one, FragmentBuried)]
        own = [one for one in buried if one.store == self.store]
        for tombstone in own:
            self._used_at.pop(tombstone.fragment_key, None)
        self.dropper.start(own)
        if any(isinstance(one, (EntityCreated, EntityChanged, EntityEnded)) for one in events):
            self.broker.forwarding.retry_all()

    async def _created(self, entry: Entry) -> None:
        """A new subscription of a topic that is in use gets what is sent from now on."""
        if not isinstance(entry, SubscriptionEntry):
            return
        for index, head_key in self._families(entry):
            await self._add(entry, index, head_key)

    async def _add(self, entry: SubscriptionEntry, index: int, head_key: int) -> None:
        async with self.changing(head_key):
            topic = self.broker.by_key.get(head_key)
            if topic is not None and self._is_missing(topic, entry.fragment_key + index):
                add_subscription(self.broker, topic, *await self._part(entry, index))

    def _families(self, entry: Entry) -> list[tuple[int, int]]:
        """The index of each of its fragments here, with the key of the first of its family: a subscription's is its
        topic's, a queue or topic stands for itself. None where the topic is gone."""
        head = self._view.find_topic(entry.topic_key) if isinstance(entry, SubscriptionEntry) else entry
        if head is None:
            return []
        return [(index, head.fragment_key + index) for index in entry.indexes_in(self.store)]

    def _is_missing(self, topic: Fragment, fragment_key: int) -> bool:
        """It may be there already, from an opening that came in between, or be gone again."""
        assert topic.fan_out is not None
        return fragment_key not in topic.fan_out.subscriptions and self._has(fragment_key)

    async def _changed(self, entry: Entry) -> None:
        """A new description. What may forward from now on does so once it is open, and it may have left the memory
        while it paused."""
        for index, head_key in self._families(entry):
            if not await self._set(entry, index, head_key) and forwards(entry):
                self._in_background(self._open_to_forward(entry, index))

    async def _set(self, entry: Entry, index: int, head_key: int) -> bool:
        """Whether it is open here. What holds is what the catalog says by now."""
        fragment_key = entry.fragment_key + index
        async with self.changing(head_key):
            fragment = self.broker.by_key.get(fragment_key)
            if fragment is None:
                return False
            current = self._view.find_by_fragment(fragment_key) or entry
            fragment.settings = fragment_settings(current, self.limits)
            self.broker.forwarding.look(fragment)
            return True

    async def _open_to_forward(self, entry: Entry, index: int) -> None:
        try:
            await self.open(entry, index)
        except BusError as error:
            log.warning("'%s' does not forward its messages yet: %s", entry.description.path, error)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)

    async def _rules_changed(self, entry: SubscriptionEntry) -> None:
        for index, head_key in self._families(entry):
            await self._set_rules(entry, index, head_key)

    async def _set_rules(self, entry: SubscriptionEntry, index: int, head_key: int) -> None:
        async with self.changing(head_key):
            fragment = self.broker.by_key.get(entry.fragment_key + index)
            if fragment is not None and self._has(entry.fragment_key + index):
                fragment.rules = await self._compiled.rule_set(entry)

    async def catch_up(self) -> None:
        """What is open becomes what the catalog says of it, and what it buried goes. For whoever begins to serve, or
        has missed what a change meant: due work opens fragments at any time, also while nobody is told of changes."""
        self._resume_dropping()
        for fragment in self.broker.fragments():
            head_key = int(fragment.key)
            entry = self._view.find_by_fragment(head_key) if fragment.topic is None else None
            if entry is not None:
                await self._set_family(entry, head_key)
        self.broker.forwarding.retry_all()

    async def _set_family(self, head: Entry, head_key: int) -> None:
        index = head_key - head.fragment_key
        await self._set(head, index, head_key)
        for subscription in self._view.subscriptions(head.key) if isinstance(head, TopicEntry) else ():
            try:
                await self._add(subscription, index, head_key)
                await self._set(subscription, index, head_key)
                await self._set_rules(subscription, index, head_key)
            except EntityNotFound:
                continue  # deleted meanwhile

    # Letting go.

    def pin(self, fragment_key: int) -> Callable[[], None]:
        """It stays in memory until the function that this returns is called."""
        self._pins[fragment_key] += 1
        return lambda: self._unpin(fragment_key)

    def _unpin(self, fragment_key: int) -> None:
        self._pins[fragment_key] -= 1
        if self._pins[fragment_key] <= 0:
            del self._pins[fragment_key]

    def let_go_of_unused(self, now: float) -> None:
        """What nobody has used for a while leaves the memory, a topic with all its subscriptions."""
        for fragment in self.broker.fragments():
            if fragment.topic is None and not self._is_in_use(fragment, now):
                family = family_of(fragment)
                if self.broker.close_fragment(int(fragment.key)):
                    for one in family:
                        self._used_at.pop(int(one.key), None)

    def _is_in_use(self, fragment: Fragment, now: float) -> bool:
        lock = self._changing.get(int(fragment.key))
        return (lock is not None and lock.locked()) or any(self._is_used(one, now) for one in family_of(fragment))

    def _is_used(self, fragment: Fragment, now: float) -> bool:
        key = int(fragment.key)
        if key in self._pins or now - self._used_at.get(key, 0.0) < self.limits.fragment_idle_s:
            return True
        return any(not fragment.consumers(lane).is_empty() for lane in LANES)


def topic_key_of(entry: Entry) -> str:
    """A subscription's topic; a queue or topic stands for itself."""
    return entry.topic_key if isinstance(entry, SubscriptionEntry) else entry.key


def forwards(entry: Entry) -> bool:
    """Whether its messages leave it for another entity at the moment."""
    description = entry.description
    if isinstance(description, TopicDescription) or not description.status.can_receive:
        return False
    return (description.forward_to, description.forward_dead_lettered_messages_to) != (None, None)


def _ended(entry: Entry) -> EntityNotFound:
    return EntityNotFound(f"The messaging entity '{entry.description.path}' could not be found.")
