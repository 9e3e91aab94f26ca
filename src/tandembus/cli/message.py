"""`tandembus message`: what can be done with one message by its sequence number."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tandembus.cli.administering import administration
from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.arguments import sub_queue_option
from tandembus.cli.failures import Failure, failure_from
from tandembus.cli.output import counted, print_json, say
from tandembus.cli.target import Target, confirmed
from tandembus.client import SubQueue
from tandembus.client.upkeep import Upkeep
from tandembus.errors import InvalidOperation, MessageLockLost, MessageNotFound


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

    ENTITY is a queue, or TOPIC/subscriptions/NAME. A message that somebody has locked cannot be deleted, nor one
    that is not there; the others that were named are deleted all the same. This needs a tandembus namespace. Asks first
    when a person is there to answer.

    \b
    Examples:
      tandembus message delete orders --sequence-number 17
      tandembus message delete orders --sub-queue dead-letter --sequence-number 3 --sequence-number 4 --yes

    \b
    JSON: {"entity", "sub_queue", "deleted": [sequence numbers], "not_deleted": [{"sequence_number", "error"}]}
    """
    part = None if sub_queue is None else SubQueue(sub_queue)
    deleted: list[int] = []
    failures: dict[int, Failure] = {}
    try:
        async with administration(target) as namespace:
            await _delete(Upkeep(namespace.requests), entity, part, numbers, deleted, failures)
    finally:
        # What is gone is gone, also when this ends before its end.
        if deleted or failures:
            _show(target, {"entity": entity, "sub_queue": sub_queue}, deleted, failures)
    if failures:
        raise _summary(failures)


async def _delete(
    upkeep: Upkeep,
    entity: str,
    part: SubQueue | None,
    numbers: Sequence[int],
    deleted: list[int],
    failures: dict[int, Failure],
) -> None:
    """One after the other; what is wrong with one message does not keep the others."""
    for number in dict.fromkeys(numbers):
        try:
            await upkeep.delete_message(entity, number, part)
            deleted.append(number)
        except (MessageNotFound, MessageLockLost, InvalidOperation) as error:
            failures[number] = failure_from(error)


def _show(target: Target, facts: dict[str, object], deleted: list[int], failures: dict[int, Failure]) -> None:
    if target.as_json:
        left = [{"sequence_number": number, "error": failure.message} for number, failure in failures.items()]
        print_json({**facts, "deleted": deleted, "not_deleted": left})
    elif deleted:
        which = "" if not failures else f" ({', '.join(map(str, deleted))})"
        say(("deleted", "green"), f" {counted(len(deleted), 'message')}{which} of ", (str(facts["entity"]), "bold"))


def _summary(failures: dict[int, Failure]) -> Failure:
    first = next(iter(failures.values()))
    if len(failures) == 1:
        return first
    text = f"Not deleted: {', '.join(map(str, failures))}. {first.message}"
    return Failure(text, first.exit_code, first.advice, first.kind)
