"""`tandembus meter`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click

from tandembus.cli.administering import administration
from tandembus.cli.arguments import checked_path
from tandembus.cli.output import print_json, print_table, say
from tandembus.cli.target import Target, namespace_options
from tandembus.client.meter import Counted, in_total, since_start

HEADINGS: Final = ("entity", "operation", "reason", "calls", "messages", "billable", "bytes")


@click.command()
@click.option("--entity", metavar="ENTITY", callback=checked_path, help="Only of this queue, topic or subscription.")
@click.option("--total", is_flag=True, help="All that was ever counted, of all entities together.")
@namespace_options
async def meter(target: Target, entity: str | None, total: bool) -> None:
    """Show which operations were counted since the namespace was started.

    Billable is what the service would charge: a message counts once for every started 64 KiB. This needs a tandembus
    namespace.

    \b
    Examples:
      tandembus meter
      tandembus meter --entity orders
      tandembus meter --total --json

    \b
    JSON: one line each: {"entity", "operation", "reason", "calls", "messages", "operations", "size_bytes"}
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
            print_json(asdict(each))
    elif not found:
        say(("nothing was counted", "dim"))
    else:
        print_table(HEADINGS, [_row(each) for each in found])


def _row(counted: Counted) -> list[object]:
    figures = [counted.calls, counted.messages, counted.operations, counted.size_bytes]
    return [counted.entity or None, counted.operation, counted.reason, *figures]
