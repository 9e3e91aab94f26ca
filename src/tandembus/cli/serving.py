"""Running a namespace in the foreground, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING, Final

import click

from tandembus.cli.notifying import keep_watchdog_quiet, notify
from tandembus.cli.sign_in import DASHBOARD, HIDDEN, endpoint_of, sign_in_link
from tandembus.cli.starting import EXIT_REFUSED, tell_refusal
from tandembus.config import EMULATOR_KEY, ConfigurationError, ServeSettings
from tandembus.errors import BusError
from tandembus.node.facts import reachable
from tandembus.node.launching import Launch
from tandembus.node.supervisor_node import SupervisorNode
from tandembus.node.tuning import tune_process
from tandembus.node.waiting import first_of
from tandembus.node.wiring import NamespaceNode

if TYPE_CHECKING:
    from tandembus.node.emulator import EmulatorConfig

EMULATOR_IS_UP: Final = "Emulator Service is Successfully Up!"
"""What programs that start the official emulator wait for in its output."""

log = logging.getLogger("tandembus")


def run(settings: ServeSettings, emulator: EmulatorConfig | None, launch: Launch | None, *, is_key_shown: bool) -> int:
    """Until it is interrupted; returns the exit code. `launch`: where the brokers have processes of their own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(serve(settings, emulator, launch, is_key_shown=is_key_shown))
    return uvloop.run(serve(settings, emulator, launch, is_key_shown=is_key_shown))


async def serve(
    settings: ServeSettings,
    emulator: EmulatorConfig | None = None,
    launch: Launch | None = None,
    *,
    is_key_shown: bool = False,
) -> int:
    node = _node(settings, emulator, launch)
    try:
        await node.start()
    except (BusError, OSError, ConfigurationError) as error:
        tell_refusal(error, settings)
        return EXIT_REFUSED
    tune_process(settings.limits.max_connections)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if is_key_shown:
        click.echo(f"ready {node.connection_string}")
        _tell_link(node)
    else:
        click.echo(f"ready {endpoint_of(node.connection_string)}\n{HIDDEN.format(data=settings.data)}")
    _tell_doors(node)
    if settings.is_emulator:
        _tell_emulator_key(settings)
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
    if launch is None:
        return NamespaceNode(settings, emulator=emulator)
    return SupervisorNode(settings, launch, emulator)


def _tell_link(node: NamespaceNode | SupervisorNode) -> None:
    """Whoever waited for the line before may be gone, and nobody needs the link to go on."""
    settings = node.settings
    with contextlib.suppress(OSError):
        link = sign_in_link(settings.data, reachable(settings.host), node.ports.http)
        click.echo(f"{DASHBOARD}{link}")


def _tell_emulator_key(settings: ServeSettings) -> None:
    if settings.accepts_emulator_key:
        whom = "this machine" if settings.is_on_loopback else f"all machines that reach {', '.join(settings.hosts)}"
        log.warning("the key %s, which everybody knows, is accepted from %s", EMULATOR_KEY, whom)
    else:
        text = "the key %s is not accepted, since other machines reach %s; --open-emulator-key accepts it"
        log.info(text, EMULATOR_KEY, ", ".join(settings.hosts))


def _tell_doors(node: NamespaceNode | SupervisorNode) -> None:
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
