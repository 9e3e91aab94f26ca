"""The load client (`load/*.c`): builds it and runs it against a broker."""

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SOURCES = Path(__file__).parent / "load"
COMPILE = ("gcc", "-O2", "-Wall", "-Wextra", "-pthread")
MAX_SECONDS = 120.0


class LoadFailed(Exception):
    """The load client ended without doing all of its work."""


@dataclass(frozen=True)
class Target:
    """Where to send to and receive from, and as whom."""

    port: int
    address: str
    user: str
    password: str

    def arguments(self) -> list[str]:
        return [
            "--port",
            str(self.port),
            "--address",
            self.address,
            "--user",
            self.user,
            "--password",
            self.password,
        ]


@dataclass(frozen=True)
class Load:
    """What one run came to; figures that do not apply are 0."""

    accepted: int = 0
    refused: int = 0
    received: int = 0
    send_rate: float = 0.0
    receive_rate: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    duplicates: int = 0
    wrong: int = 0


class LoadClient:
    """Runs the load client, and remembers the commands for the report."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self.commands: list[str] = []

    @classmethod
    def build(cls, folder: Path) -> "LoadClient":
        binary = folder / "amqpload"
        sources = sorted(str(path) for path in SOURCES.glob("*.c"))
        subprocess.run([*COMPILE, "-o", str(binary), *sources], check=True)
        return cls(binary)

    def run(self, target: Target, **options: object) -> Load:
        """One run; raises LoadFailed unless everything was sent and received."""
        command = self._command(target, {"max_seconds": MAX_SECONDS, **options})
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAX_SECONDS * 4)
        if done.returncode != 0:
            raise LoadFailed(f"{self.commands[-1]}\n{done.stdout}{done.stderr}")
        return Load(**json.loads(done.stdout))

    def hold_connections(self, target: Target, count: int) -> "subprocess.Popen[str]":
        """Opens idle connections, each with a link; they stay until the process is ended by `release`."""
        command = self._command(target, {"mode": "idle", "connections": count})
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = _pipe(process.stdout).readline()
        if not line:
            raise LoadFailed(f"{self.commands[-1]}: no connections (exit code {process.wait()})")
        return process

    def release(self, process: "subprocess.Popen[str]") -> None:
        _pipe(process.stdin).close()
        process.wait(timeout=30)
        _pipe(process.stdout).close()

    def _command(self, target: Target, options: dict[str, object]) -> list[str]:
        pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items()]
        arguments = [part for pair in pairs for part in pair]
        self._remember(arguments)
        return [str(self._binary), *target.arguments(), *arguments]

    def _remember(self, arguments: list[str]) -> None:
        shown = shlex.join(["amqpload", "--port", "PORT", "--address", "ADDRESS", *arguments])
        if shown not in self.commands:
            self.commands.append(shown)


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
