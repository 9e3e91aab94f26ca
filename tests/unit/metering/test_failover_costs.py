"""What a failover took, out of the meter's records: the calculator's terms, and its figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

from tandembus.metering.bills import Bill, PriceBook, Used
from tandembus.metering.failover_costs import FailoverBill, failover_bill, failover_use
from tandembus.metering.paired_costs import CHARGES, DAY_S, diverted, idle_receives, pings_accepted
from tandembus.metering.price_files import load_prices
from tandembus.metering.prices import Counting
from tests.covers import covers

US = load_prices()
DAY = date(2026, 11, 16)
BACKLOG = "contoso/x-servicebus-transfer/0"
MILLION = 1_000_000


def row(
    namespace: str,
    entity: str,
    operation: str,
    reason: str,
    messages: int,
    units: int = 1,
    size: int = 0,
    day: date = DAY,
) -> Used:
    return Used(namespace, entity, operation, reason, day, messages, messages, messages * units, messages * size)


def outage(messages: int, units: int = 1, size: int = 2048, day: date = DAY) -> list[Used]:
    """As the two meters count messages that all came home, were received and completed."""
    return [
        row("backup", BACKLOG, "send", "failover", messages, units, size, day),
        row("backup", BACKLOG, "receive", "syphon", messages, units, size, day),
        row("backup", BACKLOG, "complete", "syphon", messages, day=day),
        row("contoso", "orders", "send", "syphon", messages, units, size, day),
        row("contoso", "orders", "receive", "normal", messages, units, size, day),
        row("contoso", "orders", "complete", "normal", messages, day=day),
    ]


def priced(rows: list[Used], others: int | None = None) -> FailoverBill:
    return failover_bill(Bill(rows, PriceBook([US]), others))


@covers("D4", "N13")
def test_a_million_diverted_messages_take_and_cost_what_the_calculator_says() -> None:
    made = priced(outage(MILLION))
    assert made.use.diverted == diverted(MILLION, 2048, Counting())
    assert made.use.further_operations == 3 * MILLION
    assert made.cost == US.further_operations_cost(US.included_operations, 3 * MILLION) == Decimal("2.40")


@covers("D4", "N13")
def test_the_four_charges_and_the_settlements_are_lines_of_their_own() -> None:
    lines = {line.what: line.count.operations for line in priced(outage(10, units=2)).lines}
    assert [lines[charge] for charge in CHARGES] == [20, 20, 20, 20]
    assert (lines["settlements of 2"], lines["settlements of 4"]) == (10, 10)
    assert lines["less the same without a failover"] == -(20 + 20 + 10)


@covers("D4", "N13")
def test_every_stage_tells_its_messages_and_its_size() -> None:
    use = failover_use(outage(10, size=100))
    for stage in (use.to_backlog, use.from_backlog, use.to_primary, use.from_primary):
        assert (stage.messages, stage.size_bytes) == (10, 1000)


@covers("D4", "N11")
def test_pings_and_empty_long_polls_are_what_the_calculator_says() -> None:
    asked = pings_accepted(50, 20, 3600)
    polled = idle_receives(1, 10, DAY_S)
    made = priced(
        [row("contoso", "orders", "send", "ping", asked), row("backup", BACKLOG, "empty_receive", "longpoll", polled)]
    )
    assert (made.use.pings, made.use.long_polls) == (1_000, 960)
    assert made.use.further_operations == 1_960
    assert made.cost == US.further_operations_cost(US.included_operations, 1_960)


@covers("D4")
def test_renewals_peeks_and_whatever_else_the_syphon_does_are_counted() -> None:
    use = failover_use(
        [
            row("backup", BACKLOG, "renew_lock", "syphon", 3),
            row("backup", BACKLOG, "peek", "syphon", 4),
            row("backup", BACKLOG, "receive_deferred", "syphon", 5),
        ]
    )
    assert (use.renewals, use.peeks, use.rest, use.further_operations) == (3, 4, 5, 12)


@covers("D4", "N13")
def test_what_the_syphon_on_spark_reads_is_in_the_cost_and_in_the_bandwidth() -> None:
    """It peeks at what it has reserved, and receives nothing."""
    priced_bandwidth = replace(US, egress_per_gb=Decimal("0.02"))
    on_spark = [
        replace(each, operation="peek") if (each.operation, each.reason) == ("receive", "syphon") else each
        for each in outage(MILLION)
    ]
    bills = [failover_bill(Bill(rows, PriceBook([priced_bandwidth]))) for rows in (outage(MILLION), on_spark)]
    assert bills[0].use.further_operations == bills[1].use.further_operations == 3 * MILLION
    assert bills[0].cost == bills[1].cost
    assert bills[0].bandwidth_cost == bills[1].bandwidth_cost != Decimal(0)
    assert bills[1].use.left_secondary_bytes == 2048 * MILLION


@covers("D4", "N13")
def test_a_topic_delivers_to_each_subscription_that_was_received_from() -> None:
    rows = [
        row("contoso", "news", "send", "syphon", 7),
        row("contoso", "news/Subscriptions/one", "receive", "normal", 7),
        row("contoso", "news/Subscriptions/two", "receive", "normal", 7),
        row("contoso", "news/Subscriptions/two/$DeadLetterQueue", "receive", "normal", 1),
    ]
    use = failover_use(rows)
    assert (use.from_primary.operations, use.primary_settlements) == (14, 14)
    assert use.diverted.further_operations == 0


@covers("D4")
def test_messages_that_are_not_home_yet_are_told() -> None:
    rows = [row("backup", BACKLOG, "send", "failover", 10), row("contoso", "orders", "send", "syphon", 4)]
    assert failover_use(rows).waiting == 6


@covers("D4")
def test_ordinary_traffic_is_no_failover() -> None:
    assert failover_use([row("contoso", "orders", "send", "normal", 10)]).is_nothing
    assert not failover_use(outage(1)).is_nothing


@covers("D4")
def test_the_cost_is_what_the_months_are_higher() -> None:
    rows = [*outage(MILLION), *outage(MILLION, day=date(2026, 12, 1))]
    with_failover = Bill(rows, PriceBook([US]), others=12 * MILLION)
    normal = [each for each in rows if each.reason == "normal"]
    moved = [row("contoso", "orders", "send", "normal", MILLION, day=day) for day in (DAY, date(2026, 12, 1))]
    without = Bill([*normal, *moved], PriceBook([US]), others=12 * MILLION)
    assert failover_bill(with_failover).cost == with_failover.operations_cost - without.operations_cost


@covers("D4")
def test_lines_that_reach_another_tier_together_are_told_not_to_add_up() -> None:
    assert priced(outage(MILLION)).do_lines_add_up
    assert not priced(outage(20 * MILLION), others=0).do_lines_add_up


def test_bandwidth_is_priced_where_the_list_has_a_price() -> None:
    assert priced(outage(10)).bandwidth_cost is None


def test_a_bill_without_records_has_all_its_lines() -> None:
    made = priced([])
    assert made.cost == 0
    assert all(line.cost == 0 for line in made.lines)
