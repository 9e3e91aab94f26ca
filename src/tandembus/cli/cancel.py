"""`tandembus cancel`."""

from __future__ import annotations

from typing import Final

import click

from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.output import counted, print_json, say
from tandembus.cli.target import Target, namespace_options
from tandembus.client import connect

BATCH: Final = 100


@click.command()
@entity_argument
@click.argument("numbers", metavar="NUMBER...", type=click.IntRange(min=1), nargs=-1, required=True)
@namespace_options
async def cancel(target: Target, entity: str, numbers: tuple[int, ...]) -> None:
    """Cancel scheduled messages by their sequence numbers.

    `tandembus send --schedule` prints the numbers; `tandembus peek` shows which are scheduled. A message that is
    enqueued or cancelled already is not found, and then nothing of the same hundred is cancelled.

    \b
    Examples:
      tandembus cancel orders 17 18
      tandembus peek orders --json | jq 'select(.scheduled_at > (now | todate)).sequence_number' |
        xargs tandembus cancel orders

    \b
    JSON: {"entity", "cancelled"}
    """
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        management = await namespace.management(entity)
        for first in range(0, len(numbers), BATCH):
            await management.cancel(numbers[first : first + BATCH])
    if target.as_json:
        print_json({"entity": entity, "cancelled": len(numbers)})
    else:
        say(("cancelled", "green"), f" {counted(len(numbers), 'message')} of ", (entity, "bold"))
