"""Which namespace, or which two, a command talks to, and how it answers: the options that such commands share.

A data folder holds what `serve` leaves about the namespace, so a person on the same machine needs no connection string.
The key stays in a file of its own that only its owner can read. Nothing here loads the client before it is used.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tandembus.cli.arguments import ca_option, stacked
from tandembus.cli.failures import NOT_FOUND, Failure
from tandembus.cli.output import Part, print_json, print_table, say
from tandembus.errors import EntityNotFound, InvalidArgument
from tandembus.printable import printable
from tandembus.security.sas import ROOT_POLICY, make_connection_string, parse_connection_string

if TYPE_CHECKING:
    from tandembus.client import ServiceBus, SubQueue
    from tandembus.client.administration import Administration

CONNECTION_STRING_VARIABLE: Final = "TANDEMBUS_CONNECTION_STRING"
DATA_VARIABLE: Final = "TANDEMBUS_DATA"
PRIMARY_VARIABLE: Final = "TANDEMBUS_PRIMARY"
SECONDARY_VARIABLE: Final = "TANDEMBUS_SECONDARY"
DEFAULT_FOLDER: Final = "tandembus-data"
SECONDARY_FOLDER: Final = "tandembus-data-secondary"
FACTS_FILE: Final = "namespace.json"
CA_FILE: Final = Path("tls", "ca.pem")
WATCHED_EVERY_S: Final = 2.0
T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Work = Callable[..., Coroutine[Any, Any, T]]


# What a data folder says.


@dataclass(frozen=True, slots=True)
class ServedNamespace:
    """How to reach the namespace of a data folder."""

    name: str
    host: str
    amqp_port: int
    amqps_port: int | None
    http_port: int


def is_served_from(folder: Path) -> bool:
    return (folder / FACTS_FILE).is_file()


def served_from(folder: Path) -> ServedNamespace:
    """Returns the namespace of this folder, whether it is running or not."""
    path = folder / FACTS_FILE
    try:
        facts = json.loads(path.read_text())
        ports = facts["amqp_port"], facts["amqps_port"], facts["http_port"]
        return ServedNamespace(facts["name"], facts["host"], *ports)
    except FileNotFoundError:
        from tandembus.security.key_file import read_key

        if read_key(folder) is not None:
            advice = f"Start it with `tandembus serve --data {folder}`."
            message = f"The namespace in {folder} was restored, and not served since."
            raise Failure(message, NOT_FOUND, advice, "NamespaceNotServed") from None
        advice = f"`tandembus serve --data {folder}` makes one; --data names another folder."
        raise Failure(f"There is no namespace in {folder}.", NOT_FOUND, advice, "NamespaceNotFound") from None
    except (ValueError, TypeError, KeyError):
        advice = "`tandembus serve` writes it again when it starts."
        raise Failure(f"{path} is damaged.", advice=advice, kind="DamagedFile") from None


def connection_string_of(folder: Path, tls: bool = False) -> str:
    """For the root policy. Plain AMQP unless `tls`: that form every SDK takes without further settings."""
    from tandembus.security.key_file import read_key

    served = served_from(folder)
    key = read_key(folder)
    if key is None:
        advice = "It was started with --key: put that key into the connection string yourself."
        raise Failure(f"The key of {served.name} is not kept in {folder}.", NOT_FOUND, advice, "KeyNotFound")
    port = (served.amqps_port or served.amqp_port) if tls else served.amqp_port
    return make_connection_string(served.host, port, ROOT_POLICY, key, use_emulator=not tls)


def checked_connection_string(connection_string: str) -> str:
    try:
        parse_connection_string(connection_string)
    except InvalidArgument as error:
        raise click.UsageError(f"{error} `tandembus connection-string` prints one that works.") from None
    return connection_string


def _is_option(name: str) -> bool:
    """Whether it was given on the command line, not by an environment variable or a default."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _resolved(connection_string: str | None, folder: Path, options: str, where: str) -> str:
    if connection_string:
        return checked_connection_string(connection_string)
    if not is_served_from(folder):
        text = f"Which namespace? Give {options}, or run this {where} (no namespace in {folder})."
        raise click.UsageError(text)
    return connection_string_of(folder)


# One namespace.


@dataclass(frozen=True, slots=True)
class Target:
    """The namespace to talk to. `ca_path`: whose certificates to trust, beside those that the system trusts."""

    connection_string: str
    ca_path: str | None
    as_json: bool

    async def connect(self) -> ServiceBus:
        from tandembus.client import connect

        return await connect(self.connection_string, ca_path=self.ca_path)

    def administration(self, timeout_s: float = 60.0) -> AbstractAsyncContextManager[Administration]:
        from tandembus.client.administration import Administration

        return Administration(self.connection_string, ca_path=self.ca_path, timeout_s=timeout_s)

    def answer(self, record: Mapping[str, object], *parts: Part) -> None:
        """What was done: the record for a program, one line for a person."""
        if self.as_json:
            print_json(record)
        else:
            say(*parts)

    def list(
        self,
        records: Sequence[Mapping[str, object]],
        nothing: str,
        headings: Sequence[str] = (),
        rows: Sequence[Sequence[object]] = (),
    ) -> None:
        """One record per line for a program; for a person a table, or `nothing` where it would be empty."""
        if self.as_json:
            for record in records:
                print_json(record)
        elif not records:
            say((nothing, "dim"))
        elif headings:
            print_table(headings, rows)


