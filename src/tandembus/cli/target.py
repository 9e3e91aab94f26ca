"""Which namespace a command talks to, and how it answers: the options all such commands share."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tandembus.cli import data_folder
from tandembus.cli.failures import Failure
from tandembus.cli.printable import printable
from tandembus.descriptions import subscription_path
from tandembus.errors import InvalidArgument
from tandembus.security.sas import parse_connection_string

CONNECTION_STRING_VARIABLE: Final = "TANDEMBUS_CONNECTION_STRING"
DATA_VARIABLE: Final = "TANDEMBUS_DATA"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The namespace to talk to. `ca_path`: whose certificates to trust, beside what the system trusts."""

    connection_string: str
    ca_path: str | None
    as_json: bool


def data_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--data`, for commands about a namespace on this machine. The variable is the one that `serve` reads."""
    return click.option(
        "--data",
        envvar=DATA_VARIABLE,
        type=click.Path(file_okay=False, path_type=Path),
        default=data_folder.DEFAULT_FOLDER,
        show_default=True,
        help="Data folder of the namespace.",
    )(command)


def json_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--json`, remembered for failures too, since they are told to a program as well then."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        expose_value=True,
        callback=_remember_json,
        help="Answer in JSON, for programs.",
    )(command)


def _remember_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.find_root().meta["json"] = value
    return value


def namespace_options(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Adds `--connection-string`, `--ca` and `--json` and calls the command, a coroutine, with the `Target`
    they mean. An argument `namespace` of the command goes before the option."""

    return _namespace_command(command, None)


def confirmed(
    question: Callable[..., str],
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """`namespace_options` and `--yes`, without which a person is asked this first; a script knows what it does.

    `question` gets the command's own arguments. It is asked before the event loop runs, since that would keep the
    first Ctrl-C to itself.
    """

    def add(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        return click.option("--yes", is_flag=True, help="Do not ask.")(_namespace_command(command, question))

    return add


def _namespace_command(
    command: Callable[..., Coroutine[Any, Any, None]], question: Callable[..., str] | None
) -> Callable[..., None]:
    @wraps(command)
    def run(
        connection_string: str | None, ca_path: Path | None, as_json: bool, yes: bool = False, **arguments: Any
    ) -> None:
        target = resolve(arguments.pop("namespace", None) or connection_string, ca_path, as_json)
        _check_entity_path(target, _entity_in(arguments))
        if question is not None and not yes:
            _ask(question(**arguments))
        asyncio.run(command(target, **arguments))

    with_string = click.option(
        "--connection-string",
        envvar=CONNECTION_STRING_VARIABLE,
        metavar="CS",
        help=f"The namespace to talk to. Default: ${CONNECTION_STRING_VARIABLE}, else the namespace of "
        f"${DATA_VARIABLE}, else that of ./{data_folder.DEFAULT_FOLDER}.",
    )
    with_ca = click.option(
        "--ca",
        "ca_path",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=check_certificate,
        help="CA certificate to trust when the connection string asks for TLS (`tandembus ca` names it).",
    )
    return with_string(with_ca(json_option(run)))


def check_certificate(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        try:
            ssl.create_default_context(cafile=str(path))
        except ssl.SSLError:
            raise click.BadParameter(f"{path} holds no certificate in PEM form") from None
    return path


def _entity_in(arguments: dict[str, Any]) -> str | None:
    """The entity that a command is about, by the names that all commands give their arguments."""
    topic, subscription = arguments.get("topic"), arguments.get("subscription")
    if topic is not None and subscription is not None:
        return subscription_path(topic, subscription)
    entity: str | None = arguments.get("entity")
    return topic or entity


def _check_entity_path(target: Target, entity: str | None) -> None:
    """A key that is meant for one entity must not be tried on another."""
    path = parse_connection_string(target.connection_string).entity_path
    if path is None or entity is None:
        return
    if not f"{entity.strip('/')}/".lower().startswith(f"{path}/".lower()):
        raise click.UsageError(f"The connection string is for '{path}' (EntityPath), not for '{entity}'.")


def _ask(question: str) -> None:
    if sys.stdin.isatty() and not click.confirm(printable(question), err=True):
        raise Failure("Nothing was changed.", kind="NotConfirmed")


def resolve(connection_string: str | None, ca_path: Path | None, as_json: bool) -> Target:
    """The target of the options; without a connection string, the namespace last served from the data folder."""
    ca = None if ca_path is None else str(ca_path)
    if connection_string:
        return Target(checked_connection_string(connection_string), ca, as_json)
    folder = Path(os.environ.get(DATA_VARIABLE) or data_folder.DEFAULT_FOLDER)
    if not data_folder.is_there(folder):
        raise click.UsageError(
            f"Which namespace? Give --connection-string, or set {CONNECTION_STRING_VARIABLE}, or run this "
            f"where `tandembus serve` keeps its data (no namespace in {folder})."
        )
    return Target(data_folder.connection_string_of(folder), ca, as_json)


def checked_connection_string(connection_string: str) -> str:
    try:
        parse_connection_string(connection_string)
    except InvalidArgument as error:
        raise click.UsageError(f"{error} `tandembus connection-string` prints one that works.") from None
    return connection_string
