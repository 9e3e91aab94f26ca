"""`tandembus deadletter`: list dead-lettered messages and send them again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from tandembus.cli.arguments import checked_path, entity_argument, limit_option, sub_queue_option
from tandembus.cli.failures import FAILED, NOT_AUTHORIZED, Failure, failure_from
from tandembus.cli.output import ID_HEADING, ProgressLine, counted, message_record, preview, short_moment
from tandembus.cli.peek import peeked
from tandembus.cli.target import Target, namespace_options, watchable
from tandembus.client import ConnectionLost, ReceivedMessage, Sender, ServiceBus, SubQueue
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
which_option: Final = sub_queue_option(
    "Which dead letters: `transfer-dead-letter` holds what could not be forwarded.", SubQueue.DEAD_LETTER.value
)


@dataclass(frozen=True, slots=True)
class Source:
    """Which dead letters are sent again."""

    target: Target
    entity: str
    part: SubQueue


@click.group()
def deadletter() -> None:
    """List dead-lettered messages and send them again (alias: dlq).

    ENTITY is a queue, or TOPIC/subscriptions/NAME.
    """


@deadletter.command("list")
@entity_argument
@limit_option(20)
@which_option
@watchable
async def list_dead_letters(target: Target, entity: str, limit: int, sub_queue: str) -> None:
    """List dead-lettered messages with the reason, without taking them.

    \b
    Examples:
      tandembus dlq list events/subscriptions/audit
      tandembus dlq list orders --max 1000 --json | jq -r .dead_letter_reason | sort | uniq -c
    """
    async with await target.connect() as namespace:
        management = await namespace.management(entity, SubQueue(sub_queue))
        found = [message async for message in peeked(management, 1, limit)]
    rows = [_row(message) for message in found]
    target.list([message_record(each) for each in found], "no dead letters", HEADINGS, rows)


def _row(message: ReceivedMessage) -> list[object]:
    why = [message.dead_letter_reason, message.dead_letter_description]
    when = short_moment(message.enqueued_at)
    return [str(message.sequence_number), message.message_id, *why, when, preview(message)]


@deadletter.command("resubmit")
@entity_argument
@limit_option(None, "all that are there now")
@click.option("--to", "destination", metavar="ENTITY", callback=checked_path, help="Send them to this queue or topic.")
@which_option
@namespace_options
async def resubmit(target: Target, entity: str, limit: int | None, destination: str | None, sub_queue: str) -> None:
    """Send dead-lettered messages to their entity again, or to another one.

    Those of a queue go to the queue; those of a subscription to its topic, where all rules are evaluated again. Body,
    properties and message id stay as they are; reason and description go. A message leaves the dead-letter queue only
    after it was accepted: an interruption loses none. What the destination would refuse or drop (as a duplicate, or
    because no subscription takes it) stays, and is counted as refused.

    \b
    Examples:
      tandembus dlq resubmit orders --max 10
      tandembus dlq resubmit events/subscriptions/audit --to audit-again
    """
    source = Source(target, entity, SubQueue(sub_queue))
    destination = destination or (subscription_of(entity) or (entity,))[0]
    with ProgressLine("resubmitting", limit) as progress:
        outcome = await _resubmit_there(source, destination, limit, progress)
        if outcome is None:
            outcome = await _resubmit_here(source, destination, limit, progress)
    record = {"entity": entity, "to": destination, "resubmitted": outcome.moved, "refused": outcome.refused}
    moved = counted(outcome.moved, "message")
    target.answer(record, ("resubmitted", "green"), f" {moved} to ", (destination, "bold"))
    if outcome.refused:
        why = f": {outcome.refusals[0]}" if outcome.refusals else ""
        text = f"{counted(outcome.refused, 'message')} stayed in the dead-letter queue{why}"
        advice = "`tandembus deadletter list` shows them; --to sends them somewhere else."
        raise Failure(text, FAILED, advice, "Refused")


async def _resubmit_there(
    source: Source, destination: str, limit: int | None, progress: ProgressLine
) -> Resubmitted | None:
    """By the namespace itself: no message travels, and none can be in two places. None if it does not know how."""
    outcome: Resubmitted | None = None
    async with source.target.administration() as namespace:
        try:
            if limit is None and progress.is_shown:
                progress.total = await _total(namespace, source)
            upkeep = Upkeep(namespace.requests)
            async for outcome in upkeep.resubmit(source.entity, destination, limit, source.part):
                progress.update(outcome.moved)
        except (EntityNotFound, NotSupported, ConnectionLost):
            # Another service, or one whose HTTP is elsewhere. If it is the entity that is not there, AMQP says so.
            if outcome is not None:
                raise
    return outcome


async def _resubmit_here(source: Source, destination: str, limit: int | None, progress: ProgressLine) -> Resubmitted:
    """By receiving and sending, as every Service Bus knows it."""
    async with await source.target.connect() as namespace:
        left = limit if limit is not None else await _bound(source)
        progress.total = left
        moved, refusals = await _resubmit(namespace, source, destination, left, progress)
    return Resubmitted(moved, len(refusals), tuple([failure_from(each).message for each in refusals]))


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
    async with source.target.administration() as namespace:
        try:
            return await _count(namespace, source)
        except Unauthorized as error:
            advice = "Say how many with --max: only a policy with the Manage right can count them."
            raise Failure(str(error), NOT_AUTHORIZED, advice, "Unauthorized") from error


async def _resubmit(
    namespace: ServiceBus, source: Source, destination: str, left: int, progress: ProgressLine
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
        progress.update(moved)
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
