"""The unmodified Rust crate azservicebus, in tests of its own language."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tandembus.security.sas import ROOT_POLICY
from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.serving import RunningNamespace, serving
from tests.sdk import foreign
from tools.sdk_calls import RUST

HERE = Path(__file__).parent
TESTS = RUST.tests()
BUILD = foreign.BUILDS / "rust"
SUBSCRIPTION = "sub"

pytestmark = [
    pytest.mark.skipif(shutil.which("cargo") is None, reason="needs Rust: cargo"),
    foreign.has_own_addresses,
    pytest.mark.timeout(900),
]


def make_entities(namespace: RunningNamespace, names: list[str]) -> None:
    """A queue and a topic for each test: the crate has no administration client."""
    admin = Bus(namespace).admin
    for name in names:
        test, kind = name.removesuffix("]").split("[")
        entity = f"{test.rpartition('::')[2]}-{kind}"
        admin.create_queue(entity, requires_session=kind == "sessions", enable_partitioning=kind == "partitioned")
        admin.create_topic(f"{entity}-topic", enable_partitioning=kind == "partitioned")
        admin.create_subscription(f"{entity}-topic", SUBSCRIPTION, requires_session=kind == "sessions")


def read_output(output: str) -> dict[str, str | None]:
    """What `cargo test` prints, as results of the tests on each kind of entity."""
    results: dict[str, str | None] = {}
    for test, kind, outcome in re.findall(r"^test ([\w:]+)::(\w+) \.\.\. (\w+)$", output, re.MULTILINE):
        told = re.search(
            rf"^---- {test}::{kind} stdout ----\n(.*?)^(?=----|failures:)", output, re.MULTILINE | re.DOTALL
        )
        results[f"{test}[{kind}]"] = None if outcome == "ok" else (told[1] if told else output)
    return results


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> foreign.Results:
    folder = tmp_path_factory.mktemp("rust")
    shutil.copytree(HERE, BUILD, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    foreign.built(
        ["cargo", "test", "--quiet", "--no-run"],
        BUILD,
        foreign.environment(),
        "failed to get",
        "failed to download",
        "openssl-sys",
    )
    names = foreign.selected_names(request)
    settings = str(foreign.settings_file(folder))
    with serving(folder / "data", "--config", settings, *foreign.OPTIONS, *foreign.USUAL_PORT) as namespace:
        make_entities(namespace, names)
        environment = foreign.environment_of(
            namespace,
            TANDEMBUS_KEY_NAME=ROOT_POLICY,
            TANDEMBUS_KEY=namespace.key,
            SSL_CERT_FILE=str(namespace.ca_path),
            RUST_BACKTRACE="0",
        )
        chosen = [name.removesuffix("]").replace("[", "::") for name in names]
        done = foreign.run(["cargo", "test", "--offline", "--", "--exact", *chosen], BUILD, environment)
    found = read_output(done.stdout)
    assert found, done.stdout + done.stderr
    return found


@covers("B1")
@pytest.mark.parametrize("name", foreign.names_of(TESTS))
def test_rust(results: foreign.Results, name: str) -> None:
    foreign.check(results, name)
