"""A namespace: its catalog of entities, the message broker that holds their fragments, and its policies.

Finding and using entities, their counts, and housekeeping are here; how they come, change and go is
`administration.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.descriptions import AuthorizationRule
from tandembus.errors import BusError, EntityNotFound, InvalidOperation
from tandembus.limits import Limits
from tandembus.namespace.administration import Administration
from tandembus.namespace.catalog import Catalog, Entry, QueueEntry, SubscriptionEntry, TopicEntry
from tandembus.namespace.entity import Entity, EntityCounts
from tandembus.namespace.paths import SubQueue
from tandembus.namespace.policies import KeyKind, completed, find_policy, put_in, with_new_key, without
from tandembus.namespace.transfers import Transfers
from tandembus.security.sas import ROOT_POLICY
from tandembus.tasks import WhenBroken, carry_on, essential

log = logging.getLogger("tandembus.namespace")

HOUSEKEEPING_S = 10.0
ACCESS_RECORD_S = 60.0
PURGE_SLICE = 4000


class Namespace(Administration):
    def __init__(self, name: str, catalog: Catalog, broker: MessageBroker, limits: Limits, clock: Clock) -> None:
        super().__init__(name, catalog, broker, limits, clock)
        self._housekeeper: asyncio.Task[None] | None = None
        self._transfers = Transfers(self._open, catalog, broker, clock)
        self._resuming: asyncio.Task[None] | None = None
        broker.forwarding.port = self._transfers
        broker.forwarding.max_hops = limits.max_forward_hops
        self.on_turn_end: Callable[[], None] = _no_turn
        """Called when answers and deliveries of a turn are written to their links, so that each socket is flushed
        once."""
        broker.on_turn_end = self.turn_ended
        self._accesses_recorded_at = 0.0
        self.describing = asyncio.Lock()
        """Held by whoever reads a description, or policies, to write them back changed: of two at a time, one would
        undo what the other did."""
        self.when_broken: WhenBroken = carry_on
        self.on_deleted: Callable[[str], None] = _nothing
        """Told when an entity goes on its own; who deletes one otherwise knows already."""
        self.fixed_policies: Sequence[AuthorizationRule] = ()
        """The root policy and those of the settings: shown, and not to be changed here."""
        self.renew_root_key: Callable[[], Sequence[AuthorizationRule]] | None = None
        """Makes a new root key and returns what is fixed from then on; None where the key is a setting."""

    @property
    def created_at(self) -> float:
        return self.catalog.created_at

    async def start(self) -> None:
        """Finish what an earlier life left undone, and keep house from now on."""
        await self._compare_with_store()
        for tombstone in self.catalog.tombstones():
            self._dropper.start([tombstone])
        self._housekeeper = essential(self._keep_house(), "housekeeping", self.when_broken)
        self._resuming = essential(self._transfers.resume(), "resuming transfers", self.when_broken)

    async def _compare_with_store(self) -> None:
        """A catalog older than the store (from a backup, say) must not give out numbers of fragments that are there:
        an entity's messages would come up in another. What it does not know is kept, and reported."""
        for damaged in self.catalog.damaged:
            log.error(
                "the catalog holds a damaged record, its entity is not served and its messages are kept: %s", damaged
            )
        buried = {tombstone.fragment_key for tombstone in self.catalog.tombstones()}
        heads = await self.broker.store.heads()
        for head in heads:
            if self.catalog.find_by_fragment(head.fragment) is None and head.fragment not in buried:
                log.warning("the store holds fragment %d, which the catalog does not know; it is kept", head.fragment)
                self._open.newest_stray = max(self._open.newest_stray, head.fragment)
        if heads:
            newest = max(head.fragment for head in heads)
            await self.catalog.skip_fragment_keys(newest + 1, self.clock.now())

    async def stop(self) -> None:
        for task in (self._housekeeper, self._resuming):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._dropper.stop()
        await self._record_accesses()

    def turn_ended(self) -> None:
        """For whoever hands over messages and answers: a message broker, or a channel to one."""
        self.on_turn_end()

    # Entities in use.

    async def entity(self, path: str) -> Entity:
        """The queue, topic or subscription of this path, its fragment open. Raises EntityNotFound."""
        return await self._open.open(path)

    def opened(self, path: str) -> Entity | None:
        """The entity of this path, if its fragment is open already."""
        return self._open.find(path)

    async def counts(self, path: str) -> EntityCounts:
        return await (await self.entity(path)).requests.counts()

    def accessed_at(self, path: str) -> float:
        entity = self._open.find(path)
        recorded = self.catalog.accessed_at(path)
        return recorded if entity is None else max(recorded, entity.accessed_at)

    async def purge(self, path: str, sub_queue: SubQueue) -> int:
        """Delete everything that waits in a queue or its dead letters; locked, deferred and scheduled messages stay."""
        entity = await self.entity(path)
        before_ms = self.clock.now_ms() + 1
        deleted = 0
        with entity.in_use():
            while True:
                part = await entity.requests.delete_batch(sub_queue.lane, PURGE_SLICE, before_ms)
                deleted += part
                if part < PURGE_SLICE:
                    return deleted

    # Policies: of the namespace where no entity is named, else of that queue or topic.

    def policies(self, path: str = "") -> list[AuthorizationRule]:
        if path:
            return list(self._with_policies(path).description.authorization_rules)
        fixed = {rule.key_name for rule in self.fixed_policies}
        return [*self.fixed_policies, *(rule for rule in self.catalog.policies() if rule.key_name not in fixed)]

    async def put_policy(self, rule: AuthorizationRule, path: str = "") -> AuthorizationRule:
        """A new policy, or other rights for the one of this name. A key that is empty is kept, or made. Raises
        InvalidArgument, InvalidOperation."""
        async with self.describing:
            rules = self._changeable_policies(path, rule.key_name)
            changed = completed(rules, rule, self.clock.now())
            await self._keep_policy(path, rules, changed)
            return changed

    async def regenerate_key(self, name: str, key: KeyKind, path: str = "") -> AuthorizationRule:
        """From now on the old key is worth nothing. Raises EntityNotFound."""
        async with self.describing:
            if not path and name == ROOT_POLICY:
                return self._regenerate_root_key(key)
            rules = self._changeable_policies(path, name)
            changed = with_new_key(rules, name, key, self.clock.now())
            await self._keep_policy(path, rules, changed)
            return changed

    async def remove_policy(self, name: str, path: str = "") -> None:
        """Raises EntityNotFound, InvalidOperation for the root policy."""
        async with self.describing:
            rules = self._changeable_policies(path, name)
            find_policy(rules, name)
            if path:
                await self._update_policies(path, without(rules, name))
            else:
                await self.catalog.remove_policy(name, self.clock.now())

    def _changeable_policies(self, path: str, name: str) -> Sequence[AuthorizationRule]:
        if path:
            return self.policies(path)
        for rule in self.fixed_policies:
            if rule.key_name.lower() == name.lower():
                reason = "is always there" if rule.key_name == ROOT_POLICY else "is a setting of the namespace"
                raise InvalidOperation(f"The policy '{rule.key_name}' {reason}: it cannot be changed or removed here.")
        return self.catalog.policies()

    async def _keep_policy(self, path: str, rules: Sequence[AuthorizationRule], changed: AuthorizationRule) -> None:
        if path:
            await self._update_policies(path, put_in(rules, changed))
        else:
            await self.catalog.put_policy(changed, self.clock.now())

    async def _update_policies(self, path: str, rules: tuple[AuthorizationRule, ...]) -> None:
        entry = self._with_policies(path)
        if isinstance(entry, QueueEntry):
            await self.update_queue(replace(entry.description, authorization_rules=rules))
        else:
            await self.update_topic(replace(entry.description, authorization_rules=rules))

    def _with_policies(self, path: str) -> QueueEntry | TopicEntry:
        entry = self.catalog.find_queue(path) or self.catalog.find_topic(path)
        if entry is None:
            raise self.not_found(path)
        return entry

    def _regenerate_root_key(self, key: KeyKind) -> AuthorizationRule:
        if self.renew_root_key is None or key is not KeyKind.PRIMARY:
            reason = "has one key only" if self.renew_root_key is not None else "has its key from a setting"
            raise InvalidOperation(f"The policy '{ROOT_POLICY}' {reason}: it cannot be made anew here.")
        self.fixed_policies = self.renew_root_key()
        return find_policy(self.fixed_policies, ROOT_POLICY)

    # Housekeeping.

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            try:
                await self.keep_house()
            except BusError as error:
                log.warning("housekeeping is put off: %s", error)

    async def keep_house(self) -> None:
        """One pass: what nobody uses leaves the memory, and what nobody has used for its idle time is deleted."""
        now = self.clock.now()
        for entity in self._open.all():
            if entity.links:
                entity.accessed_at = now
        if now - self._accesses_recorded_at >= ACCESS_RECORD_S:
            await self._record_accesses()
        for entry in self.catalog.entries_with_idle_time():
            idle_s = entry.description.auto_delete_on_idle_s
            if idle_s is not None and now - self._used_at(entry) >= idle_s:
                log.info("'%s' was not used for %.0f s and is deleted", entry.description.path, idle_s)
                await self._delete_idle(entry)
        self._open.let_go_of_unused(now)

    def _used_at(self, entry: Entry) -> float:
        """Who uses a subscription uses its topic, too."""
        used_at = self.accessed_at(entry.key)
        if isinstance(entry, TopicEntry):
            for subscription in self.catalog.subscriptions(entry.key):
                used_at = max(used_at, self.accessed_at(subscription.key))
        return used_at

    async def _delete_idle(self, entry: Entry) -> None:
        subscriptions = self.catalog.subscriptions(entry.key) if isinstance(entry, TopicEntry) else []
        try:
            if isinstance(entry, SubscriptionEntry):
                await self.delete_subscription(entry.topic_key, entry.name_key)
            elif isinstance(entry, TopicEntry):
                await self.delete_topic(entry.key)
            else:
                await self.delete_queue(entry.key)
        except EntityNotFound:
            return  # with its topic, or by somebody else
        for one in (entry, *subscriptions):
            self.on_deleted(one.key)

    async def _record_accesses(self) -> None:
        self._accesses_recorded_at = self.clock.now()
        times = {entity.name: entity.accessed_at for entity in self._open.all()}
        if times:
            await self.catalog.record_accesses(times, self.clock.now())


def _no_turn() -> None:
    return


def _nothing(_key: str) -> None:
    return
