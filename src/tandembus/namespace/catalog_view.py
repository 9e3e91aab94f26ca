"""What exists, looked up in memory and without waiting. Changing it is `catalog.py`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tandembus.descriptions import AuthorizationRule, EntityKind, RuleDescription, subscription_path
from tandembus.errors import EntityNotFound, StoreDamaged, StoreUnavailable
from tandembus.namespace.applying import apply
from tandembus.namespace.catalog_change import CatalogChange, CatalogEvent
from tandembus.namespace.directory import Directory
from tandembus.namespace.entries import Entry, Facts, QueueEntry, SubscriptionEntry, Tombstone, TopicEntry
from tandembus.namespace.rule_table import RuleCounts
from tandembus.security.scopes import fold
from tandembus.store.embedded.catalog_store import DamagedRecord


class CatalogView:
    """What exists, looked up in memory: what is durable, never what is only meant."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @classmethod
    def empty(cls) -> CatalogView:
        """For a copy that has taken nothing yet."""
        return cls(Directory(Facts("", 0.0), []))

    def apply(self, change: CatalogChange) -> list[CatalogEvent]:
        """For a copy: it knows what the catalog knows after this change, and what that means is returned.

        Raises StoreUnavailable for a change that does not follow on the last one: only a whole one helps then."""
        if not change.is_whole and change.version != self.version + 1:
            raise StoreUnavailable(
                f"the copy of the catalog is at version {self.version} and cannot take version {change.version}"
            )
        return apply(self._directory, change)

    async def begin_with(self, whole: CatalogChange) -> list[CatalogEvent]:
        """The same for a copy that is empty. However much there is, the loop goes on meanwhile, and nobody finds half
        of it here."""
        directory = Directory(Facts("", 0.0), [])
        events = await asyncio.to_thread(apply, directory, whole)
        self._directory = directory
        return events

    @property
    def namespace_id(self) -> str:
        return self._directory.facts.namespace_id

    @property
    def created_at(self) -> float:
        """When the namespace came into being: the data folder's first start."""
        return self._directory.facts.created_at

    @property
    def version(self) -> int:
        """One more with every change of an entity, rule or policy."""
        return self._directory.facts.version

    @property
    def damaged(self) -> Sequence[DamagedRecord]:
        """Records that could not be believed at open; their entities are not served, their fragments are
        kept."""
        return self._directory.damaged

    def find(self, path: str) -> Entry | None:
        """The active entity of this path, of whatever kind and in whatever letters."""
        return self._directory.find(fold(path))

    def find_by_fragment(self, fragment_key: int) -> Entry | None:
        """The active entity whose fragment has this key."""
        return self._directory.by_fragment.get(fragment_key)

    def find_queue(self, name: str) -> QueueEntry | None:
        return self._directory.queues.get(fold(name))

    def find_topic(self, name: str) -> TopicEntry | None:
        return self._directory.topics.get(fold(name))

    def find_subscription(self, topic: str, name: str) -> SubscriptionEntry | None:
        return self._directory.subscriptions(fold(topic)).get(fold(name))

    def find_rule(self, topic: str, subscription: str, name: str) -> RuleDescription | None:
        entry = self.find_subscription(topic, subscription)
        return None if entry is None else self._directory.rules(entry.fragment_key).by_name.get(fold(name))

    def get_queue(self, name: str) -> QueueEntry:
        """The queue, or EntityNotFound; likewise for the others."""
        entry = self.find_queue(name)
        if entry is None:
            raise _not_found(name)
        return entry

    def get_topic(self, name: str) -> TopicEntry:
        entry = self.find_topic(name)
        if entry is None:
            raise _not_found(name)
        return entry

    def get_subscription(self, topic: str, name: str) -> SubscriptionEntry:
        entry = self.find_subscription(topic, name)
        if entry is None:
            raise _not_found(subscription_path(topic, name))
        return entry

    def get_rule(self, topic: str, subscription: str, name: str) -> RuleDescription:
        rule = self.find_rule(topic, subscription, name)
        if rule is None:
            raise _not_found(f"{subscription_path(topic, subscription)}/Rules/{name}")
        return rule

    def queues(self, skip: int = 0, top: int | None = None) -> list[QueueEntry]:
        """Active queues sorted by name: one page, without touching the others. Likewise for the others."""
        return self._directory.queues.page(skip, top)

    def topics(self, skip: int = 0, top: int | None = None) -> list[TopicEntry]:
        return self._directory.topics.page(skip, top)

    def subscriptions(self, topic: str, skip: int = 0, top: int | None = None) -> list[SubscriptionEntry]:
        return self._directory.subscriptions(fold(topic)).page(skip, top)

    def rules(self, topic: str, subscription: str, skip: int = 0, top: int | None = None) -> list[RuleDescription]:
        """Raises EntityNotFound for a subscription that is not there: none is another answer than no rules."""
        entry = self.get_subscription(topic, subscription)
        return self._directory.rules(entry.fragment_key).by_name.page(skip, top)

    def keys(self, kind: EntityKind, part: str = "") -> list[str]:
        """Of all queues, topics or subscriptions whose path has this part, in whatever letters: in order, to choose a
        page from without touching the entities themselves."""
        folded = fold(part)
        if kind is EntityKind.QUEUE:
            return self._directory.queues.keys(folded)
        if kind is EntityKind.TOPIC:
            return self._directory.topics.keys(folded)
        keys = [key for topic in self._directory.topics.keys() for key in self.subscription_keys(topic)]  # noqa: SIM118
        return sorted([key for key in keys if folded in key])

    def subscription_keys(self, topic: str, part: str = "") -> list[str]:
        """Likewise of one topic, the part being one of the subscription's own name."""
        names = self._directory.subscriptions(fold(topic)).keys(fold(part))
        return [fold(subscription_path(topic, name)) for name in names]

    def entries(self) -> Iterator[Entry]:
        """All there are, a topic before its subscriptions."""
        return self._directory.entries()

    def queue_count(self) -> int:
        return len(self._directory.queues)

    def topic_count(self) -> int:
        return len(self._directory.topics)

    def subscription_count(self, topic: str) -> int:
        return len(self._directory.subscriptions(fold(topic)))

    def total_subscription_count(self) -> int:
        """Of all topics together."""
        return self._directory.subscription_count()

    def rule_counts(self, topic: str) -> RuleCounts:
        """Of all subscriptions of the topic together."""
        return self._directory.rule_counts(fold(topic))

    def entries_with_idle_time(self) -> list[Entry]:
        """Those that are to be deleted when nobody uses them."""
        return list(self._directory.with_idle_time.values())

    def check_complete(self, topic: str) -> None:
        """Raises StoreDamaged for a topic of which a subscription or rule cannot be read: a message sent to it now
        would be missing there for good."""
        if not self.is_complete(topic):
            raise StoreDamaged(
                f"The catalog's record of a subscription or rule of '{topic}' is damaged; its messages are kept. "
                "Restore the catalog, or delete the topic."
            )

    def is_complete(self, topic: str) -> bool:
        return fold(topic) not in self._directory.incomplete_topics

    def tombstones(self) -> list[Tombstone]:
        """Fragments to drop, or to go on dropping after a restart."""
        return list(self._directory.tombstones.values())

    def accessed_at(self, path: str) -> float:
        """When the entity was last known to be used, also across restarts; a change of it is use."""
        entry = self.find(path)
        return max(self._directory.accessed_at.get(fold(path), 0.0), entry.updated_at if entry is not None else 0.0)

    def policies(self) -> list[AuthorizationRule]:
        return self._directory.policies.page()

    def find_policy(self, name: str) -> AuthorizationRule | None:
        return self._directory.policies.get(name)


def _not_found(path: str) -> EntityNotFound:
    return EntityNotFound(f"The messaging entity '{path}' could not be found.")
