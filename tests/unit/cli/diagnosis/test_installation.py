"""Python, the build, and what is installed beside it."""

from __future__ import annotations

import pytest

from tandembus.build import Build
from tandembus.cli.diagnosis.finding import Level
from tandembus.cli.diagnosis.installation import addition, build_of, event_loop, examine, python
from tests.unit.cli.diagnosis.told import assert_ok, assert_told


@pytest.mark.parametrize("version", [(3, 9, 21), (2, 7, 18)])
def test_a_python_that_is_too_old_is_a_problem(version: tuple[int, int, int]) -> None:
    told = ".".join(str(part) for part in version)
    assert_told(python(version), Level.PROBLEM, "Python", told, "Python 3.10 or later is needed")


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 14, 1), (4, 0, 0)])
def test_a_later_python_is_fine(version: tuple[int, int, int]) -> None:
    assert_ok(python(version), "Python", ".".join(str(part) for part in version))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_build_of_other_sources_is_told(is_compiled: bool) -> None:
    finding = build_of(Build(is_compiled, "0123", sources_fit=False))
    assert_told(finding, Level.WARNING, "build", "not from the sources beside it", "Build it again: `make install`")


def test_an_interpreted_build_is_told() -> None:
    finding = build_of(Build(False, "0123", sources_fit=True))
    assert_told(finding, Level.WARNING, "build", "interpreted", "where a C compiler is found")


def test_a_compiled_build_of_the_sources_beside_it_is_fine() -> None:
    assert_ok(build_of(Build(True, "0123", sources_fit=True)), "build", "compiled")


def test_an_event_loop_that_is_missing_is_told() -> None:
    finding = event_loop("no_such_loop")
    assert_told(finding, Level.WARNING, "event loop", "no_such_loop is missing", "`pip install no_such_loop`")
    assert_ok(event_loop("asyncio"), "event loop", "asyncio")


@pytest.mark.parametrize("module", ["no_such_module", "no_such_package.module"])
def test_an_extra_is_no_duty(module: str) -> None:
    assert_ok(addition("spark", module), "spark", "`pip install 'tandembus[spark]'` adds it")
    assert_ok(addition("spark", "asyncio.events"), "spark", "installed")


def test_everything_is_looked_at() -> None:
    subjects = [finding.subject for finding in examine()]
    assert subjects == ["Python", "build", "LMDB", "event loop", "pairing", "spark"]
