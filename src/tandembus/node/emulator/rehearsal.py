"""The catalog as it will be when everything has been brought about: what only shows then is refused before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tandembus.descriptions import (
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import BusError
from tandembus.limits import Limits
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.directory import Directory
from tandembus.namespace.entries import Facts, QueueEntry, SubscriptionEntry, TopicEntry
from tandembus.namespace.forwarding import check_forwarding
from tandembus.namespace.quotas import (
    check_entity_count,
    check_partitioned_count,
    check_rule_counts,
    check_subscription_count,
)
from tandembus.namespace.rule_table import RuleCounts
from tandembus.node.emulator.document import EmulatorConfig, WantedQueue, WantedSubscription, WantedTopic
from tandembus.node.emulator.places import Place


class Rehearsal:
    def __init__(self, catalog: CatalogView, limits: Limits) -> None:
        self._now = catalog
        self._limits = limits
        self._directory = Directory(Facts("", 0.0), [])
        self._later = CatalogView(self._directory)
        self._last_key = 0
        for description, rules in _everything(catalog):
            self.put(description)
            if isinstance(description, SubscriptionDescription):
                self.put_rules(description, rules)

    def put(self, description: EntityDescription) -> None:
        """An entity as it will be."""
        found = self._later.find(description.path)
        if found is None:
            self._last_key += 1
        facts = (1, self._last_key if found is None else found.fragment_key, 0.0, 0.0)
        if isinstance(description, QueueDescription):
            self._directory.put(QueueEntry(description, *facts))
        elif isinstance(description, TopicDescription):
            self._directory.put(TopicEntry(description, *facts))
        else:
            self._directory.put(SubscriptionEntry(description, *facts))

    def put_rules(self, subscription: SubscriptionDescription, rules: Sequence[RuleDescription]) -> None:
        entry = self._later.get_subscription(subscription.topic_name, subscription.name)
        for rule in rules:
            self._directory.rules(entry.fragment_key).put(rule)

    def check(self, config: EmulatorConfig) -> None:
        """Raises ConfigurationError with the place of what there is too much of, or what leads nowhere."""
        before = self._now.queue_count() + self._now.topic_count()
        after = self._later.queue_count() + self._later.topic_count()
        if after > before:
            _demand(config.place, lambda: check_entity_count(after - 1, self._limits))
        partitioned = _partitioned_count(self._later)
        if partitioned > _partitioned_count(self._now):
            _demand(config.place, lambda: check_partitioned_count(partitioned - 1, self._limits))
        for queue in config.queues:
            self._check_forwards(queue)
        for topic in config.topics:
            self._check_topic(topic)
            for subscription in topic.subscriptions:
                self._check_forwards(subscription)

    def _check_topic(self, topic: WantedTopic) -> None:
        name = topic.description.name
        before, after = self._now.subscription_count(name), self._later.subscription_count(name)
        if after > before:
            _demand(topic.place, lambda: check_subscription_count(name, after - 1, self._limits))
        rules = self._now.rule_counts(name)
        added = self._later.rule_counts(name) - rules
        more = RuleCounts(max(added.sql, 0), max(added.correlation, 0))
        _demand(topic.place, lambda: check_rule_counts(name, rules, more, self._limits))

    def _check_forwards(self, wanted: WantedQueue | WantedSubscription) -> None:
        now = self._now.find(wanted.description.path)
        later = self._later.find(wanted.description.path)
        assert later is not None
        description = later.description
        assert not isinstance(description, TopicDescription)
        old = now.description if now is not None and isinstance(now.description, type(description)) else None
        try:
            check_forwarding(self._later, description, old, self._limits)
        except BusError as error:
            named = wanted.place.blamed(str(error))
            place = wanted.place.blamed("ForwardTo") if named is wanted.place else named
            raise place.fault(str(error)) from error


def _partitioned_count(catalog: CatalogView) -> int:
    queues = sum(queue.description.enable_partitioning for queue in catalog.queues())
    return queues + sum(topic.description.enable_partitioning for topic in catalog.topics())


def _everything(catalog: CatalogView) -> Iterator[tuple[EntityDescription, Sequence[RuleDescription]]]:
    for queue in catalog.queues():
        yield queue.description, ()
    for topic in catalog.topics():
        yield topic.description, ()
        for subscription in catalog.subscriptions(topic.key):
            yield subscription.description, catalog.rules(topic.key, subscription.name_key)


def _demand(place: Place, check: Callable[[], None]) -> None:
    try:
        check()
    except BusError as error:
        raise place.fault(str(error)) from error
