"""What every test session needs: the marks, and certainty about which build of the package is tested."""

from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

from tandembus import build

SOURCES = Path(__file__).parent.parent.resolve() / "src" / "tandembus"

# How long an example takes depends on the neighbours of the machine, and says nothing about the code.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

MARKS = (
    "shapes(*shapes): the kinds of entities on which the module's tests run, see tests/integration/shapes.py",
    "covers(*ids): the requirements that this test shows",
    "chaos: a row of the fault matrix; its volume grows with the SCALE variable of the environment",
)


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    if build.FOLDER != SOURCES and build.current().source_hash != build.hash_of_sources(SOURCES):
        # Passing tests of yesterday's build would say nothing about the sources of today.
        raise pytest.UsageError(f"the tested package ({build.FOLDER}) is not built from {SOURCES}: run `make install`")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes some wait for clients and some compute, all the time: the files of each folder are spread
    over the whole run. Those of tests/chaos, the longest, are not among the last."""
    if not hasattr(config, "workerinput"):
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    folders: dict[str, list[str]] = {}
    for file in files:
        folders.setdefault("/".join(file.split("/")[:2]), []).append(file)
    places = {
        file: (place + 0.5) / len(of_folder) * (0.8 if folder == "tests/chaos" else 1.0)
        for folder, of_folder in folders.items()
        for place, file in enumerate(of_folder)
    }
    items[:] = [item for file in sorted(files, key=lambda one: places[one]) for item in files[file]]


FIGURES = "figures"
"""Of a report: what a test of the fault matrix wants to be read, not only passed."""


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`tell("10 kills, ...")` prints at the end of the session, whatever process the test ran in."""

    def tell(text: str) -> None:
        request.node.user_properties.append((FIGURES, text))

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, [])]
    told = [
        (one.nodeid, text)
        for one in reports
        if one.when == "call"
        for name, text in one.user_properties
        if name == FIGURES
    ]
    if told:
        terminalreporter.section("figures")
    for test, text in told:
        terminalreporter.write_line(f"{test.rpartition('::')[2]}:")
        for line in str(text).splitlines():
            terminalreporter.write_line(f"  {line}")


def pytest_report_header() -> str:
    return f"tandembus: {build.describe()}, from {build.FOLDER}"
