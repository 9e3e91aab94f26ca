"""The unmodified Go SDK, in tests of its own language."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from tests.covers import covers
from tests.guides.blocks import ROOT, blocks_of
from tests.guides.stages import stage_of
from tests.guides.story import telling
from tests.integration.serving import serving
from tests.sdk import foreign
from tools.sdk_calls import GO

HERE = Path(__file__).parent
TESTS = GO.tests()

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go 1.25 or newer"),
    pytest.mark.timeout(900),
]


def read_events(output: str) -> dict[str, str | None]:
    """The events of `go test -json`, as results of the tests on each kind of entity."""
    results: dict[str, str | None] = {}
    told: dict[str, list[str]] = defaultdict(list)
    for line in output.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        test, _, kind = str(event.get("Test", "")).partition("/")
        name = f"{test}[{kind}]"
        if event.get("Action") == "output":
            told[name].append(str(event["Output"]))
        elif kind and event.get("Action") in ("pass", "fail"):
            results[name] = None if event["Action"] == "pass" else "".join(told[name])
    return results


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> foreign.Results:
    folder = tmp_path_factory.mktemp("go")
    settings = str(foreign.settings_file(folder))
    with serving(folder / "data", "--config", settings, *foreign.OPTIONS) as namespace:
        # It reads certificates of authorities from here: the administration client speaks TLS only.
        environment = foreign.environment_of(namespace)
        binary = str(folder / "tests")
        foreign.built(
            ["go", "test", "-c", "-o", binary], HERE, environment, "dial tcp", "no such host", "toolchain not available"
        )
        chosen = "|".join(sorted({re.escape(name.partition("[")[0]) for name in foreign.selected_names(request)}))
        trusting = {**environment, "SSL_CERT_FILE": str(namespace.ca_path)}
        command = ["go", "tool", "test2json", "-t", binary, "-test.v=test2json", "-test.parallel=16"]
        done = foreign.run([*command, f"-test.run=^({chosen})$"], HERE, trusting)
        found = read_events(done.stdout)
    assert found, done.stdout + done.stderr
    return found


@covers("B1")
@pytest.mark.parametrize("name", foreign.names_of(TESTS))
def test_go(results: foreign.Results, name: str) -> None:
    foreign.check(results, name)


@foreign.has_own_addresses
def test_the_quick_start_works_as_it_is_pasted(tmp_path: Path) -> None:
    document = ROOT / "docs" / "quickstart" / "go.md"
    with stage_of(f"docs/quickstart/{document.name}", tmp_path) as stage, telling(tmp_path, stage) as story:
        for block in blocks_of(document):
            story.run(block)
