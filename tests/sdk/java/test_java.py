"""The unmodified Java SDK, Qpid JMS and Spring Cloud Azure, in tests of their own language."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.covers import covers
from tests.guides.blocks import ROOT, blocks_of
from tests.guides.stages import stage_of
from tests.guides.story import telling
from tests.integration.serving import serving
from tests.sdk import foreign
from tools.sdk_calls import JAVA, JMS, SPRING

HERE = Path(__file__).parent
TESTS = {test.name: test for test in JAVA.tests() + JMS.tests() + SPRING.tests()}
REPORTS = foreign.BUILDS / "java" / "surefire-reports"
PASSWORD = "changeit"
"""Java's trust stores have one, also where there is nothing to hide."""

pytestmark = [
    pytest.mark.skipif(
        not all(map(shutil.which, ("javac", "keytool", "mvn"))),
        reason="needs a JDK and Maven: `make test-sdks` installs them on Debian as root",
    ),
    pytest.mark.timeout(900),
]


def trust_store(folder: Path, ca: Path) -> Path:
    store = folder / "trust.p12"
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-file", ca, "-keystore", store, "-storepass", PASSWORD],
        check=True,
        capture_output=True,
    )
    return store


def selection(names: Iterable[str]) -> str:
    """As Maven takes it: Class#method+method,Class#method."""
    classes: dict[str, set[str]] = defaultdict(set)
    for name in names:
        one, _, method = name.partition("[")[0].partition(".")
        classes[one].add(method)
    return ",".join(f"{one}#{'+'.join(sorted(methods))}" for one, methods in sorted(classes.items()))


def read_reports(folder: Path) -> dict[str, str | None]:
    results: dict[str, str | None] = {}
    for path in folder.glob("TEST-*.xml"):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            # The name ends with the number of the kind: method(Kind)[1]
            method, _, number = (case.get("name") or "").partition("(Kind)")
            test = TESTS[f"{(case.get('classname') or '').rpartition('.')[2]}.{method}"]
            failure = case.find("failure")
            problem = case.find("error") if failure is None else failure
            kind = test.kinds[int(number.strip("[]")) - 1]
            results[f"{test.name}[{kind}]"] = None if problem is None else problem.text
    return results


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> foreign.Results:
    folder = tmp_path_factory.mktemp("java")
    settings = str(foreign.settings_file(folder))
    with serving(folder / "data", "--config", settings, *foreign.OPTIONS) as namespace:
        environment = foreign.environment_of(namespace)
        maven = ["mvn", "--batch-mode", "--quiet"]
        foreign.built(
            [*maven, "test-compile"], HERE, environment, "Could not transfer", "Could not resolve", "Unknown host"
        )
        store = trust_store(folder, namespace.ca_path)
        trusting = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword={PASSWORD}"
        shutil.rmtree(REPORTS, ignore_errors=True)
        chosen = f"-Dtest={selection(foreign.selected_names(request))}"
        done = foreign.run([*maven, "surefire:test", f"-DargLine={trusting}", chosen], HERE, environment)
        found = read_reports(REPORTS)
    assert found, done.stdout + done.stderr
    return found


@covers("B1")
@pytest.mark.parametrize("name", foreign.names_of(list(TESTS.values())))
def test_java(results: foreign.Results, name: str) -> None:
    foreign.check(results, name)


@foreign.has_own_addresses
def test_the_quick_start_works_as_it_is_pasted(tmp_path: Path) -> None:
    document = ROOT / "docs" / "quickstart" / "java.md"
    with stage_of(f"docs/quickstart/{document.name}", tmp_path) as stage, telling(tmp_path, stage) as story:
        for block in blocks_of(document):
            story.run(block)
