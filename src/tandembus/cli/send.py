"""`tandembus send`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import uuid4

import click

from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.failures import ACCEPTED
from tandembus.cli.output import counted, print_json, progress_bar, say
from tandembus.cli.parameters import content_of, duration, moment, typed_property
from tandembus.cli.target import Target, namespace_options
from tandembus.client import Management, OutgoingMessage, Sender, connect
from tandembus.clock import SystemClock

SCHEDULE_BATCH: Final = 100
PROGRESS_FROM: Final = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be sent: a message like `template`, once or `count` times, for every body."""

    template: OutgoingMessage
    bodies: tuple[bytes, ...]
    count: int
    message_id: str | None

    @property
    def total(self) -> int:
        return self.count * len(self.bodies)

    def messages(self) -> Iterator[OutgoingMessage]:
        number = 0
        for _ in range(self.count):
            for body in self.bodies:
                number += 1
                yield replace(self.template, body=body, message_id=self._id_of(number))

    def _id_of(self, number: int) -> str:
        if self.message_id is None:
            return uuid4().hex
        return self.message_id if self.total == 1 else f"{self.message_id}-{number}"


def bodies_of(body: str | None, file: Path | None, lines: bool) -> tuple[bytes, ...]:
    """The bodies named by argument, file or standard input."""
    content = content_of("body", body, file)
    return tuple(content.splitlines()) if lines else (content,)


@click.command()
@entity_argument
@click.argument("body", required=False)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Read the body from here.",
)
@click.option("--lines", is_flag=True, help="Every line of the input is a message of its own.")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Send everything so many times.",
)
@click.option(
    "--property",
    "properties",
    type=typed_property,
    metavar="NAME[:TYPE]=VALUE",
    multiple=True,
    help="Application property; may be repeated. Types: string (default), int, long, double, bool, uuid, timestamp.",
)
@click.option(
    "--message-id",
    help="Message id; with several messages, -1, -2 ... is added. Default: a new one for each.",
)
@click.option("--subject", help="Subject (label).")
@click.option("--content-type", help="Content type, such as application/json.")
@click.option("--correlation-id", help="Correlation id.")
@click.option("--session-id", help="Session the message belongs to.")
@click.option("--partition-key", help="Partition key.")
@click.option("--to", help="To address, for the application's own use.")
@click.option("--reply-to", help="Where answers are expected.")
@click.option("--reply-to-session-id", help="Session in which answers are expected.")
@click.option("--ttl", type=duration, help="Time to live, such as 30s or 14d.")
@click.option("--schedule", type=moment, help="Enqueue later: a duration from now (10m) or 2030-01-31T08:00:00Z.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Messages per transfer; each batch is stored as a whole or not at all.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    metavar="N",
    default=500,
    show_default=True,
    help="Transfers under way at the same time.",
)
@namespace_options
async def send(
    target: Target,
    entity: str,
    body: str | None,
    file: Path | None,
    lines: bool,
    count: int,
    properties: tuple[tuple[str, object], ...],
    message_id: str | None,
    subject: str | None,
    content_type: str | None,
    correlation_id: str | None,
    session_id: str | None,
    partition_key: str | None,
    to: str | None,
    reply_to: str | None,
    reply_to_session_id: str | None,
    ttl: float | None,
    schedule: float | None,
    batch: int,
    window: int,
) -> None:  # fmt: skip
    """Send messages to a queue or topic.

    BODY is the text to send; `-`, or none at all with something piped in, reads standard input.

    \b
    Examples:
      tandembus send orders "hello"
      tandembus send orders --file order.json --content-type application/json --property total:double=9.5
      tandembus send orders --count 100000 --batch 100 "load"
      seq 1000 | tandembus send orders --lines
      tandembus send orders "later" --schedule 10m
      tandembus send orders "first of its session" --session-id customer-7

    \b
    JSON: {"entity", "sent", "seconds", "sequence_numbers": [...] with --schedule, else null}
    """
    template = OutgoingMessage(
        subject=subject,
        content_type=content_type,
        correlation_id=correlation_id,
        session_id=session_id,
        partition_key=partition_key,
        to=to,
        reply_to=reply_to,
        reply_to_session_id=reply_to_session_id,
        time_to_live_s=ttl,
        scheduled_at=schedule,
        properties=dict(properties),
    )
    order = Order(template, bodies_of(body, file, lines), count, message_id)
    clock = SystemClock()
    numbers: list[int] | None = None
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        began_at = clock.monotonic()
        if schedule is not None:
            numbers = await _schedule(target, await namespace.management(entity), order)
        else:
            await _send(target, await namespace.sender(entity), order, batch, window)
        seconds = clock.monotonic() - began_at
    _answer(target, entity, order.total, seconds, numbers)


async def _send(target: Target, sender: Sender, order: Order, batch: int, window: int) -> None:
    accepted = 0
    with progress_bar() as progress:
        task = progress.add_task("sending", total=order.total, visible=order.total >= PROGRESS_FROM)

        def advance(messages: int) -> None:
            nonlocal accepted
            accepted += messages
            progress.advance(task, messages)

        try:
            if batch == 1:
                await sender.send_many(order.messages(), window, advance)
            else:
                await sender.send_batches(order.messages(), batch, window, advance)
        except BaseException:
            # Whatever ends it early: how far it came is what a person needs to know then.
            _tell_progress(target, accepted, order.total)
            raise


def _tell_progress(target: Target, accepted: int, total: int) -> None:
    """At least so many: the answers to those under way were not waited for."""
    if target.as_json:
        click.get_current_context().find_root().meta[ACCEPTED] = accepted
    elif total > 1:
        click.echo(f"At least {accepted:,} of {counted(total, 'message')} were accepted.", err=True)


async def _schedule(target: Target, management: Management, order: Order) -> list[int]:
    numbers: list[int] = []
    messages = order.messages()
    try:
        while waiting := list(islice(messages, SCHEDULE_BATCH)):
            numbers += await management.schedule(waiting)
    except BaseException:
        _tell_progress(target, len(numbers), order.total)
        raise
    return numbers


def _answer(target: Target, entity: str, sent: int, seconds: float, numbers: list[int] | None) -> None:
    if target.as_json:
        print_json({"entity": entity, "sent": sent, "seconds": round(seconds, 3), "sequence_numbers": numbers})
        return
    verb = "sent" if numbers is None else "scheduled"
    rate = f" ({sent / seconds:,.0f}/s)" if sent >= PROGRESS_FROM and seconds > 0 else ""
    say((verb, "green"), f" {counted(sent, 'message')} to ", (entity, "bold"), f" in {seconds:.2f} s", (rate, "dim"))
    if numbers is not None and len(numbers) <= SCHEDULE_BATCH:
        say(("sequence numbers:", "dim"), f" {', '.join(map(str, numbers))}")
