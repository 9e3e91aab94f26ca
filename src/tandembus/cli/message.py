"""`tandembus message`: what can be done with one message by its sequence number."""

from __future__ import annotations

import click

from tandembus.cli.administering import administration
from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.arguments import sub_queue_option
from tandembus.cli.output import counted, print_json, say
from tandembus.cli.target import Target, confirmed
from tandembus.client import SubQueue
from tandembus.client.upkeep import Upkeep


@click.group()
def message() -> None:
    """Delete single messages by their sequence numbers."""


@message.command("delete")
@entity_argument
@click.option(
    "--sequence-number",
    "numbers",
    type=click.IntRange(min=1),
    metavar="N",
    multiple=True,
    required=True,
    help="Which one, as `tandembus peek` shows it; may be repeated.",
)
@sub_queue_option("Delete it from this sub-queue.")
@confirmed(
    lambda entity, numbers, sub_queue: (
        f"Delete {counted(len(numbers), 'message')} of {entity}{f' ({sub_queue})' if sub_queue else ''}?"
    )
)
async def delete(target: Target, entity: str, numbers: tuple[int, ...], sub_queue: str | None) -> None:
    """Delete messages by their sequence numbers, without receiving those before them.

    ENTITY is a queue, or TOPIC/subscriptions/NAME. A message that somebody has locked cannot be deleted. This needs a
    tandembus namespace. Asks first when a person is there to answer.

    \b
    Examples:
      tandembus message delete orders --sequence-number 17
      tandembus message delete orders --sub-queue dead-letter --sequence-number 3 --sequence-number 4 --yes

    \b
    JSON: {"entity", "sub_queue", "deleted": [sequence numbers]}
    """
    part = None if sub_queue is None else SubQueue(sub_queue)
    async with administration(target) as namespace:
        upkeep = Upkeep(namespace.requests)
        for number in numbers:
            await upkeep.delete_message(entity, number, part)
    if target.as_json:
        print_json({"entity": entity, "sub_queue": sub_queue, "deleted": list(numbers)})
    else:
        say(("deleted", "green"), f" {counted(len(numbers), 'message')} of ", (entity, "bold"))
