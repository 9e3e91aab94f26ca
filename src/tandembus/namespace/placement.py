"""Which store each fragment of a new entity goes to. Pure functions.

What is placed stays where it is: stores that come later get their share of what is created from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import StoreUnavailable
from tandembus.namespace.entries import Entry, SubscriptionEntry


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a namespace, and which of them can be used now."""

    all: Sequence[int] = (0,)
    reachable: Sequence[int] = (0,)


@final
class Placed:
    """How many queues and topics there are, and where. Subscriptions are where their topics are."""

    __slots__ = ("entity_count", "fragments", "partitioned_count", "plain")

    def __init__(self) -> None:
        self.entity_count = 0
        self.partitioned_count = 0
        self.plain: Counter[int] = Counter()
        """By store, as is the next."""
        self.fragments: Counter[int] = Counter()
        """Of partitioned ones."""

    def add(self, entry: Entry, count: int = 1) -> None:
        """Or, with -1, take it away."""
        if isinstance(entry, SubscriptionEntry):
            return
        self.entity_count += count
        self.partitioned_count += count * entry.is_partitioned
        counts = self.fragments if entry.is_partitioned else self.plain
        for store in entry.stores:
            counts[store] += count


def place(is_partitioned: bool, stores: Stores, placed: Placed) -> tuple[int, ...]:
    """As evenly as possible, given what is there. A plain entity goes to a store that can be used now; a partitioned
    one is spread over all of them. Raises StoreUnavailable."""
    plain, fragments = placed.plain, placed.fragments
    if is_partitioned:
        return _spread(stores.all, fragments, plain)
    if not stores.reachable:
        raise StoreUnavailable("No messaging store can be reached.")
    return (min(stores.reachable, key=lambda store: (plain[store], fragments[store], store)),)


def _spread(stores: Sequence[int], fragments: Counter[int], plain: Counter[int]) -> tuple[int, ...]:
    """In a row, beginning where those that get one more than the others have the fewest so far."""
    count = len(stores)
    extra = FRAGMENT_COUNT % count if count <= FRAGMENT_COUNT else FRAGMENT_COUNT

    def load(offset: int) -> tuple[int, int, int]:
        chosen = [stores[(offset + step) % count] for step in range(extra)]
        return sum(fragments[one] for one in chosen), sum(plain[one] for one in chosen), offset

    offset = min(range(count), key=load)
    return tuple(stores[(offset + index) % count] for index in range(FRAGMENT_COUNT))


def turns_by_store(stores: Sequence[int]) -> list[int]:
    """The order in which the fragments in these stores take turns: those of one store behind each other, so that what
    a store answers together is a run of what one sender has sent, and can be answered as one."""
    return sorted(range(len(stores)), key=lambda index: stores[index])
