"""What every test session needs: the marks, and certainty about which build of the package is tested."""

from pathlib import Path

import pytest

from tandembus import build

SOURCES = Path(__file__).parent.parent.resolve() / "src" / "tandembus"

MARKS = (
    "covers(*ids): the requirements that this test shows",
    "chaos: a row of the fault matrix; its volume grows with the SCALE variable of the environment",
)


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    if build.FOLDER != SOURCES and build.current().source_hash != build.hash_of_sources(SOURCES):
        # Passing tests of yesterday's build would say nothing about the sources of today.
        raise pytest.UsageError(f"the tested package ({build.FOLDER}) is not built from {SOURCES}: run `make install`")


def pytest_report_header() -> str:
    return f"tandembus: {build.describe()}, from {build.FOLDER}"
