"""What failed once is tried once more, by itself, and named; many, or a loss, are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.second_try import why_not

TOOLS = Path(__file__).parents[2] / "tools"
UNSTEADY = """
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_unsteady(number):
    mark = Path(f"mark-{number}")
    if not mark.exists():
        mark.touch()
        raise AssertionError("the first time")

def test_steady():
    pass
"""
BROKEN = """
def test_broken():
    assert False
"""


def run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, *map(str, command)]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(line, cwd=folder, env=alone, capture_output=True, text=True, timeout=60, check=False)


def tried_twice(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    assert run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=first.xml").returncode == 1
    return run(folder, TOOLS / "second_try.py", "first.xml", "-p", "no:cacheprovider")


def test_a_test_that_passes_by_itself_does_not_fail_the_whole_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(UNSTEADY)
    second = tried_twice(tmp_path)
    assert second.returncode == 0
    assert "test_sample.py::test_unsteady[1] passed: it is unsteady, mend it" in second.stdout
    total = run(tmp_path, TOOLS / "test_total.py", "first.xml", "first.second.xml").stdout
    assert total == "2 of them only at the second try\ntotal: 3 passed, 0 failed, 0 skipped\n"


def test_a_test_that_fails_again_has_failed(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(BROKEN)
    assert tried_twice(tmp_path).returncode == 1
    total = run(tmp_path, TOOLS / "test_total.py", "first.xml", "first.second.xml").stdout
    assert total == "total: 0 passed, 1 failed, 0 skipped\n"


def test_many_failures_and_found_losses_are_not_tried_again() -> None:
    assert why_not(["tests/unit/test_a.py::test_it"]) is None
    assert why_not([f"tests/unit/test_a.py::test_{n}" for n in range(4)]) is not None
    assert why_not(["tests/chaos/test_kills.py::test_it"]) is not None
    assert why_not([]) is not None
