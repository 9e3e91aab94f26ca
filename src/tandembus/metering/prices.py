"""What operations, connections and hours cost: a price list, and the arithmetic that every bill shares.

Operations are whole numbers and money is decimal throughout; nothing is rounded here, so that parts of a bill add up to
the whole. Where a list comes from is `price_files`' business, how many operations something takes is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from tandembus.metering.slot import FORWARD

MILLION: Final = 1_000_000
GB: Final = 1_000_000_000
"""Bandwidth is charged by the decimal gigabyte; sizes of messages are counted in binary units."""
ZERO: Final = Decimal(0)
Batching = Literal["per_message", "per_batch"]


@dataclass(frozen=True, slots=True)
class Tier:
    """The price of every unit up to and including `up_to` units; None: of all that follow."""

    up_to: Decimal | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class Counting:
    """How messages become operations, where that is a matter of price and not of the protocol."""

    unit_bytes: int = 65_536
    batch: Batching = "per_message"
    forward_hop: int = 1


@dataclass(frozen=True, slots=True)
class Standard:
    base_per_hour: Decimal
    base_per_month: Decimal | None
    """At most so much for one month: hourly prices are told rounded, and would add up to more."""
    operations: tuple[Tier, ...]
    """By millions in a month."""
    connections: tuple[Tier, ...]
    """By connections of a month; empty: not known."""


@dataclass(frozen=True, slots=True)
class Basic:
    per_million: Decimal
    connections: int


@dataclass(frozen=True, slots=True)
class Premium:
    unit_per_hour: Decimal
    units: tuple[int, ...]
    replicated_per_gb: tuple[Decimal, ...]
    """By zone, from the first."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """What a service charged on one day, in one currency."""

    name: str
    as_of: date
    currency: str
    seen: str
    counting: Counting
    basic: Basic
    standard: Standard
    premium: Premium | None
    egress_per_gb: Decimal
    month_hours: int
    connection_hours: int

    # Operations.

    def operations_cost(self, operations: int) -> Decimal:
        """Of all operations of one month: the tiers are applied once, at its end."""
        return tiered(self.standard.operations, Decimal(operations) / MILLION)

    def further_operations_cost(self, before: int, operations: int) -> Decimal:
        """What these add to the bill of a month that has so many others."""
        return self.operations_cost(before + operations) - self.operations_cost(before)

    @property
    def included_operations(self) -> int:
        """How many a month has before any is charged."""
        first = self.standard.operations[0]
        return int(first.up_to * MILLION) if first.up_to is not None and first.price == ZERO else 0

    def charged(self, operation: str, operations: int) -> int:
        """What the meter counted under this name, as this list counts it."""
        return operations * self.counting.forward_hop if operation == FORWARD else operations

    # Hours.

    def base_cost(self, hours: int) -> Decimal:
        """Of so many hours with a Standard namespace, or with several of one subscription."""
        cost = self.standard.base_per_hour * hours
        if self.standard.base_per_month is None:
            return cost
        months = -(-hours // self.connection_hours)
        return min(cost, self.standard.base_per_month * months)

    def premium_cost(self, units: int, hours: int) -> Decimal | None:
        """None where no price is known."""
        return None if self.premium is None else self.premium.unit_per_hour * units * hours

    # Connections.

    def connection_months(self, hourly_peaks: Iterable[int]) -> Decimal:
        """What the peaks of a month's hours come to, before what is included is taken off."""
        return Decimal(sum(hourly_peaks)) / self.connection_hours

    def connections_cost(self, connections: Decimal) -> Decimal | None:
        """Of one month, by what `connection_months` says; None where no price is known."""
        return tiered(self.standard.connections, connections) if self.standard.connections else None

    # Bandwidth.

    def egress_cost(self, size_bytes: int) -> Decimal | None:
        """None where it is not priced."""
        return None if self.egress_per_gb == ZERO else self.egress_per_gb * size_bytes / GB


def tiered(tiers: Sequence[Tier], quantity: Decimal) -> Decimal:
    """Each unit at the price of the tier that it falls into."""
    cost = floor = ZERO
    for tier in tiers:
        ceiling = quantity if tier.up_to is None else min(tier.up_to, quantity)
        cost += (ceiling - floor) * tier.price
        floor = ceiling
    return cost
