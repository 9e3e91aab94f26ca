"""Depths, ages and counters of entities and their fragments, out of the memory of the brokers of this process.

A scrape opens nothing. What is open is looked at; what was let go of is as it was then, since nobody changes it without
opening it; what was never opened since the process began is read from its records, once (`at_rest.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from tandembus.broker.figures import FragmentFigures, Holding
from tandembus.broker.fragment_lives import BACKLOG_PART
from tandembus.broker.message_broker import MessageBroker
from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.limits import Limits
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.entries import Entry
from tandembus.node.metrics import families
from tandembus.node.metrics.at_rest import EntitiesAtRest
from tandembus.node.metrics.naming import OTHER, NamedEntities
from tandembus.node.metrics.patience import patiently
from tandembus.prometheus import Exposition
from tandembus.store.messaging_store import MAIN, Place

SLICE: Final = 200
"""Fragments looked at before others have their turn."""
MAX_AGES_READ: Final = 1_000
"""Oldest messages of one store that are looked up on disk in one scrape; those beyond have no age this time."""
STATES: Final = ("active", "deferred", "scheduled", "dead_letter", "transfer", "transfer_dead_letter")


@final
class EntitySum:
    """What is told of one entity, or of one fragment of it."""

    def __init__(self) -> None:
        self.held = Holding()
        self.counted = FragmentFigures(0)
        self.oldest_at: int | None = None

    def include(self, held: Holding, figures: FragmentFigures, oldest_at: int | None) -> None:
        self.held.include(held)
        self.counted.include(figures)
        if oldest_at is not None:
            self.oldest_at = oldest_at if self.oldest_at is None else min(self.oldest_at, oldest_at)


@final
class EntityMetrics:
    def __init__(
        self, view: CatalogView, brokers: Callable[[], Mapping[int, MessageBroker]], clock: Clock, limits: Limits
    ) -> None:
        """`brokers`: by their stores."""
        self._view = view
        self._brokers = brokers
        self._clock = clock
        self._at_rest = EntitiesAtRest(view, brokers, limits)
        self._names = NamedEntities(view, limits.max_metrics_entities, limits.max_metrics_fragments)
        self._dropped = FragmentFigures(0)
        """Of entities among the others that are gone: their sum never falls."""
        for broker in brokers().values():
            broker.figures.on_dropped = self._forget

    def _forget(self, figures: FragmentFigures) -> None:
        if figures.is_other:
            self._dropped.include(figures)

    async def tell(self, out: Exposition) -> None:
        self._names.look()
        await self._at_rest.look()
        await asyncio.gather(*[patiently(self._look_up_ages(broker)) for broker in self._brokers().values()])
        sums: dict[str, EntitySum] = {}
        backlogs: list[int | None] = []
        for store, broker in self._brokers().items():
            backlogs.append(await self._add_store(store, broker, sums, out))
        if OTHER in sums or self._dropped.arrived:
            sums.setdefault(OTHER, EntitySum()).counted.include(self._dropped)
        for number, (name, one) in enumerate(sums.items(), 1):
            self._tell_entity(name, one, out)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        known = [backlog for backlog in backlogs if backlog is not None]
        if len(known) == len(backlogs):
            out.add(families.BACKLOG, sum(known))

    async def _add_store(
        self, store: int, broker: MessageBroker, sums: dict[str, EntitySum], out: Exposition
    ) -> int | None:
        """Returns how many messages its backlog queues hold; None while that is not known of all of them."""
        every = list(broker.figures.by_key.values())
        backlog, backlog_queues = 0, 0
        for number, figures in enumerate(every, 1):
            fragment = broker.by_key.get(int(figures.key))
            held = figures.held if fragment is None else fragment.holding()
            if number % SLICE == 0:
                await asyncio.sleep(0)
            entry = self._view.find_by_fragment(int(figures.key))
            if entry is None and fragment is None:
                broker.figures.drop(int(figures.key))  # opened while it was being deleted
            if entry is None or held is None or (fragment is not None and fragment.is_void):
                continue
            name = self._names.name_of(entry)
            oldest_at = int(figures.oldest_enqueued_at) if held.active > 0 and figures.oldest_enqueued_at else None
            figures.is_other = name == OTHER
            sums.setdefault(name, EntitySum()).include(held, figures, oldest_at)
            if self._names.is_divided(entry):
                self._tell_fragment(entry, store, held, figures, oldest_at, out)
            if BACKLOG_PART in entry.key:
                backlog += int(held.active)
                backlog_queues += 1
        self._tell_fragments(store, broker, out)
        return backlog if backlog_queues >= self._names.backlog_count_in(store) else None

    async def _look_up_ages(self, broker: MessageBroker) -> None:
        """Those that are in memory or known from before cost nothing; the rest is read together, without the bodies."""
        wanted: list[FragmentFigures] = []
        for number, figures in enumerate(list(broker.figures.by_key.values()), 1):
            fragment = broker.by_key.get(int(figures.key))
            if fragment is not None:
                fragment.note_oldest()
            if figures.oldest_number and not figures.oldest_enqueued_at:
                wanted.append(figures)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        for begin in range(0, min(len(wanted), MAX_AGES_READ), SLICE):
            await self._read_ages(broker, wanted[begin : begin + SLICE])

    async def _read_ages(self, broker: MessageBroker, wanted: Sequence[FragmentFigures]) -> None:
        places = [Place(int(one.body_fragment), MAIN, int(one.oldest_number)) for one in wanted]
        try:
            times = await broker.store.enqueued_times(places)
        except BusError:
            return  # a store that is out of reach is told as such
        for figures, place, at_ms in zip(wanted, places, times, strict=True):
            if figures.oldest_number == place.number:
                figures.oldest_enqueued_at = at_ms

    # Telling.

    def _age(self, oldest_at: int) -> float:
        return max(0.0, round(self._clock.now() - oldest_at / 1000, 3))

    def _tell_entity(self, name: str, one: EntitySum, out: Exposition) -> None:
        held, counted = one.held, one.counted
        for state in STATES:
            out.add(families.MESSAGES, getattr(held, state), name, state)
        out.add(families.SIZE, int(held.size_bytes), name)
        out.add(families.LOCKED, int(held.locked), name)
        if one.oldest_at is not None:
            out.add(families.OLDEST, self._age(one.oldest_at), name)
        out.add(families.ARRIVED, int(counted.arrived), name)
        out.add(families.GONE, int(counted.gone), name)
        out.add(families.DEAD_LETTERED, int(counted.dead_lettered), name)
        out.add(families.EXPIRED, int(counted.expired), name)
        out.add(families.REDELIVERED, int(counted.redelivered), name)

    def _tell_fragment(
        self, entry: Entry, store: int, held: Holding, counted: FragmentFigures, oldest_at: int | None, out: Exposition
    ) -> None:
        place = (entry.description.path, str(int(counted.key) - entry.fragment_key), str(store))
        out.add(families.FRAGMENT_MESSAGES, int(held.active), *place)
        out.add(families.FRAGMENT_DEAD, int(held.dead_letter), *place)
        out.add(families.FRAGMENT_LOCKED, int(held.locked), *place)
        if oldest_at is not None:
            out.add(families.FRAGMENT_OLDEST, self._age(oldest_at), *place)
        out.add(families.FRAGMENT_ARRIVED, int(counted.arrived), *place)
        out.add(families.FRAGMENT_GONE, int(counted.gone), *place)
        out.add(families.FRAGMENT_REDELIVERED, int(counted.redelivered), *place)

    def _tell_fragments(self, store: int, broker: MessageBroker, out: Exposition) -> None:
        known, open_count = len(broker.figures.by_key), len(broker.by_key)
        counts = {"open": open_count, "closed": known - open_count, "unknown": self._names.count_in(store) - known}
        for state, count in counts.items():
            out.add(families.FRAGMENTS, max(0, count), str(store), state)


def tell_catalog(view: CatalogView, out: Exposition) -> None:
    """Of the process that has the catalog."""
    topics = view.topics()
    subscriptions = sum(view.subscription_count(topic.key) for topic in topics)
    for kind, count in (("queue", view.queue_count()), ("topic", len(topics)), ("subscription", subscriptions)):
        out.add(families.ENTITIES, count, kind)
