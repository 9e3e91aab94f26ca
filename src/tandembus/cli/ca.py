"""`tandembus ca`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from tandembus.cli.data_folder import ca_of
from tandembus.cli.failures import Failure
from tandembus.cli.output import print_json
from tandembus.cli.target import data_option, json_option
from tandembus.cli.trust_store import STORES, planned

VARIABLES: Final = (
    ("NODE_EXTRA_CA_CERTS", "Node.js (@azure/service-bus); adds to the public authorities"),
    ("REQUESTS_CA_BUNDLE", "Python's requests (ServiceBusAdministrationClient); replaces the public authorities"),
    ("SSL_CERT_FILE", ".NET on Linux, Go, Ruby, OpenSSL, tandembus itself; replaces the public authorities"),
    ("CURL_CA_BUNDLE", "curl; replaces the public authorities"),
)

NOTES: Final = (
    "Python's azure-servicebus reads no variable for AMQP: give the file to the clients themselves,",
    "  ServiceBusClient.from_connection_string(..., connection_verify={path!r})",
    "  ServiceBusAdministrationClient.from_connection_string(..., connection_verify={path!r})",
    "Careful: a variable that replaces the public authorities does so for every program of this shell;",
    "other HTTPS addresses are not trusted there any more. Set only those that you need.",
)


@click.command()
@data_option
@click.option("--install", type=click.Choice(STORES), help="Make programs trust the namespace: change this store.")
@click.option("--uninstall", type=click.Choice(STORES), help="Undo it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
@click.option(
    "--python", metavar="PROGRAM", help="Whose certifi to change; without it, that of the Python of tandembus."
)
@json_option
def ca(
    data: Path, install: str | None, uninstall: str | None, dry_run: bool, python: str | None, as_json: bool
) -> None:
    """Say how clients come to trust a namespace's certificate.

    Prints the path of the namespace's own certificate authority, and the environment variables that SDKs and
    tools read, as lines a shell understands. .NET reads SSL_CERT_FILE on Linux only; on Windows and macOS import the
    file into the system's store.

    Python's azure-servicebus reads no such variable for AMQP (SSL_CERT_FILE does not help: it takes its authorities
    from certifi): pass connection_verify="<ca.pem>" to ServiceBusClient and ServiceBusAdministrationClient.
    REQUESTS_CA_BUNDLE works for the latter only.

    REQUESTS_CA_BUNDLE, SSL_CERT_FILE and CURL_CA_BUNDLE replace the public authorities: programs in a shell with
    them do not trust other HTTPS addresses any more. NODE_EXTRA_CA_CERTS adds to them.

    --install makes them trust it without any of that: it adds the authority to those that the system (Debian),
    Python's certifi or Java (of JAVA_HOME, else on the PATH) trusts. --uninstall takes it out; it reads the data
    folder, so do it before you delete that.

    \b
    Examples:
      tandembus ca
      export NODE_EXTRA_CA_CERTS="$(tandembus ca --json | jq -r .ca_path)"
      eval "$(tandembus ca)"
      tandembus ca --install java --dry-run
      tandembus ca --install certifi --python .venv/bin/python

    \b
    JSON: {"ca_path", "environment": {NAME: path}};
    with --install or --uninstall: {"store", "place", "is_changed"}
    """
    path = ca_of(data)
    if install is None and uninstall is None:
        if dry_run or python:
            raise click.UsageError("--dry-run and --python go with --install or --uninstall.")
        _say(str(path), as_json)
    elif install is not None and uninstall is not None:
        raise click.UsageError("--install and --uninstall exclude each other.")
    else:
        _change(install or uninstall or "", path, install is not None, dry_run, python, as_json)


def _say(path: str, as_json: bool) -> None:
    if as_json:
        print_json({"ca_path": path, "environment": {name: path for name, _ in VARIABLES}})
        return
    click.echo(f"# {path}")
    for note in NOTES:
        click.echo(f"# {note.format(path=path)}")
    for name, readers in VARIABLES:
        click.echo(f"export {name}={shlex.quote(path)}  # {readers}")


def _change(store: str, path: Path, is_install: bool, dry_run: bool, python: str | None, as_json: bool) -> None:
    verb = "install" if is_install else "uninstall"
    change = planned(store, path, is_install, python)
    if change.is_needed and not dry_run:
        try:
            change.make()
        except OSError as error:
            again = f'sudo -E "$(command -v tandembus)" ca --{verb} {store} --data {shlex.quote(str(path.parents[1]))}'
            advice = f"Repeat it as somebody who may, such as root: {again}"
            raise Failure(f"{change.place} cannot be changed: {error.strerror}.", advice=advice) from None
    if as_json:
        print_json({"store": store, "place": change.place, "is_changed": change.is_needed})
    elif not change.is_needed:
        click.echo(f"nothing to {verb}: {change.place} has it {'already' if is_install else 'not'}")
    else:
        click.echo(f"{f'would {verb}' if dry_run else f'{verb}ed'} in {change.place}: {change.steps}")
