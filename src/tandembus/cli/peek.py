"""`tandembus peek`, and what can be done with messages by their numbers: `tandembus cancel` and `tandembus message`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import click

from tandembus.cli.arguments import entity_argument, limit_option, number, sub_queue_option
from tandembus.cli.failures import Failure, failure_from
from tandembus.cli.output import (
    ID_HEADING,
    counted,
    message_record,
    preview,
    print_json,
    print_message,
    say,
    short_moment,
)
from tandembus.cli.target import Target, confirmed, namespace_options, part_of
from tandembus.client import Management, ReceivedMessage
from tandembus.client.upkeep import Upkeep
from tandembus.errors import InvalidOperation, MessageLockLost, MessageNotFound

PAGE_SIZE: Final = 100
HEADINGS: Final = ("number", ID_HEADING, "state", "enqueued", "deliveries", "body")


async def peeked(
    management: Management, start: int, limit: int, session_id: str | None = None
) -> AsyncIterator[ReceivedMessage]:
    """Up to `limit` messages from the sequence number `start` on; an answer may hold fewer than asked for."""
    left = limit
    while left > 0:
        messages = await management.peek(start, min(left, PAGE_SIZE), session_id)
        if not messages:
            return
        for message in messages:
            yield message
        left -= len(messages)
        start = messages[-1].sequence_number + 1


@click.command()
@entity_argument
@number("--from", "First sequence number to look at.", 1, "start")
@limit_option(20)
@sub_queue_option("Look into this sub-queue.")
@click.option("--session", "session_id", metavar="ID", help="Only messages of this session.")
@click.option("--full", is_flag=True, help="Show properties and the whole body, not a table.")
@namespace_options
async def peek(
    target: Target, entity: str, start: int, limit: int, sub_queue: str | None, session_id: str | None, full: bool
) -> None:
    """Look at messages without taking them.

    Active, locked, deferred and scheduled messages alike, in the order of their sequence numbers. ENTITY is a queue, a
    topic (its scheduled messages), or TOPIC/subscriptions/NAME.

    \b
    Examples:
      tandembus peek orders --from 1200 --max 5 --full
      tandembus peek events/subscriptions/audit
      tandembus peek orders --sub-queue dead-letter --json | jq .dead_letter_reason
    """
    async with await target.connect() as namespace:
        management = await namespace.management(entity, part_of(sub_queue))
        found = [message async for message in peeked(management, start, limit, session_id)]
    is_full = full and not target.as_json
    rows = [_row(message) for message in found]
    target.list([message_record(each) for each in found], "no messages", () if is_full else HEADINGS, rows)
    for message in found if is_full else ():
        print_message(message)


def _row(message: ReceivedMessage) -> list[object]:
    what = [str(message.sequence_number), message.message_id, message.state]
    return [*what, short_moment(message.enqueued_at), message.delivery_count, preview(message)]


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
    """
    async with await target.connect() as namespace:
        management = await namespace.management(entity)
        for first in range(0, len(numbers), PAGE_SIZE):
            await management.cancel(numbers[first : first + PAGE_SIZE])
    record = {"entity": entity, "cancelled": len(numbers)}
    target.answer(record, ("cancelled", "green"), f" {counted(len(numbers), 'message')} of ", (entity, "bold"))


@click.group()
def message() -> None:
    """Delete single messages by their sequence numbers."""


@message.command("delete")
@entity_argument
@number(
    "--sequence-number",
    "Which one, as `tandembus peek` shows it; may be repeated.",
    field="numbers",
    multiple=True,
    required=True,
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
      tandembus message delete orders --sub-queue dead-letter --sequence-number 3 --sequence-number 4 --yes
    """
    deleted: list[int] = []
    failures: dict[int, Failure] = {}
    try:
        async with target.administration() as namespace:
            for number in dict.fromkeys(numbers):
                try:
                    await Upkeep(namespace.requests).delete_message(entity, number, part_of(sub_queue))
                    deleted.append(number)
                except (MessageNotFound, MessageLockLost, InvalidOperation) as error:
                    failures[number] = failure_from(error)
    finally:
        # What is deleted is shown also where a later message ends the command.
        if deleted or failures:
            _show(target, {"entity": entity, "sub_queue": sub_queue}, deleted, failures)
    if failures:
        raise _summary(failures)


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
