"""What the commands that administer entities share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import click

from tandembus.cli.failures import EXISTS_ALREADY, FAILED, NOT_FOUND, Failure, failure_from
from tandembus.cli.printable import printable
from tandembus.cli.target import Target
from tandembus.client.administration import Administration
from tandembus.client.entities import EntityInfo, QueueSettings, TopicSettings
from tandembus.client.errors import OtherKind
from tandembus.client.topology import topology_of
from tandembus.errors import BusError, EntityAlreadyExists, EntityNotFound, QuotaExceeded, StoreUnavailable

T = TypeVar("T")
TOO_MANY: Final = "Delete what is not needed, or raise the namespace's limit (limits.max_entities and its like)."


@asynccontextmanager
async def administration(
    target: Target, topic: str | None = None, subscription: str | None = None, entity: str | None = None
) -> AsyncIterator[Administration]:
    """The namespace to administer.

    `topic`, `subscription` and `entity` (a queue or topic) are what must be there for the command to mean anything. If
    something is not found it may be one of them, and then the failure is about that one.
    """
    async with Administration(target.connection_string, ca_path=target.ca_path) as namespace:
        try:
            yield namespace
        except OtherKind as error:
            raise _other_kind(error) from error
        except EntityNotFound as error:
            missing = await _missing(namespace, topic, subscription, entity)
            raise missing or error from error


def _other_kind(error: OtherKind) -> Failure:
    advice = (
        f"`tandembus {error.kind} show {error.name}` tells of it; `tandembus {error.kind} --help`, what can be done."
    )
    return Failure(str(error), NOT_FOUND, advice, type(error).__name__)


async def _missing(
    namespace: Administration, topic: str | None, subscription: str | None, entity: str | None
) -> Failure | None:
    """None if all of them are there, or if we may not know."""
    missing = f"topic '{topic}'", "`tandembus topic list` shows what there is; `tandembus topic create` makes one."
    try:
        if topic is not None:
            await namespace.get_topic(topic)
        if topic is not None and subscription is not None:
            look = f"`tandembus subscription list {topic}` shows what there is; `subscription create` makes one."
            missing = f"subscription '{subscription}' of '{topic}'", look
            await namespace.get_subscription(topic, subscription)
        if entity is not None:
            missing = f"queue or topic '{entity}'", "`tandembus queue list` and `topic list` show what there is."
            await namespace.get_entity(entity)
    except OtherKind as error:
        return _other_kind(error)
    except EntityNotFound as error:
        return Failure(f"There is no {missing[0]}.", NOT_FOUND, missing[1], type(error).__name__)
    except BusError:
        return None
    return None


async def creating(work: Awaitable[T]) -> T:
    """A quota met while something is made is not about messages, so neither is the advice."""
    try:
        return await work
    except QuotaExceeded as error:
        failure = failure_from(error)
        raise Failure(failure.message, FAILED, TOO_MANY, failure.kind) from error


async def note_one_store(
    namespace: Administration, made: EntityInfo[QueueSettings] | EntityInfo[TopicSettings]
) -> None:
    """Tell a person when partitioning spreads nothing. Other services do not say where fragments are."""
    if not made.settings.partitioning:
        return
    try:
        entities = (await topology_of(namespace.requests, made.name)).entities
    except BusError:
        return
    fragments = entities[0].get("fragments") if entities else None
    if not isinstance(fragments, list) or len({each.get("store") for each in fragments}) != 1:
        return
    note = (
        f"All fragments of '{made.name}' lie in one messaging store, as the namespace has no other for new entities. "
        f"To spread them, start the namespace with --brokers N or --stores N, and create '{made.name}' again: "
        "fragments stay where they are."
    )
    click.echo(f"{click.style('Note:  ', fg='yellow')}{printable(note)}", err=True)


async def creating_entity(namespace: Administration, name: str, is_topic: bool, work: Awaitable[T]) -> T:
    """The name of a queue may be taken by a topic, and the reverse: then it cannot be shown or changed as what was
    asked for."""
    try:
        return await creating(work)
    except EntityAlreadyExists as error:
        try:
            found = await namespace.get_entity(name)
        except StoreUnavailable:
            raise error from None
        if isinstance(found.settings, TopicSettings) == is_topic:
            raise
        kind = "queue" if is_topic else "topic"
        text = f"There is a {kind} '{name}' already, and queues and topics share their names."
        advice = f"Choose another name; `tandembus {kind} show {name}` tells of the {kind}."
        raise Failure(text, EXISTS_ALREADY, advice, type(error).__name__) from error
