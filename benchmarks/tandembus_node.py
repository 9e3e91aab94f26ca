"""tandembus under test: `tandembus serve` as a process of its own, compiled or interpreted."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.load_client import Target
from benchmarks.processes import (
    accepts_connections,
    anonymous_memory_bytes,
    family_of,
    free_port,
    processor_s,
    stop,
    wait_until,
)

SOURCES = Path(__file__).parent.parent / "src"
POLICY = "RootManageSharedAccessKey"
KEY = "bmNobWFyay1rZXktb2YtdGhlLWJlbmNobWFyay1vbmx5MDA="
COMMAND = (sys.executable, "-m", "tandembus")
CONNECTION_STRING = re.compile(r"Endpoint=\S+")
START_TIMEOUT_S = 60.0
NO_LIMITS: Mapping[str, int] = {}
# The benchmark's large queue would not fit into the sizes that the service allows.
BIG_QUEUE_MEGABYTES = 102_400
SIZES = f"[1024, 2048, 3072, 4096, 5120, {BIG_QUEUE_MEGABYTES}]"


class Tandembus:
    """A namespace in a folder of its own. It can be stopped and started again on the same data."""

    def __init__(
        self,
        folder: Path,
        *,
        is_interpreted: bool = False,
        options: tuple[str, ...] = (),
        limits: Mapping[str, int] = NO_LIMITS,
        under: tuple[str, ...] = (),
    ) -> None:
        """`options` of `tandembus serve`; `limits` other than the defaults; `under`: the command that runs it."""
        self._under = under
        self._folder = folder
        self._options = options
        self._output = folder / "output.log"
        self._port = free_port()
        self._http_port = free_port()
        self.connection_string = ""
        self._process: subprocess.Popen[str] | None = None
        self._environment = {**os.environ, "PYTHONPATH": str(SOURCES)} if is_interpreted else dict(os.environ)
        folder.mkdir(parents=True)
        chosen = {"size_choices_megabytes": SIZES, **limits}
        settings = "".join(f"{name} = {value}\n" for name, value in chosen.items())
        (folder / "tandembus.toml").write_text(f"[limits]\n{settings}")

    def start(self) -> float:
        """Starts serving; returns how many seconds passed until the ready line."""
        began_at = time.monotonic()
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                self._serve_command(),
                env=self._environment,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        wait_until(self._is_ready, "the ready line of tandembus", START_TIMEOUT_S)
        took_s = time.monotonic() - began_at
        wait_until(lambda: accepts_connections(self._port), "tandembus", START_TIMEOUT_S)
        return took_s

    @property
    def ca_path(self) -> Path:
        """For clients that insist on TLS."""
        return self._folder / "data" / "tls" / "ca.pem"

    def create_queue(self, name: str, size_megabytes: int = 5120) -> None:
        self.create("queue", name, "--max-size-mb", str(size_megabytes))

    def create(self, kind: str, *arguments: str) -> None:
        """An entity, with the arguments of `tandembus KIND create`."""
        self.run(kind, "create", *arguments)

    def run(self, *arguments: str) -> None:
        """A command of the CLI against this namespace."""
        command = [*COMMAND, *arguments, "--connection-string", self.connection_string]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"tandembus {' '.join(arguments)}: {done.stdout}{done.stderr}")

    def target(self, queue: str) -> Target:
        return Target(port=self._port, address=queue, user=POLICY, password=KEY)

    def anonymous_memory_bytes(self) -> int:
        return anonymous_memory_bytes(self._running().pid)

    @property
    def pid(self) -> int:
        return self._running().pid

    def processor_s(self) -> float:
        """Of all processes that this namespace consists of, since they were started."""
        return sum(processor_s(pid) for pid in family_of(self._running().pid))

    def kill(self) -> None:
        os.killpg(self._running().pid, signal.SIGKILL)
        self._running().wait()

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process)

    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process

    def _serve_command(self) -> list[str]:
        ports = ["--amqp-port", str(self._port), "--http-port", str(self._http_port), "--amqps-port", "off"]
        data = ["--data", str(self._folder / "data"), "--config", str(self._folder / "tandembus.toml")]
        return [*self._under, *COMMAND, "serve", *ports, *data, "--key", KEY, "--show-key", *self._options]

    def _is_ready(self) -> bool:
        output = self._output.read_text()
        if self._running().poll() is not None:
            raise RuntimeError(f"tandembus ended before it was ready: {output[-2000:]}")
        found = CONNECTION_STRING.search(output)
        if found is None:
            return False
        self.connection_string = found.group()
        return True
