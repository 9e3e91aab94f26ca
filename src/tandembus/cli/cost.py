"""`tandembus cost`: what a pair of namespaces would cost on Azure. Asks nobody; all it needs is a price list."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Final

import click

from tandembus.cli.output import print_json, print_table, say
from tandembus.cli.parameters import duration
from tandembus.cli.price_option import price_list
from tandembus.cli.target import json_option
from tandembus.metering import paired_costs
from tandembus.metering.money import money
from tandembus.metering.paired_costs import CHARGES, DAY_S, HOUR_S, Diverted
from tandembus.metering.price_files import DEFAULT_LIST, list_text, shipped_lists
from tandembus.metering.prices import ZERO, PriceList
from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES

HOURS_A_DAY: Final = 24
LARGEST: Final = 10**15
COUNT: Final = click.IntRange(1, 1_000_000)
ANY_COUNT: Final = click.IntRange(0, LARGEST)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked about."""

    backlog_queues: int
    syphons: int
    days: int
    clients: int
    entities: int
    outage_s: int
    failover_interval_s: int
    ping_interval_s: int
    messages: int
    message_size: int
    batch_size: int
    subscriptions: int
    held_s: int
    senders: int
    other_operations: int
    other_connections: int


def _whole_seconds(_: click.Context, __: click.Parameter, text: str) -> int:
    seconds = duration(text)
    if not 0 <= seconds <= LARGEST:
        raise click.BadParameter("it must come to an end")
    return int(seconds)


