"""What was used, as a bill: whole operations in, decimal money out, nothing rounded on the way to the total.

Prices are joined by day: of several lists each one counts from its date on. The tiers of a month are applied to the
whole month, over all namespaces together, and every operation of a month then costs the same. So a line's cost is its
share of the month's, and lines add up to the total to the last digit.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Final

from tandembus.errors import InvalidArgument
from tandembus.metering.prices import ZERO, PriceList
from tandembus.metering.slot import UNIT_BYTES

HOUR_S: Final = 3600
HOURS_A_DAY: Final = 24
CLOCKS_SINCE: Final = date(2020, 1, 1)
"""An earlier day is that of a machine whose clock was not set yet."""
SHARE_STEP: Final = Decimal("1e-12")
"""Shares of a month's cost end here; what is cut off one goes to the next, so that no part is lost."""
PRECISION: Final = 60
EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Used:
    """What was counted on one day (UTC) for one entity, operation and reason."""

    namespace: str
    entity: str
    operation: str
    reason: str
    day: date
    calls: int
    messages: int
    operations: int
    size_bytes: int


class PriceBook:
    """Price lists by their dates. What is older than the first is priced by it, too."""

    def __init__(self, lists: Sequence[PriceList]) -> None:
        if not lists:
            raise InvalidArgument("a bill needs a price list")
        self.lists: Final = sorted(lists, key=lambda each: each.as_of)
        self._starts: Final = [each.as_of for each in self.lists]
        if len(set(self._starts)) < len(lists):
            raise InvalidArgument("two price lists of the same date: which of them counts cannot be told")
        currencies = sorted({each.currency for each in lists})
        if len(currencies) > 1:
            raise InvalidArgument(f"price lists in different currencies ({', '.join(currencies)}): give one bill each")
        for each in self.lists:
            _check_countable(each)

    @property
    def currency(self) -> str:
        return self.lists[0].currency

    def at(self, day: date) -> PriceList:
        return self.lists[max(bisect_right(self._starts, day) - 1, 0)]


