"""`tandembus queue`: create, list, show, update, delete and purge queues."""

from __future__ import annotations

from typing import Any

import click

from tandembus.cli import purging
from tandembus.cli.administering import administration, creating_entity, note_one_store
from tandembus.cli.arguments import named_entity, sub_queue_option
from tandembus.cli.entity_output import show_created, show_deleted, show_entities, show_entity
from tandembus.cli.settings import setting_options
from tandembus.cli.target import Target, confirmed, namespace_options
from tandembus.client.entities import QueueSettings


@click.group()
def queue() -> None:
    """Create, list, show, update, delete and purge queues.

    \b
    Durations are written 30s, 5m, 2h, 14d, never, or in ISO 8601 (PT1M).
    JSON of a queue: its settings by name (durations in seconds, null = never), "counts", and its times.
    """


@queue.command("create")
@named_entity
@setting_options(QueueSettings, creating=True)
@namespace_options
async def create(target: Target, entity: str, **settings: Any) -> None:
    """Create a queue.

    \b
    Examples:
      tandembus queue create orders
      tandembus queue create orders --lock-duration 30s --max-delivery-count 5 --default-ttl 14d
      tandembus queue create orders --requires-session --requires-duplicate-detection --duplicate-window 1h
      tandembus queue create orders --forward-to archive --forward-dead-letters-to failures
      tandembus queue create orders --enable-partitioning --max-size-gb 5

    JSON: the queue.
    """
    async with administration(target) as namespace:
        work = namespace.create_queue(entity, QueueSettings(**settings))
        made = await creating_entity(namespace, entity, False, work)
        await note_one_store(namespace, made)
    show_created(target, made, f"queue show {made.name}")


@queue.command("list")
@namespace_options
async def list_queues(target: Target) -> None:
    """List all queues with their counts.

    JSON: one queue per line.
    """
    async with administration(target) as namespace:
        show_entities(target, "queue", [each async for each in namespace.queues()])


@queue.command("show")
@named_entity
@namespace_options
async def show(target: Target, entity: str) -> None:
    """Show a queue's settings, fragments, availability, counts and times.

    JSON: the queue.
    """
    async with administration(target) as namespace:
        show_entity(target, await namespace.get_queue(entity))


@queue.command("update")
@named_entity
@setting_options(QueueSettings, creating=False)
@namespace_options
async def update(target: Target, entity: str, **settings: Any) -> None:
    """Change settings of a queue; those not named stay as they are.

    \b
    Examples:
      tandembus queue update orders --max-delivery-count 20
      tandembus queue update orders --status ReceiveDisabled
      tandembus queue update orders --forward-to ""

    JSON: the queue as it is now.
    """
    changes = QueueSettings(**settings)
    if changes == QueueSettings():
        raise click.UsageError("Nothing to change: name at least one setting.")
    async with administration(target) as namespace:
        show_entity(target, await namespace.update_queue(entity, changes), "updated")


@queue.command("delete")
@named_entity
@confirmed(lambda entity: f"Delete the queue {entity} with all its messages?")
async def delete(target: Target, entity: str) -> None:
    """Delete a queue with all its messages.

    Asks first when a person is there to answer.

    \b
    JSON: {"queue", "deleted": true}
    """
    async with administration(target) as namespace:
        await namespace.delete_queue(entity)
    show_deleted(target, "queue", entity)


@queue.command("purge")
@named_entity
@sub_queue_option("Purge this sub-queue instead.")
@confirmed(lambda entity, sub_queue: f"Delete all messages of {purging.part_of(entity, sub_queue)}?")
async def purge(target: Target, entity: str, sub_queue: str | None) -> None:
    """Delete the messages of a queue that are there now; the queue stays.

    Locked, deferred and scheduled messages stay as well. Asks first when a person is there to answer.

    \b
    Examples:
      tandembus queue purge orders
      tandembus queue purge orders --sub-queue dead-letter --yes

    \b
    JSON: {"queue", "sub_queue", "purged"}
    """
    await purging.purge(target, entity, sub_queue, {"queue": entity})