def part_of(sub_queue: str | None) -> SubQueue | None:
    from tandembus.client import SubQueue

    return None if sub_queue is None else SubQueue(sub_queue)


data_option: Final = click.option(
    "--data",
    envvar=DATA_VARIABLE,
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help=f"Data folder of the namespace.  [env: {DATA_VARIABLE}]",
)


def _remember_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Failures are written in JSON, too, then."""
    context.find_root().meta["json"] = value
    return value


json_option: Final = click.option(
    "--json", "as_json", is_flag=True, is_eager=True, callback=_remember_json, help="Answer in JSON, for programs."
)

where_options: Final = stacked(
    click.option(
        "--connection-string",
        envvar=CONNECTION_STRING_VARIABLE,
        metavar="CS",
        help=f"The namespace to talk to.  [env: {CONNECTION_STRING_VARIABLE}]",
    ),
    data_option,
    ca_option(),
)
"""Options of which `target_of` makes the target."""


def target_of(arguments: dict[str, Any], as_json: bool) -> Target:
    """Takes the namespace out of the arguments. An option counts before an environment variable, and a connection
    string before a data folder."""
    is_option = {name: _is_option(name) for name in ("connection_string", "data")}
    connection_string, data = arguments.pop("connection_string"), arguments.pop("data")
    given = arguments.pop("namespace", None)
    if is_option["data"] and (is_option["connection_string"] or given):
        raise click.UsageError("--connection-string and --data both name a namespace: give one of them.")
    if is_option["data"]:
        connection_string = None
    options = f"--connection-string or --data, or set {CONNECTION_STRING_VARIABLE}"
    found = _resolved(given or connection_string, data, options, "where `tandembus serve` keeps its data")
    return Target(found, arguments.pop("ca_path"), as_json)


def namespace_options(command: Work[None]) -> Callable[..., None]:
    """Adds `--connection-string`, `--data`, `--ca` and `--json` and calls the command, a coroutine, with the `Target`
    they mean. An argument `namespace` of the command goes before the options."""
    return namespace_command(command)


def watchable(command: Work[None]) -> Callable[..., None]:
    """`namespace_options` and `--watch`, for what people look at again and again."""
    watch = click.option("--watch", is_flag=True, help=f"Repeat it every {WATCHED_EVERY_S:g} s until Ctrl-C.")
    return watch(namespace_command(command))


def confirmed(question: Callable[..., str]) -> Callable[[Work[None]], Callable[..., None]]:
    """`namespace_options` and `--yes`, without which a person is asked this first; a script knows what it does.

    `question` gets the command's own arguments. It is asked before the event loop runs, since that would keep the
    first Ctrl-C to itself.
    """
    yes = click.option("--yes", is_flag=True, help="Do not ask.")
    return lambda command: yes(namespace_command(command, question))


def namespace_command(
    command: Work[None], question: Callable[..., str] | None = None, *, is_creating: bool = False
) -> Callable[..., None]:
    """`is_creating`: the queue, topic or subscription that the arguments name is not there yet."""

    @wraps(command)
    def run(as_json: bool, yes: bool = False, watch: bool = False, **arguments: Any) -> None:
        target = target_of(arguments, as_json)
        named = {name: arguments.get(name) for name in ("entity", "topic", "subscription")}
        _check_entity_path(target, named)
        if question is not None and not yes:
            _ask(question(**arguments))
        if is_creating:
            named["subscription" if named["topic"] else "entity"] = None

        async def work() -> None:
            try:
                await command(target, **arguments)
            except EntityNotFound as error:
                raise await _missing(target, error, **named) or error from error

        asyncio.run(_watch(work) if watch else work())

    decorated: Callable[..., None] = where_options(json_option(run))
    return decorated


async def _watch(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        if sys.stdout.isatty():
            click.clear()
        await work()
        await asyncio.sleep(WATCHED_EVERY_S)


def _check_entity_path(target: Target, named: Mapping[str, str | None]) -> None:
    """A key that is meant for one entity must not be tried on another."""
    path = parse_connection_string(target.connection_string).entity_path
    entity, topic, subscription = named["entity"], named["topic"], named["subscription"]
    if topic is not None:
        entity = topic if subscription is None else f"{topic}/subscriptions/{subscription}"
    if path is None or entity is None:
        return
    if not f"{entity.strip('/')}/".lower().startswith(f"{path}/".lower()):
        raise click.UsageError(f"The connection string is for '{path}' (EntityPath), not for '{entity}'.")


def _ask(question: str) -> None:
    if sys.stdin.isatty() and not click.confirm(printable(question), err=True):
        raise Failure("Nothing was changed.", kind="NotConfirmed")


async def _missing(
    target: Target, error: EntityNotFound, entity: str | None, topic: str | None, subscription: str | None
) -> Exception | None:
    """Which of the entities that a command named is not there, and which name is alike. None if all are there, or if
    the key may not list them."""
    from tandembus.client.addresses import subscription_of
    from tandembus.client.errors import ClientFailure, OtherKind

    if entity is not None and (found := subscription_of(entity)) is not None:
        entity, (topic, subscription) = None, found
    parent = click.get_current_context().parent
    noun = parent.info_name if parent is not None and parent.info_name in ("queue", "topic") else "queue or topic"
    missing: Failure | None = None
    try:
        async with target.administration(timeout_s=15.0) as namespace:
            if topic is not None:
                topics = [each.name async for each in namespace.topics()]
                if missing := _unknown("topic", topic, topics, "topic list"):
                    await namespace.get_topic(topic)
                elif subscription is not None:
                    there = [each.name async for each in namespace.subscriptions(topic)]
                    missing = _unknown("subscription", subscription, there, f"subscription list {topic}", topic)
                return missing
            if entity is None or isinstance(error, OtherKind):
                return None
            names = [each.name async for each in namespace.queues()] if "queue" in noun else []
            names += [each.name async for each in namespace.topics()] if "topic" in noun else []
            return _unknown(noun, entity, names, f"{noun.partition(' ')[0]} list")
    except OtherKind as other:
        return other
    except EntityNotFound:
        return missing
    except ClientFailure:
        return None


def _unknown(noun: str, name: str, names: Sequence[str], look: str, topic: str = "") -> Failure | None:
    there = {each.lower(): each for each in names}
    if name.lower() in there:
        return None
    alike = get_close_matches(name.lower(), there, 1)
    make = look.replace(" list", " create", 1)
    advice = f"`tandembus {look}` shows what there is; `tandembus {make}` makes one."
    meant = f"Did you mean '{there[alike[0]]}'? " if alike else ""
    whole = f" of '{topic}'" if topic else ""
    return Failure(f"There is no {noun} '{name}'{whole}.", NOT_FOUND, meant + advice, EntityNotFound.__name__)


# Two namespaces.


@dataclass(frozen=True, slots=True)
class PairTarget:
    """A primary and the namespace that holds its backlog. The paths name whose certificates to trust, beside what the
    system trusts."""

    primary: str
    secondary: str
    primary_ca: str | None
    secondary_ca: str | None
    as_json: bool
    primary_name: str | None = None
    """What the primary's data folder calls it, where that is what the primary was found by."""


