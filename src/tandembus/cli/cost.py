"""`tandembus cost`: what a pair of namespaces would cost on Azure. Asks nobody; all it needs is a price list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Final

import click

from tandembus.cli.options import option, options_of
from tandembus.cli.output import print_json, print_table, say
from tandembus.cli.target import json_option
from tandembus.errors import InvalidArgument
from tandembus.metering import paired_costs
from tandembus.metering.bills import PriceBook
from tandembus.metering.money import money
from tandembus.metering.paired_costs import CHARGES, DAY_S, HOUR_S
from tandembus.metering.price_files import DEFAULT_LIST, list_text, load_prices, shipped_lists
from tandembus.metering.prices import ZERO, PriceList
from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES

LARGEST: Final = 10**15
COUNT: Final = (1, 1_000_000)
ANY_COUNT: Final = (0, LARGEST)


def price_list(_: click.Context, __: click.Parameter, name_or_file: str | None) -> PriceList | None:
    """The callback of `--prices`: a price list of the package, or a file of the user's own."""
    try:
        return None if name_or_file is None else load_prices(name_or_file)
    except InvalidArgument as error:
        raise click.BadParameter(str(error)) from None


def price_lists(_: click.Context, __: click.Parameter, names_or_files: tuple[str, ...]) -> PriceBook:
    """Likewise, where several may be given: each counts from its date on."""
    try:
        return PriceBook([load_prices(each) for each in names_or_files or (DEFAULT_LIST,)])
    except InvalidArgument as error:
        raise click.BadParameter(str(error)) from None


def _whole_seconds(_: click.Context, __: click.Parameter, seconds: float) -> int:
    if not 0 <= seconds <= LARGEST:
        raise click.BadParameter("it must come to an end")
    return int(seconds)


@dataclass(frozen=True, slots=True)
class PairPlan:
    """What is asked about."""

    backlog_queues: int = option(10, "Backlog queues of the pair.", range=(1, MAX_BACKLOG_QUEUES))
    syphons: int = option(1, "Processes that run the syphon.", range=COUNT)
    days: int = option(30, "Days of the month.", range=(1, 31))
    clients: int = option(1, "Paired clients, each of which pings.", range=COUNT)
    entities: int = option(1, "Entities that an outage makes unavailable.", range=COUNT)
    outage_s: float = option(0.0, "How long they are.", callback=_whole_seconds)
    failover_interval_s: float = option(60.0, "Time until they fail over.", callback=_whole_seconds)
    ping_interval_s: float = option(60.0, "Time between two pings.", callback=_whole_seconds)
    messages: int = option(0, "Messages that go through the backlog.", range=ANY_COUNT)
    message_size: int = option(1024, "Bytes of one of them.", range=ANY_COUNT)
    batch_size: int = option(1, "How many are sent at once.", range=COUNT)
    subscriptions: int = option(1, "How many subscriptions get each; 1 for a queue.", range=COUNT)
    held_s: float = option(0.0, "How long the syphon holds each of them.", callback=_whole_seconds)
    other_operations: int | None = option(
        None,
        "Operations of the month that are there anyway.",
        range=ANY_COUNT,
        metavar="N",
        default_text="as many as are included",
    )


