"""Which two namespaces a command about a pair talks to: the options that such commands share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tandembus.cli import data_folder
from tandembus.cli.target import check_certificate, checked_connection_string, json_option
from tandembus.security.sas import parse_connection_string

PRIMARY_VARIABLE: Final = "TANDEMBUS_PRIMARY"
SECONDARY_VARIABLE: Final = "TANDEMBUS_SECONDARY"
SECONDARY_FOLDER: Final = "tandembus-data-secondary"

Command = Callable[..., None]
T = TypeVar("T")


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


def pair_options(
    command: Callable[..., Coroutine[Any, Any, T]],
    run_loop: Callable[[Coroutine[Any, Any, T]], object] = asyncio.run,
) -> Command:
    """Adds `--primary`, `--secondary`, `--primary-ca`, `--secondary-ca` and `--json`, and calls the command, a
    coroutine, with the `PairTarget` that they mean. `run_loop`: for those that need a
    faster event loop, or go on without one."""

    @wraps(command)
    def run(
        primary: str | None,
        secondary: str | None,
        primary_ca: Path | None,
        secondary_ca: Path | None,
        as_json: bool,
        **arguments: Any,
    ) -> None:
        target = PairTarget(
            _resolved(primary, "--primary", data_folder.DEFAULT_FOLDER),
            _resolved(secondary, "--secondary", SECONDARY_FOLDER),
            None if primary_ca is None else str(primary_ca),
            None if secondary_ca is None else str(secondary_ca),
            as_json,
            None if primary else data_folder.served_from(Path(data_folder.DEFAULT_FOLDER)).name,
        )
        _check_are_two(target)
        run_loop(command(target, **arguments))

    with_primary = _namespace_option("primary", PRIMARY_VARIABLE, data_folder.DEFAULT_FOLDER)
    with_secondary = _namespace_option("secondary", SECONDARY_VARIABLE, SECONDARY_FOLDER)
    return with_primary(with_secondary(_ca_option("primary")(_ca_option("secondary")(json_option(run)))))


def _namespace_option(side: str, variable: str, folder: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{side}",
        envvar=variable,
        metavar="CS",
        help=f"Connection string of the {side}. Default: ${variable}, else the namespace of ./{folder}.",
    )


def _ca_option(side: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{side}-ca",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=check_certificate,
        help=f"CA certificate to trust when the {side}'s connection string asks for TLS.",
    )


def _check_are_two(target: PairTarget) -> None:
    primary, secondary = [parse_connection_string(each).endpoint for each in (target.primary, target.secondary)]
    if primary.lower() == secondary.lower():
        raise click.UsageError(f"{primary} cannot be its own secondary: the backlog is in another namespace.")


def _resolved(connection_string: str | None, option: str, folder: str) -> str:
    if connection_string:
        return checked_connection_string(connection_string)
    if not data_folder.is_there(Path(folder)):
        raise click.UsageError(
            f"Which namespace is it? Give {option}, or run this where `tandembus up` keeps its data "
            f"(no namespace in ./{folder})."
        )
    return data_folder.connection_string_of(Path(folder))
