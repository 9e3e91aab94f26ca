"""`tandembus queue`, `topic` and `subscription`: one factory makes the same commands of all three."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from tandembus.cli.arguments import named_entity, named_subscription, stacked, sub_queue_option, topic_argument
from tandembus.cli.entity_output import entity_record, show_deleted, show_entities, show_entity
from tandembus.cli.failures import EXISTS_ALREADY, Failure, creating
from tandembus.cli.output import ProgressLine, counted, note, print_json, say
from tandembus.cli.rules import rule_from_options, rule_options
from tandembus.cli.settings import setting_options
from tandembus.cli.target import Target, confirmed, namespace_command, namespace_options, part_of, watchable
from tandembus.client import Management, ReceiveMode, ServiceBus, SubQueue, subscription_path
from tandembus.client.administration import Administration
from tandembus.client.entities import EntityInfo, QueueSettings, Settings, SubscriptionSettings, TopicSettings
from tandembus.client.topology import topology_of
from tandembus.clock import SystemClock
from tandembus.descriptions import DEFAULT_RULE_NAME
from tandembus.errors import BusError, EntityAlreadyExists, NotSupported, StoreUnavailable

T = TypeVar("T")
Entity = EntityInfo[QueueSettings] | EntityInfo[TopicSettings] | EntityInfo[SubscriptionSettings]
PURGE_BATCH: Final = 4000
PURGE_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Noun:
    """A kind of entity: the words about it and what its commands do."""

    name: str
    settings: type[Settings]
    arguments: tuple[str, ...]
    """What names one, as arguments of the commands."""
    named: Callable[[Any], Any]
    with_all: str
    """What is deleted with one."""
    about: str
    create_help: str
    update_help: str
    kept: str = ""
    """Messages that a purge leaves; empty where there is nothing to purge."""

    def path_of(self, arguments: dict[str, Any]) -> tuple[str, ...]:
        """Takes the names out of the arguments of a command."""
        return tuple([arguments.pop(each) for each in self.arguments])

    def topic_of(self, path: tuple[str, ...]) -> str | None:
        return path[0] if len(path) > 1 else None

    async def create(self, target: Target, rule: dict[str, Any] | None = None, **arguments: Any) -> None:
        path = self.path_of(arguments)
        asked = [self.settings(**arguments)]
        first = [rule_from_options(DEFAULT_RULE_NAME, rule)] if rule else []
        async with target.administration() as namespace:
            made: Entity = await _creating_entity(
                namespace, self, path, getattr(namespace, f"create_{self.name}")(*path, *asked, *first)
            )
            await _note_one_store(namespace, made)
        if target.as_json:
            print_json(entity_record(made, self.topic_of(path)))
        else:
            look = " ".join(["tandembus", self.name, "show", *path[:-1], made.name])
            say(("created", "green"), f" {self.name} ", (made.name, "bold"), (f"; `{look}` shows its settings", "dim"))

    async def list_all(self, target: Target, **arguments: Any) -> None:
        topics = tuple(arguments.values())
        async with target.administration() as namespace:
            found = [each async for each in getattr(namespace, f"{self.name}s")(*topics)]
        show_entities(target, self.name, found, *topics)

    async def show(self, target: Target, **arguments: Any) -> None:
        path = self.path_of(arguments)
        async with target.administration() as namespace:
            show_entity(target, await getattr(namespace, f"get_{self.name}")(*path), topic=self.topic_of(path))

    async def update(self, target: Target, **arguments: Any) -> None:
        path = self.path_of(arguments)
        changes = self.settings(**arguments)
        if changes == self.settings():
            raise click.UsageError("Nothing to change: name at least one setting.")
        async with target.administration() as namespace:
            changed = await getattr(namespace, f"update_{self.name}")(*path, changes)
            show_entity(target, changed, "updated", self.topic_of(path))

    async def delete(self, target: Target, **arguments: Any) -> None:
        path = self.path_of(arguments)
        async with target.administration() as namespace:
            await getattr(namespace, f"delete_{self.name}")(*path)
        context = dict(zip(self.arguments[:-1], path[:-1], strict=True))
        show_deleted(target, self.name, path[-1], **context)

    async def purge(self, target: Target, sub_queue: str | None, **arguments: Any) -> None:
        path = self.path_of(arguments)
        entity = _address(path)
        with ProgressLine("purging") as progress:
            async with await target.connect() as namespace:
                purged = await _purge(namespace, entity, part_of(sub_queue), progress)
        names = dict(zip((*self.arguments[:-1], self.name), path, strict=True))
        whole = (_part_text(entity, sub_queue), "bold")
        record = {**names, "sub_queue": sub_queue, "purged": purged}
        target.answer(record, ("purged", "green"), f" {counted(purged, 'message')} from ", whole)

    def ask_to_delete(self, **arguments: Any) -> str:
        path = self.path_of(arguments)
        return f"Delete the {self.name} {' of '.join([path[-1], *path[:-1]])} with all its {self.with_all}?"

    def ask_to_purge(self, sub_queue: str | None, **arguments: Any) -> str:
        return f"Delete all messages of {_part_text(_address(self.path_of(arguments)), sub_queue)}?"


def group_of(noun: Noun) -> click.Group:
    """Makes the commands of one kind of entity."""
    name, a, named = noun.name, f"a {noun.name}", noun.named
    verbs = "list, show, update, delete and purge" if noun.kept else "list, show, update and delete"
    of_topic = " of a topic" if len(noun.arguments) > 1 else ""
    group = click.Group(name, help=f"Create, {verbs} {name}s{of_topic}.\n\n\b\n{noun.about}")

    def add(verb: str, command: Callable[..., None], help: str, *options: Callable[[Any], Any]) -> None:
        group.add_command(click.command(verb, help=help)(stacked(*options)(command)))

    creating, changing = [setting_options(noun.settings, creating=each) for each in (True, False)]
    rules = [rule_options] if of_topic else []
    asks = "Asks first when a person is there to answer."
    add("create", namespace_command(noun.create, is_creating=True), noun.create_help, named, *rules, creating)
    topics = [topic_argument] if of_topic else []
    add("list", watchable(noun.list_all), f"List all {name}s{of_topic} with their counts.", *topics)
    add("show", namespace_options(noun.show), f"Show the settings, counts and times of {a}.", named)
    add("update", namespace_options(noun.update), noun.update_help, named, changing)
    deletes = f"Delete {a} with all its {noun.with_all}.\n\n{asks}"
    add("delete", confirmed(noun.ask_to_delete)(noun.delete), deletes, named)
    if noun.kept:
        purges = (
            f"Delete the messages of {a} that are there now; the {name} stays.\n\n{noun.kept} messages stay as well."
        )
        part = sub_queue_option("Purge this sub-queue.")
        add("purge", confirmed(noun.ask_to_purge)(noun.purge), f"{purges} {asks}", named, part)
    return group


def _address(path: tuple[str, ...]) -> str:
    return subscription_path(*path) if len(path) > 1 else path[0]


def _part_text(path: str, sub_queue: str | None) -> str:
    return path if sub_queue is None else f"{path} ({sub_queue})"


async def _creating_entity(namespace: Administration, noun: Noun, path: tuple[str, ...], work: Awaitable[T]) -> T:
    """The name of a queue may be taken by a topic, and the reverse: then it cannot be shown or changed as what was
    asked for."""
    try:
        return await creating(work)
    except EntityAlreadyExists as error:
        if len(path) > 1:
            raise
        try:
            found = await namespace.get_entity(path[0])
        except StoreUnavailable:
            raise error from None
        if type(found.settings) is noun.settings:
            raise
        kind = "topic" if noun.name == "queue" else "queue"
        text = f"There is a {kind} '{path[0]}' already, and queues and topics share their names."
        advice = f"Choose another name; `tandembus {kind} show {path[0]}` shows the {kind}."
        raise Failure(text, EXISTS_ALREADY, advice, type(error).__name__) from error


async def _note_one_store(namespace: Administration, made: Entity) -> None:
    """Warns a person when partitioning spreads nothing. Other services do not say where fragments are."""
    if not getattr(made.settings, "enable_partitioning", False):
        return
    try:
        entities = (await topology_of(namespace.requests, made.name)).entities
    except BusError:
        return
    fragments = entities[0].get("fragments") if entities else None
    if isinstance(fragments, list) and len({each.get("store") for each in fragments}) == 1:
        note(
            f"All fragments of '{made.name}' lie in one messaging store, as the namespace has no other for new "
            f"entities. To spread them, start the namespace with --brokers N or --stores N, and create '{made.name}' "
            "again: fragments stay where they are."
        )


async def _purge(namespace: ServiceBus, path: str, part: SubQueue | None, progress: ProgressLine) -> int:
    try:
        return await _delete_in_batches(await namespace.management(path, part), progress)
    except NotSupported:
        return await _receive_and_delete(namespace, path, part, progress)


async def _delete_in_batches(management: Management, progress: ProgressLine) -> int:
    """Up to this moment: messages that keep coming in must not keep this going for ever."""
    before = SystemClock().now()
    purged = 0
    while deleted := await management.batch_delete(PURGE_BATCH, before):
        purged += deleted
        progress.update(purged)
    return purged


async def _receive_and_delete(namespace: ServiceBus, path: str, part: SubQueue | None, progress: ProgressLine) -> int:
    """For services without batch deletion."""
    receiver = await namespace.receiver(path, part, mode=ReceiveMode.RECEIVE_AND_DELETE)
    purged = 0
    while messages := await receiver.receive(PURGE_BATCH, PURGE_WAIT_S):
        purged += len(messages)
        progress.update(purged)
    return purged


queue: Final = group_of(
    Noun(
        "queue",
        QueueSettings,
        ("entity",),
        named_entity,
        "messages",
        "Durations are written 30s, 5m, 2h, 14d, never, or in ISO 8601 (PT1M).\n"
        'JSON of a queue: its settings by name (durations in seconds, null = never), "counts", and its times.',
        """Create a queue.

        \b
        Examples:
          tandembus queue create orders --lock-duration 30s --max-delivery-count 5 --default-ttl 14d
          tandembus queue create orders --requires-session --requires-duplicate-detection --duplicate-window 1h
          tandembus queue create orders --forward-to archive --enable-partitioning --max-size-gb 5
        """,
        """Change settings of a queue; those not named stay as they are.

        \b
        Examples:
          tandembus queue update orders --status ReceiveDisabled --forward-to ""
        """,
        "Locked, deferred and scheduled",
    )
)
topic: Final = group_of(
    Noun(
        "topic",
        TopicSettings,
        ("entity",),
        named_entity,
        "subscriptions and their messages",
        "What is sent to a topic goes to each of its subscriptions whose rules match it:\n"
        "  tandembus topic create events\n"
        "  tandembus subscription create events audit\n"
        '  tandembus send events "hello"\n'
        "  tandembus receive events/subscriptions/audit\n"
        'JSON of a topic: its settings by name (durations in seconds, null = never), "counts", and its times.',
        """Create a topic.

        \b
        Examples:
          tandembus topic create events --default-ttl 14d --enable-partitioning
        """,
        """Change settings of a topic; those not named stay as they are.

        \b
        Examples:
          tandembus topic update events --status SendDisabled
        """,
    )
)
subscription: Final = group_of(
    Noun(
        "subscription",
        SubscriptionSettings,
        ("topic", "subscription"),
        named_subscription,
        "messages",
        "Its messages are received from TOPIC/subscriptions/NAME. Its rules (`tandembus rule`) choose among the\n"
        "topic's messages; a new one gets all of them.\n"
        'JSON of a subscription: "topic", its settings by name (durations in seconds, null = never), "counts", times.',
        """Create a subscription of a topic.

        With a filter or an action, its first rule ($Default) is that one; without, it gets every message.

        \b
        Examples:
          tandembus subscription create events audit --requires-session
          tandembus subscription create events large --sql "total > 1000 AND currency = 'EUR'"
        """,
        """Change settings of a subscription; those not named stay as they are.

        \b
        Examples:
          tandembus subscription update events audit --max-delivery-count 20
        """,
        "Locked and deferred",
    )
)
