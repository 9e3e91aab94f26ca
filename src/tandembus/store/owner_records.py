"""Records of reservations: who the owners of a lane are, and what they have reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

OWNER_SLOTS: Final = 1024
"""Owners of reservations in one lane, at most."""


@final
class OwnerRecord:
    """Who has reserved messages of a lane, under which epoch, and what its last request was answered with: asked again,
    it gets the same answer."""

    __slots__ = ("answer", "epoch", "fragment", "lane", "name", "request", "slot")

    def __init__(
        self,
        fragment: int,
        lane: int,
        slot: int,
        name: str,
        epoch: int,
        request: int,
        answer: Sequence[tuple[int, int]],
    ) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.slot: Final = slot
        """Below `OWNER_SLOTS`: stands for the name in the records of what it has reserved."""
        self.name: Final = name
        self.epoch: Final = epoch
        self.request: Final = request
        """-1: none yet under this epoch."""
        self.answer: Final = answer
        """First and last number of each range."""


@final
class ReservedRecord:
    """Which numbers of a block the owner of a slot has reserved: number n at bit n % BLOCK_SIZE."""

    __slots__ = ("bits", "block", "fragment", "lane", "slot")

    def __init__(self, fragment: int, lane: int, slot: int, block: int, bits: bytes) -> None:
        self.fragment: Final = fragment
        self.lane: Final = lane
        self.slot: Final = slot
        self.block: Final = block
        self.bits: Final = bits
        """Empty: none any more, the record goes."""
