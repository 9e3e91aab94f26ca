"""A namespace in a process of its own, started as a user starts it."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

KEY = "integration-tests-only-0123456789abcdef"
READY_WITHIN_S = 60.0
"""Several processes on a machine that has other things to do."""
STOPS_WITHIN_S = 30.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass
class RunningNamespace:
    """Where a started namespace is reached, and its process."""

    data: Path
    process: subprocess.Popen[str]
    connection_string: str
    port: int
    http_port: int
    key: str = KEY
    log: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None
    """Fills the log until the last process of the namespace has ended."""

    @property
    def admin_connection_string(self) -> str:
        """The same: every port serves AMQP and HTTP, plain and in TLS."""
        return self.connection_string

    @property
    def http_url(self) -> str:
        return f"http://localhost:{self.http_port}"

    @property
    def ca_path(self) -> Path:
        return self.data / "tls" / "ca.pem"

    def kill(self) -> None:
        """As a crash would: nothing is finished, nothing is said."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOPS_WITHIN_S)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOPS_WITHIN_S)

    def stop_in_peace(self) -> None:
        """Stop it, and look whether anything went wrong that no client has seen."""
        assert self.stop() == 0, "".join(self.log)
        if self.reader is not None:
            self.reader.join(STOPS_WITHIN_S)
        assert not self.told_at("ERROR", "CRITICAL"), "".join(self.log)
        assert not [line for line in self.log if "Traceback" in line], "".join(self.log)

    def told_at(self, *levels: str) -> list[dict[str, object]]:
        """Records of the log, which is JSON where nobody watches."""
        records = [json.loads(line) for line in self.log if line.startswith("{")]
        return [record for record in records if record["level"] in levels]


def start_namespace(
    data: Path,
    *options: str,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    module: str = "tandembus",
) -> RunningNamespace:
    """Returns when the ready line is there."""
    command = [sys.executable, "-m", module, "serve", "--data", str(data), "--key", KEY, "--show-key"]
    command += ["--amqp-port", str(port), "--http-port", "0", "--amqps-port", "off", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {}), **python_path(module)},
        preexec_fn=die_with_the_tests,
    )
    # A test that fails does not come to the end of its namespace; the session does.
    atexit.register(process.kill)
    log: list[str] = []
    ready: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    reader = threading.Thread(target=_follow, args=(process, log, ready), daemon=True)
    reader.start()
    try:
        connection_string = ready.get(timeout=READY_WITHIN_S)
    except queue.Empty:
        connection_string = None
    if connection_string is None:
        process.kill()
        process.wait(STOPS_WITHIN_S)
        raise RuntimeError("the namespace did not become ready:\n" + "".join(log))
    facts = json.loads((data / "namespace.json").read_text())
    return RunningNamespace(
        data, process, connection_string, facts["amqp_port"], facts["http_port"], log=log, reader=reader
    )


@contextlib.contextmanager
def serving(
    data: Path, *options: str, environment: Mapping[str, str] | None = None, module: str = "tandembus"
) -> Iterator[RunningNamespace]:
    """Stopped in order at the end; a test that failed leaves nothing running behind it."""
    namespace = start_namespace(data, *options, environment=environment, module=module)
    try:
        yield namespace
        assert namespace.stop() == 0, "".join(namespace.log)
    finally:
        if namespace.process.poll() is None:
            namespace.kill()


def python_path(module: str) -> dict[str, str]:
    """A module of the tests is found whatever folder they run in."""
    if not module.startswith("tests."):
        return {}
    root = str(Path(__file__).parents[2])
    return {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


def die_with_the_tests() -> None:
    """A session that is ended the hard way, since a test hangs, comes to no end of anything."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _follow(process: subprocess.Popen[str], log: list[str], ready: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        log.append(line)
        if line.startswith("ready "):
            ready.put(line.removeprefix("ready ").strip())
    ready.put(None)
