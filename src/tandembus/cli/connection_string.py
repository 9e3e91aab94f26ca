"""`tandembus connection-string`."""

from __future__ import annotations

from pathlib import Path

import click

from tandembus.cli.data_folder import connection_string_of, served_from
from tandembus.cli.output import print_json
from tandembus.cli.target import data_option, json_option


@click.command("connection-string")
@data_option
@click.option("--tls", is_flag=True, help="The form for TLS; clients must trust the namespace's CA (`tandembus ca`).")
@json_option
def connection_string(data: Path, tls: bool, as_json: bool) -> None:
    """Print the connection string of a namespace on this machine.

    It contains the key of the root policy: treat it like a password.

    \b
    Examples:
      tandembus connection-string
      export TANDEMBUS_CONNECTION_STRING="$(tandembus connection-string --data /var/lib/tandembus)"

    \b
    JSON: {"name", "connection_string"}
    """
    text = connection_string_of(data, tls)
    if as_json:
        print_json({"name": served_from(data).name, "connection_string": text})
    else:
        click.echo(text)
