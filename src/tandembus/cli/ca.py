"""`tandembus ca`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from tandembus.cli.data_folder import DEFAULT_FOLDER, ca_of
from tandembus.cli.output import print_json
from tandembus.cli.target import json_option

VARIABLES: Final = (
    ("SSL_CERT_FILE", "Python's ssl (azure-servicebus over AMQP, tandembus itself), Go, Ruby, OpenSSL"),
    ("REQUESTS_CA_BUNDLE", "Python's requests (ServiceBusAdministrationClient)"),
    ("NODE_EXTRA_CA_CERTS", "Node.js (@azure/service-bus)"),
    ("CURL_CA_BUNDLE", "curl"),
)


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Data folder of the namespace.",
)
@json_option
def ca(data: Path, as_json: bool) -> None:
    """Say how clients come to trust a namespace's certificate.

    Prints the path of the namespace's own certificate authority, and the environment variable that each SDK
    reads, as lines a shell understands. .NET and Java have no such variable: import the file into the
    system's or the JVM's store.

    \b
    Examples:
      tandembus ca
      eval "$(tandembus ca)"
      tandembus ca --json | jq -r .ca_path

    \b
    JSON: {"ca_path", "environment": {NAME: path}}
    """
    path = str(ca_of(data))
    if as_json:
        print_json({"ca_path": path, "environment": {name: path for name, _ in VARIABLES}})
        return
    click.echo(f"# {path}")
    for name, readers in VARIABLES:
        click.echo(f"export {name}={shlex.quote(path)}  # {readers}")
