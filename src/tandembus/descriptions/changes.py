"""What of a description can change later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from tandembus.descriptions.entities import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import InvalidArgument

FRAGMENT_COUNT: Final = 16
"""Of a partitioned entity."""

_Sized = TypeVar("_Sized", QueueDescription, TopicDescription)


def check_update(old: EntityDescription, new: EntityDescription) -> None:
    """Some things are decided when an entity is made; everything stored since rests on them."""
    before_of, after_of = _fixed(old), _fixed(new)
    for name, before in before_of.items():
        after = after_of.get(name, before)
        if before != after:
            raise InvalidArgument(
                f"{name} of '{old.path}' cannot be changed from {_boolean(before)} to {_boolean(after)}: "
                "it is fixed when the entity is created."
            )


def _fixed(description: EntityDescription) -> Mapping[str, bool]:
    if isinstance(description, SubscriptionDescription):
        return {"RequiresSession": description.requires_session}
    fixed = {
        "RequiresDuplicateDetection": description.requires_duplicate_detection,
        "EnablePartitioning": description.enable_partitioning,
    }
    if isinstance(description, QueueDescription):
        fixed["RequiresSession"] = description.requires_session
    return fixed


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def with_size_as_created(old: _Sized, new: _Sized) -> _Sized:
    """A partitioned entity shows the size of all its fragments together; sent back, it means no change."""
    if old.enable_partitioning and new.max_size_in_megabytes == shown_size_in_megabytes(old):
        return replace(new, max_size_in_megabytes=old.max_size_in_megabytes)
    return new


def shown_size_in_megabytes(description: QueueDescription | TopicDescription) -> int:
    """How much the entity can hold: each of its fragments as much as was asked for."""
    count = FRAGMENT_COUNT if description.enable_partitioning else 1
    return description.max_size_in_megabytes * count
