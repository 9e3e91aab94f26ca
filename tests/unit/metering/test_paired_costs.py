"""What a pair takes: every figure that was published, and how the parts add up."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from tandembus.metering.paired_costs import (
    DAY_S,
    HOUR_S,
    RENEWAL_S,
    diverted,
    idle_receives,
    pings_accepted,
    pings_sent,
    received,
    renewals,
    sent,
    setup_operations,
)
from tandembus.metering.price_files import load_prices
from tandembus.metering.prices import Counting
from tandembus.pairing.syphon_hands import USUAL_LOCK_S, _Lock
from tests.covers import covers

US = load_prices()
PER_MESSAGE = Counting()
PER_BATCH = replace(PER_MESSAGE, batch="per_batch")
KB = 1024
MILLION = 1_000_000


def priced(operations: int) -> Decimal:
    """In a month whose allowance is used up."""
    return US.further_operations_cost(US.included_operations, operations)


@covers("N11")
def test_an_idle_syphon_of_ten_queues() -> None:
    assert idle_receives(1, 10, HOUR_S) == 40
    assert idle_receives(1, 10, DAY_S) == 960
    assert idle_receives(1, 10, 30 * DAY_S) == 28_800
    assert round(priced(28_800), 3) == Decimal("0.023")


@covers("N11")
def test_every_syphon_waits_for_every_queue() -> None:
    assert idle_receives(3, 10, HOUR_S) == 3 * idle_receives(1, 10, HOUR_S)
    assert idle_receives(1, 1, HOUR_S) == 4


@covers("N10", "N13")
def test_pings_of_fifty_entities_from_twenty_clients_through_an_hour() -> None:
    assert pings_sent(entities=50, clients=20, outage_s=HOUR_S, interval_s=60) == 60_000
    assert priced(60_000) == Decimal("0.048")
    assert pings_accepted(entities=50, clients=20, outage_s=HOUR_S) == 1_000


@covers("N10")
@pytest.mark.parametrize(
    ("outage_s", "count"), [(0, 0), (59, 0), (60, 1), (61, 2), (119, 2), (120, 2), (121, 3), (HOUR_S, 60)]
)
def test_pings_begin_with_the_failover_and_the_last_is_the_first_after_the_outage(outage_s: int, count: int) -> None:
    assert pings_sent(1, 1, outage_s, interval_s=60) == count
    assert pings_accepted(1, 1, outage_s) == min(count, 1)


@covers("N10")
def test_failing_over_sooner_and_asking_more_often_takes_more_pings() -> None:
    assert pings_sent(1, 1, HOUR_S, interval_s=60, failover_interval_s=0) == 61
    assert pings_sent(1, 1, 10, interval_s=1, failover_interval_s=5) == 6
    assert pings_sent(1, 1, 10, interval_s=1, failover_interval_s=11) == 0
    assert pings_accepted(1, 1, 10, failover_interval_s=11) == pings_accepted(1, 1, 0, failover_interval_s=0) == 0


def test_setting_up_is_one_list_and_at_most_a_get_and_a_create_per_queue() -> None:
    assert setup_operations(10) == 1 + 10 + 10


@covers("N13")
def test_a_million_diverted_messages_are_four_million_operations_instead_of_two() -> None:
    many = diverted(MILLION, 2 * KB, PER_MESSAGE)
    assert (many.transfers, many.normal_transfers) == (4 * MILLION, 2 * MILLION)
    assert priced(many.further_transfers) == Decimal("1.60")


@covers("N13")
def test_with_settlements_they_are_six_million_instead_of_three() -> None:
    settled = diverted(MILLION, 2 * KB, PER_MESSAGE)
    assert (settled.transfers, settled.settlements) == (4 * MILLION, 2 * MILLION)
    assert (settled.operations, settled.normal_operations) == (6 * MILLION, 3 * MILLION)
    assert priced(settled.further_operations) == Decimal("2.40")


@covers("N13")
@pytest.mark.parametrize(("size_bytes", "units"), [(0, 1), (64 * KB, 1), (64 * KB + 1, 2), (96 * KB, 2), (256 * KB, 4)])
def test_size_counts_at_every_stage(size_bytes: int, units: int) -> None:
    assert sent(1, size_bytes, 1, PER_MESSAGE) == received(1, size_bytes, PER_MESSAGE) == units
    one = diverted(1, size_bytes, PER_MESSAGE)
    assert (one.transfers, one.normal_transfers) == (4 * units, 2 * units)
    assert (one.operations, one.normal_operations) == (4 * units + 2, 2 * units + 1)
    assert one.further_operations == 2 * units + 1


def test_a_publication_to_three_subscriptions_is_four_operations() -> None:
    one = diverted(1, 100, PER_MESSAGE, subscriptions=3)
    assert (one.normal_transfers, one.transfers, one.settlements) == (1 + 3, 2 + 1 + 3, 1 + 3)


def test_a_batch_counts_message_by_message_unless_the_list_says_otherwise() -> None:
    assert sent(100, KB, 100, PER_MESSAGE) == 100
    assert sent(100, KB, 100, PER_BATCH) == 2
    assert sent(250, KB, 100, PER_BATCH) == 2 + 2 + 1
    assert sent(1, 10, 100, PER_BATCH) == 1
    assert received(100, KB, PER_BATCH) == 100


def test_the_lock_of_what_is_held_is_renewed_three_times_a_minute() -> None:
    assert [renewals(10, copying_s) for copying_s in (19, 20, 60, 185)] == [0, 10, 30, 90]


def test_the_syphon_renews_a_lock_as_soon_as_the_formula_says() -> None:
    assert _Lock(since=0.0, lasts_s=USUAL_LOCK_S).renew_at == RENEWAL_S
