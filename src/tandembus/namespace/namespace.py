"""A namespace as its front ends see it: which entities there are, those in use, their counts, and its policies.

How entities come, change and go is administration's (`administration.py`), which may be in another process, and where
their messages are is the business of whoever owns the stores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from tandembus.clock import Clock
from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    subscription_path,
)
from tandembus.errors import (
    BusError,
    EntityNotFound,
    InvalidOperation,
    OperationTimeout,
    StoreDamaged,
    StoreUnavailable,
)
from tandembus.faults.board import FaultBoard
from tandembus.faults.desk import FaultDesk, LocalDesk
from tandembus.large_messages import LargeMemory
from tandembus.limits import Limits
from tandembus.namespace.administration_port import AdministrationPort
from tandembus.namespace.catalog_change import CatalogEvent
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entity import Entity, EntityCounts
from tandembus.namespace.entries import Entry, QueueEntry, SubscriptionEntry, TopicEntry
from tandembus.namespace.faulty_fragments import FaultySource
from tandembus.namespace.fragment_source import FragmentSource
from tandembus.namespace.opening import OpenEntities
from tandembus.namespace.paths import SubQueue
from tandembus.namespace.policies import KeyKind, completed, find_policy, put_in, with_new_key, without
from tandembus.pair_view.sightings import Sightings
from tandembus.security.sas import ROOT_POLICY
from tandembus.store.messaging_store import MAIN
from tandembus.tasks import WhenBroken, carry_on, essential

log = logging.getLogger("tandembus.namespace")

HOUSEKEEPING_S = 10.0
ACCESS_RECORD_S = 60.0
PURGE_SLICE = 4000
IN_USE_S = 60.0
"""Who has used an entity so lately may do so again."""


@dataclass(frozen=True, slots=True)
class EntityCondition:
    """How an entity is at the moment."""

    counts: EntityCounts | None
    """Sums over the fragments that can be reached: what the others hold is missing. None where none can be."""
    is_limited: bool
    """Whether any of its fragments cannot be reached."""
    outage: BusError | None = None
    """Why no fragment can be reached, if so."""


class Namespace:
    def __init__(
        self,
        name: str,
        catalog: CatalogView,
        source: FragmentSource,
        administration: AdministrationPort,
        limits: Limits,
        clock: Clock,
        faults: FaultBoard | None = None,
    ) -> None:
        """`source`: without faults, which stand before it."""
        self.name = name
        self.catalog = catalog
        self.administration = administration
        self.limits = limits
        self.clock = clock
        self.large_messages = LargeMemory(limits.large_message_memory_bytes)
        """Where large messages of this process have their room."""
        self.faults = faults or FaultBoard(clock, max_faults=limits.max_faults)
        """What fails on purpose."""
        self.fault_desk: FaultDesk = LocalDesk(self.faults)
        """Where that is asked for."""
        self.sightings = Sightings(clock)
        """What front ends of this process see of a pair."""
        self._open = OpenEntities(name, catalog, FaultySource(source, self.faults), limits, clock)
        self._housekeeper: asyncio.Task[None] | None = None
        self._accesses_recorded_at = 0.0
        self.on_turn_end: Callable[[], None] = _no_turn
        """Called when answers and deliveries of a turn are written to their links, so that each socket is flushed
        once."""
        self.describing: AbstractAsyncContextManager[None] = asyncio.Lock()
        """Held by whoever reads a description, or policies, to write them back changed: of two at a time, one would
        undo what the other did."""
        self.when_broken: WhenBroken = carry_on
        self.fixed_policies: Sequence[AuthorizationRule] = ()
        """The root policy and those of the settings: shown, and not to be changed here."""
        self.renew_root_key: Callable[[], Awaitable[Sequence[AuthorizationRule]]] | None = None
        """Makes a new root key and returns what is fixed from then on; None where the key is a setting."""

    @property
    def created_at(self) -> float:
        return self.catalog.created_at

    async def start(self) -> None:
        """Keep house from now on."""
        self._housekeeper = essential(self._keep_house(), "housekeeping", self.when_broken)

    async def stop(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.cancel()
            await asyncio.gather(self._housekeeper, return_exceptions=True)
        await self._record_accesses()

    def turn_ended(self) -> None:
        """For whoever hands over messages and answers: a message broker, or a channel to one."""
        self.on_turn_end()

    def apply(self, events: Sequence[CatalogEvent]) -> None:
        """What the catalog says, once it is durable: in effect here when this returns."""
        self._open.apply(events)

    async def refresh(self) -> None:
        """Returns when what is known here is no older than this call. Where there is only a copy of the catalog,
        somebody may have been told of what has not come here yet."""

    # Entities in use.

    def not_found(self, path: str) -> EntityNotFound:
        return self._open.not_found(path)

    async def entity(self, path: str) -> Entity:
        """The queue, topic or subscription of this path, its fragments open. Raises EntityNotFound."""
        return await self._open.open(path)

    def opened(self, path: str) -> Entity | None:
        """The entity of this path, if it is in use already."""
        return self._open.find(path)

    def in_use(self, most: int) -> list[Entry]:
        """What clients use at the moment through this process, that used last first."""
        since = self.clock.now() - IN_USE_S
        used = [entity for entity in self._open.all() if entity.links or entity.accessed_at >= since]
        used.sort(key=lambda entity: -entity.accessed_at)
        return [entity.entry for entity in used[:most]]

    async def counts(self, path: str) -> EntityCounts:
        return await (await self.entity(path)).requests.counts()

    async def condition(self, path: str) -> EntityCondition:
        """Also of an entity of which a part is out of reach, or all of it. Raises EntityNotFound."""
        entity = await self.entity(path)
        outage = entity.traffic.failure()
        if outage is None:
            try:
                counts = await self.counts(path)
                return EntityCondition(counts, entity.is_limited() or counts.missing_fragments > 0)
            except StoreDamaged:
                raise
            except (OperationTimeout, StoreUnavailable) as error:
                log.debug("'%s' went out of reach while it was counted: %s", path, error)
                outage = error
        return EntityCondition(None, is_limited=True, outage=outage)

    def accessed_at(self, path: str) -> float:
        entity = self._open.find(path)
        recorded = self.catalog.accessed_at(path)
        return recorded if entity is None else max(recorded, entity.accessed_at)

    def receiver_count(self, path: str) -> int:
        """How many receive from it through this process, its dead letters aside."""
        entity = self._open.find(path)
        if entity is None:
            return 0
        return len([link for link in entity.links if not link.is_sender and link.lane == MAIN])

    async def purge(self, path: str, sub_queue: SubQueue) -> int:
        """Delete everything that waits in a queue or its dead letters; locked, deferred and scheduled messages stay."""
        entity = await self.entity(path)
        before_ms = self.clock.now_ms() + 1
        deleted = 0
        with entity.in_use():
            while True:
                part = await entity.requests.delete_batch(sub_queue.lane, PURGE_SLICE, before_ms)
                deleted += part
                if part == 0:
                    return deleted  # fewer than asked for may mean that time was up

    # Administration.

    async def create_queue(self, description: QueueDescription) -> QueueEntry:
        return await self.administration.create_queue(description)

    async def update_queue(self, description: QueueDescription) -> QueueEntry:
        return await self.administration.update_queue(description)

    async def delete_queue(self, name: str) -> None:
        await self.administration.delete_queue(name)

    async def create_topic(self, description: TopicDescription) -> TopicEntry:
        return await self.administration.create_topic(description)

    async def update_topic(self, description: TopicDescription) -> TopicEntry:
        return await self.administration.update_topic(description)

    async def delete_topic(self, name: str) -> None:
        await self.administration.delete_topic(name)

    async def create_subscription(
        self, description: SubscriptionDescription, default_rule: RuleDescription | None = None
    ) -> SubscriptionEntry:
        return await self.administration.create_subscription(description, default_rule)

    async def update_subscription(self, description: SubscriptionDescription) -> SubscriptionEntry:
        return await self.administration.update_subscription(description)

    async def delete_subscription(self, topic: str, name: str) -> None:
        await self.administration.delete_subscription(topic, name)

    def rules(self, topic: str, subscription: str, skip: int = 0, top: int | None = None) -> Sequence[RuleDescription]:
        """Sorted by name, one page. Raises EntityNotFound for a subscription that is not there."""
        if self.catalog.find_subscription(topic, subscription) is None:
            raise self.not_found(subscription_path(topic, subscription))
        return self.catalog.rules(topic, subscription, skip, top)

    async def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        return await self.administration.create_rule(topic, subscription, rule)

    async def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        return await self.administration.update_rule(topic, subscription, rule)

    async def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        await self.administration.delete_rule(topic, subscription, name)

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
                return await self._regenerate_root_key(key)
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
                await self.administration.remove_policy(name)

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
            await self.administration.put_policy(changed)

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

    async def _regenerate_root_key(self, key: KeyKind) -> AuthorizationRule:
        if self.renew_root_key is None or key is not KeyKind.PRIMARY:
            reason = "has one key only" if self.renew_root_key is not None else "has its key from a setting"
            raise InvalidOperation(f"The policy '{ROOT_POLICY}' {reason}: it cannot be made anew here.")
        self.fixed_policies = await self.renew_root_key()
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
        """One pass: when entities were used is recorded now and then, and what nobody uses leaves the memory."""
        now = self.clock.now()
        for entity in self._open.all():
            if entity.links:
                entity.accessed_at = now
        if now - self._accesses_recorded_at >= ACCESS_RECORD_S:
            await self._record_accesses()
        self._open.let_go_of_unused(now)

    def accesses(self) -> dict[str, float]:
        """When entities were last used here, by their key: to be recorded."""
        return {entity.entry.key: entity.accessed_at for entity in self._open.all()}

    async def _record_accesses(self) -> None:
        self._accesses_recorded_at = self.clock.now()
        times = self.accesses()
        if times:
            await self.administration.record_accesses(times)


def _no_turn() -> None:
    return
