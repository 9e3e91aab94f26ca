"""`tandembus serve`: one namespace, in the foreground, from its start to its end.

What takes long to load is imported after the message brokers were started: they do not need it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tandembus import logs
from tandembus.cli.keys import DASHBOARD, HIDDEN, SHOW_KEY_HELP, TRY, endpoint_of, may_show_key, sign_in_link
from tandembus.config import (
    EMULATOR_CONFIG,
    EMULATOR_KEY,
    LOG_LEVELS,
    ConfigurationError,
    ServeSettings,
    load_settings,
    unknown_variables,
)
from tandembus.errors import BusError, InvalidArgument
from tandembus.node.launching import Launch
from tandembus.node.tuning import loading, tune_process
from tandembus.security.sas import parse_connection_string
from tandembus.tracing.exporting import check_can_trace

if TYPE_CHECKING:
    from tandembus.node.emulator import EmulatorConfig
    from tandembus.node.supervisor_node import SupervisorNode
    from tandembus.node.wiring import NamespaceNode

EXIT_REFUSED: Final = 1
FIRST_PROCESS: Final = "front-end-0"
EMULATOR_IS_UP: Final = "Emulator Service is Successfully Up!"
"""What programs that start the official emulator wait for in its output."""
log = logging.getLogger("tandembus")


@click.command()
@click.option("--name", help="Name of the namespace.  [default: tandembus]")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder.  [default: ./tandembus-data]")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--amqp-port", type=int, help="AMQP port; 0 takes any free one.  [default: 5672]")
@click.option("--amqps-port", help="AMQP over TLS port, or 'off' to disable it.  [default: 5671]")
@click.option("--http-port", type=int, help="HTTP port; 0 takes any free one.  [default: 5300]")
@click.option("--listeners", help="Further addresses, separated by commas: HOST:PORT, [IPv6]:PORT, or a port.")
@click.option("--key", help="Key of RootManageSharedAccessKey. Without it a random one is made, kept and reused.")
@click.option("--show-key", "is_key_shown", is_flag=True, help=SHOW_KEY_HELP)
@click.option("--brokers", type=int, help="Message broker processes; 0 keeps all in one process.  [default: 0]")
@click.option("--stores", type=int, help="Messaging stores for new entities.  [default: one per message broker]")
@click.option("--front-ends", type=int, help="Front-end processes that share the ports.  [default: 1]")
@click.option(
    "--restart-delay",
    "restart_delay_s",
    type=float,
    help="Seconds until a process that ended is started again.  [default: 0]",
)
@click.option(
    "--heartbeat-timeout",
    "heartbeat_timeout_s",
    type=float,
    help="Seconds of silence after which a process is killed and started again.  [default: 5]",
)
@click.option("--audit", is_flag=True, default=None, help="Record every message and what becomes of it.")
@click.option(
    "--reservations/--no-reservations",
    default=None,
    help="Offer reservations, which other services do not know; switched off, it is like one of those.  [default: on]",
)
@click.option("--open-metrics", is_flag=True, default=None, help="Let anybody who reaches the HTTP port read /metrics.")
@click.option("--partner", help="Connection string of the other namespace of a pair, shown beside this one.")
@click.option("--partner-data", type=click.Path(path_type=Path), help="Its data folder, where it is on this machine.")
@click.option("--partner-ca", type=click.Path(path_type=Path), help="Certificates (PEM) to trust its TLS by.")
@click.option(
    "--tracing", is_flag=True, default=None, help="Make spans of OpenTelemetry; OTEL_... variables say for whom."
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="What is logged.  [default: info]")
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    help="The log for people or as JSON lines; auto: for people on a terminal.  [default: auto]",
)
@click.option(
    "--config", type=click.Path(path_type=Path), help="Settings, a TOML file; or a Config.json of the emulator."
)
@click.option(
    "--emulator",
    is_flag=True,
    default=None,
    help=f"Take the place of the official emulator's container, with its file {EMULATOR_CONFIG}.",
)
@click.option(
    "--open-emulator-key", is_flag=True, default=None, help="Accept the key SAS_KEY_VALUE also from other machines."
)
def serve(config: Path | None, is_key_shown: bool, **flags: Any) -> None:
    """Run a namespace until Ctrl-C.

    Every port speaks AMQP, HTTP, and both inside TLS. Once connections are accepted a line that begins with "ready" is
    printed, with the connection string for the SDKs and for this command line, then a link that signs in to the
    dashboard, once and within an hour. Where the output is no terminal, both are left out unless --show-key is given.

    \b
    Examples:
      tandembus serve --data /var/lib/tandembus --host 0.0.0.0 --amqps-port 5671
      tandembus serve --host 0.0.0.0 --listeners 443,80,[::]:443
      tandembus serve --amqp-port 0 --http-port 0 --amqps-port off --brokers 4
      tandembus serve --config Config.json
    """
    if os.getpid() == 1:  # The first process of a container: the kernel drops signals that it does not handle.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load_settings(config, os.environ, flags=given)
        _check_partner(settings)
        emulator_config = _read_emulator_config(settings)
        if settings.tracing:
            check_can_trace()
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    logs.set_up(settings.log_level, settings.log_format, FIRST_PROCESS if settings.brokers else "")
    for variable, advice in unknown_variables(os.environ):
        log.warning("environment variable %s has no effect. %s", variable, advice)
    if settings.emulator and emulator_config is None:
        log.warning("no Config.json at %s; name one with --config", EMULATOR_CONFIG)
    launch = _launched(settings)
    with loading():
        importlib.import_module(f"tandembus.node.{'wiring' if launch is None else 'supervisor_node'}")

    running = run_namespace(settings, emulator_config, launch, is_key_shown=may_show_key(is_key_shown))
    raise SystemExit(run_fast(running))


def run_fast(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine on the faster event loop, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def _check_partner(settings: ServeSettings) -> None:
    """Before anything is started. No text about it holds its key."""
    if settings.partner is None:
        return
    try:
        parts = parse_connection_string(settings.partner)
    except InvalidArgument as error:
        raise ConfigurationError(f"partner: {error}") from None
    if parts.key is None and parts.signature is None:
        raise ConfigurationError("partner: the connection string has neither a key nor a signature.")
    try:
        ssl.create_default_context(cafile=settings.partner_ca)
    except OSError as error:  # also what is wrong with a certificate
        raise ConfigurationError(f"partner_ca: {settings.partner_ca} cannot be used: {error}") from None


def _read_emulator_config(settings: ServeSettings) -> EmulatorConfig | None:
    if settings.emulator_config is None:
        return None
    from tandembus.node.emulator import read_emulator_config

    return read_emulator_config(settings.emulator_config, settings.limits)


def _launched(settings: ServeSettings) -> Launch | None:
    """The message brokers, started already; None where everything is in this process."""
    if settings.brokers == 0:
        return None
    try:
        launch = Launch(settings)
        launch.start_brokers()
    except (BusError, OSError) as error:
        _report_refusal(error, settings)
        raise SystemExit(EXIT_REFUSED) from error
    return launch


async def run_namespace(
    settings: ServeSettings,
    emulator: EmulatorConfig | None = None,
    launch: Launch | None = None,
    *,
    is_key_shown: bool = False,
) -> int:
    """Until it is interrupted; returns the exit code. `launch`: where the brokers have processes of their own."""
    node = _node(settings, emulator, launch)
    try:
        await node.start()
    except (BusError, OSError, ConfigurationError) as error:
        _report_refusal(error, settings)
        return EXIT_REFUSED
    from tandembus.node.waiting import first_of

    tune_process(settings.limits.max_connections)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if is_key_shown:
        click.echo(f"ready {node.connection_string}")
        _print_link(node)
    else:
        click.echo(f"ready {endpoint_of(node.connection_string)}\n{HIDDEN.format(data=settings.data)}")
    _log_addresses(node)
    if settings.is_emulator:
        _log_emulator_key(settings)
    if settings.emulator:
        click.echo(EMULATOR_IS_UP)
    notify("READY=1")
    watchdog = asyncio.create_task(keep_watchdog_quiet())
    await first_of(stop, node.broken)
    watchdog.cancel()
    notify("STOPPING=1")
    log.info("stopping")
    try:
        await asyncio.wait_for(node.stop(), settings.stop_timeout_s)
    except TimeoutError:
        click.echo(
            f"not everything was finished within {settings.stop_timeout_s:g} s; nothing accepted is lost", err=True
        )
        return EXIT_REFUSED
    return EXIT_REFUSED if node.broken.is_set() else 0


def _node(
    settings: ServeSettings, emulator: EmulatorConfig | None, launch: Launch | None
) -> NamespaceNode | SupervisorNode:
    from tandembus.node.supervisor_node import SupervisorNode
    from tandembus.node.wiring import NamespaceNode

    if launch is None:
        return NamespaceNode(settings, emulator=emulator)
    return SupervisorNode(settings, launch, emulator)


def _print_link(node: NamespaceNode | SupervisorNode) -> None:
    """Whoever waited for the line before may be gone, and nobody needs the link to go on."""
    from tandembus.node.facts import reachable

    settings = node.settings
    with contextlib.suppress(OSError):
        link = sign_in_link(settings.data, reachable(settings.host), node.ports.http)
        click.echo(f"{DASHBOARD}{link}")


def _log_emulator_key(settings: ServeSettings) -> None:
    if settings.accepts_emulator_key:
        whom = "this machine" if settings.is_on_loopback else f"all machines that reach {', '.join(settings.hosts)}"
        log.warning("the key %s, which everybody knows, is accepted from %s", EMULATOR_KEY, whom)
    else:
        text = "the key %s is not accepted, since other machines reach %s; --open-emulator-key accepts it"
        log.info(text, EMULATOR_KEY, ", ".join(settings.hosts))


def _log_addresses(node: NamespaceNode | SupervisorNode) -> None:
    settings = node.settings
    amqps = f", amqps {node.ports.amqps}" if node.ports.amqps is not None else ""
    further = "".join([f", {host} {port}" for host, port in node.ports.further])
    log.info(
        "namespace '%s' on %s: amqp %d%s, http %d%s; data in %s",
        settings.name,
        settings.host,
        node.ports.amqp,
        amqps,
        node.ports.http,
        further,
        settings.data,
    )


# systemd, for a service with `Type=notify`: states are sent to the socket that the environment names (sd_notify(3)).


def notify(state: str) -> None:
    """Sends a state to systemd. That nobody listens, or listens slowly, keeps no namespace from going on."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notifying:
        try:
            notifying.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:
            pass


