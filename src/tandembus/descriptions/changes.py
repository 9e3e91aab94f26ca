"""Checks of updates, and the size that a partitioned entity shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tandembus.descriptions.entities import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.descriptions.settings import settings_of
from tandembus.errors import InvalidArgument

FRAGMENT_COUNT: Final = 16
"""Number of fragments of a partitioned entity."""


def check_update(old: EntityDescription, new: EntityDescription) -> None:
    """Raises InvalidArgument where a setting differs that is chosen when the entity is created: everything stored
    since rests on it."""
    for setting in settings_of(type(old)):
        before = getattr(old, setting.name)
        after = getattr(new, setting.name, before)
        if setting.is_fixed and before != after:
            raise InvalidArgument(
                f"{setting.element} of '{old.path}' cannot be changed from {str(before).lower()} to "
                f"{str(after).lower()}: it is fixed when the entity is created."
            )


def with_size_as_created(old: EntityDescription, new: EntityDescription) -> EntityDescription:
    """Takes back the shown size of a partitioned entity, that of all its fragments, as no change."""
    if isinstance(old, SubscriptionDescription) or isinstance(new, SubscriptionDescription):
        return new
    if old.enable_partitioning and new.max_size_in_megabytes == shown_size_in_megabytes(old):
        return replace(new, max_size_in_megabytes=old.max_size_in_megabytes)
    return new


def shown_size_in_megabytes(description: QueueDescription | TopicDescription) -> int:
    """Returns how much the entity can hold: the requested size for each of its fragments."""
    count = FRAGMENT_COUNT if description.enable_partitioning else 1
    return description.max_size_in_megabytes * count
