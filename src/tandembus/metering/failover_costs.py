"""What a failover took, out of what was counted: the same terms in which `paired_costs` works it out beforehand.

Three of the four charges of a message stand in the records under reasons of their own. The fourth, its receive from the
primary, is a receive like any other there: it is derived from what was brought home.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from tandembus.metering.bills import Bill, Stretch, Used
from tandembus.metering.paired_costs import CHARGES, Diverted
from tandembus.metering.prices import ZERO, PriceList
from tandembus.metering.slot import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    FAILOVER,
    LONGPOLL,
    PEEK,
    PING,
    RECEIVE,
    RENEW_LOCK,
    SEND,
    SYPHON,
    Count,
)

SETTLEMENTS: Final = (COMPLETE, ABANDON, DEFER, DEAD_LETTER)
SUBSCRIPTIONS: Final = "/subscriptions/"


@dataclass(frozen=True, slots=True)
class FailoverUse:
    """Counted, but for what the primary's receivers did with messages that came home: that is derived."""

    to_backlog: Count
    from_backlog: Count
    to_primary: Count
    from_primary: Count
    backlog_settlements: int
    primary_settlements: int
    pings: int
    """Accepted; a refused ping is not metered."""
    long_polls: int
    renewals: int
    peeks: int
    rest: int
    """Whatever else was done for the syphon."""
    left_secondary_bytes: int
    """Out of the secondary's region, however it was read there: received, looked at, or taken up again."""

    @property
    def diverted(self) -> Diverted:
        """As the calculator tells it."""
        return Diverted(
            sends_to_backlog=self.to_backlog.operations,
            receives_from_backlog=self.from_backlog.operations,
            sends_to_primary=self.to_primary.operations,
            receives_from_primary=self.from_primary.operations,
            backlog_settlements=self.backlog_settlements,
            primary_settlements=self.primary_settlements,
            size_bytes=self.left_secondary_bytes,
        )

    @property
    def waiting(self) -> int:
        """Messages that were sent to the backlog and are not home, as far as this was counted."""
        return max(self.to_backlog.messages - self.to_primary.messages, 0)

    @property
    def missing(self) -> str | None:
        """What is to be said where more came home than is known to have been diverted: its sends to the backlog, and
        what the syphon did there, are counted by a meter whose records are not among these."""
        home, diverted = self.to_primary.messages, self.to_backlog.messages
        if home <= diverted:
            return None
        return (
            f"{home:,} messages came home, and of those sent to the backlog only {diverted:,} are in these records: "
            "the meter of the namespace with the backlog, the secondary, is missing, or a part of it. Give its data "
            "folder, too: the failover cost more than is told here"
        )

    @property
    def further_operations(self) -> int:
        """What the same messages would not have taken without the failover."""
        beside = self.pings + self.long_polls + self.renewals + self.peeks + self.rest
        return self.diverted.further_operations + beside

    @property
    def is_looked_at(self) -> bool:
        """As the syphon on Spark reads the backlog: nothing is received from it."""
        return self.from_backlog.operations == 0 and self.peeks > 0 and self.to_primary.operations > 0

    @property
    def is_nothing(self) -> bool:
        return self.further_operations == 0 and self.to_primary.operations == 0


def failover_use(used: Iterable[Used]) -> FailoverUse:
    rows = list(used)
    home = [each for each in rows if (each.operation, each.reason) == (SEND, SYPHON)]
    deliveries = _deliveries(rows)
    received = Count()
    settled = 0
    for each in home:
        times = deliveries.get(each.entity.lower(), 1)
        settled += each.messages * times
        received.include(
            Count(each.messages * times, each.messages * times, each.operations * times, each.size_bytes * times)
        )
    handled = (RECEIVE, SEND, RENEW_LOCK, PEEK, *SETTLEMENTS)
    return FailoverUse(
        to_backlog=_count(rows, SEND, FAILOVER),
        from_backlog=_count(rows, RECEIVE, SYPHON),
        to_primary=_count(rows, SEND, SYPHON),
        from_primary=received,
        backlog_settlements=sum([_count(rows, each, SYPHON).operations for each in SETTLEMENTS]),
        primary_settlements=settled,
        pings=sum([each.operations for each in rows if each.reason == PING]),
        long_polls=sum([each.operations for each in rows if each.reason == LONGPOLL]),
        renewals=_count(rows, RENEW_LOCK, SYPHON).operations,
        peeks=_count(rows, PEEK, SYPHON).operations,
        rest=sum([each.operations for each in rows if each.reason == SYPHON and each.operation not in handled])
        + sum([each.operations for each in rows if each.reason == FAILOVER and each.operation != SEND]),
        left_secondary_bytes=sum(
            [each.size_bytes for each in rows if each.reason == SYPHON and each.operation != SEND]
        ),
    )