def _side_options(side: str, variable: str, data: str, folder: str, envvar: str | None) -> Decorator:
    path = click.Path(file_okay=False, path_type=Path)
    help = f"Data folder of the {side}, where no connection string is given."
    return stacked(
        click.option(
            f"--{side}", envvar=variable, metavar="CS", help=f"Connection string of the {side}.  [env: {variable}]"
        ),
        click.option(data, f"{side}_data", envvar=envvar, type=path, default=folder, show_default=True, help=help),
        ca_option(f"--{side}-ca", f"the {side}'s connection string asks"),
    )


two_namespaces: Final = stacked(
    _side_options("primary", PRIMARY_VARIABLE, "--data", DEFAULT_FOLDER, DATA_VARIABLE),
    _side_options("secondary", SECONDARY_VARIABLE, "--secondary-data", SECONDARY_FOLDER, None),
)


def pair_options(command: Work[T], run_loop: Callable[[Coroutine[Any, Any, T]], object] = asyncio.run) -> Any:
    """Adds the options that name two namespaces, and `--json`, and calls the command, a coroutine, with the
    `PairTarget` that they mean. `run_loop`: for those that need a faster event loop, or go on without one."""

    @wraps(command)
    def run(as_json: bool, **arguments: Any) -> None:
        run_loop(command(pair_of(arguments, as_json), **arguments))

    return two_namespaces(json_option(run))


def pair_of(arguments: dict[str, Any], as_json: bool) -> PairTarget:
    """Takes the two namespaces out of the arguments. An option counts before an environment variable, and a connection
    string before a data folder."""
    sides = ("primary", "secondary")
    is_option = {name: _is_option(name) for side in sides for name in (side, f"{side}_data")}
    given = {side: arguments.pop(side) for side in sides}
    data = {side: arguments.pop(f"{side}_data") for side in sides}
    for side in sides:
        if is_option[f"{side}_data"]:
            if is_option[side]:
                raise click.UsageError(f"--{side} and the {side}'s data folder name one namespace: give one of them.")
            given[side] = None
    where = "where `tandembus up` keeps its data"
    primary, secondary = [_resolved(given[side], data[side], f"--{side}", where) for side in given]
    endpoint = parse_connection_string(primary).endpoint
    if endpoint.lower() == parse_connection_string(secondary).endpoint.lower():
        raise click.UsageError(f"{endpoint} cannot be its own secondary: the backlog is in another namespace.")
    name = None if given["primary"] else served_from(data["primary"]).name
    paths = arguments.pop("primary_ca_path"), arguments.pop("secondary_ca_path")
    return PairTarget(primary, secondary, *paths, as_json, name)
