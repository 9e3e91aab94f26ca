"""What of a description this version can do, and what of it can change later."""

from __future__ import annotations

from collections.abc import Mapping

from tandembus.descriptions.entities import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
)
from tandembus.errors import InvalidArgument, InvalidOperation


def check_supported(description: EntityDescription) -> None:
    """What clients may ask for and this version does not do yet: said here and nowhere else."""
    for name, is_asked_for in _not_there(description).items():
        if is_asked_for:
            raise InvalidOperation(f"{name} is not available in this version.")


def _not_there(description: EntityDescription) -> Mapping[str, bool]:
    if isinstance(description, SubscriptionDescription):
        return {}
    return {"EnablePartitioning": description.enable_partitioning}


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
