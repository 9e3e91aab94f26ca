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
    ("NODE_EXTRA_CA_CERTS", "Node.js (@azure/service-bus); adds to the public authorities"),
    ("REQUESTS_CA_BUNDLE", "Python's requests (ServiceBusAdministrationClient); replaces the public authorities"),
    ("SSL_CERT_FILE", "Go, Ruby, OpenSSL, tandembus itself; replaces the public authorities"),
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

    Prints the path of the namespace's own certificate authority, and the environment variables that SDKs and
    tools read, as lines a shell understands. .NET and Java have no such variable: import the file into the
    system's or the JVM's store.

    Python's azure-servicebus has none for AMQP either (SSL_CERT_FILE does not help: it takes its authorities from
    certifi): pass connection_verify="<ca.pem>" to ServiceBusClient and ServiceBusAdministrationClient.
    REQUESTS_CA_BUNDLE works for the latter only.

    REQUESTS_CA_BUNDLE, SSL_CERT_FILE and CURL_CA_BUNDLE replace the public authorities: programs in a shell with
    them do not trust other HTTPS addresses any more. NODE_EXTRA_CA_CERTS adds to them.

    \b
    Examples:
      tandembus ca
      export NODE_EXTRA_CA_CERTS="$(tandembus ca --json | jq -r .ca_path)"
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
    for note in NOTES:
        click.echo(f"# {note.format(path=path)}")
    for name, readers in VARIABLES:
        click.echo(f"export {name}={shlex.quote(path)}  # {readers}")
