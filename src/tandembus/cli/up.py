"""`tandembus up`: a primary and a secondary namespace on this machine, in the foreground."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tandembus import logs
from tandembus.cli.command_process import CommandProcess
from tandembus.cli.pair_processes import PairProcesses
from tandembus.cli.printable import printable, printable_json
from tandembus.cli.sign_in import DASHBOARD, HIDDEN, SHOW_KEY_HELP, endpoint_of, may_show_key
from tandembus.cli.starting import TRY

PRIMARY: Final = "primary"
SECONDARY: Final = "secondary"
WIDTH: Final = len(SECONDARY)
DEFAULT_DATA: Final = Path("tandembus-data")
CA_FILE: Final = Path("tls", "ca.pem")
SDK: Final = """\
from azure.servicebus import ServiceBusClient, ServiceBusMessage
with ServiceBusClient.from_connection_string({primary!r}) as bus:
    bus.get_queue_sender("orders").send_messages(ServiceBusMessage("hello"))
    receiver = bus.get_queue_receiver("orders")
    for message in receiver.receive_messages(max_wait_time=5):
        print(message)
        receiver.complete_message(message)
"""
SNIPPET: Final = """\
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from tandembus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespace
PRIMARY = {primary!r}
SECONDARY = {secondary!r}
primary, secondary = [ServiceBusClient.from_connection_string(each) for each in (PRIMARY, SECONDARY)]
admin = ServiceBusAdministrationClient.from_connection_string(SECONDARY, connection_verify={ca!r})
options = SendAvailabilityPairedNamespaceOptions(admin, secondary)
paired = await pair_namespace(primary, options, primary_name={name!r})
# Send with it as with the SDK's client: paired.get_queue_sender("orders"). failover_interval is 60 s by default.
"""
"""Both are complete, as they are pasted."""
SYPHON: Final = "After an outage, `tandembus pair status` shows what waits, and `tandembus syphon` brings it home."

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two, as its options say. The fields but the first are the names of options."""

    label: str
    name: str
    data: Path
    amqp_port: int
    amqps_port: str
    http_port: int
    config: Path | None

    @classmethod
    def chosen(cls, label: str, options: dict[str, Any]) -> Side:
        return cls(label, *[options[f"{label}_{field.name}"] for field in fields(cls)[1:]])

    def serve_command(
        self, other: Side, host: str | None, brokers: int, is_audited: bool = False, log_format: str | None = None
    ) -> list[str]:
        words = ["serve", "--name", self.name, "--data", str(self.data), "--brokers", str(brokers)]
        words += ["--amqp-port", str(self.amqp_port), "--amqps-port", self.amqps_port]
        words += ["--http-port", str(self.http_port), "--partner-data", str(other.data)]
        words += ["--host", host] if host is not None else []
        words += ["--audit"] if is_audited else []
        words += ["--log-format", log_format] if log_format is not None else []
        return words + (["--config", str(self.config)] if self.config is not None else [])

    def where_it_was(self) -> Side:
        """With the ports that it took where any would do: clients know it by those. As asked for, where its folder does
        not tell any more."""
        from tandembus.cli.data_folder import served_from  # For a namespace that died: a start should not load it.
        from tandembus.cli.failures import Failure

        try:
            served = served_from(self.data)
        except (Failure, OSError):
            return self
        amqps_port = "off" if served.amqps_port is None else str(served.amqps_port)
        return replace(self, amqp_port=served.amqp_port, amqps_port=amqps_port, http_port=served.http_port)

    def link(self) -> str | None:
        """That signs in to its dashboard, once; None where its folder does not tell where it is."""
        from tandembus.cli.data_folder import served_from
        from tandembus.cli.failures import Failure
        from tandembus.cli.sign_in import sign_in_link

        try:
            served = served_from(self.data)
            return sign_in_link(self.data, served.host, served.http_port)
        except (Failure, OSError):
            return None

    def ports(self) -> list[int]:
        """Those that it insists on."""
        asked = [self.amqp_port, self.http_port]
        asked += [int(self.amqps_port)] if self.amqps_port.isdecimal() else []
        return [port for port in asked if port != 0]

    @property
    def ca_path(self) -> str:
        return str((self.data / CA_FILE).resolve())


