"""`tandembus queue`: create, list, show, update, delete and purge queues."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import click
from rich.progress import Progress, TaskID

from tandembus.cli.failures import FAILED, Failure, failure_from
from tandembus.cli.output import (
    counted,
    print_fields,
    print_json,
    print_table,
    progress_bar,
    queue_fields,
    queue_record,
    say,
)
from tandembus.cli.parameters import duration
from tandembus.cli.printable import printable
from tandembus.cli.target import TRANSFER_NOTE, Target, confirmed, namespace_options
from tandembus.client import Management, ReceiveMode, ServiceBus, SubQueue, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import EntityInfo, QueueSettings
from tandembus.clock import SystemClock
from tandembus.descriptions import validate_name
from tandembus.errors import InvalidArgument, NotSupported, QuotaExceeded
from tandembus.limits import Limits

T = TypeVar("T")
STATUSES: Final = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")
TOO_MANY_QUEUES: Final = "Delete queues that are not needed, or raise limits.max_entities of the namespace."
PURGE_BATCH: Final = 4000
PURGE_WAIT_S: Final = 1.0
LIST_HEADINGS: Final = ("queue", "status", "active", "dead-letter", "scheduled", "size (bytes)")

CHANGEABLE: Final = (
    click.option("--lock-duration", "lock_duration_s", type=duration, help="How long a receiver may keep a message."),
    click.option("--max-size-mb", type=int, help="Size limit: 1024 to 5120 in steps of 1024."),
    click.option("--default-ttl", "default_time_to_live_s", type=duration, help="Time to live of messages at most."),
    click.option(
        "--dead-lettering-on-expiration/--no-dead-lettering-on-expiration",
        default=None,
        help="Dead-letter expired messages, or drop them.",
    ),
    click.option(
        "--duplicate-detection-window",
        "duplicate_detection_window_s",
        type=duration,
        help="How long message ids are remembered (not available yet).",
    ),
    click.option("--max-delivery-count", type=int, help="Deliveries in vain until a message is dead-lettered."),
    click.option("--batched-operations/--no-batched-operations", default=None, help="Let the service batch its work."),
    click.option("--status", type=click.Choice(STATUSES, case_sensitive=False), help="What the queue allows."),
    click.option("--auto-delete-on-idle", "auto_delete_on_idle_s", type=duration, help="Delete when unused so long."),
    click.option("--forward-to", help="Forward messages to this entity; empty = no more (not available yet)."),
    click.option(
        "--forward-dead-letters-to", help="Forward dead letters to this entity; empty = no more (not available yet)."
    ),
    click.option("--user-metadata", help="Text of your own, kept with the queue; empty = none."),
    click.option("--max-message-size-kb", type=int, help="Largest message (Premium)."),
)

FIXED: Final = (
    click.option(
        "--requires-session/--no-requires-session",
        default=None,
        help="Every message belongs to a session (not available yet).",
    ),
    click.option(
        "--requires-duplicate-detection/--no-requires-duplicate-detection",
        default=None,
        help="Drop messages whose id was seen before (not available yet).",
    ),
    click.option(
        "--partitioning/--no-partitioning", default=None, help="Spread the queue over many brokers (not available yet)."
    ),
)


def _with(options: tuple[Callable[[Any], Any], ...]) -> Callable[[T], T]:
    def add(command: T) -> T:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _administration(target: Target) -> Administration:
    return Administration(target.connection_string, ca_path=target.ca_path)


def _show(target: Target, queue: EntityInfo[QueueSettings], said: str) -> None:
    if target.as_json:
        print_json(queue_record(queue))
        return
    if said:
        say((said, "green"), " ", (queue.name, "bold"))
    print_fields(queue_fields(queue))


def _checked_name(_: click.Context, __: click.Parameter, name: str) -> str:
    """A name that could be a queue's; how long it may be is for the service to say."""
    try:
        validate_name(name, replace(Limits(), max_name_length=max(1, len(name))))
    except InvalidArgument as error:
        raise click.BadParameter(printable(str(error))) from None
    return name


name_argument: Final = click.argument("name", callback=_checked_name)


@click.group()
def queue() -> None:
    """Create, list, show, update, delete and purge queues.

    \b
    Durations are written 30s, 5m, 2h, 14d, never, or in ISO 8601 (PT1M).
    JSON of a queue: its settings by name (durations in seconds, null = never), "counts", and its times.
    """


@queue.command("create")
@name_argument
@_with(FIXED + CHANGEABLE)
@namespace_options
async def create(target: Target, name: str, **settings: Any) -> None:
    """Create a queue.

    \b
    Examples:
      tandembus queue create orders
      tandembus queue create orders --lock-duration 30s --max-delivery-count 5 --default-ttl 14d

    JSON: the queue.
    """
    async with _administration(target) as administration:
        try:
            made = await administration.create_queue(name, QueueSettings(**settings))
        except QuotaExceeded as error:
            failure = failure_from(error)
            raise Failure(failure.message, FAILED, TOO_MANY_QUEUES, failure.kind) from error
    if target.as_json or not sys.stdout.isatty():
        _show(target, made, "created")
    else:
        say(("created", "green"), " ", (made.name, "bold"))
        say((f"`tandembus queue show {made.name}` tells its settings", "dim"))


