"""`tandembus topology` and `tandembus meter`: where a namespace's fragments are, and what was counted in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Final, cast

import click

from tandembus.cli.arguments import checked_path
from tandembus.cli.cost import price_list
from tandembus.cli.output import Part, Size, print_json, print_table, say
from tandembus.cli.target import Target, watchable
from tandembus.client.meter import Counted, in_total, since_start
from tandembus.client.topology import Record, Topology, topology_of
from tandembus.metering.prices import PriceList

BROKER_HEADINGS: Final = ("broker", "process", "state", "stores", "restarts", "last end")
STORE_HEADINGS: Final = ("store", "broker", "state", "epoch", "reason")
FRONT_END_HEADINGS: Final = ("front end", "process", "state", "connections", "restarts", "last end")
ENTITY_HEADINGS: Final = ("entity", "kind", "availability", "fragments: stores")
FRAGMENT_HEADINGS: Final = ("fragment", "store", "broker", "state", "reason")
METER_HEADINGS: Final = ("entity", "operation", "reason", "calls", "messages", "billable", "size")
GOOD: Final = ("ready", "available", "Available")


@click.command()
@click.option("--entity", metavar="ENTITY", callback=checked_path, help="Only the fragments of this one, one by one.")
@watchable
async def topology(target: Target, entity: str | None) -> None:
    """Show the namespace's processes and stores, and where each fragment is.

    A plain entity is in one store, a partitioned one has 16 fragments spread over all of them. This needs a tandembus
    namespace.
    """
    async with target.administration() as namespace:
        found = await topology_of(namespace.requests, entity)
    if target.as_json:
        print_json(asdict(found))
    elif entity is not None:
        for each in found.entities:
            say((str(each.get("path")), "bold"), "  ", str(each.get("kind")), "  ", _coloured(each.get("availability")))
            _print_records(FRAGMENT_HEADINGS, _fragments(each), "index", "store", "broker", "state", "reason")
    else:
        _show_all(found)


def _show_all(found: Topology) -> None:
    _print_records(BROKER_HEADINGS, found.brokers, "index", "pid", "state", "stores", "restarts", "last_exit")
    say()
    _print_records(STORE_HEADINGS, found.stores, "index", "broker", "state", "epoch", "reason")
    say()
    fields = "index", "pid", "state", "connections", "restarts", "last_exit"
    _print_records(FRONT_END_HEADINGS, found.front_ends, *fields)
    say()
    if found.entities:
        rows = [[*_cells(each, "path", "kind", "availability"), _placement(each)] for each in found.entities]
        print_table(ENTITY_HEADINGS, rows)
    else:
        say(("no queues and no topics", "dim"))


def _print_records(headings: Sequence[str], records: Sequence[Record], *names: str) -> None:
    print_table(headings, [_cells(each, *names) for each in records])


def _cells(record: Record, *names: str) -> list[object]:
    return [_cell(name, record.get(name)) for name in names]


def _cell(name: str, value: object) -> object:
    if name in ("state", "availability"):
        return _coloured(value)
    if name == "stores":
        return " ".join([str(each) for each in value]) if isinstance(value, list) else ""
    return str(value) if name == "pid" and value is not None else value


def _coloured(value: object) -> tuple[str, str]:
    return str(value), "green" if value in GOOD else "bold red"


def _placement(entity: Record) -> list[Part]:
    """The store of each fragment in order; those out of reach stand out."""
    parts: list[Part] = []
    for fragment in _fragments(entity):
        parts += [" "] if parts else []
        parts.append((str(fragment.get("store")), "" if fragment.get("state") in GOOD else "bold red"))
    return parts


def _fragments(entity: Record) -> Sequence[Record]:
    found = entity.get("fragments")
    return [cast(Record, each) for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


@click.command()
@click.option("--entity", metavar="ENTITY", callback=checked_path, help="Only of this queue, topic or subscription.")
@click.option("--total", is_flag=True, help="All that was ever counted, of all entities together.")
@click.option(
    "--prices",
    metavar="LIST",
    callback=price_list,
    help="Also what it would cost on Azure, beyond what is included: us, china, or a file of your own.",
)
@watchable
async def meter(target: Target, entity: str | None, total: bool, prices: PriceList | None) -> None:
    """Show the operations counted since the namespace was started.

    Billable is what the service would charge: a message counts once for every started 64 KiB. This needs a tandembus
    namespace.

    \b
    Examples:
      tandembus meter --total --prices us
    """
    if total and entity is not None:
        raise click.UsageError("--total is about all entities together: leave --entity out.")
    async with target.administration() as namespace:
        if total:
            found = await in_total(namespace.requests)
        else:
            found = [each async for each in since_start(namespace.requests, entity)]
    costs = [] if prices is None else [_cost([each], prices) for each in found]
    records = [asdict(each) for each in found]
    for record, cost in zip(records, costs, strict=False):
        record["cost"] = float(cost)
    rows = [_figures(each) for each in found]
    for row, cost in zip(rows, costs, strict=False):
        row.append(f"{cost:.6f}")
    headings = METER_HEADINGS if prices is None else (*METER_HEADINGS, prices.currency)
    target.list(records, "nothing was counted", headings, rows)
    if prices is not None and found and not target.as_json:
        whole = f"{_cost(found, prices):.6f} {prices.currency} in all"
        say(f"{whole}, at list prices of {prices.as_of} beyond what is included")


def _cost(counted: list[Counted], prices: PriceList) -> Decimal:
    """Of all of them together, in a month whose included operations are used up."""
    charged = sum(prices.charged(each.operation, each.operations) for each in counted)
    return prices.further_operations_cost(prices.included_operations, charged)


def _figures(counted: Counted) -> list[object]:
    figures = [counted.calls, counted.messages, counted.operations, Size(counted.size_bytes)]
    return [counted.entity or None, counted.operation, counted.reason, *figures]
