"""`tandembus peek`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import click

from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.arguments import maximum, sub_queue_option
from tandembus.cli.output import (
    ID_HEADING,
    message_record,
    preview,
    print_json,
    print_message,
    print_table,
    say,
    short_moment,
)
from tandembus.cli.target import Target, namespace_options
from tandembus.client import Management, ReceivedMessage, SubQueue, connect

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


def _row(message: ReceivedMessage) -> list[object]:
    what = [str(message.sequence_number), message.message_id, message.state]
    return [*what, short_moment(message.enqueued_at), message.delivery_count, preview(message)]


@click.command()
@entity_argument
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="First sequence number to look at.",
)
@maximum(20)
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
      tandembus peek orders
      tandembus peek orders --from 1200 --max 5 --full
      tandembus peek events/subscriptions/audit
      tandembus peek orders --session customer-7
      tandembus peek orders --sub-queue dead-letter --json | jq .dead_letter_reason

    \b
    JSON: one message per line, as `tandembus receive --json` prints them.
    """
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        management = await namespace.management(entity, SubQueue(sub_queue) if sub_queue else None)
        found = [message async for message in peeked(management, start, limit, session_id)]
    for message in found if target.as_json else ():
        print_json(message_record(message))
    if target.as_json:
        return
    if not found:
        say(("no messages", "dim"))
    elif full:
        for message in found:
            print_message(message)
    else:
        print_table(HEADINGS, [_row(message) for message in found])
