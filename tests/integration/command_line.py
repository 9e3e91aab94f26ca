"""Runs commands as a script would, and reads their JSON."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from tandembus.cli import main
from tests.integration.serving import RunningNamespace

STOPS_WITHIN_S = 30.0
Run = Callable[..., Result]
"""Runs a command with these arguments; fails the test unless it ends with `exit_code`. `stdin` is piped in."""


def command_line(namespace: RunningNamespace) -> Run:
    runner = CliRunner(env={"TANDEMBUS_CONNECTION_STRING": namespace.connection_string})

    def run(*arguments: str, exit_code: int = 0, stdin: str | bytes | None = None) -> Result:
        result = runner.invoke(main, arguments, input=stdin)
        assert result.exit_code == exit_code, result.output
        return result

    return run


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def one(result: Result) -> dict[str, Any]:
    (only,) = lines(result)
    return only


def received(run: Run, entity: str, *options: str) -> list[dict[str, Any]]:
    return lines(run("receive", entity, "--json", "--max", "100", "--wait", "1s", *options))


def listen_to_ctrl_c() -> None:
    """A shell's background jobs ignore the signal, and so would everything they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
