"""`tandembus topic`: create, list, show, update and delete topics."""

from __future__ import annotations

from typing import Any

import click

from tandembus.cli.administering import administration, creating_entity, note_one_store
from tandembus.cli.arguments import named_entity
from tandembus.cli.entity_output import show_created, show_deleted, show_entities, show_entity
from tandembus.cli.settings import setting_options
from tandembus.cli.target import Target, confirmed, namespace_options
from tandembus.client.entities import TopicSettings


@click.group()
def topic() -> None:
    """Create, list, show, update and delete topics.

    \b
    What is sent to a topic goes to each of its subscriptions whose rules match it:
      tandembus topic create events
      tandembus subscription create events audit
      tandembus send events "hello"
      tandembus receive events/subscriptions/audit
    JSON of a topic: its settings by name (durations in seconds, null = never), "counts", and its times.
    """


@topic.command("create")
@named_entity
@setting_options(TopicSettings, creating=True)
@namespace_options
async def create(target: Target, entity: str, **settings: Any) -> None:
    """Create a topic.

    \b
    Examples:
      tandembus topic create events
      tandembus topic create events --default-ttl 14d --max-size-gb 5
      tandembus topic create events --enable-partitioning
      tandembus topic create events --requires-duplicate-detection --duplicate-window 10m

    JSON: the topic.
    """
    async with administration(target) as namespace:
        work = namespace.create_topic(entity, TopicSettings(**settings))
        made = await creating_entity(namespace, entity, True, work)
        await note_one_store(namespace, made)
    show_created(target, made, f"topic show {made.name}")


@topic.command("list")
@namespace_options
async def list_topics(target: Target) -> None:
    """List all topics with their counts.

    JSON: one topic per line.
    """
    async with administration(target) as namespace:
        show_entities(target, "topic", [each async for each in namespace.topics()])


@topic.command("show")
@named_entity
@namespace_options
async def show(target: Target, entity: str) -> None:
    """Show a topic's settings, fragments, availability, counts and times.

    JSON: the topic.
    """
    async with administration(target) as namespace:
        show_entity(target, await namespace.get_topic(entity))


@topic.command("update")
@named_entity
@setting_options(TopicSettings, creating=False)
@namespace_options
async def update(target: Target, entity: str, **settings: Any) -> None:
    """Change settings of a topic; those not named stay as they are.

    \b
    Examples:
      tandembus topic update events --default-ttl 1d
      tandembus topic update events --status SendDisabled

    JSON: the topic as it is now.
    """
    changes = TopicSettings(**settings)
    if changes == TopicSettings():
        raise click.UsageError("Nothing to change: name at least one setting.")
    async with administration(target) as namespace:
        show_entity(target, await namespace.update_topic(entity, changes), "updated")


@topic.command("delete")
@named_entity
@confirmed(lambda entity: f"Delete the topic {entity} with all its subscriptions and their messages?")
async def delete(target: Target, entity: str) -> None:
    """Delete a topic with all its subscriptions and their messages.

    Asks first when a person is there to answer.

    \b
    JSON: {"topic", "deleted": true}
    """
    async with administration(target) as namespace:
        await namespace.delete_topic(entity)
    show_deleted(target, "topic", entity)
