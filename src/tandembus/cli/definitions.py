"""`tandembus export` and `tandembus import`: the entities of any namespace as a Config.json, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import click

from tandembus.cli.administering import administration, creating
from tandembus.cli.failures import FAILED
from tandembus.cli.output import print_json, say
from tandembus.cli.printable import printable_json
from tandembus.cli.target import Target, namespace_options
from tandembus.client.access_policies import AccessPolicy, new_key
from tandembus.client.administration import Administration
from tandembus.client.durations import NEVER
from tandembus.client.entities import ELEMENTS, QueueSettings, S, Settings, SubscriptionSettings, TopicSettings
from tandembus.client.policies import NamespacePolicies
from tandembus.config import ConfigurationError
from tandembus.descriptions import (
    AuthorizationRule,
    EntityDescription,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    default_rule,
)
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.descriptions.ranges import DEFAULT_KILOBYTES
from tandembus.errors import BusError
from tandembus.limits import Limits
from tandembus.node.emulator import EmulatorConfig, read_emulator_config, write_emulator_config
from tandembus.node.emulator.document import Wanted
from tandembus.node.emulator.writing import PROPERTIES, properties_of, rules_of
from tandembus.security.sas import ROOT_POLICY, parse_connection_string

ANY_LIMITS: Final = replace(
    Limits(),
    largest_message_size_bytes=100 * 1024 * 1024,
    size_choices_megabytes=tuple(range(1, 80 * 1024 + 1)),
    min_lock_duration_s=0.001,
    min_duplicate_window_s=0.001,
    min_auto_delete_on_idle_s=0.001,
)
"""What is within them is for the other namespace to refuse."""
_SETTING_OF: Final = {element: setting for setting, (element, _) in ELEMENTS.items()}

F = TypeVar("F", QueueSettings, SubscriptionSettings)
D = TypeVar("D", QueueDescription, TopicDescription, SubscriptionDescription)
namespace_argument: Final = click.argument("namespace", metavar="[CONNECTION-STRING]", required=False)


@dataclass
class Found:
    """All that a namespace has."""

    policies: list[AuthorizationRule] = field(default_factory=list)
    queues: list[QueueDescription] = field(default_factory=list)
    topics: list[tuple[TopicDescription, list[tuple[SubscriptionDescription, list[RuleDescription]]]]] = field(
        default_factory=list
    )

    def entities(self) -> Iterator[tuple[EntityDescription, list[RuleDescription]]]:
        for queue in self.queues:
            yield queue, []
        for topic, subscriptions in self.topics:
            yield topic, []
            yield from subscriptions


@click.command()
@namespace_argument
@namespace_options
async def export(target: Target) -> None:
    """Print the entities of a namespace as a Config.json.

    \b
    Queues, topics, subscriptions and rules with all their settings, and the names and rights of policies without their
    keys; no messages. The namespace may be Azure's: the connection string needs the right Manage on all of it.
    `tandembus import` and `tandembus serve --config` read the file, and so does the official emulator, unless it
    holds settings that the emulator does not know.

    \b
    Examples:
      tandembus export "$CONNECTION_STRING" > Config.json
      tandembus serve --config Config.json
    """
    async with administration(target) as namespace:
        found = await _read(namespace)
        name = await namespace.namespace_name() or parse_connection_string(target.connection_string).host.split(".")[0]
    document = write_emulator_config(name, found.policies, found.queues, found.topics)
    for line in json.dumps(document, indent=2, ensure_ascii=False).split("\n"):
        click.echo(printable_json(line))


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@namespace_argument
@namespace_options
async def import_(target: Target, file: Path) -> None:
    """Create the entities of a Config.json in a running namespace.

    \b
    What is missing is created; policies get new keys. What is there and the same is left alone. What is there and
    differs from what the file says is left alone as well, and reported: then the exit code is 1. So an import can be
    repeated. The file is checked before anything is created.

    \b
    Examples:
      tandembus import Config.json
      tandembus import Config.json "$CONNECTION_STRING"

    \b
    JSON: {"created": [PATH], "unchanged": [PATH], "different": [{"path", "setting", "there", "file"}]}
    """
    try:
        config = read_emulator_config(file, ANY_LIMITS)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    async with administration(target) as namespace:
        work = _Import(namespace, await _read(namespace))
        await creating(work.carry_out(config))
    if target.as_json:
        print_json({"created": work.created, "unchanged": work.unchanged, "different": work.different})
    else:
        for path in work.created:
            say(("created", "green"), " ", (path, "bold"))
        for one in work.different:
            told = f"{one['setting']} is {json.dumps(one['there'])}, and {json.dumps(one['file'])} in the file"
            say(("differs", "yellow"), " ", (str(one["path"]), "bold"), f": {told}")
        say(f"{len(work.created)} created, {len(work.unchanged)} unchanged, {len(work.different)} different settings")
    if work.different:
        click.get_current_context().exit(FAILED)


async def _read(namespace: Administration) -> Found:
    found = Found(await _namespace_policies(namespace))
    async for queue in namespace.queues():
        found.queues.append(_description(QueueDescription(queue.name), queue.settings))
    async for topic in namespace.topics():
        subscriptions = []
        async for one in namespace.subscriptions(topic.name):
            rules = [rule async for rule in namespace.rules(topic.name, one.name)]
            subscriptions.append((_description(SubscriptionDescription(topic.name, one.name), one.settings), rules))
        found.topics.append((_description(TopicDescription(topic.name), topic.settings), subscriptions))
    return found


async def _namespace_policies(namespace: Administration) -> list[AuthorizationRule]:
    """Azure does not tell of them here."""
    try:
        policies = await NamespacePolicies(namespace.requests).all()
    except BusError:
        return []
    return [_policy(one) for one in policies if one.name != ROOT_POLICY]


def _policy(policy: AccessPolicy) -> AuthorizationRule:
    return AuthorizationRule(policy.name, "", "", frozenset(policy.rights))


def _description(empty: D, settings: Settings) -> D:
    """What the service says; what it does not say is as it is by default."""
    found: dict[str, object] = {}
    for key, (attribute, _) in PROPERTIES[type(empty)].items():
        value = getattr(settings, _SETTING_OF[key])
        if value is None:
            continue
        if key == "Status":
            value = next((one for one in EntityStatus if one.value == value), EntityStatus.ACTIVE)
        elif key == "AuthorizationRules":
            value = tuple(_policy(one) for one in value)
        elif key == "MaxSizeInMegabytes" and getattr(settings, "partitioning", False):
            value //= FRAGMENT_COUNT  # the size of all its fragments is told, and that of one is asked for
        elif key == "MaxMessageSizeInKilobytes" and value == DEFAULT_KILOBYTES:
            continue
        found[attribute] = None if value == NEVER else value
    return replace(empty, **found)  # type: ignore[arg-type]


def _settings(description: EntityDescription, empty: S) -> S:
    found: dict[str, object] = {}
    for key, (attribute, _) in PROPERTIES[type(description)].items():
        value = getattr(description, attribute)
        if value is None and ELEMENTS[_SETTING_OF[key]][1] == "duration":
            value = NEVER
        elif isinstance(value, EntityStatus):
            value = value.value
        elif isinstance(value, tuple):
            value = tuple(AccessPolicy(one.key_name, tuple(sorted(one.rights)), new_key(), new_key()) for one in value)
        found[_SETTING_OF[key]] = None if value == () else value
    return replace(empty, **found)  # type: ignore[arg-type]


class _Import:
    """Entities forward to each other in any order, so forwarding is set when all of them are there."""

    def __init__(self, namespace: Administration, found: Found) -> None:
        self._namespace = namespace
        self._policies = {policy.key_name: policy for policy in found.policies}
        self._there = {description.path.lower(): (description, rules) for description, rules in found.entities()}
        self._last: list[QueueDescription | SubscriptionDescription] = []
        self.created: list[str] = []
        self.unchanged: list[str] = []
        self.different: list[dict[str, object]] = []

    async def carry_out(self, config: EmulatorConfig) -> None:
        for policy in config.policies:
            await self._policy(policy)
        for queue in config.queues:
            await self._entity(queue, queue.description)
        for topic in config.topics:
            await self._entity(topic, topic.description)
            for one in topic.subscriptions:
                await self._entity(one, one.description, [rule.description for rule in one.rules])
        for description in self._last:
            forwards = (description.forward_to, description.forward_dead_lettered_messages_to)
            if isinstance(description, QueueDescription):
                await self._namespace.update_queue(description.name, _forwarding(QueueSettings(), *forwards))
            else:
                changes = _forwarding(SubscriptionSettings(), *forwards)
                await self._namespace.update_subscription(description.topic_name, description.name, changes)

    async def _policy(self, wanted: AuthorizationRule) -> None:
        path = f"policy {wanted.key_name}"
        there = self._policies.get(wanted.key_name)
        if there is None:
            await NamespacePolicies(self._namespace.requests).create(
                AccessPolicy(wanted.key_name, tuple(sorted(wanted.rights)))
            )
            self.created.append(path)
        else:
            self._compare(path, {"Rights": sorted(there.rights)}, {"Rights": sorted(wanted.rights)})

    async def _entity(
        self, wanted: Wanted, description: EntityDescription, rules: Sequence[RuleDescription] = ()
    ) -> None:
        found = self._there.get(description.path.lower())
        if found is None:
            await self._create(description, rules)
            self.created.append(description.path)
            return
        there, rules_there = found
        if there.kind is not description.kind:
            self._compare(description.path, {"Kind": there.kind.value}, {"Kind": description.kind.value})
            return
        before, after = properties_of(there, wanted.given), properties_of(description, wanted.given)
        if isinstance(description, SubscriptionDescription):
            before |= {f"Rules/{name}": rule for name, rule in rules_of(rules_there).items()}
            after |= {f"Rules/{name}": rule for name, rule in rules_of(rules or [default_rule()]).items()}
        self._compare(description.path, before, after)

    async def _create(self, description: EntityDescription, rules: Sequence[RuleDescription]) -> None:
        if isinstance(description, TopicDescription):
            await self._namespace.create_topic(description.name, _settings(description, TopicSettings()))
            return
        first = replace(description, forward_to=None, forward_dead_lettered_messages_to=None)
        if first != description:
            self._last.append(description)
        if isinstance(first, QueueDescription):
            await self._namespace.create_queue(first.name, _settings(first, QueueSettings()))
            return
        settings, (first_rule, *others) = _settings(first, SubscriptionSettings()), rules or [default_rule()]
        await self._namespace.create_subscription(first.topic_name, first.name, settings, first_rule)
        for rule in others:
            await self._namespace.create_rule(first.topic_name, first.name, rule)

    def _compare(self, path: str, there: Mapping[str, object], file: Mapping[str, object]) -> None:
        different = [key for key in {**there, **file} if there.get(key) != file.get(key)]
        self.different += [
            {"path": path, "setting": key, "there": there.get(key), "file": file.get(key)} for key in different
        ]
        if not different:
            self.unchanged.append(path)


def _forwarding(empty: F, to: str | None, dead_letters_to: str | None) -> F:
    return replace(empty, forward_to=to, forward_dead_letters_to=dead_letters_to)
