"""How to reach and trust a namespace on this machine: `connection-string`, `dashboard`, `ca`, `token`, `health`, and
`version`. Little is loaded with them: health checks run every few seconds."""

from __future__ import annotations

import html
import math
import platform
import shlex
import sys
from pathlib import Path
from typing import Final

import click

import tandembus
from tandembus import build
from tandembus.cli.arguments import checked_path, duration
from tandembus.cli.failures import NOT_AUTHORIZED, NOT_FOUND, TRY_LATER, UNREACHABLE, Failure
from tandembus.cli.output import moment_text, print_json
from tandembus.cli.target import (
    CA_FILE,
    Target,
    connection_string_of,
    data_option,
    json_option,
    namespace_options,
    served_from,
)
from tandembus.clock import SystemClock
from tandembus.security.sas import make_token, parse_connection_string

DASHBOARD: Final = "dashboard "
"""How a line begins that holds a link."""
TRY: Final = "Try: "
"""How a line begins that advises what to do when a namespace cannot be started."""
DASHBOARD_ANSWERS_WITHIN_S: Final = 2.0
HEALTH_ANSWERS_WITHIN_S: Final = 5.0
SHOW_KEY_HELP: Final = "Print the key and the link also where the output is no terminal, such as in a pipe."
HIDDEN: Final = (
    "The key is printed to a terminal only, or with --show-key. `tandembus connection-string --data {data}` prints it, "
    "and `tandembus dashboard --data {data}` a link that signs in."
)
STORES: Final = ("system", "certifi", "java")
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


def may_show_key(is_asked_for: bool) -> bool:
    """Output that is no terminal is often a file or a journal, which keeps the key and has other readers."""
    return is_asked_for or sys.stdout.isatty()


def endpoint_of(connection_string: str) -> str:
    """Returns the endpoint of a connection string, without the key."""
    return connection_string.partition(";")[0].removeprefix("Endpoint=")


