"""How much a namespace may hold. How much an entity may hold is its fragment's to check, where the bytes
are."""

from __future__ import annotations

from tandembus.errors import QuotaExceeded
from tandembus.limits import Limits


def check_entity_count(entity_count: int, limits: Limits) -> None:
    """Whether one more entity may be created."""
    if entity_count >= limits.max_entities:
        raise QuotaExceeded(
            f"The namespace has {entity_count} entities; at most {limits.max_entities} are allowed. "
            "Delete some, or raise the limit max_entities."
        )
