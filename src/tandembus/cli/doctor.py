"""`tandembus doctor`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from tandembus.cli.diagnosis import clocks, configuration, disk, installation, limits, ports, served, stores
from tandembus.cli.diagnosis.finding import Finding, Level, examined, worst
from tandembus.cli.failures import FAILED, WARNINGS
from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.printable import printable
from tandembus.cli.target import json_option
from tandembus.cli.upkeep import byte_progress
from tandembus.clock import Clock, SystemClock
from tandembus.config import ConfigurationError, ServeSettings, load_settings

HEADINGS: Final = ("area", "subject", "", "what was found")
STYLES: Final = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
EXIT_CODES: Final = {Level.OK: 0, Level.WARNING: WARNINGS, Level.PROBLEM: FAILED}

Begun = Callable[[int], Callable[[int], None]]


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Data folder.  [default: ./tandembus-data]")
@click.option("--config", type=click.Path(path_type=Path), help="The settings that the namespace is started with.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--amqp-port", type=int, help="AMQP port.  [default: 5672]")
@click.option("--amqps-port", help="AMQP over TLS port, or 'off'.  [default: 5671]")
@click.option("--http-port", type=int, help="HTTP port.  [default: 5300]")
@click.option("--brokers", type=int, help="Message broker processes.  [default: 0]")
@click.option("--front-ends", type=int, help="Front-end processes.  [default: 1]")
@click.option("--deep", is_flag=True, help="Verify every record, as `tandembus check` does.")
@json_option
def doctor(config: Path | None, deep: bool, as_json: bool, **flags: object) -> None:
    """Look for what keeps a namespace on this machine from working well, and say what to do.

    Ports, disk, clock, limits, stores, configuration and installation are looked at, with the namespace running or
    stopped. Settings are read as `serve` reads them: give the same file and flags. Exit code 0: all is well; 9: there
    are warnings; 1: there are problems.

    \b
    Examples:
      tandembus doctor
      tandembus doctor --data /var/lib/tandembus --config /etc/tandembus.toml --deep
      tandembus doctor --json

    \b
    JSON: {"level": "ok" | "warning" | "problem",
           "findings": [{"area", "subject", "level", "text", "advice"}]}
    """
    with byte_progress("checking") as begun:
        findings = list(_findings(config, flags, deep, begun))
    level = worst(findings)
    if as_json:
        print_json({"level": level.value, "findings": [_record(one) for one in findings]})
    else:
        _show(findings, level)
    click.get_current_context().exit(EXIT_CODES[level])


def _findings(config: Path | None, flags: dict[str, object], is_deep: bool, begun: Begun) -> Iterator[Finding]:
    given = {name: flag for name, flag in flags.items() if flag is not None}
    clock = SystemClock()
    try:
        settings = load_settings(config, os.environ, given)
        yield configuration.usable(config, os.environ)
    except ConfigurationError as error:
        yield configuration.unusable(error)
        # The folder is known all the same, and may have troubles of its own.
        settings = load_settings(None, {}, {name: given[name] for name in ("data",) if name in given})
    yield from _examine(settings, config, is_deep, begun, clock)


def _examine(
    settings: ServeSettings, config: Path | None, is_deep: bool, begun: Begun, clock: Clock
) -> Iterator[Finding]:
    data, now = settings.data, served.look(settings.data)
    yield from examined(configuration.AREA, lambda: configuration.examine(settings, config, os.environ, clock.now()))
    yield from examined(ports.AREA, lambda: ports.examine(settings, now))
    yield from examined(disk.AREA, lambda: disk.examine(settings, clock))
    yield from examined(clocks.AREA, lambda: clocks.examine(data, now, clock))
    yield from examined(limits.AREA, lambda: limits.examine(settings, now))
    yield from examined(stores.AREA, lambda: stores.examine(data, now, is_deep, begun))
    yield from examined(installation.AREA, installation.examine)


def _record(finding: Finding) -> dict[str, object]:
    facts = {"area": finding.area, "subject": finding.subject, "level": finding.level.value, "text": finding.text}
    return {**facts, "advice": finding.advice or None}


def _show(findings: list[Finding], level: Level) -> None:
    print_table(HEADINGS, [_row(one) for one in findings])
    say()
    if level is Level.OK:
        say(("all is well", "green"))
        return
    count = len([one for one in findings if one.level is not Level.OK])
    say((counted(count, "finding"), STYLES[level]), " to look at")


def _row(finding: Finding) -> list[object]:
    text = Text(printable(finding.text))
    if finding.advice:
        text.append("\n" + printable(finding.advice), "cyan")
    return [finding.area, finding.subject, Text(finding.level.value, STYLES[finding.level]), text]