def _print_list(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        click.echo(list_text(name), nl=False)
        context.exit()


@click.command()
@options_of(PairPlan)
@click.option(
    "--prices",
    metavar="LIST",
    callback=price_list,
    default=DEFAULT_LIST,
    show_default=True,
    help="Price list: us, china, or a file of your own.",
)
@click.option(
    "--show-prices",
    metavar="LIST",
    type=click.Choice(shipped_lists()),
    callback=_print_list,
    is_eager=True,
    expose_value=False,
    help="Print one of our price lists, to copy and change.",
)
@json_option
def cost(chosen: Callable[[], PairPlan], prices: PriceList, as_json: bool) -> None:
    """Work out what a pair of namespaces would cost on Azure.

    Operations are exact. Prices come from a list with a date, which you can replace; as long as the month's included
    operations are not used up, operations cost nothing (--other-operations 0).

    \b
    Examples:
      tandembus cost --outage 1h --entities 50 --clients 20 --messages 1000000 --message-size 2048
      tandembus cost --show-prices us > ours.toml
    """
    plan = chosen()
    if plan.ping_interval_s < 1:
        raise click.BadParameter("a second at least", param_hint="--ping-interval")
    for name, seconds in (("--outage", plan.outage_s), ("--held", plan.held_s)):
        if seconds > plan.days * DAY_S:
            raise click.BadParameter(f"longer than the {plan.days} days (--days) that are asked about", param_hint=name)
    bill = PairBill(plan, prices)
    if as_json:
        print_json(_document(bill))
    else:
        _show(bill)


class PairBill:
    """Everything that the plan comes to."""

    def __init__(self, plan: PairPlan, prices: PriceList) -> None:
        self.plan: Final = plan
        self.prices: Final = prices
        self.others: Final = prices.included_operations if plan.other_operations is None else plan.other_operations
        outage_s, interval_s = int(plan.outage_s), int(plan.failover_interval_s)
        pinging = plan.entities, plan.clients, outage_s
        self.idle: Final = self.idle_for(plan.days * DAY_S)
        self.setup: Final = plan.clients * paired_costs.setup_operations(plan.backlog_queues)
        self.pings_sent: Final = paired_costs.pings_sent(*pinging, int(plan.ping_interval_s), interval_s)
        self.pings: Final = paired_costs.pings_accepted(*pinging, interval_s)
        counting, batch, subscriptions = prices.counting, plan.batch_size, plan.subscriptions
        self.diverted: Final = paired_costs.diverted(
            plan.messages, plan.message_size, counting, batch_size=batch, subscriptions=subscriptions
        )
        self.renewals: Final = paired_costs.renewals(plan.messages, int(plan.held_s))
        self.operations: Final = self.idle + self.setup + self.pings + self.diverted.further_operations + self.renewals
        self.bandwidth_cost: Final = prices.egress_cost(self.diverted.size_bytes)
        self.total_cost: Final = self.priced(self.operations) + (self.bandwidth_cost or ZERO)
        self.not_priced: Final = ["bandwidth"] if self.bandwidth_cost is None else []
        self.base_cost: Final = prices.base_cost(prices.month_hours)
        # Two Premium namespaces of one messaging unit each, without what is charged for replicated bytes.
        self.replicated_cost: Final = prices.premium_cost(2, prices.month_hours)

    def idle_for(self, duration_s: int) -> int:
        return paired_costs.idle_receives(self.plan.syphons, self.plan.backlog_queues, duration_s)

    def priced(self, operations: int) -> Decimal:
        """Beside what the month has anyway."""
        return self.prices.further_operations_cost(self.others, operations)

    def number(self, operations: int) -> float:
        return float(self.priced(operations))

    def do_rows_add_up(self) -> bool:
        """Not where they come to another tier together than each by itself."""
        many = self.diverted
        rows = [self.idle, self.setup, self.pings, self.renewals, *many.charges, many.settlements]
        apart = sum([self.priced(each) for each in rows], ZERO) - self.priced(many.normal_operations)
        return apart == self.priced(self.operations)


def _document(bill: PairBill) -> dict[str, object]:
    prices, many = bill.prices, bill.diverted
    figures = "sends_to_backlog receives_from_backlog sends_to_primary receives_from_primary transfers normal_transfers"
    figures += " settlements operations normal_operations further_operations"
    diverted = {name: getattr(many, name) for name in figures.split()}
    diverted["further_transfers_cost"] = bill.number(many.further_transfers)
    diverted["further_operations_cost"] = bill.number(many.further_operations)
    per_gb = [_number(each) for each in prices.premium.replicated_per_gb] if prices.premium else []
    return {
        "prices": {
            "name": prices.name,
            "as_of": prices.as_of.isoformat(),
            "currency": prices.currency,
            "seen": prices.seen,
        },
        "plan": {**asdict(bill.plan), "other_operations": bill.others},
        "idle_syphon": {
            "receives_per_hour": bill.idle_for(HOUR_S),
            "receives_per_day": bill.idle_for(DAY_S),
            "receives": bill.idle,
            "cost": bill.number(bill.idle),
        },
        "setup": _operations(bill, bill.setup),
        "pings": {"sent": _operations(bill, bill.pings_sent), "accepted": _operations(bill, bill.pings)},
        "diverted": diverted,
        "renewals": _operations(bill, bill.renewals),
        "bandwidth": {"size_bytes": many.size_bytes, "cost": _number(bill.bandwidth_cost)},
        "total": {
            "operations": bill.operations,
            "operations_cost": bill.number(bill.operations),
            "cost": _number(bill.total_cost),
            "not_priced": bill.not_priced,
        },
        "comparison": {
            "month_hours": prices.month_hours,
            "paired_standard": _number(bill.base_cost + bill.total_cost),
            "premium_geo_replication": _number(bill.replicated_cost),
            "replicated_per_gb": per_gb,
        },
    }


def _operations(bill: PairBill, operations: int) -> dict[str, object]:
    return {"operations": operations, "cost": bill.number(operations)}


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _show(bill: PairBill) -> None:
    prices, many = bill.prices, bill.diverted
    say(f"Azure Service Bus, list prices of {prices.as_of} ({prices.name}, {prices.currency}; seen {prices.seen})")
    say((f"{bill.others:,} other operations this month; {prices.included_operations:,} are included", "dim"))
    say()
    before = [
        ("idle syphon, an hour", bill.idle_for(HOUR_S)),
        ("idle syphon, a day", bill.idle_for(DAY_S)),
        (f"idle syphon, {bill.plan.days} days", bill.idle),
        ("pairing, at most", bill.setup),
        ("pings accepted", bill.pings),
        *zip(CHARGES, many.charges, strict=True),
        ("settlements of 2 and 4", many.settlements),
    ]
    after: list[tuple[str, int | None, Decimal | None]] = [
        ("less the same without an outage", -many.normal_operations, -bill.priced(many.normal_operations)),
        ("lock renewals in the backlog", bill.renewals, bill.priced(bill.renewals)),
        (f"{many.size_bytes:,} bytes out of the region", None, bill.bandwidth_cost),
        ("what the pair adds in all", bill.operations, bill.total_cost),
        (
            "not in it: pings sent, the most that could be charged",
            bill.pings_sent,
            bill.priced(bill.pings_sent),
        ),
    ]
    rows = [(what, operations, bill.priced(operations)) for what, operations in before] + after
    shown = [(what, operations, money(amount)) for what, operations, amount in rows]
    print_table(("what", "operations", prices.currency), shown)
    if bill.not_priced:
        say((f"without {' and '.join(bill.not_priced)}: the list has no price", "dim"))
    if not bill.do_rows_add_up():
        say(("each row is priced as if it came alone; all together reach other tiers, and the last row counts", "dim"))
    say()
    say(f"A month of {prices.month_hours} hours, in {prices.currency}:")
    paired, base = bill.base_cost + bill.total_cost, bill.base_cost
    say(f"  paired Standard namespaces        {paired:>10,.2f}  of which {base:,.2f} base charge, once")
    if bill.replicated_cost is not None and prices.premium is not None:
        per_gb = "/".join(str(each) for each in prices.premium.replicated_per_gb)
        more = f"2 messaging units; and {per_gb} per GB in zones 1/2/3"
        say(f"  Premium with Geo-Replication      {bill.replicated_cost:>10,.2f}  {more}")
