"""`tandembus health`, for the health checks of containers and services. They run it every few seconds, so it does not
import the large HTTP library."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Final

import click

from tandembus.cli.data_folder import served_from
from tandembus.cli.failures import TRY_LATER, UNREACHABLE, Failure
from tandembus.cli.output import print_json
from tandembus.cli.target import data_option, json_option

ANSWERS_WITHIN_S: Final = 5.0


@click.command()
@data_option
@json_option
def health(data: Path, as_json: bool) -> None:
    """Ask a namespace on this machine whether it is ready.

    Exit code 0: it is; 3: there is none in the data folder; 5: it does not answer; 7: it is starting or stopping.

    \b
    Examples:
      tandembus health
      tandembus health --data /var/lib/tandembus

    \b
    JSON: {"name", "is_ready"}
    """
    served = served_from(data)
    where = f"{served.name} on {served.host}:{served.http_port}"
    connection = http.client.HTTPConnection(served.host, served.http_port, timeout=ANSWERS_WITHIN_S)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        advice = f"`tandembus serve --data {data}` starts it; `tandembus doctor --data {data}` finds what is wrong."
        raise Failure(f"{where} does not answer: {error}", UNREACHABLE, advice, "NotRunning") from None
    finally:
        connection.close()
    if status != 200:
        raise Failure(f"{where} is not ready.", TRY_LATER, "It is starting or stopping: ask again.", "NotReady")
    if as_json:
        print_json({"name": served.name, "is_ready": True})
    else:
        click.echo(f"{where} is ready")
