"""`tandembus connection-string`."""

from __future__ import annotations

from pathlib import Path

import click

from tandembus.cli.data_folder import DEFAULT_FOLDER, connection_string_of, served_from
from tandembus.cli.output import print_json
from tandembus.cli.target import json_option


@click.command("connection-string")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="Data folder of the namespace.",
)
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
