"""Keeps account of every message, from its acceptance to its completion, and draws the balance. Knows no clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MessageKey = tuple[int, int]
"""The sender, and which of its messages."""


@dataclass(frozen=True, slots=True)
class Balance:
    accepted: int
    diverted: int
    """Of these, accepted by the backlog."""
    delivered: int
    """Of these, each counted once however often it came."""
    duplicates: int
    """Came again although their completion had been confirmed: what a pair can cause."""
    redelivered: int
    """Came again because it had not: at-least-once delivery, with or without a pair."""
    order_changes: int
    """Came after a later one of the same sender."""
    refused_sends: int
    without_service_s: float
    """The longest time in which one sender had nothing accepted."""

    @property
    def lost(self) -> int:
        return self.accepted - self.delivered


class Tally:
    def __init__(self) -> None:
        self._missing: Final[set[MessageKey]] = set()
        """Accepted, and not seen yet."""
        self._received: Final[set[MessageKey]] = set()
        self._completed: Final[set[MessageKey]] = set()
        self._accepted_at: Final[dict[int, float]] = {}
        self._latest: Final[dict[int, int]] = {}
        self.accepted_count = 0
        self.diverted = 0
        self.duplicates = 0
        self.redelivered = 0
        self.order_changes = 0
        self.refused_sends = 0
        self.without_service_s = 0.0

    # Sends.

    def started(self, sender: int, at: float) -> None:
        self._accepted_at[sender] = at

    def accepted(self, key: MessageKey, at: float, is_diverted: bool) -> None:
        sender = key[0]
        self.accepted_count += 1
        if key not in self._received:  # a message may arrive before its sender hears that it was accepted
            self._missing.add(key)
        self.diverted += is_diverted
        self.without_service_s = max(self.without_service_s, at - self._accepted_at[sender])
        self._accepted_at[sender] = at

    def refused(self) -> None:
        """The message is still its sender's, which will try again."""
        self.refused_sends += 1

    # Receives.

    def received(self, key: MessageKey) -> None:
        self._missing.discard(key)
        if key in self._completed:
            self.duplicates += 1
        elif key in self._received:
            self.redelivered += 1
        else:
            self._received.add(key)
            sender, number = key
            latest = self._latest.get(sender, -1)
            self.order_changes += number < latest
            self._latest[sender] = max(number, latest)

    def completed(self, key: MessageKey) -> None:
        self._completed.add(key)

    # The balance.

    @property
    def delivered_count(self) -> int:
        return self.accepted_count - len(self._missing)

    @property
    def is_complete(self) -> bool:
        """Whether everything accepted has been delivered."""
        return not self._missing

    def balance(self) -> Balance:
        return Balance(
            accepted=self.accepted_count,
            diverted=self.diverted,
            delivered=self.delivered_count,
            duplicates=self.duplicates,
            redelivered=self.redelivered,
            order_changes=self.order_changes,
            refused_sends=self.refused_sends,
            without_service_s=self.without_service_s,
        )
