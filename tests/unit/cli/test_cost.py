"""`tandembus cost`: the published figures through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.metering.price_files import FOLDER
from tests.covers import covers


def bill(*options: str) -> Any:
    result = CliRunner().invoke(main, ["cost", "--json", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown_as_it_is(*options: str) -> str:
    result = CliRunner().invoke(main, ["cost", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def shown(*options: str) -> str:
    return " ".join(shown_as_it_is(*options).split())


@covers("N11")
def test_ten_idle_queues_over_thirty_days() -> None:
    idle = bill("--backlog-queues", "10", "--days", "30")["idle_syphon"]
    assert idle == {"receives_per_hour": 40, "receives_per_day": 960, "receives": 28_800, "cost": 0.02304}


@covers("N13")
def test_an_outage_is_told_charge_by_charge() -> None:
    options = [
        "--outage",
        "1h",
        "--entities",
        "50",
        "--clients",
        "20",
        "--messages",
        "1000000",
        "--message-size",
        "2048",
    ]
    found = bill(*options)
    assert found["pings"] == {
        "sent": {"operations": 60_000, "cost": 0.048},
        "accepted": {"operations": 50 * 20, "cost": 0.0008},
    }
    many = found["diverted"]
    four = ("sends_to_backlog", "receives_from_backlog", "sends_to_primary", "receives_from_primary")
    assert [many[name] for name in four] == [1_000_000] * 4
    assert (many["transfers"], many["normal_transfers"], many["further_transfers_cost"]) == (4_000_000, 2_000_000, 1.6)
    assert (many["operations"], many["normal_operations"], many["further_operations_cost"]) == (
        6_000_000,
        3_000_000,
        2.4,
    )
    assert found["setup"]["operations"] == 20 * 21
    assert found["total"]["operations"] == 28_800 + 20 * 21 + 50 * 20 + 3_000_000
    assert found["connections"] == {"further": 21, "to_primary": 1, "cost": 0.0}
    assert found["bandwidth"] == {"size_bytes": 2_048_000_000, "cost": None}


def test_messages_that_are_held_for_long_have_their_locks_renewed() -> None:
    found = bill("--messages", "10", "--held", "3m")
    assert found["renewals"]["operations"] == 90
    assert found["total"]["operations"] == 28_800 + 21 + 3 * 10 + 90


def test_each_subscription_of_a_topic_is_a_receive_of_its_own() -> None:
    many = bill("--messages", "10", "--subscriptions", "3")["diverted"]
    assert (many["receives_from_primary"], many["normal_transfers"], many["settlements"]) == (30, 40, 40)


def test_a_pair_is_compared_with_geo_replication() -> None:
    comparison = bill()["comparison"]
    assert (round(comparison["paired_standard"], 2), comparison["premium_geo_replication"]) == (9.83, 1354.15)
    assert comparison["replicated_per_gb"] == [0.09, 0.12, 0.23]


def test_what_is_included_costs_nothing() -> None:
    total = bill("--other-operations", "0")["total"]
    assert total == {"operations": 28_821, "operations_cost": 0.0, "cost": 0.0, "not_priced": ["bandwidth"]}


def test_connections_cost_what_the_month_costs_more_for_them() -> None:
    """31 days of 24 hours are a month: all of the 10 further connections are above the 1,000 that are included."""
    found = bill("--days", "31", "--clients", "8", "--other-connections", "1000")
    assert found["connections"] == {"further": 9, "to_primary": 1, "cost": 0.3}


def test_the_total_and_the_comparison_have_everything_that_is_priced(tmp_path: Path) -> None:
    own = tmp_path / "ours.toml"
    own.write_text((FOLDER / "us.toml").read_text().replace("egress_per_gb = 0", "egress_per_gb = 0.10"))
    messages = ["--messages", "1000000", "--message-size", "1000"]
    found = bill("--days", "31", "--clients", "4999", *messages, "--prices", str(own))
    assert (found["connections"]["cost"], found["bandwidth"]["cost"]) == (120.03, 0.1)
    total = found["total"]
    assert total["not_priced"] == []
    assert round(total["cost"] - total["operations_cost"], 6) == 120.13
    assert round(found["comparison"]["paired_standard"] - total["cost"], 2) == 9.81


def test_what_there_would_be_without_an_outage_is_taken_off() -> None:
    assert "less the same without an outage -3,000,000 -2.40" in shown("--messages", "1000000")


def test_rows_that_do_not_add_up_to_the_total_are_told() -> None:
    """Each of them alone is within what is included, all of them are not."""
    told = "each row is priced as if it came alone"
    assert told in shown("--other-operations", "0", "--messages", "5000000")
    assert told not in shown("--messages", "5000000")
    assert told not in shown("--other-operations", "0")


@covers("N11")
def test_the_renewals_of_a_destination_that_takes_none_for_an_hour() -> None:
    assert bill("--messages", "10", "--held", "1h")["renewals"]["operations"] == 1_800


def test_a_price_list_can_be_printed_and_used_again(tmp_path: Path) -> None:
    own = tmp_path / "ours.toml"
    own.write_text(shown_as_it_is("--show-prices", "us"))
    assert bill("--prices", str(own)) == bill()


def test_people_see_the_same_figures() -> None:
    text = shown()
    for line in ("idle syphon, an hour 40", "idle syphon, a day 960", "idle syphon, 30 days 28,800 0.0230"):
        assert line in text
    assert "list prices of 2026-11-15 (us, USD; seen indirectly)" in text
    assert "Premium with Geo-Replication 1,354.15" in text
    assert "0 bytes out of the region - not priced" in text
    assert "2 connections to the secondary, 1 to the primary - 0.00" in text
    assert "what the pair adds in all 28,821 0.0231" in text
    assert "without bandwidth: the list has no price" in text


@covers("N10")
def test_people_see_the_pings_that_are_sent_and_those_that_are_metered() -> None:
    text = shown("--outage", "1h", "--entities", "50", "--clients", "20")
    assert "pings accepted 1,000 0.0008" in text
    assert "what the pair adds in all 30,220 " in text
    assert "not in it: pings sent, the most that could be charged 60,000 0.0480" in text


def test_a_list_without_premium_prices_has_nothing_to_compare_with() -> None:
    assert "Geo-Replication" not in shown("--prices", "china")
    assert bill("--prices", "china")["comparison"]["premium_geo_replication"] is None


def test_prices_can_be_replaced(tmp_path: Path) -> None:
    own = tmp_path / "ours.toml"
    own.write_text((FOLDER / "us.toml").read_text().replace("price = 0.80", "price = 8.00"))
    assert bill("--prices", str(own))["idle_syphon"]["cost"] == 0.2304


@pytest.mark.parametrize(
    "options",
    [
        ["--backlog-queues", "0"],
        ["--backlog-queues", "1001"],
        ["--show-prices", "mars"],
        ["--days", "0"],
        ["--days", "32"],
        ["--messages", "-1"],
        ["--ping-interval", "0s"],
        ["--outage", "never"],
        ["--outage", "long"],
        ["--outage", "31d"],
        ["--days", "1", "--held", "25h"],
        ["--prices", "mars"],
    ],
)
def test_what_makes_no_sense_is_wrong_usage(options: list[str]) -> None:
    result = CliRunner().invoke(main, ["cost", *options])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
