"""`tandembus dashboard`."""

from __future__ import annotations

import socket
import webbrowser
from pathlib import Path
from typing import Final

import click

from tandembus.cli.data_folder import ServedNamespace, served_from
from tandembus.cli.failures import UNREACHABLE, Failure
from tandembus.cli.output import print_json
from tandembus.cli.sign_in import page_to, sign_in_link
from tandembus.cli.target import data_option, json_option

ANSWERS_WITHIN_S: Final = 2.0


@click.command()
@data_option
@click.option("--open", "is_opened", is_flag=True, help="Open it in the browser.")
@json_option
def dashboard(data: Path, is_opened: bool, as_json: bool) -> None:
    """Print a link to the dashboard of a namespace on this machine.

    The link signs in with all rights, once and within an hour: treat it like a password until it is used.

    \b
    Examples:
      tandembus dashboard
      tandembus dashboard --open
      tandembus dashboard --data tandembus-data-secondary

    \b
    JSON: {"name", "link"}
    """
    served = served_from(data)
    _check_is_running(served, data)
    link = sign_in_link(data, served.host, served.http_port)
    if as_json:
        print_json({"name": served.name, "link": link})
    else:
        click.echo(link)
    if is_opened and not webbrowser.open(page_to(link, data).as_uri()):
        raise Failure("No browser could be opened.", advice="Open the link above yourself.", kind="NoBrowser")


def _check_is_running(served: ServedNamespace, data: Path) -> None:
    try:
        socket.create_connection((served.host, served.http_port), ANSWERS_WITHIN_S).close()
    except OSError:
        message = f"{served.name} does not answer on {served.host}:{served.http_port}."
        advice = f"`tandembus serve --data {data}` starts it."
        raise Failure(message, UNREACHABLE, advice, "NotRunning") from None