async def keep_watchdog_quiet() -> None:
    """Notifies systemd twice within its interval that this loop turns."""
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    while interval_us.isdecimal() and int(interval_us) > 0:
        notify("WATCHDOG=1")
        await asyncio.sleep(int(interval_us) / 2_000_000)


# A namespace that cannot be started.


def _report_refusal(error: Exception, settings: ServeSettings) -> None:
    click.echo(f"tandembus cannot start: {error}", err=True)
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError) and cause.filename is not None:  # trouble with a port cannot name a file
        click.echo(f"{TRY}--data chooses another data folder, one that this user may write to.", err=True)
    elif isinstance(error, OSError):
        for port in (settings.amqp_port, settings.http_port, settings.amqps_port):
            if port and (pids := listeners(port)):
                click.echo(f"port {port}: taken by {named(pids)}", err=True)
        click.echo(f"{TRY}--amqp-port 0 --http-port 0 --amqps-port 0 takes free ports.", err=True)


def listeners(port: int) -> list[int]:
    """The processes that listen on a port: those of other users only for root, and on Linux only."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return [int(one.name) for one in Path("/proc").glob("[0-9]*") if inodes and not inodes.isdisjoint(_open_of(one))]


def named(pids: Sequence[int]) -> str:
    return ", ".join(f"{_name_of(pid)} (process {pid})" for pid in pids)


def _open_of(process: Path) -> Iterator[str]:
    try:
        for one in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since
                yield os.readlink(one)
    except OSError:
        return  # a process of another user, or one that ended


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "a process"
