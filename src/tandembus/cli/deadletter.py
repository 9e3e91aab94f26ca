"""`tandembus deadletter`: list dead-lettered messages and send them again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click
from rich.progress import Progress, TaskID

from tandembus.cli.administering import administration
from tandembus.cli.arguments import checked_path, maximum
from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.failures import FAILED, NOT_AUTHORIZED, Failure, failure_from
from tandembus.cli.output import (
    ID_HEADING,
    counted,
    message_record,
    preview,
    print_json,
    print_table,
    progress_bar,
    say,
    short_moment,
)
from tandembus.cli.peek import peeked
from tandembus.cli.target import Target, namespace_options
from tandembus.client import ConnectionLost, ReceivedMessage, Sender, ServiceBus, SubQueue, connect
from tandembus.client.addresses import subscription_of
from tandembus.client.administration import Administration
from tandembus.client.errors import ClientFailure
from tandembus.client.messages import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, as_new
from tandembus.client.upkeep import Resubmitted, Upkeep
from tandembus.errors import EntityNotFound, NotSupported, StoreUnavailable, Unauthorized

MARKS: Final = frozenset((DEAD_LETTER_REASON, DEAD_LETTER_DESCRIPTION))
BATCH: Final = 200
WAIT_S: Final = 1.0
HEADINGS: Final = ("number", ID_HEADING, "reason", "description", "enqueued", "body")


@dataclass(frozen=True, slots=True)
class Source:
    """Which dead letters are sent again."""

    target: Target
    entity: str
    part: SubQueue


@click.group()
def deadletter() -> None:
    """List dead-lettered messages and send them again."""


sub_queue_option: Final = click.option(
    "--sub-queue",
    type=click.Choice([each.value for each in SubQueue]),
    default=SubQueue.DEAD_LETTER.value,
    show_default=True,
    help="Which dead letters: `transfer-dead-letter` holds what could not be forwarded.",
)


@deadletter.command("list")
@entity_argument
@maximum(20)
@sub_queue_option
@namespace_options
async def list_dead_letters(target: Target, entity: str, limit: int, sub_queue: str) -> None:
    """List dead-lettered messages with the reason, without taking them.

    ENTITY is a queue, or TOPIC/subscriptions/NAME.

    \b
    Examples:
      tandembus deadletter list orders
      tandembus deadletter list events/subscriptions/audit
      tandembus deadletter list orders --sub-queue transfer-dead-letter
      tandembus deadletter list orders --max 1000 --json | jq -r .dead_letter_reason | sort | uniq -c

    \b
    JSON: one message per line, as `tandembus receive --json` prints them.
    """
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        management = await namespace.management(entity, SubQueue(sub_queue))
        found = [message async for message in peeked(management, 1, limit)]
    if target.as_json:
        for message in found:
            print_json(message_record(message))
    elif not found:
        say(("no dead letters", "dim"))
    else:
        print_table(HEADINGS, [_row(message) for message in found])


def _row(message: ReceivedMessage) -> list[object]:
    why = [message.dead_letter_reason, message.dead_letter_description]
    when = short_moment(message.enqueued_at)
    return [str(message.sequence_number), message.message_id, *why, when, preview(message)]


@deadletter.command("resubmit")
@entity_argument
@click.option(
    "--max",
    "limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many at most.  [default: all that are there now]",
)
@click.option("--to", "destination", metavar="ENTITY", callback=checked_path, help="Send them to this queue or topic.")
@sub_queue_option
@namespace_options
async def resubmit(target: Target, entity: str, limit: int | None, destination: str | None, sub_queue: str) -> None:
    """Send dead-lettered messages to their entity again, or to another one.

    Those of a queue go to the queue; those of a subscription to its topic, where its rules and those of all others are
    asked anew. Body, properties and message id stay as they are; reason and description go. A message leaves the
    dead-letter queue only after it was accepted: an interruption loses none. What the destination would refuse or drop
    (as a duplicate, or because no subscription takes it) stays, and is counted as refused.

    \b
    Examples:
      tandembus deadletter resubmit orders
      tandembus deadletter resubmit orders --max 10
      tandembus deadletter resubmit events/subscriptions/audit --to audit-again

    \b
    JSON: {"entity", "to", "resubmitted", "refused"}
    """
    source = Source(target, entity, SubQueue(sub_queue))
    destination = destination or _home(entity)
    with progress_bar() as progress:
        task = progress.add_task("resubmitting", total=limit)
        outcome = await _resubmit_there(source, destination, limit, progress, task)
        if outcome is None:
            outcome = await _resubmit_here(source, destination, limit, progress, task)
    if target.as_json:
        facts = {"entity": entity, "to": destination}
        print_json({**facts, "resubmitted": outcome.moved, "refused": outcome.refused})
    else:
        say(("resubmitted", "green"), f" {counted(outcome.moved, 'message')} to ", (destination, "bold"))
    if outcome.refused:
        why = f": {outcome.refusals[0]}" if outcome.refusals else ""
        text = f"{counted(outcome.refused, 'message')} stayed in the dead-letter queue{why}"
        advice = "`tandembus deadletter list` shows them; --to sends them somewhere else."
        raise Failure(text, FAILED, advice, "Refused")


async def _resubmit_there(
    source: Source, destination: str, limit: int | None, progress: Progress, task: TaskID
) -> Resubmitted | None:
    """By the namespace itself: no message travels, and none can be in two places. None if it does not know how."""
    outcome: Resubmitted | None = None
    async with administration(source.target) as namespace:
        try:
            if limit is None and not progress.disable:
                progress.update(task, total=await _total(namespace, source))
            upkeep = Upkeep(namespace.requests)
            async for outcome in upkeep.resubmit(source.entity, destination, limit, source.part):
                progress.update(task, completed=outcome.moved)
        except (EntityNotFound, NotSupported, ConnectionLost):
            # Another service, or one whose HTTP is elsewhere. If it is the entity that is not there, AMQP says so.
            if outcome is not None:
                raise
    return outcome


async def _resubmit_here(
    source: Source, destination: str, limit: int | None, progress: Progress, task: TaskID
) -> Resubmitted:
    """By receiving and sending, as every Service Bus knows it."""
    target = source.target
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        left = limit if limit is not None else await _bound(source)
        progress.update(task, total=left)
        moved, refusals = await _resubmit(namespace, source, destination, left, progress, task)
    return Resubmitted(moved, len(refusals), tuple([failure_from(each).message for each in refusals]))


def _home(entity: str) -> str:
    """Where messages of this entity are sent to."""
    subscription = subscription_of(entity)
    return entity if subscription is None else subscription[0]


async def _total(namespace: Administration, source: Source) -> int | None:
    """How many there are, to show how far it is; None for who may not know."""
    try:
        return await _count(namespace, source)
    except Unauthorized:
        return None


async def _count(namespace: Administration, source: Source) -> int:
    subscription = subscription_of(source.entity)
    if subscription is not None:
        counts = (await namespace.get_subscription(*subscription)).counts
    else:
        counts = (await namespace.get_queue(source.entity)).counts
    count = counts.dead_letter if source.part is SubQueue.DEAD_LETTER else counts.transfer_dead_letter
    if count is None:
        raise StoreUnavailable(f"How many dead letters '{source.entity}' has is not known at the moment.")
    return count


async def _bound(source: Source) -> int:
    """How many dead letters there are now.

    A bound is needed: a receiver of the entity may dead-letter what was just resubmitted, and this would never
    end.
    """
    async with administration(source.target) as namespace:
        try:
            return await _count(namespace, source)
        except Unauthorized as error:
            advice = "Say how many with --max: only a policy with the Manage right can count them."
            raise Failure(str(error), NOT_AUTHORIZED, advice, "Unauthorized") from error


async def _resubmit(
    namespace: ServiceBus, source: Source, destination: str, left: int, progress: Progress, task: TaskID
) -> tuple[int, list[Exception]]:
    sender = await namespace.sender(destination)
    receiver = await namespace.receiver(source.entity, source.part)
    moved = 0
    refused: list[ReceivedMessage] = []
    refusals: list[Exception] = []
    while left > moved + len(refused):
        # Refused messages stay locked until the end: given back at once, they would be received again.
        messages = await receiver.receive(min(BATCH, left - moved - len(refused)), WAIT_S)
        if not messages:
            break
        accepted, failures = await _send_again(sender, messages)
        await receiver.complete(*accepted)
        moved += len(accepted)
        refused += [message for message, _ in failures]
        refusals += [failure for _, failure in failures]
        progress.update(task, completed=moved)
    await receiver.release(*refused)
    return moved, refusals


async def _send_again(
    sender: Sender, messages: Sequence[ReceivedMessage]
) -> tuple[list[ReceivedMessage], list[tuple[ReceivedMessage, Exception]]]:
    """All at once; which were accepted, and which failed with what."""
    sends = [sender.send(as_new(message.payload, MARKS)) for message in messages]
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    accepted: list[ReceivedMessage] = []
    failed: list[tuple[ReceivedMessage, Exception]] = []
    for message, outcome in zip(messages, outcomes, strict=True):
        if outcome is None:
            accepted.append(message)
        elif isinstance(outcome, ClientFailure):
            failed.append((message, outcome))
        else:
            raise outcome
    return accepted, failed
