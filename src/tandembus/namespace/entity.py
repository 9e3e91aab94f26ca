"""One entity as clients see it: its description, its fragment, and the links that are attached to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tandembus.broker.fragment import Fragment
from tandembus.broker.settings import FragmentSettings
from tandembus.descriptions import QueueDescription
from tandembus.errors import BusError, EntityDisabled
from tandembus.limits import Limits
from tandembus.namespace.catalog import QueueEntry


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """Sums over the entity's fragments; exact, since they change in the same commit as what they count."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0


class AttachedLink(Protocol):
    """What a front end attaches to an entity, so that the entity's end is the link's end."""

    is_sender: bool

    def cut(self, error: BusError) -> None: ...

    def entity_changed(self) -> None: ...


class Entity:
    def __init__(self, entry: QueueEntry, fragment: Fragment, now: float) -> None:
        self.entry = entry
        self.fragment = fragment
        self.accessed_at = now
        self._links: set[AttachedLink] = set()
        self._use_count = 0

    @property
    def name(self) -> str:
        return self.entry.description.name

    @property
    def links(self) -> frozenset[AttachedLink]:
        return frozenset(self._links)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While something that waits is being done with it, its fragment must not leave the memory."""
        self._use_count += 1
        try:
            yield
        finally:
            self._use_count -= 1

    def check_can_send(self) -> None:
        if not self.entry.description.status.can_send:
            raise EntityDisabled(f"The messaging entity '{self.name}' is disabled for sending.")

    def check_can_receive(self) -> None:
        if not self.entry.description.status.can_receive:
            raise EntityDisabled(f"The messaging entity '{self.name}' is disabled for receiving.")

    def attach(self, link: AttachedLink, now: float) -> None:
        self._links.add(link)
        self.accessed_at = now

    def detach(self, link: AttachedLink, now: float) -> None:
        self._links.discard(link)
        self.accessed_at = now

    def changed(self, entry: QueueEntry, limits: Limits) -> None:
        """A new description for the same life: links that it no longer allows are cut."""
        self.entry = entry
        self.fragment.settings = fragment_settings(entry, limits)
        status = entry.description.status
        for link in self.links:
            allowed = status.can_send if link.is_sender else status.can_receive
            if not allowed:
                link.cut(EntityDisabled(f"The messaging entity '{self.name}' was disabled."))
            else:
                link.entity_changed()

    def ended(self, error: BusError) -> None:
        for link in self.links:
            link.cut(error)

    def counts(self) -> EntityCounts:
        main, dead = self.fragment.main, self.fragment.dead_letter
        return EntityCounts(
            active=int(main.live_count - main.scheduled_count),
            dead_letter=int(dead.live_count),
            scheduled=int(main.scheduled_count),
            size_bytes=int(main.live_bytes + dead.live_bytes),
        )

    def is_unused(self) -> bool:
        """Nobody is attached, nothing is locked or staged: its memory can go until somebody comes."""
        return (
            not self._links
            and self._use_count == 0
            and len(self.fragment.locks) == 0
            and not self.fragment.has_staged()
        )


def _duplicate_window_ms(description: QueueDescription) -> int:
    if not description.requires_duplicate_detection:
        return 0
    return int(description.duplicate_detection_history_time_window_s * 1000)


def fragment_settings(entry: QueueEntry, limits: Limits) -> FragmentSettings:
    description = entry.description
    ttl = description.default_message_time_to_live_s
    return FragmentSettings(
        lock_duration_s=float(description.lock_duration_s),
        max_delivery_count=description.max_delivery_count,
        default_ttl_ms=int(ttl * 1000) if ttl is not None else 0,
        dead_letter_expired=description.dead_lettering_on_message_expiration,
        max_size_bytes=description.max_size_in_megabytes * 1024 * 1024,
        max_locks=limits.max_locks,
        commit_operations=limits.commit_operations,
        commit_bytes=limits.commit_bytes,
        window_messages=limits.window_messages,
        window_bytes=limits.window_bytes,
        max_properties_bytes=limits.max_properties_size_bytes,
        duplicate_window_ms=_duplicate_window_ms(description),
    )