def _side_options(label: str, data: str, amqp_port: int, amqps_port: int, http_port: int) -> Callable[[T], T]:
    """The fields of a `Side`, each as an option."""
    path = click.Path(path_type=Path)
    port = click.IntRange(0, 65_535)
    options = [
        click.option(f"--{label}-name", default=label, show_default=True, help=f"Name of the {label} namespace."),
        click.option(f"--{label}-data", type=path, default=data, show_default=True, help="Its data folder."),
        click.option(
            f"--{label}-amqp-port",
            type=port,
            default=amqp_port,
            show_default=True,
            help="Its AMQP port; 0 takes any free one.",
        ),
        click.option(
            f"--{label}-amqps-port",
            default=str(amqps_port),
            show_default=True,
            help="Its port of AMQP over TLS, or 'off'.",
        ),
        click.option(f"--{label}-http-port", type=port, default=http_port, show_default=True, help="Its HTTP port."),
        click.option(f"--{label}-config", type=path, help="Its settings, in a file as for `tandembus serve`."),
    ]

    def add(command: T) -> T:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command()
@_side_options(PRIMARY, str(DEFAULT_DATA), 5672, 5671, 5300)
@_side_options(SECONDARY, "tandembus-data-secondary", 5682, 5681, 5310)
@click.option("--host", help="Address that both listen on.  [default: 127.0.0.1]")
@click.option("--brokers", type=click.IntRange(0, 64), default=2, show_default=True, help="Message brokers of each.")
@click.option("--audit", "is_audited", is_flag=True, help="Record every message and what becomes of it, in both.")
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    envvar="TANDEMBUS_LOG_FORMAT",
    help="The logs of both for people or as JSON lines; auto: for people on a terminal.  [default: auto]",
)
@click.option("--show-key", "is_key_shown", is_flag=True, help=SHOW_KEY_HELP)
@click.option("--json", "as_json", is_flag=True, help="Say in JSON where they are, for programs.")
def up(
    host: str | None,
    brokers: int,
    is_audited: bool,
    log_format: str | None,
    is_key_shown: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a primary and a secondary namespace on this machine until Ctrl-C.

    Once both accept connections it prints what to try next: first commands, the SDK in a few lines, links that sign in
    to the dashboards, once each, the connection strings, and a paired client. Where the output is no terminal it prints
    nothing that holds a key, unless --show-key is given. If one of them ends, that is reported, and the other goes on.
    Settings without an option here come from the environment (TANDEMBUS_...) for both, or from a file for each.

    \b
    Examples:
      tandembus up
      tandembus up --primary-name contoso --primary-data contoso-data
      tandembus up --brokers 0 --secondary-amqp-port 0 --secondary-amqps-port off --secondary-http-port 0

    \b
    JSON, one line:
      {"primary": {"name", "connection_string", "data", "ca_path", "pid", "dashboard"}, "secondary": {...}}
      connection_string and dashboard are null where keys are not printed.
    """
    primary, secondary = Side.chosen(PRIMARY, options), Side.chosen(SECONDARY, options)
    _check_are_two(primary, secondary)
    if log_format in (None, logs.AUTO) and sys.stderr.isatty():
        log_format = logs.HUMAN  # what they write goes through a pipe first
    print_found = partial(_print_json if as_json else _print, may_show_key(is_key_shown))
    raise SystemExit(asyncio.run(_run((primary, secondary), host, brokers, is_audited, log_format, print_found)))


def _check_are_two(primary: Side, secondary: Side) -> None:
    if primary.name.lower() == secondary.name.lower():
        raise click.UsageError(f"Both namespaces are called '{primary.name}': choose another --secondary-name.")
    if primary.data.resolve() == secondary.data.resolve():
        raise click.UsageError(f"Both namespaces keep their data in {primary.data}: choose another --secondary-data.")
    shared = set(primary.ports()) & set(secondary.ports())
    if shared:
        raise click.UsageError(f"Both namespaces ask for port {min(shared)}: choose others, or 0 for any free one.")


async def _run(
    sides: Sequence[Side],
    host: str | None,
    brokers: int,
    is_audited: bool,
    log_format: str | None,
    print_found: Callable[[Sequence[Side], Sequence[CommandProcess], Sequence[str]], None],
) -> int:
    pairs = zip(sides, reversed(sides), strict=True)
    commands = [side.serve_command(other, host, brokers, is_audited, log_format) for side, other in pairs]
    processes = [
        CommandProcess(side.label, [*command, "--show-key"], partial(_tell_of, side))  # read here and by nobody else
        for side, command in zip(sides, commands, strict=True)
    ]

    def again(label: str) -> str:
        side, other = sides if label == sides[0].label else reversed(sides)
        return shlex.join(["tandembus", *side.where_it_was().serve_command(other, host, brokers, is_audited)])

    announce = partial(print_found, sides, processes)
    return await PairProcesses(processes, announce, again, partial(_tell, "up")).run()


def _tell_of(side: Side, text: str) -> None:
    """Its link is left out: where both are ready there is one for each. Its advice names options of `serve`, which
    have the label here."""
    if text.startswith(TRY):
        text = text.replace("--", f"--{side.label}-")
    if not text.startswith(DASHBOARD):
        _tell(side.label, text)


def _tell(who: str, text: str) -> None:
    click.echo(f"{who:{WIDTH}} | {printable(text)}", err=True)


def _print(
    is_key_shown: bool, sides: Sequence[Side], _: Sequence[CommandProcess], connection_strings: Sequence[str]
) -> None:
    """Prints what to do next first, then what the pair needs."""
    primary, secondary = connection_strings
    click.echo(f"Try it, in a second terminal in this folder:\n\n{_first_commands(sides[0])}\n")
    if is_key_shown:
        hint = "" if find_spec("azure") and find_spec("azure.servicebus") else " (pip install azure-servicebus)"
        click.echo(f"With the SDK, in `python`{hint}:\n\n{SDK.format(primary=primary)}")
        for side in sides:
            click.echo(f"{DASHBOARD}{side.label:{WIDTH}} {side.link() or '-'}")
    for side, connection_string in zip(sides, connection_strings, strict=True):
        shown = connection_string if is_key_shown else endpoint_of(connection_string)
        click.echo(f"ready {side.label:{WIDTH}} {shown}")
    if is_key_shown:
        snippet = SNIPPET.format(primary=primary, secondary=secondary, ca=sides[1].ca_path, name=sides[0].name)
        click.echo(f"\nThe pair: a client that fails over, in `python -m asyncio`:\n\n{snippet}\n{SYPHON}\n")
        click.echo("Ctrl-C stops both.")
    else:
        click.echo(f"\n{HIDDEN.format(data=sides[0].data)}\n\nCtrl-C stops both.")


def _first_commands(primary: Side) -> str:
    commands = ["tandembus queue create orders", 'tandembus send orders "hello"', "tandembus receive orders"]
    if primary.data != DEFAULT_DATA:  # where commands look by themselves
        connection_string = f'"$(tandembus connection-string --data {shlex.quote(str(primary.data))})"'
        commands.insert(0, f"export TANDEMBUS_CONNECTION_STRING={connection_string}")
    if shutil.which("tandembus") is None:
        commands.insert(0, f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
    return "\n".join(f"  {command}" for command in commands)


def _print_json(
    is_key_shown: bool, sides: Sequence[Side], processes: Sequence[CommandProcess], connection_strings: Sequence[str]
) -> None:
    found = {
        side.label: {
            "name": side.name,
            "connection_string": connection_string if is_key_shown else None,
            "data": str(side.data.resolve()),
            "ca_path": side.ca_path,
            "pid": process.pid,
            "dashboard": side.link() if is_key_shown else None,
        }
        for side, process, connection_string in zip(sides, processes, connection_strings, strict=True)
    }
    click.echo(printable_json(json.dumps(found)))
