"""`tandembus serve`: one namespace, in the foreground."""

from __future__ import annotations

import logging
import os
import signal
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tandembus import logs
from tandembus.cli.sign_in import SHOW_KEY_HELP, may_show_key
from tandembus.cli.starting import EXIT_REFUSED, tell_refusal
from tandembus.config import (
    EMULATOR_CONFIG,
    LOG_LEVELS,
    ConfigurationError,
    ServeSettings,
    load_settings,
    unknown_variables,
)
from tandembus.errors import BusError, InvalidArgument
from tandembus.node.launching import Launch
from tandembus.node.tuning import loading
from tandembus.security.sas import parse_connection_string
from tandembus.tracing.exporting import check_can_trace

if TYPE_CHECKING:
    from tandembus.node.emulator import EmulatorConfig


FIRST_PROCESS: Final = "front-end-0"
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
def serve(
    name: str | None,
    data: Path | None,
    host: str | None,
    amqp_port: int | None,
    amqps_port: str | None,
    http_port: int | None,
    listeners: str | None,
    key: str | None,
    is_key_shown: bool,
    brokers: int | None,
    stores: int | None,
    front_ends: int | None,
    restart_delay_s: float | None,
    heartbeat_timeout_s: float | None,
    audit: bool | None,
    reservations: bool | None,
    open_metrics: bool | None,
    partner: str | None,
    partner_data: Path | None,
    partner_ca: Path | None,
    tracing: bool | None,
    log_level: str | None,
    log_format: str | None,
    config: Path | None,
    emulator: bool | None,
    open_emulator_key: bool | None,
) -> None:
    """Run a namespace until Ctrl-C.

    Every port speaks AMQP, HTTP, and both inside TLS. Once connections are accepted a line that begins with "ready" is
    printed, with the connection string for the SDKs and for this command line, then a link that signs in to the
    dashboard, once and within an hour. Where the output is no terminal, both are left out unless --show-key is given.

    \b
    Examples:
      tandembus serve
      tandembus serve --data /var/lib/tandembus --host 0.0.0.0 --amqps-port 5671
      tandembus serve --host 0.0.0.0 --listeners 443,80,[::]:443
      tandembus serve --amqp-port 0 --http-port 0 --amqps-port off
      tandembus serve --brokers 4 --front-ends 2
      tandembus serve --config Config.json
      tandembus serve --emulator
    """
    if os.getpid() == 1:  # The first process of a container: the kernel drops signals that it does not handle.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    flags: dict[str, object] = {
        "name": name,
        "data": data,
        "host": host,
        "amqp_port": amqp_port,
        "amqps_port": amqps_port,
        "http_port": http_port,
        "listeners": listeners,
        "key": key,
        "brokers": brokers,
        "stores": stores,
        "front_ends": front_ends,
        "restart_delay_s": restart_delay_s,
        "heartbeat_timeout_s": heartbeat_timeout_s,
        "audit": audit,
        "reservations": reservations,
        "open_metrics": open_metrics,
        "partner": partner,
        "partner_data": partner_data,
        "partner_ca": partner_ca,
        "tracing": tracing,
        "log_level": log_level,
        "log_format": log_format,
        "emulator": emulator,
        "open_emulator_key": open_emulator_key,
    }
    try:
        settings = load_settings(
            config, os.environ, flags={name: value for name, value in flags.items() if value is not None}
        )
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
    # What takes long to load comes last: the brokers do not need it.
    with loading():
        from tandembus.cli.serving import run

    raise SystemExit(run(settings, emulator_config, launch, is_key_shown=may_show_key(is_key_shown)))


def _check_partner(settings: ServeSettings) -> None:
    """Before anything is started. What is told of it never holds its key."""
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
        tell_refusal(error, settings)
        raise SystemExit(EXIT_REFUSED) from error
    return launch
