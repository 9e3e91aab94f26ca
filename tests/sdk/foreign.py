"""Tests in other languages: their runner runs them against a namespace, and each is reported as a test of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.integration.serving import RunningNamespace
from tools.sdk_calls import Test

ROOT = Path(__file__).parents[2]
BUILDS = ROOT / ".build" / "sdk"
"""What compilers write: outside the sources, and kept for the next run."""
RUN_WITHIN_S = 840.0

Results = Mapping[str, str | None]
"""Why a test failed, by its name; None if it passed."""

SETTINGS = """
[limits]
min_lock_duration_s = 1.0
max_partitioned_entities = 10000
"""
OPTIONS = ("--stores", "2")
OWN_ADDRESS = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""For clients that take no port from a connection string: the usual one is free at an address that nobody else uses."""
USUAL_PORT = ("--host", OWN_ADDRESS, "--amqps-port", "5671")
has_own_addresses = pytest.mark.skipif(sys.platform != "linux", reason="needs the addresses 127.0.0.0/8 of Linux")


def settings_file(folder: Path) -> Path:
    """Locks may be short, so that tests see them lapse."""
    path = folder / "config.toml"
    path.write_text(SETTINGS)
    return path


def names_of(tests: Sequence[Test]) -> list[str]:
    return [f"{test.name}[{kind}]" for test in tests for kind in test.kinds]


def selected_names(request: pytest.FixtureRequest) -> list[str]:
    """The foreign tests of this module that the session runs."""
    return [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec")
    ]


def environment_of(namespace: RunningNamespace, **more: str) -> dict[str, str]:
    settings = {"TANDEMBUS_CONNECTION_STRING": namespace.connection_string, "TANDEMBUS_CA": str(namespace.ca_path)}
    return environment(**settings, **more)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, **more}


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_WITHIN_S, check=False
    )


def built(command: Sequence[str], folder: Path, environment: Mapping[str, str], *offline: str) -> None:
    """Download and compile. Where nothing can be downloaded, the tests are skipped: the output has one of `offline`."""
    done = run(command, folder, environment)
    if done.returncode:
        output = done.stdout + done.stderr
        if any(sign in output for sign in offline):
            pytest.skip(f"what {command[0]} needs could not be downloaded")
        raise RuntimeError(f"{' '.join(command)} failed:\n{output}")


def check(results: Results, name: str) -> None:
    """Fails as the foreign test did."""
    assert name in results, f"{name} was not run; run were: {', '.join(results) or 'none'}"
    failure = results[name]
    if failure is not None:
        pytest.fail(failure, pytrace=False)