def sign_in_link(data: Path, host: str, http_port: int) -> str:
    """A new link to the dashboard, good once and for an hour. The code is behind the '#': no proxy and no log sees it
    on the way. Raises OSError where the folder cannot be written to."""
    from tandembus.security.one_time_codes import OneTimeCodes

    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{http_port}/#sign-in={OneTimeCodes(data).make(SystemClock().now())}"


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version of tandembus and whether it is compiled."""
    current = build.current()
    if as_json:
        facts = {"version": tandembus.__version__, "build": current.kind, "python": platform.python_version()}
        print_json({**facts, "sources_fit": current.sources_fit})
        return
    click.echo(f"tandembus {tandembus.__version__} ({build.describe()}, Python {platform.python_version()})")


@click.command("connection-string")
@data_option
@click.option("--tls", is_flag=True, help="The form for TLS; clients must trust the namespace's CA (`tandembus ca`).")
@json_option
def connection_string(data: Path, tls: bool, as_json: bool) -> None:
    """Print the connection string of a namespace on this machine.

    It contains the key of the root policy: treat it like a password.

    \b
    Examples:
      export TANDEMBUS_CONNECTION_STRING="$(tandembus connection-string --data /var/lib/tandembus)"
    """
    text = connection_string_of(data, tls)
    if as_json:
        print_json({"name": served_from(data).name, "connection_string": text})
    else:
        click.echo(text)


@click.command()
@data_option
@click.option("--open", "is_opened", is_flag=True, help="Open it in the browser.")
@json_option
def dashboard(data: Path, is_opened: bool, as_json: bool) -> None:
    """Print a link to the dashboard of a namespace on this machine.

    The link signs in with all rights, once and within an hour: treat it like a password until it is used.
    """
    import socket
    import webbrowser

    served = served_from(data)
    try:
        socket.create_connection((served.host, served.http_port), DASHBOARD_ANSWERS_WITHIN_S).close()
    except OSError:
        message = f"{served.name} does not answer on {served.host}:{served.http_port}."
        raise Failure(message, UNREACHABLE, f"`tandembus serve --data {data}` starts it.", "NotRunning") from None
    link = sign_in_link(data, served.host, served.http_port)
    if as_json:
        print_json({"name": served.name, "link": link})
    else:
        click.echo(link)
    if is_opened and not webbrowser.open(_page_to(link, data).as_uri()):
        raise Failure("No browser could be opened.", advice="Open the link above yourself.", kind="NoBrowser")


def _page_to(link: str, data: Path) -> Path:
    """A page that only its owner can read and that leads to the link, which then stands on nobody's command line."""
    from tandembus.security.key_file import write_private
    from tandembus.security.one_time_codes import FOLDER

    page = (data / FOLDER).with_suffix(".html").absolute()
    write_private(page, f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">\n'.encode())
    return page


@click.command()
@data_option
@json_option
def health(data: Path, as_json: bool) -> None:
    """Ask a namespace on this machine whether it is ready.

    Exit code 0: it is; 3: there is none in the data folder; 5: it does not answer; 7: it is starting or stopping.
    """
    import http.client

    served = served_from(data)
    where = f"{served.name} on {served.host}:{served.http_port}"
    connection = http.client.HTTPConnection(served.host, served.http_port, timeout=HEALTH_ANSWERS_WITHIN_S)
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


@click.command()
@click.argument("entity", required=False, callback=checked_path)
@click.option(
    "--lifetime", "lifetime_s", type=duration, default="1h", show_default=True, help="How long the token is good for."
)
@namespace_options
async def token(target: Target, entity: str | None, lifetime_s: float) -> None:
    """Print a token that replaces a key in HTTP requests.

    It is signed with the key of the connection string and has the rights of its policy, on ENTITY only if one is named.
    No namespace is asked for it. Treat it like a password.

    \b
    Examples:
      curl -H "Authorization: $(tandembus token orders --lifetime 5m)" -d hello http://localhost:5300/orders/messages
    """
    parts = parse_connection_string(target.connection_string)
    if parts.key_name is None or parts.key is None:
        advice = "Use one with SharedAccessKeyName and SharedAccessKey."
        raise Failure("The connection string has no key to sign with.", NOT_AUTHORIZED, advice, "Unauthorized")
    if lifetime_s == math.inf:
        raise click.UsageError("A token ends some day: give --lifetime a duration.")
    path = entity or parts.entity_path
    uri = f"sb://{parts.endpoint}/" if path is None else f"sb://{parts.endpoint}/{path.strip('/')}"
    expires_at = SystemClock().now() + lifetime_s
    made = make_token(uri, parts.key_name, parts.key, expires_at)
    if target.as_json:
        print_json({"token": made, "uri": uri, "expires_at": moment_text(float(int(expires_at)))})
    else:
        click.echo(made)


@click.command()
@data_option
@click.option("--install", type=click.Choice(STORES), help="Make programs trust the namespace: change this store.")
@click.option("--uninstall", type=click.Choice(STORES), help="Undo it.")
@click.option("--dry-run", is_flag=True, help="Only print what would be changed.")
@click.option(
    "--python", metavar="PROGRAM", help="Whose certifi to change; without it, that of the Python of tandembus."
)
@json_option
def ca(
    data: Path, install: str | None, uninstall: str | None, dry_run: bool, python: str | None, as_json: bool
) -> None:
    """Print how clients come to trust a namespace's certificate.

    Prints the path of the namespace's own certificate authority, and the environment variables that SDKs and
    tools read, as lines a shell understands. docs/cli.md lists which client reads what.

    --install adds the authority to those that the system (Debian), Python's certifi or Java (of JAVA_HOME, else on the
    PATH) trusts, so that no variable is needed. --uninstall takes it out; it reads the data folder, so do it before you
    delete that.

    \b
    Examples:
      eval "$(tandembus ca)"
      tandembus ca --install java --dry-run
      tandembus ca --install certifi --python .venv/bin/python
    """
    served = served_from(data)
    path = (data / CA_FILE).resolve()
    if not path.is_file():
        advice = "It uses a certificate that was given to it: trust the authority that signed that one."
        raise Failure(f"{served.name} has no certificate authority of its own.", NOT_FOUND, advice, "CaNotFound")
    if install is not None and uninstall is not None:
        raise click.UsageError("--install and --uninstall exclude each other.")
    if install or uninstall:
        _change_store(install or uninstall or "", path, install is not None, dry_run, python, as_json)
    elif dry_run or python:
        raise click.UsageError("--dry-run and --python go with --install or --uninstall.")
    elif as_json:
        print_json({"ca_path": str(path), "environment": {name: str(path) for name, _ in VARIABLES}})
    else:
        for line in (str(path), *[note.format(path=str(path)) for note in NOTES]):
            click.echo(f"# {line}")
        for name, readers in VARIABLES:
            click.echo(f"export {name}={shlex.quote(str(path))}  # {readers}")


def _change_store(store: str, path: Path, is_install: bool, dry_run: bool, python: str | None, as_json: bool) -> None:
    from tandembus.cli.trust_store import planned

    verb = "install" if is_install else "uninstall"
    change = planned(store, path, is_install, python)
    if change.is_needed and not dry_run:
        try:
            change.make()
        except OSError as error:
            again = f'sudo -E "$(command -v tandembus)" ca --{verb} {store} --data {shlex.quote(str(path.parents[1]))}'
            advice = f"Repeat it as a user who may, such as root: {again}"
            raise Failure(f"{change.place} cannot be changed: {error.strerror}.", advice=advice) from None
    if as_json:
        print_json({"store": store, "place": change.place, "is_changed": change.is_needed})
    elif not change.is_needed:
        click.echo(f"nothing to {verb}: {change.place} has it {'already' if is_install else 'not'}")
    else:
        click.echo(f"{f'would {verb}' if dry_run else f'{verb}ed'} in {change.place}: {change.steps}")