@queue.command("list")
@namespace_options
async def list_queues(target: Target) -> None:
    """List all queues with their counts.

    JSON: one queue per line.
    """
    async with _administration(target) as administration:
        found = [each async for each in administration.queues()]
    if target.as_json:
        for each in found:
            print_json(queue_record(each))
    elif not found:
        say(("no queues; `tandembus queue create NAME` makes one", "dim"))
    else:
        print_table(LIST_HEADINGS, [_row(each) for each in found])


def _row(queue: EntityInfo[QueueSettings]) -> tuple[object, ...]:
    counts = queue.counts
    return (
        queue.name,
        queue.settings.status,
        counts.active,
        counts.dead_letter,
        counts.scheduled,
        counts.size_bytes,
    )


@queue.command("show")
@name_argument
@namespace_options
async def show(target: Target, name: str) -> None:
    """Show a queue's settings, counts and times.

    JSON: the queue.
    """
    async with _administration(target) as administration:
        _show(target, await administration.get_queue(name), "")


@queue.command("update")
@name_argument
@_with(CHANGEABLE)
@namespace_options
async def update(target: Target, name: str, **settings: Any) -> None:
    """Change settings of a queue; those not named stay as they are.

    \b
    Examples:
      tandembus queue update orders --max-delivery-count 20
      tandembus queue update orders --status ReceiveDisabled

    JSON: the queue as it is now.
    """
    changes = QueueSettings(**settings)
    if changes == QueueSettings():
        raise click.UsageError("Nothing to change: name at least one setting.")
    async with _administration(target) as administration:
        _show(target, await administration.update_queue(name, changes), "updated")


@queue.command("delete")
@name_argument
@confirmed(lambda name: f"Delete the queue {name} with all its messages?")
async def delete(target: Target, name: str) -> None:
    """Delete a queue with all its messages.

    Asks first when a person is there to answer.

    \b
    JSON: {"queue", "deleted": true}
    """
    async with _administration(target) as administration:
        await administration.delete_queue(name)
    if target.as_json:
        print_json({"queue": name, "deleted": True})
    else:
        say(("deleted", "green"), " ", (name, "bold"))


@queue.command("purge")
@name_argument
@click.option(
    "--sub-queue",
    type=click.Choice([each.value for each in SubQueue]),
    help=f"Purge this sub-queue instead; {TRANSFER_NOTE}.",
)
@confirmed(lambda name, sub_queue: f"Delete all messages of {_part(name, sub_queue)}?")
async def purge(target: Target, name: str, sub_queue: str | None) -> None:
    """Delete the messages of a queue that are there now; the queue stays.

    Locked, deferred and scheduled messages stay as well. Asks first when a person is there to answer.

    \b
    Examples:
      tandembus queue purge orders
      tandembus queue purge orders --sub-queue dead-letter --yes

    \b
    JSON: {"queue", "sub_queue", "purged"}
    """
    part = None if sub_queue is None else SubQueue(sub_queue)
    with progress_bar() as progress:
        async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
            purged = await _purge(namespace, name, part, progress)
    if target.as_json:
        print_json({"queue": name, "sub_queue": sub_queue, "purged": purged})
    else:
        say(("purged", "green"), f" {counted(purged, 'message')} from ", (_part(name, sub_queue), "bold"))


def _part(name: str, sub_queue: str | None) -> str:
    return name if sub_queue is None else f"{name} ({sub_queue})"


async def _purge(namespace: ServiceBus, name: str, part: SubQueue | None, progress: Progress) -> int:
    task = progress.add_task("purging", total=None)
    try:
        return await _delete_in_batches(await namespace.management(name, part), progress, task)
    except NotSupported:
        return await _receive_and_delete(namespace, name, part, progress, task)


async def _delete_in_batches(management: Management, progress: Progress, task: TaskID) -> int:
    """Up to this moment: messages that keep coming in must not keep this going for ever."""
    before = SystemClock().now()
    purged = 0
    while True:
        deleted = await management.batch_delete(PURGE_BATCH, before)
        purged += deleted
        progress.update(task, completed=purged)
        if deleted == 0:
            return purged


async def _receive_and_delete(
    namespace: ServiceBus, name: str, part: SubQueue | None, progress: Progress, task: TaskID
) -> int:
    """For services without batch deletion."""
    receiver = await namespace.receiver(name, part, mode=ReceiveMode.RECEIVE_AND_DELETE)
    purged = 0
    while messages := await receiver.receive(PURGE_BATCH, PURGE_WAIT_S):
        purged += len(messages)
        progress.update(task, completed=purged)
    return purged
