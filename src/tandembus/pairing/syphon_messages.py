"""A message in the syphon's hands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple


class Delivery:
    """A message of a backlog queue, locked for us. `origin` is what the port settles it by."""

    __slots__ = ("origin", "payload")

    def __init__(self, payload: bytes, origin: Any) -> None:
        self.payload: Final = payload
        self.origin: Final = origin


class Held(NamedTuple):
    """A delivery with what it says."""

    delivery: Delivery
    path: str
    payload: bytes
    sequence_number: int
    was_here_before: bool = False
    """It was in somebody's hands already, who may have deferred others behind it."""
    is_home: bool = False
    """The primary has it already, so it is not sent again."""
    delivery_count: int = 0


class LocksLost(Exception):
    """Some of the messages are not ours any more, and come again to whoever receives. With all others of the call was
    done what was asked."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        super().__init__(f"the locks of {len(deliveries)} messages were lost")
        self.deliveries: Final = tuple(deliveries)