def _check_countable(prices: PriceList) -> None:
    """The meter counts message by message, in units of 64 KiB; from its sums no other count can be had."""
    if prices.counting.batch != "per_message":
        raise InvalidArgument(
            f"{prices.name}: counts batches, while the meter counts messages: set batch = per_message"
        )
    if prices.counting.unit_bytes != UNIT_BYTES:
        raise InvalidArgument(f"{prices.name}: counts units of another size than the meter's {UNIT_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class Line:
    """What was used, how many operations the price list makes of it, and their share of the month's cost."""

    used: Used
    charged: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Stretch:
    """The days of one month that one price list is for."""

    month: date
    """Its first day."""
    prices: PriceList
    others: int
    """Operations of the month that come before these."""
    charged: int
    cost: Decimal
    base_hours: int
    base_cost: Decimal


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that share what they are grouped by."""

    key: tuple[str, ...]
    calls: int
    messages: int
    operations: int
    size_bytes: int
    cost: Decimal


class Bill:
    """Of everything that was used, by any number of namespaces of one subscription.

    `others`: operations that every month has beside these; None: as many as are included, so that each of these is
    charged. `period`: the first and the last second of what was counted, for the base charge: a namespace costs as much
    in hours, days and months in which nobody uses it.
    """

    def __init__(
        self,
        used: Iterable[Used],
        book: PriceBook,
        others: int | None = None,
        period: tuple[int, int] | None = None,
    ) -> None:
        self.book: Final = book
        self.others: Final = others
        ordered = sorted(used, key=lambda each: (each.day, each.namespace, each.entity, each.operation, each.reason))
        self.lines: Final[list[Line]] = []
        self.stretches: Final[list[Stretch]] = []
        with localcontext() as context:
            context.prec = PRECISION
            used_in = _by_stretch(ordered, book)
            hours_of = _hours(book, _since_clocks(ordered, period))
            for month, start in sorted({*used_in, *hours_of}):
                self._include(month, book.at(start), used_in.get((month, start), []), hours_of.get((month, start), 0))

    def _include(self, month: date, prices: PriceList, used: list[Used], hours: int) -> None:
        charged = [prices.charged(each.operation, each.operations) for each in used]
        before = self._before(month, prices)
        cost = prices.further_operations_cost(before, sum(charged))
        self.stretches.append(Stretch(month, prices, before, sum(charged), cost, hours, prices.base_cost(hours)))
        shares = shared(cost, charged)
        self.lines.extend([Line(*each) for each in zip(used, charged, shares, strict=True)])

    def _before(self, month: date, prices: PriceList) -> int:
        earlier = self.stretches[-1] if self.stretches and self.stretches[-1].month == month else None
        if earlier is not None:
            return earlier.others + earlier.charged
        return prices.included_operations if self.others is None else self.others

    @property
    def stretches_in_use(self) -> list[Stretch]:
        """Those with operations; the others have their hours only."""
        return [each for each in self.stretches if each.charged]

    @property
    def operations(self) -> int:
        """As they were counted, before a price list makes more of some."""
        return sum([line.used.operations for line in self.lines])

    @property
    def charged(self) -> int:
        return sum([each.charged for each in self.stretches])

    @property
    def operations_cost(self) -> Decimal:
        return sum([each.cost for each in self.stretches], ZERO)

    @property
    def base_hours(self) -> int:
        return sum([each.base_hours for each in self.stretches])

    @property
    def base_cost(self) -> Decimal:
        return sum([each.base_cost for each in self.stretches], ZERO)

    @property
    def cost(self) -> Decimal:
        return self.operations_cost + self.base_cost

    def by(self, *names: str) -> list[Group]:
        """Sums of the lines, by attributes of what was used, in the order of these."""
        found: dict[tuple[str, ...], list[Line]] = {}
        for line in self.lines:
            found.setdefault(tuple([str(getattr(line.used, name)) for name in names]), []).append(line)
        return [_group(key, found[key]) for key in sorted(found)]


def largest_first(groups: Iterable[Group], limit: int) -> tuple[list[Group], Group | None]:
    """The first so many by their operations, and the rest of them as one."""
    ordered = sorted(groups, key=lambda each: (-each.operations, each.key))
    rest = ordered[limit:]
    if not rest:
        return ordered, None
    return ordered[:limit], Group(
        (f"{len(rest):,} others",),
        sum([each.calls for each in rest]),
        sum([each.messages for each in rest]),
        sum([each.operations for each in rest]),
        sum([each.size_bytes for each in rest]),
        sum([each.cost for each in rest], ZERO),
    )


def shared(cost: Decimal, parts: Sequence[int]) -> list[Decimal]:
    """A cost divided among parts by their size; the shares add up to it exactly."""
    whole = sum(parts)
    with localcontext() as context:
        context.prec = PRECISION
        shares: list[Decimal] = []
        reached = 0
        told = ZERO
        for part in parts:
            reached += part
            if reached == whole:
                until = cost if whole else ZERO
            else:
                until = (cost * reached / whole).quantize(SHARE_STEP)
            shares.append(until - told)
            told = until
        return shares


def day_of(second: int) -> date:
    return datetime.fromtimestamp(second, UTC).date()


def _stretch(day: date, book: PriceBook) -> tuple[date, date]:
    """A month's first day, and the date of the list that counts."""
    return day.replace(day=1), book.at(day).as_of


def _by_stretch(ordered: Iterable[Used], book: PriceBook) -> dict[tuple[date, date], list[Used]]:
    stretches: dict[tuple[date, date], list[Used]] = {}
    for each in ordered:
        stretches.setdefault(_stretch(each.day, book), []).append(each)
    return stretches


def _since_clocks(ordered: Sequence[Used], period: tuple[int, int] | None) -> tuple[int, int] | None:
    """A second that no clock ever had must not make a bill of decades."""
    known = [each.day for each in ordered if each.day >= CLOCKS_SINCE]
    if period is None or not known:
        return period
    return max(period[0], _first_hour(known[0]) * HOUR_S), period[1]


def _hours(book: PriceBook, period: tuple[int, int] | None) -> dict[tuple[date, date], int]:
    """Started hours from the first to the last second, by stretch."""
    hours: dict[tuple[date, date], int] = {}
    if period is None:
        return hours
    hour, end = period[0] // HOUR_S, period[1] // HOUR_S + 1
    starts = [_first_hour(each.as_of) for each in book.lists]
    while hour < end:
        day = day_of(hour * HOUR_S)
        month_end = _first_hour(day.replace(day=monthrange(day.year, day.month)[1])) + HOURS_A_DAY
        until = min([end, month_end, *[start for start in starts if start > hour]])
        stretch = _stretch(day, book)
        hours[stretch] = hours.get(stretch, 0) + until - hour
        hour = until
    return hours


def _first_hour(day: date) -> int:
    return (day - EPOCH).days * HOURS_A_DAY


def _group(key: tuple[str, ...], lines: Sequence[Line]) -> Group:
    return Group(
        key,
        sum([line.used.calls for line in lines]),
        sum([line.used.messages for line in lines]),
        sum([line.used.operations for line in lines]),
        sum([line.used.size_bytes for line in lines]),
        sum([line.cost for line in lines], ZERO),
    )
