"""An application of Celery, with workers of its own, on kombu's transport for Service Bus."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from tandembus.security.sas import ROOT_POLICY
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.serving import die_with_the_tests, serving
from tests.sdk import foreign

HERE = Path(__file__).parent
BUILD = foreign.BUILDS / "celery"
PYTHON = str(BUILD / "bin" / "python")
STOPS_WITHIN_S = 30.0
COMES_WITHIN_S = 150.0
KINDS = ("plain", "partitioned")

pytestmark = [foreign.has_own_addresses, pytest.mark.timeout(900)]


def install() -> None:
    """In an environment of its own: kombu names versions that the project does not."""
    foreign.built([sys.executable, "-m", "venv", str(BUILD)], HERE, foreign.environment())
    pip = [PYTHON, "-m", "pip", "--quiet", "install", "-r", "requirements.txt"]
    offline = ("No matching distribution found", "Could not find a version", "Temporary failure", "Connection")
    foreign.built(pip, HERE, foreign.environment(), *offline)


def trust(ca: Path) -> None:
    """The SDK trusts what certifi has, and nothing else, on AMQP connections."""
    found = foreign.run([PYTHON, "-c", "import certifi; print(certifi.where())"], HERE, foreign.environment())
    bundle = Path(found.stdout.strip())
    original = bundle.with_suffix(".original")
    if not original.exists():
        shutil.copy(bundle, original)
    bundle.write_bytes(original.read_bytes() + ca.read_bytes())


@dataclass
class Application:
    """One that has a queue of its own."""

    bus: Bus
    queue: str
    environment: dict[str, str]

    @contextlib.contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [PYTHON, "-m", "celery", "-A", "jobs", "worker", "--pool", "solo"]
        process = subprocess.Popen(command, cwd=HERE, env=self.environment, preexec_fn=die_with_the_tests)
        try:
            yield process
        finally:
            process.kill()
            process.wait(STOPS_WITHIN_S)

    def send(self, task: str, *arguments: object) -> subprocess.Popen[str]:
        command = [PYTHON, "ask.py", task, *map(json.dumps, arguments)]
        return subprocess.Popen(
            command, cwd=HERE, env=self.environment, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_the_tests
        )


def result_of(sent: subprocess.Popen[str]) -> object:
    """What a worker has computed."""
    output, _ = sent.communicate(timeout=COMES_WITHIN_S)
    assert sent.returncode == 0, output
    return json.loads(output)


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    install()
    folder = tmp_path_factory.mktemp("celery")
    with serving(folder / "data", *foreign.OPTIONS, *foreign.USUAL_PORT) as namespace:
        trust(namespace.ca_path)
        yield Bus(namespace)


@pytest.fixture(params=KINDS)
def application(request: pytest.FixtureRequest, bus: Bus, tmp_path: Path) -> Application:
    queue = f"jobs-{tmp_path.name}"
    if request.param == "partitioned":
        bus.admin.create_queue(queue, enable_partitioning=True, lock_duration=timedelta(seconds=5))
    # kombu wants a host that ends in .net; a path, which nobody looks at, may end so, too. Administration goes to the
    # port, messages to 5671.
    url = f"azureservicebus://{ROOT_POLICY}:{bus.running.key}@{foreign.OWN_ADDRESS}:{bus.running.port}/.net"
    environment = foreign.environment(
        TANDEMBUS_BROKER_URL=url,
        TANDEMBUS_QUEUE=queue,
        TANDEMBUS_RESULTS=str(tmp_path),
        REQUESTS_CA_BUNDLE=str(bus.running.ca_path),
    )
    return Application(bus, queue, environment)


@covers("B1")
def test_tasks_run_in_a_worker_and_are_tried_again(application: Application) -> None:
    with application.worker():
        assert result_of(application.send("add", 2, 3)) == 5
        assert result_of(application.send("fail_twice")) == 2
        assert application.bus.comes_to(application.queue, Counts(0))
    assert application.bus.admin.get_queue(application.queue).lock_duration == timedelta(seconds=5)


@covers("B1")
def test_a_task_outlives_the_worker_that_ran_it(application: Application, tmp_path: Path) -> None:
    sent = application.send("die_once", str(tmp_path / "marker"))
    with application.worker() as first:
        assert first.wait(COMES_WITHIN_S) == 1
    with application.worker():
        assert result_of(sent) == "survived"
        assert application.bus.comes_to(application.queue, Counts(0))
