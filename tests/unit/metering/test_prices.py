"""Prices: every published figure, and what tiers, hours and connections come to."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tandembus.errors import InvalidArgument
from tandembus.metering.price_files import FOLDER, load_prices, shipped_lists
from tandembus.metering.prices import PriceList, Tier, tiered
from tests.covers import covers

MILLION = 1_000_000
US = load_prices()


def cents(amount: Decimal | None) -> Decimal:
    assert amount is not None
    return amount.quantize(Decimal("0.01"), rounding="ROUND_HALF_UP")


def test_a_list_says_when_and_in_what_currency() -> None:
    assert shipped_lists() == ["china", "us"]
    assert (US.as_of, US.currency) == (date(2026, 11, 15), "USD")
    assert load_prices("china").currency == "CNY"


# Published figures.


def test_basic_operations() -> None:
    assert US.basic.per_million == Decimal("0.05")
    assert US.basic.connections == 100


def test_the_base_charge_by_the_hour_and_for_a_month_of_730_hours() -> None:
    assert US.base_cost(1) == Decimal("0.0135")
    assert US.base_cost(720) == Decimal("9.72")
    assert US.base_cost(US.month_hours) == US.base_cost(744) == Decimal("9.81")
    assert US.base_cost(2 * 744) == Decimal("19.62")


@pytest.mark.parametrize(
    ("millions", "cost"),
    [
        (0, "0"),
        (13, "0"),
        (14, "0.80"),
        (100, "69.60"),
        (101, "70.10"),
        (2_500, "1269.60"),
        (2_501, "1269.80"),
    ],
)
def test_standard_operations_of_a_month_by_tier(millions: int, cost: str) -> None:
    assert US.operations_cost(millions * MILLION) == Decimal(cost)


def test_what_is_added_costs_what_the_month_costs_more() -> None:
    assert US.included_operations == 13 * MILLION
    assert US.further_operations_cost(0, 13 * MILLION) == 0
    assert US.further_operations_cost(13 * MILLION, 28_800) == Decimal("0.02304")
    assert US.further_operations_cost(99 * MILLION, 2 * MILLION) == Decimal("0.80") + Decimal("0.50")


def test_ten_thousand_devices_half_of_the_day_are_4000_billable_connections_and_120_dollars() -> None:
    connections = US.connection_months([10_000] * 12 * 31)
    assert connections == 5_000
    assert US.connections_cost(connections) == 4_000 * Decimal("0.03") == 120


@pytest.mark.parametrize(
    ("connections", "cost"),
    [
        (1_000, "0"),
        (1_001, "0.03"),
        (100_000, "2970"),
        (100_001, "2970.025"),
        (500_000, "12970"),
        (500_001, "12970.015"),
    ],
)
def test_connections_by_tier(connections: int, cost: str) -> None:
    assert US.connections_cost(Decimal(connections)) == Decimal(cost)


def test_premium_units_and_geo_replication() -> None:
    assert US.premium is not None
    assert US.premium.units == (1, 2, 4, 8, 16)
    assert US.premium_cost(1, 1) == Decimal("0.9275")
    assert cents(US.premium_cost(1, 730)) == Decimal("677.08")
    assert round(US.premium_cost(2, 730) or 0) == 1_354
    assert US.premium.replicated_per_gb == tuple(Decimal(x) for x in ("0.09", "0.12", "0.23"))


def test_the_second_currency_and_what_is_not_known_in_it() -> None:
    china = load_prices("china")
    assert china.basic.per_million == Decimal("0.31")
    assert china.base_cost(1) == Decimal("0.0851")
    assert [tier.price for tier in china.standard.operations] == [Decimal(x) for x in ("0", "5.21", "3.20", "1.27")]
    assert (china.premium_cost(1, 1), china.connections_cost(Decimal(5_000))) == (None, None)


def test_what_a_forwarded_message_costs_per_hop_is_a_setting_of_the_list(tmp_path: Path) -> None:
    assert (US.charged("forward", 3), US.charged("send", 3)) == (3, 3)
    twice = load_changed(tmp_path, "forward_hop = 1 ", "forward_hop = 2 ")
    assert (twice.charged("forward", 3), twice.charged("send", 3)) == (6, 3)


def test_egress_is_not_priced_by_default() -> None:
    assert US.egress_cost(10**12) is None


# Arithmetic and files.


def test_a_tier_holds_its_last_unit() -> None:
    tiers = (Tier(Decimal(2), Decimal(5)), Tier(None, Decimal(1)))
    assert [tiered(tiers, Decimal(x)) for x in ("0", "1.5", "2", "2.5", "4")] == [
        0,
        Decimal("7.5"),
        10,
        Decimal("10.5"),
        12,
    ]


def changed(tmp_path: Path, old: str, new: str) -> str:
    text = (FOLDER / "us.toml").read_text()
    assert text.count(old) == 1
    path = tmp_path / "prices.toml"
    path.write_text(text.replace(old, new))
    return str(path)


def load_changed(tmp_path: Path, old: str, new: str) -> PriceList:
    return load_prices(changed(tmp_path, old, new))


def test_a_file_of_ones_own_takes_the_place_of_ours(tmp_path: Path) -> None:
    own = load_changed(tmp_path, "price = 0.80", "price = 1")
    assert own.operations_cost(14 * MILLION) == 1
    assert load_changed(tmp_path, "egress_per_gb = 0 ", "egress_per_gb = 0.08").egress_cost(5 * 10**9) == Decimal(
        "0.40"
    )


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("as_of = 2026-11-15", "", "as_of: is missing"),
        ("as_of = 2026-11-15", "as_of = 'today'", "as_of: a date"),
        ("as_of = 2026-11-15", "as_of = 2026-11-15T10:00:00Z", "as_of: a date"),
        ('currency = "USD"', "currency = 1", "currency: a text"),
        ("[basic]", "[basics]", "basic: is missing"),
        ("per_million = 0.05", "per_million = -0.05", "basic.per_million: a number of 0 or more"),
        ("per_million = 0.05", "per_million = nan", "basic.per_million: a number of 0 or more"),
        ("per_million = 0.05", "per_million = true", "basic.per_million: a number of 0 or more"),
        ("unit_bytes = 65536", "unit_bytes = 0", "counting.unit_bytes: a whole number"),
        ('batch = "per_message"', 'batch = "per_week"', "counting.batch: per_message or per_batch"),
        ("base_per_month = 9.81", "base_per_mouth = 9.81", "standard.base_per_mouth: nothing of this name"),
        ("up_to = 2500\n", "up_to = 50\n", "standard.operations: each tier must end above"),
        ("up_to = 2500\n", "", "standard.operations[2].up_to: is missing"),
        ("price = 0.20", "price = 0.20\nup_to = 9000", "standard.operations[3].up_to: the last tier"),
        ("units = [1, 2, 4, 8, 16]", "units = 1", "premium.units: a list of numbers"),
        ("hours = 730 ", "hours = 10000 ", "months.hours: a whole number"),
        ("[basic]", "[basic", "not a TOML file"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(InvalidArgument) as refusal:
        load_prices(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert complaint in str(refusal.value)


def test_what_is_neither_a_list_nor_a_file_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"neither one of our price lists \(china, us\) nor a file"):
        load_prices("mars")


@covers("N13")
def test_every_list_that_comes_with_the_package_can_be_read() -> None:
    assert [load_prices(name).name for name in shipped_lists()] == shipped_lists()
