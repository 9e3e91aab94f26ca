"""`tandembus meter`."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Final

import click

from tandembus.cli.administering import administration
from tandembus.cli.arguments import checked_path
from tandembus.cli.output import print_json, print_table, say
from tandembus.cli.price_option import price_list
from tandembus.cli.target import Target, namespace_options
from tandembus.client.meter import Counted, in_total, since_start
from tandembus.metering.prices import PriceList

HEADINGS: Final = ("entity", "operation", "reason", "calls", "messages", "billable", "bytes")


@click.command()
@click.option("--entity", metavar="ENTITY", callback=checked_path, help="Only of this queue, topic or subscription.")
@click.option("--total", is_flag=True, help="All that was ever counted, of all entities together.")
@click.option(
    "--prices",
    metavar="LIST",
    callback=price_list,
    help="Also what it would cost on Azure, beyond what is included: us, china, or a file of your own.",
)
@namespace_options
async def meter(target: Target, entity: str | None, total: bool, prices: PriceList | None) -> None:
    """Show which operations were counted since the namespace was started.

    Billable is what the service would charge: a message counts once for every started 64 KiB. This needs a tandembus
    namespace.

    \b
    Examples:
      tandembus meter
      tandembus meter --entity orders
      tandembus meter --total --json
      tandembus meter --total --prices us

    \b
    JSON: one line each: {"entity", "operation", "reason", "calls", "messages", "operations", "size_bytes"}, and "cost"
          with --prices
    """
    if total and entity is not None:
        raise click.UsageError("--total is about all entities together: leave --entity out.")
    async with administration(target) as namespace:
        if total:
            found = await in_total(namespace.requests)
        else:
            found = [each async for each in since_start(namespace.requests, entity)]
    if target.as_json:
        for each in found:
            print_json({**asdict(each), **({} if prices is None else {"cost": float(_cost([each], prices))})})
    elif not found:
        say(("nothing was counted", "dim"))
    else:
        _show(found, prices)


def _show(found: list[Counted], prices: PriceList | None) -> None:
    if prices is None:
        print_table(HEADINGS, [_row(each) for each in found])
        return
    rows = [[*_row(each), f"{_cost([each], prices):.6f}"] for each in found]
    print_table([*HEADINGS, prices.currency], rows)
    say(
        f"{_cost(found, prices):.6f} {prices.currency} in all, at list prices of {prices.as_of} beyond what is included"
    )


def _cost(counted: list[Counted], prices: PriceList) -> Decimal:
    """Of all of them together, in a month whose included operations are used up."""
    charged = sum(prices.charged(each.operation, each.operations) for each in counted)
    return prices.further_operations_cost(prices.included_operations, charged)


def _row(counted: Counted) -> list[object]:
    figures = [counted.calls, counted.messages, counted.operations, counted.size_bytes]
    return [counted.entity or None, counted.operation, counted.reason, *figures]