def _print_list(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        click.echo(list_text(name), nl=False)
        context.exit()


@click.command()
@click.option(
    "--backlog-queues",
    type=click.IntRange(1, MAX_BACKLOG_QUEUES),
    default=10,
    show_default=True,
    help="Backlog queues of the pair.",
)
@click.option("--syphons", type=COUNT, default=1, show_default=True, help="Processes that run the syphon.")
@click.option("--days", type=click.IntRange(1, 31), default=30, show_default=True, help="Days of the month.")
@click.option("--clients", type=COUNT, default=1, show_default=True, help="Paired clients, each of which pings.")
@click.option("--senders", type=COUNT, default=1, show_default=True, help="Senders of each that fail over.")
@click.option("--entities", type=COUNT, default=1, show_default=True, help="Entities that an outage makes unavailable.")
@click.option("--outage", callback=_whole_seconds, default="0s", show_default=True, help="How long they are.")
@click.option(
    "--failover-interval", callback=_whole_seconds, default="1m", show_default=True, help="Time until they fail over."
)
@click.option(
    "--ping-interval", callback=_whole_seconds, default="1m", show_default=True, help="Time between two pings."
)
@click.option("--messages", type=ANY_COUNT, default=0, show_default=True, help="Messages that go through the backlog.")
@click.option("--message-size", type=ANY_COUNT, default=1024, show_default=True, help="Bytes of one of them.")
@click.option("--batch-size", type=COUNT, default=1, show_default=True, help="How many are sent at once.")
@click.option(
    "--subscriptions", type=COUNT, default=1, show_default=True, help="How many subscriptions get each; 1 for a queue."
)
@click.option(
    "--held", callback=_whole_seconds, default="0s", show_default=True, help="How long the syphon holds each of them."
)
@click.option(
    "--other-operations",
    type=ANY_COUNT,
    metavar="N",
    help="Operations of the month that are there anyway.  [default: as many as are included]",
)
@click.option(
    "--other-connections", type=ANY_COUNT, default=0, show_default=True, help="Connections that are there anyway."
)
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
def cost(
    backlog_queues: int,
    syphons: int,
    days: int,
    clients: int,
    senders: int,
    entities: int,
    outage: int,
    failover_interval: int,
    ping_interval: int,
    messages: int,
    message_size: int,
    batch_size: int,
    subscriptions: int,
    held: int,
    other_operations: int | None,
    other_connections: int,
    prices: PriceList,
    as_json: bool,
) -> None:
    """Work out what a pair of namespaces would cost on Azure.

    Operations are exact. Prices come from a list with a date, which you can replace; as long as the month's included
    operations are not used up, operations cost nothing (--other-operations 0).

    \b
    Examples:
      tandembus cost
      tandembus cost --outage 1h --entities 50 --clients 20 --messages 1000000 --message-size 2048
      tandembus cost --backlog-queues 10 --days 30 --json
      tandembus cost --show-prices us > ours.toml

    \b
    JSON: {"prices", "plan", "idle_syphon", "setup", "pings", "diverted", "renewals", "connections", "bandwidth",
           "total", "comparison"}; a cost is null where the list has no price, and then not in the total
    """
    if ping_interval < 1:
        raise click.BadParameter("a second at least", param_hint="--ping-interval")
    for option, seconds in (("--outage", outage), ("--held", held)):
        if seconds > days * DAY_S:
            raise click.BadParameter(f"longer than the {days} days (--days) that are asked about", param_hint=option)
    before = prices.included_operations if other_operations is None else other_operations
    plan = Plan(
        backlog_queues,
        syphons,
        days,
        clients,
        entities,
        outage,
        failover_interval,
        ping_interval,
        messages,
        message_size,
        batch_size,
        subscriptions,
        held,
        senders,
        before,
        other_connections,
    )
    bill = Bill(plan, prices)
    if as_json:
        print_json(_document(bill))
    else:
        _show(bill)


class Bill:
    """Everything that the plan comes to."""

    def __init__(self, plan: Plan, prices: PriceList) -> None:
        self.plan: Final = plan
        self.prices: Final = prices
        self.idle_per_hour: Final = self._idle(HOUR_S)
        self.idle_per_day: Final = self._idle(DAY_S)
        self.idle: Final = self._idle(plan.days * DAY_S)
        self.setup: Final = plan.clients * paired_costs.setup_operations(plan.backlog_queues)
        self.pings_sent: Final = paired_costs.pings_sent(
            plan.entities, plan.clients, plan.outage_s, plan.ping_interval_s, plan.failover_interval_s
        )
        self.pings: Final = paired_costs.pings_accepted(
            plan.entities, plan.clients, plan.outage_s, plan.failover_interval_s
        )
        self.diverted: Final[Diverted] = paired_costs.diverted(
            plan.messages,
            plan.message_size,
            prices.counting,
            batch_size=plan.batch_size,
            subscriptions=plan.subscriptions,
        )
        self.renewals: Final = paired_costs.renewals(plan.messages, plan.held_s)
        self.to_secondary: Final = plan.clients * plan.senders + plan.syphons
        self.to_primary: Final = plan.syphons
        self.operations: Final = self.idle + self.setup + self.pings + self.diverted.further_operations + self.renewals

    def _idle(self, duration_s: int) -> int:
        return paired_costs.idle_receives(self.plan.syphons, self.plan.backlog_queues, duration_s)

    def priced(self, operations: int) -> Decimal:
        """Beside what the month has anyway."""
        return self.prices.further_operations_cost(self.plan.other_operations, operations)

    @property
    def do_rows_add_up(self) -> bool:
        """Not where they come to another tier together than each by itself."""
        many = self.diverted
        rows = [self.idle, self.setup, self.pings, self.renewals, *many.charges, many.settlements]
        apart = sum([self.priced(each) for each in rows], ZERO) - self.priced(many.normal_operations)
        return apart == self.priced(self.operations)

    @property
    def connections_cost(self) -> Decimal | None:
        """Of connections that last for as long as the plan does, by the month."""
        share = Decimal(self.plan.days * HOURS_A_DAY) / self.prices.connection_hours
        before = self.prices.connections_cost(Decimal(self.plan.other_connections))
        further = (self.to_secondary + self.to_primary) * share
        after = self.prices.connections_cost(self.plan.other_connections + further)
        return None if before is None or after is None else after - before

    @property
    def bandwidth_cost(self) -> Decimal | None:
        return self.prices.egress_cost(self.diverted.size_bytes)

    @property
    def total_cost(self) -> Decimal:
        """Of everything that has a price."""
        return self.priced(self.operations) + (self.connections_cost or ZERO) + (self.bandwidth_cost or ZERO)

    @property
    def not_priced(self) -> list[str]:
        costs = {"connections": self.connections_cost, "bandwidth": self.bandwidth_cost}
        return [what for what, cost in costs.items() if cost is None]

    @property
    def paired_per_month(self) -> Decimal:
        """Two Standard namespaces of one subscription, with all that the plan adds."""
        return self.prices.base_cost(self.prices.month_hours) + self.total_cost

    @property
    def replicated_per_month(self) -> Decimal | None:
        """Two Premium namespaces of one messaging unit each, without what is charged for replicated bytes."""
        return self.prices.premium_cost(2, self.prices.month_hours)


def _document(bill: Bill) -> dict[str, object]:
    prices, many = bill.prices, bill.diverted
    return {
        "prices": {
            "name": prices.name,
            "as_of": prices.as_of.isoformat(),
            "currency": prices.currency,
            "seen": prices.seen,
        },
        "plan": asdict(bill.plan),
        "idle_syphon": {
            "receives_per_hour": bill.idle_per_hour,
            "receives_per_day": bill.idle_per_day,
            "receives": bill.idle,
            "cost": _number(bill.priced(bill.idle)),
        },
        "setup": {"operations": bill.setup, "cost": _number(bill.priced(bill.setup))},
        "pings": {
            "sent": {"operations": bill.pings_sent, "cost": _number(bill.priced(bill.pings_sent))},
            "accepted": {"operations": bill.pings, "cost": _number(bill.priced(bill.pings))},
        },
        "diverted": {
            "sends_to_backlog": many.sends_to_backlog,
            "receives_from_backlog": many.receives_from_backlog,
            "sends_to_primary": many.sends_to_primary,
            "receives_from_primary": many.receives_from_primary,
            "transfers": many.transfers,
            "normal_transfers": many.normal_transfers,
            "further_transfers_cost": _number(bill.priced(many.further_transfers)),
            "settlements": many.settlements,
            "operations": many.operations,
            "normal_operations": many.normal_operations,
            "further_operations": many.further_operations,
            "further_operations_cost": _number(bill.priced(many.further_operations)),
        },
        "renewals": {"operations": bill.renewals, "cost": _number(bill.priced(bill.renewals))},
        "connections": {
            "further": bill.to_secondary,
            "to_primary": bill.to_primary,
            "cost": _number(bill.connections_cost),
        },
        "bandwidth": {"size_bytes": many.size_bytes, "cost": _number(bill.bandwidth_cost)},
        "total": {
            "operations": bill.operations,
            "operations_cost": _number(bill.priced(bill.operations)),
            "cost": _number(bill.total_cost),
            "not_priced": bill.not_priced,
        },
        "comparison": {
            "month_hours": prices.month_hours,
            "paired_standard": _number(bill.paired_per_month),
            "premium_geo_replication": _number(bill.replicated_per_month),
            "replicated_per_gb": [_number(each) for each in prices.premium.replicated_per_gb] if prices.premium else [],
        },
    }


def _show(bill: Bill) -> None:
    prices, plan, many = bill.prices, bill.plan, bill.diverted
    connections = f"{bill.to_secondary:,} connections to the secondary, {bill.to_primary:,} to the primary"
    say(f"Azure Service Bus, list prices of {prices.as_of} ({prices.name}, {prices.currency}; seen {prices.seen})")
    say((f"{plan.other_operations:,} other operations this month; {prices.included_operations:,} are included", "dim"))
    say()
    print_table(
        ("what", "operations", prices.currency),
        [
            _row(bill, "idle syphon, an hour", bill.idle_per_hour),
            _row(bill, "idle syphon, a day", bill.idle_per_day),
            _row(bill, f"idle syphon, {plan.days} days", bill.idle),
            _row(bill, "pairing, at most", bill.setup),
            _row(bill, "pings accepted", bill.pings),
            *[_row(bill, what, operations) for what, operations in zip(CHARGES, many.charges, strict=True)],
            _row(bill, "settlements of 2 and 4", many.settlements),
            ("less the same without an outage", -many.normal_operations, money(-bill.priced(many.normal_operations))),
            _row(bill, "lock renewals in the backlog", bill.renewals),
            (connections, None, money(bill.connections_cost)),
            (f"{many.size_bytes:,} bytes out of the region", None, money(bill.bandwidth_cost)),
            ("what the pair adds in all", bill.operations, money(bill.total_cost)),
            _row(bill, "not in it: pings sent, the most that could be charged", bill.pings_sent),
        ],
    )
    if bill.not_priced:
        say((f"without {' and '.join(bill.not_priced)}: the list has no price", "dim"))
    if not bill.do_rows_add_up:
        say(("each row is priced as if it came alone; all together reach other tiers, and the last row counts", "dim"))
    say()
    _compare(bill)


def _row(bill: Bill, what: str, operations: int) -> tuple[str, int, str]:
    return what, operations, money(bill.priced(operations))


def _compare(bill: Bill) -> None:
    prices = bill.prices
    say(f"A month of {prices.month_hours} hours, in {prices.currency}:")
    base = prices.base_cost(prices.month_hours)
    say(f"  paired Standard namespaces        {bill.paired_per_month:>10,.2f}  of which {base:,.2f} base charge, once")
    if bill.replicated_per_month is not None and prices.premium is not None:
        per_gb = "/".join(str(each) for each in prices.premium.replicated_per_gb)
        more = f"2 messaging units; and {per_gb} per GB in zones 1/2/3"
        say(f"  Premium with Geo-Replication      {bill.replicated_per_month:>10,.2f}  {more}")


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)