def _count(rows: Iterable[Used], operation: str, reason: str) -> Count:
    total = Count()
    for each in rows:
        if each.operation == operation and each.reason == reason:
            total.include(Count(each.calls, each.messages, each.operations, each.size_bytes))
    return total


def _deliveries(rows: Iterable[Used]) -> dict[str, int]:
    """How often the primary delivers what is sent to a topic: once for each subscription that was received from."""
    found: dict[str, set[str]] = {}
    for each in rows:
        topic, parted, subscription = each.entity.lower().partition(SUBSCRIPTIONS)
        if each.operation == RECEIVE and parted and "/" not in subscription:
            found.setdefault(topic, set()).add(subscription)
    return {topic: len(subscriptions) for topic, subscriptions in found.items()}


@dataclass(frozen=True, slots=True)
class FailoverLine:
    what: str
    count: Count
    cost: Decimal


@dataclass(frozen=True, slots=True)
class FailoverBill:
    """Line by line, each priced beside all that the month has without the failover; and what they come to together."""

    use: FailoverUse
    lines: tuple[FailoverLine, ...]
    cost: Decimal
    """What the months' bills are higher."""
    normal_cost: Decimal
    """What the same messages would have cost without it, those that are not home yet aside."""
    bandwidth_cost: Decimal | None
    """None where it is not priced."""

    @property
    def shown_lines(self) -> list[FailoverLine]:
        """The four charges, also where one is nothing, and whatever else there is."""
        return [line for line in self.lines if line.count.operations or line.what in CHARGES]

    @property
    def do_lines_add_up(self) -> bool:
        """Not where they come to another tier together than each by itself."""
        return sum([line.cost for line in self.lines], ZERO) == self.cost


def failover_bill(bill: Bill) -> FailoverBill:
    by_stretch = [(each, failover_use(_used_in(bill, each))) for each in bill.stretches_in_use]
    whole = failover_use([line.used for line in bill.lines])
    costs = [_costs(stretch, use) for stretch, use in by_stretch]
    totals = [sum(each, ZERO) for each in zip(*costs, strict=True)]
    described = _described(whole)
    return FailoverBill(
        use=whole,
        lines=tuple(
            [
                FailoverLine(what, count, cost)
                for (what, count), cost in zip(described, totals or [ZERO] * len(described), strict=True)
            ]
        ),
        cost=sum([_priced(stretch, use, use.further_operations) for stretch, use in by_stretch], ZERO),
        normal_cost=sum([_priced(stretch, use, use.diverted.normal_operations) for stretch, use in by_stretch], ZERO),
        bandwidth_cost=_bandwidth(by_stretch),
    )


def _used_in(bill: Bill, stretch: Stretch) -> list[Used]:
    month, prices = stretch.month, stretch.prices
    return [
        line.used
        for line in bill.lines
        if line.used.day.replace(day=1) == month and bill.book.at(line.used.day) is prices
    ]


def _described(use: FailoverUse) -> list[tuple[str, Count]]:
    """The lines, with what was counted under each; what would have been there anyway comes off."""
    return [
        *zip(CHARGES, (use.to_backlog, use.from_backlog, use.to_primary, use.from_primary), strict=True),
        ("settlements of 2", Count(operations=use.backlog_settlements)),
        ("settlements of 4", Count(operations=use.primary_settlements)),
        ("less the same without a failover", Count(operations=-use.diverted.normal_operations)),
        ("pings accepted", Count(operations=use.pings)),
        ("empty long polls of the syphon", Count(operations=use.long_polls)),
        ("lock renewals in the backlog", Count(operations=use.renewals)),
        ("peeks of the syphon", Count(operations=use.peeks)),
        ("other work of the syphon", Count(operations=use.rest)),
    ]


def _costs(stretch: Stretch, use: FailoverUse) -> list[Decimal]:
    return [_priced(stretch, use, count.operations) for _, count in _described(use)]


def _priced(stretch: Stretch, use: FailoverUse, operations: int) -> Decimal:
    """Beside what the month has without the failover."""
    without = stretch.others + stretch.charged - use.further_operations
    return _signed(stretch.prices, without, operations)


def _signed(prices: PriceList, before: int, operations: int) -> Decimal:
    if operations < 0:
        return -prices.further_operations_cost(before, -operations)
    return prices.further_operations_cost(before, operations)


def _bandwidth(by_stretch: list[tuple[Stretch, FailoverUse]]) -> Decimal | None:
    total = ZERO
    for stretch, use in by_stretch:
        cost = stretch.prices.egress_cost(use.left_secondary_bytes)
        if cost is None:
            return None
        total += cost
    return total if by_stretch else None
