"""`tandembus serve`: one namespace in this process, in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import click

from tandembus.config import ConfigurationError, ServeSettings, load_settings
from tandembus.errors import BusError
from tandembus.node.emulator import EmulatorConfig, read_emulator_config
from tandembus.node.supervisor_node import SupervisorNode
from tandembus.node.tuning import tune_process
from tandembus.node.waiting import first_of
from tandembus.node.wiring import NamespaceNode

log = logging.getLogger("tandembus")

EXIT_REFUSED = 1


@click.command()
@click.option("--name", help="Name of the namespace.  [default: tandembus]")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder.  [default: ./tandembus-data]")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--amqp-port", type=int, help="AMQP port; 0 takes any free one.  [default: 5672]")
@click.option("--amqps-port", help="AMQP over TLS port, or 'off' to close that extra door.  [default: 5671]")
@click.option("--http-port", type=int, help="HTTP port; 0 takes any free one.  [default: 5300]")
@click.option("--key", help="Key of RootManageSharedAccessKey. Without it a random one is made, kept and reused.")
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
@click.option(
    "--config", type=click.Path(path_type=Path), help="Settings, a TOML file; or a Config.json of the emulator."
)
def serve(
    name: str | None,
    data: Path | None,
    host: str | None,
    amqp_port: int | None,
    amqps_port: str | None,
    http_port: int | None,
    key: str | None,
    brokers: int | None,
    stores: int | None,
    front_ends: int | None,
    restart_delay_s: float | None,
    heartbeat_timeout_s: float | None,
    config: Path | None,
) -> None:
    """Run a namespace until Ctrl-C.

    Every port speaks AMQP, HTTP, and both inside TLS. Once connections are accepted a line that begins with "ready" is
    printed, with the connection string for the SDKs and for this command line.

    \b
    Examples:
      tandembus serve
      tandembus serve --data /var/lib/tandembus --host 0.0.0.0 --amqps-port 5671
      tandembus serve --amqp-port 0 --http-port 0 --amqps-port off
      tandembus serve --brokers 4 --front-ends 2
      tandembus serve --config Config.json
    """
    flags: dict[str, object] = {
        "name": name,
        "data": data,
        "host": host,
        "amqp_port": amqp_port,
        "amqps_port": amqps_port,
        "http_port": http_port,
        "key": key,
        "brokers": brokers,
        "stores": stores,
        "front_ends": front_ends,
        "restart_delay_s": restart_delay_s,
        "heartbeat_timeout_s": heartbeat_timeout_s,
    }
    try:
        settings = load_settings(
            config, os.environ, flags={name: value for name, value in flags.items() if value is not None}
        )
        emulator = _read_emulator_config(settings)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    raise SystemExit(_run(settings, emulator))


def _read_emulator_config(settings: ServeSettings) -> EmulatorConfig | None:
    if settings.emulator_config is None:
        return None
    return read_emulator_config(settings.emulator_config, settings.limits)


def _run(settings: ServeSettings, emulator: EmulatorConfig | None) -> int:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_serve(settings, emulator))
    return uvloop.run(_serve(settings, emulator))


def _node(settings: ServeSettings, emulator: EmulatorConfig | None) -> NamespaceNode | SupervisorNode:
    if settings.brokers == 0:
        return NamespaceNode(settings, emulator=emulator)
    return SupervisorNode(settings, emulator=emulator)


async def _serve(settings: ServeSettings, emulator: EmulatorConfig | None = None) -> int:
    node = _node(settings, emulator)
    try:
        await node.start()
    except (BusError, OSError, ConfigurationError) as error:
        click.echo(f"tandembus cannot start: {error}", err=True)
        if isinstance(error, OSError):
            click.echo(f"Try: {_advice_for(error)}", err=True)
        return EXIT_REFUSED
    tune_process(settings.limits.max_connections)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    click.echo(f"ready {node.connection_string}")
    _tell_doors(node)
    await first_of(stop, node.broken)
    click.echo("stopping", err=True)
    try:
        await asyncio.wait_for(node.stop(), settings.stop_timeout_s)
    except asyncio.TimeoutError:
        click.echo(
            f"not everything was finished within {settings.stop_timeout_s:g} s; nothing accepted is lost", err=True
        )
        return EXIT_REFUSED
    return EXIT_REFUSED if node.broken.is_set() else 0


def _advice_for(error: OSError) -> str:
    """Trouble with a file names it; trouble with a port cannot."""
    if error.filename is not None:
        return "--data chooses another data folder, one that this user may write to."
    return "--amqp-port, --http-port and --amqps-port choose other ports (0: any free one)."


def _tell_doors(node: NamespaceNode | SupervisorNode) -> None:
    settings = node.settings
    amqps = f", amqps {node.ports.amqps}" if node.ports.amqps is not None else ""
    log.info(
        "namespace '%s' on %s: amqp %d%s, http %d; data in %s",
        settings.name,
        settings.host,
        node.ports.amqp,
        amqps,
        node.ports.http,
        settings.data,
    )
