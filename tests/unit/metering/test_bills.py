"""Bills: lines that add up, prices by date, tiers by month."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.errors import InvalidArgument
from tandembus.metering.bills import Bill, PriceBook, Used, day_of, largest_first, shared
from tandembus.metering.failover_costs import failover_bill
from tandembus.metering.price_files import load_prices
from tandembus.metering.prices import Standard
from tests.covers import covers

US = load_prices()
MILLION = 1_000_000
DAY = date(2026, 11, 16)
NOON = 1_794_830_400
"""Of that day."""


def used(operations: int, day: date = DAY, entity: str = "orders", operation: str = "send") -> Used:
    return Used("contoso", entity, operation, "normal", day, operations, operations, operations, 10 * operations)


def bill(*rows: Used, others: int | None = None, period: tuple[int, int] | None = None) -> Bill:
    return Bill(rows, PriceBook([US]), others, period)


@covers("D4")
def test_an_operation_costs_what_the_calculator_says() -> None:
    assert bill(used(1 * MILLION)).operations_cost == US.further_operations_cost(13 * MILLION, MILLION)


@covers("D4")
def test_the_included_operations_of_a_month_cost_nothing() -> None:
    made = bill(used(13 * MILLION), used(1 * MILLION, entity="payments"), others=0)
    assert made.operations_cost == Decimal("0.80")
    assert bill(used(13 * MILLION), others=0).operations_cost == 0


@covers("D4")
def test_every_month_begins_with_its_own_tiers() -> None:
    made = bill(used(13 * MILLION), used(13 * MILLION, day=date(2026, 12, 1)), others=0)
    assert [each.cost for each in made.stretches] == [0, 0]
    assert bill(used(26 * MILLION), others=0).operations_cost == Decimal("10.40")


@covers("D4")
def test_lines_add_up_to_the_month_exactly_however_it_is_divided() -> None:
    rows = [used(each, entity=f"queue-{each}") for each in (1, 2, 3, 7, 11, 13 * MILLION, 99)]
    made = bill(*rows, others=7)
    assert sum(line.cost for line in made.lines) == made.operations_cost
    for names in (["namespace"], ["entity"], ["operation"], ["day"], ["namespace", "entity", "operation", "day"]):
        groups = made.by(*names)
        assert sum(group.cost for group in groups) == made.operations_cost
        assert sum(group.operations for group in groups) == made.operations


@given(st.decimals(0, 10**6, places=10), st.lists(st.integers(0, 10**12), min_size=1, max_size=30))
def test_shares_add_up(cost: Decimal, parts: list[int]) -> None:
    shares = shared(cost, parts)
    assert sum(shares) == (cost if sum(parts) else 0)
    assert all(share >= 0 for share in shares)


@covers("D4")
def test_prices_are_joined_by_date() -> None:
    dearer = replace(US, name="later", as_of=date(2026, 12, 10), standard=_doubled())
    book = PriceBook([dearer, US])
    assert book.at(date(2020, 1, 1)) is US
    assert book.at(date(2026, 12, 9)) is US
    assert book.at(date(2026, 12, 10)) is dearer
    rows = [used(MILLION, day=date(2026, 12, 9)), used(MILLION, day=date(2026, 12, 10))]
    made = Bill(rows, book)
    assert [(group.key, group.cost) for group in made.by("day")] == [
        (("2026-12-09",), Decimal("0.80")),
        (("2026-12-10",), Decimal("1.60")),
    ]


@covers("D4")
def test_a_month_with_two_lists_goes_on_in_the_tier_it_has_reached() -> None:
    dearer = replace(US, name="later", as_of=date(2026, 12, 10), standard=_doubled())
    rows = [used(100 * MILLION, day=date(2026, 12, 9)), used(MILLION, day=date(2026, 12, 10))]
    made = Bill(rows, PriceBook([US, dearer]), others=0)
    assert [each.cost for each in made.stretches] == [Decimal("69.60"), Decimal("1.00")]


def _doubled() -> Standard:
    tiers = tuple(replace(tier, price=2 * tier.price) for tier in US.standard.operations)
    return replace(US.standard, operations=tiers)


@covers("D4")
def test_the_base_charge_is_by_the_started_hour_once_for_all_namespaces() -> None:
    rows = [used(1), replace(used(1), namespace="backup")]
    made = bill(*rows, period=(NOON, NOON + 3600))
    assert (made.base_hours, made.base_cost) == (2, US.base_cost(2))
    assert bill(*rows, period=(NOON, NOON)).base_hours == 1
    assert bill(*rows).base_hours == 0


@covers("D4")
def test_hours_days_and_months_without_any_use_have_their_base_charge() -> None:
    """As the calculator takes a month: whole, whatever is done in it."""
    days = [date(2026, 11, 16), date(2026, 11, 26), date(2027, 2, 1)]
    last = NOON + 77 * 86_400
    assert day_of(last) == days[-1]
    made = bill(*[used(1, day=day) for day in days], period=(NOON, last))
    assert made.base_hours == 77 * 24 + 1
    assert [(f"{each.month:%Y-%m}", each.base_hours, each.base_cost) for each in made.stretches] == [
        ("2026-11", 12 + 14 * 24, US.base_cost(12 + 14 * 24)),
        ("2026-12", 744, US.base_cost(US.month_hours)),
        ("2027-01", 744, US.base_cost(US.month_hours)),
        ("2027-02", 13, US.base_cost(13)),
    ]
    assert [each.month.month for each in made.stretches_in_use] == [11, 2]
    assert failover_bill(made).use.is_nothing


def test_hours_are_priced_by_the_list_of_their_day() -> None:
    dearer = replace(US, as_of=date(2026, 12, 10), standard=replace(US.standard, base_per_hour=Decimal(1)))
    made = Bill([used(1)], PriceBook([US, dearer]), period=(NOON, NOON + 30 * 86_400))
    assert [(each.prices.as_of, each.base_hours) for each in made.stretches] == [
        (US.as_of, 12 + 14 * 24),
        (US.as_of, 9 * 24),
        (dearer.as_of, 6 * 24 + 13),
    ]


def test_a_clock_that_was_not_set_makes_no_bill_of_decades() -> None:
    rows = [used(1, day=date(1970, 1, 1)), used(1)]
    assert bill(*rows, period=(0, NOON)).base_hours == 13
    assert bill(rows[0], period=(0, 3600)).base_hours == 2


def test_even_millennia_have_a_bill() -> None:
    made = bill(used(1), used(1, day=date(9999, 12, 31)), period=(NOON, 253_402_300_799))
    assert made.base_hours == (253_402_300_800 - NOON) // 3600
    assert len(made.stretches_in_use) == 2


def test_a_day_is_a_day_in_utc() -> None:
    assert day_of(NOON) == DAY
    assert day_of(NOON + 12 * 3600 - 1) == DAY
    assert day_of(NOON + 12 * 3600) == date(2026, 11, 17)


@covers("D4")
def test_a_list_with_dearer_hops_makes_more_of_what_is_forwarded() -> None:
    hops = replace(US, counting=replace(US.counting, forward_hop=3))
    made = Bill([used(5, operation="forward"), used(5)], PriceBook([hops]))
    assert (made.operations, made.charged) == (10, 20)


def test_lists_that_cannot_be_one_bill_are_refused_with_a_reason() -> None:
    china = load_prices("china")
    per_batch = replace(US, counting=replace(US.counting, batch="per_batch"))
    units = replace(US, counting=replace(US.counting, unit_bytes=1024))
    for lists, reason in (
        ([], "needs a price list"),
        ([US, replace(china, as_of=date(2030, 1, 1))], "different currencies"),
        ([US, replace(US, name="copy")], "same date"),
        ([per_batch], "batch = per_message"),
        ([units], "65536"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            PriceBook(lists)


def test_the_largest_come_first_and_the_rest_is_one() -> None:
    made = bill(*[used(each, entity=f"queue-{each}") for each in range(1, 11)])
    first, rest = largest_first(made.by("entity"), 3)
    assert [each.key for each in first] == [("queue-10",), ("queue-9",), ("queue-8",)]
    assert rest is not None
    assert (rest.key, rest.operations) == (("7 others",), 28)
    assert sum((each.cost for each in first), rest.cost) == made.operations_cost
    assert largest_first(made.by("entity"), 10)[1] is None


def test_nothing_used_costs_nothing() -> None:
    made = bill()
    assert made.operations == 0
    assert made.cost == 0
    assert made.by("entity") == []
