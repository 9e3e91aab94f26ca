"""How the stores of this process do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tandembus.broker.message_broker import MessageBroker
from tandembus.node.metrics import families
from tandembus.prometheus import Exposition

STATES: Final = ("available", "short_of_room", "full", "hanging", "unavailable")


def state_of(broker: MessageBroker) -> str:
    if broker.failure is not None or not broker.is_open:
        return "unavailable"
    if broker.is_hanging:
        return "hanging"
    if broker.room.is_full:
        return "full"
    return "short_of_room" if broker.room.is_short else "available"


def tell_stores(brokers: Callable[[], Mapping[int, MessageBroker]], out: Exposition) -> None:
    for index, broker in brokers().items():
        _tell_store(str(index), broker, out)


def _tell_store(store: str, broker: MessageBroker, out: Exposition) -> None:
    current = state_of(broker)
    for state in STATES:
        out.add(families.STORE_STATE, int(state == current), store, state)
    figures, room = broker.figures, broker.room.last
    out.add_histogram(families.COMMIT, figures.commit_s, store)
    out.add_histogram(families.SYNC, figures.sync_s, store)
    out.add_histogram(families.BATCH, figures.operations, store)
    out.add(families.WRITTEN, figures.written_bytes, store)
    out.add(families.DAMAGED, broker.damage_count, store)
    if room is not None:  # looked at every second, so a scrape need not ask the disk
        out.add(families.USED, room.used_bytes, store)
        out.add(families.FREE, room.free_bytes, store)
        out.add(families.RESERVE, room.reserve_bytes, store)
