"""A standalone Spark cluster of this machine's own processes, from the pyspark that pip installed."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tandembus.spark.java import ensure_java
from tests.ports import HOST, free_port
from tests.spark.starting import quick_java

READY_WITHIN_S: Final = 90.0
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
MASTER_READY: Final = re.compile(r"I have been elected leader")
WORKER_READY: Final = re.compile(r"Successfully registered with master")


class Daemon:
    """A master or a worker, with what it says kept for whoever wonders why it did not come up."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], ready: re.Pattern[str]) -> None:
        self._name: Final = name
        self._ready: Final = ready
        self._lines: Final[list[str]] = []
        self._is_ready: Final[queue.Queue[bool]] = queue.Queue()
        self._process: Final = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        self._reading: Final = threading.Thread(target=self._read, args=(self._process.stderr,))
        self._reading.start()

    def wait(self) -> None:
        try:
            is_ready = self._is_ready.get(timeout=READY_WITHIN_S)
        except queue.Empty:
            is_ready = False
        if not is_ready:
            raise RuntimeError(f"the {self._name} did not come up:\n" + "\n".join(self._lines[-40:]))

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._lines.append(line.rstrip())
            if self._ready.search(line):
                self._is_ready.put(True)
        self._is_ready.put(False)


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Yields the address of its master, `spark://...`. Its processes have this one's Python and packages."""
    environment = cluster_environment()
    port = free_port()
    master = f"spark://{HOST}:{port}"
    daemons: list[Daemon] = []
    try:
        command = [MASTER, "--host", HOST, "--port", str(port), "--webui-port", "0"]
        daemons.append(Daemon("master", [spark_class(), *command], environment, MASTER_READY))
        daemons[0].wait()
        for number in range(workers):
            work = folder / f"worker-{number}"
            command = [WORKER, "--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            command += ["--work-dir", str(work), master]
            daemons.append(Daemon(f"worker {number}", [spark_class(), *command], environment, WORKER_READY))
        for each in daemons[1:]:
            each.wait()
        yield master
    finally:
        for each in reversed(daemons):
            each.stop()


def cluster_environment() -> dict[str, str]:
    environment = dict(os.environ)
    ensure_java(environment)
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["SPARK_LOCAL_IP"] = HOST
    environment["SPARK_DAEMON_MEMORY"] = "256m"
    environment["SPARK_DAEMON_JAVA_OPTS"] = quick_java()
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment


def spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")


SEVERAL: Final = """
import json, sys
from tandembus.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as end:
        if end.code:
            sys.exit(f"{command} ended with {end.code}")
"""


@contextmanager
def started_commands(
    commands: Sequence[list[str]], variables: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Commands of `tandembus`, one after the other in one process, which starts Java once. It leads a process group,
    since Java is a process beside it. `log`: what it says."""
    output = log.open("wb")
    process = subprocess.Popen(
        [sys.executable, "-c", SEVERAL, json.dumps([[*command, *small_job()] for command in commands])],
        env={**cluster_environment(), **variables},
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        output.close()


def small_job() -> list[str]:
    java = quick_java()
    settings = {
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
    }
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
