"""The first example of docs/pairing.md runs as it is written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.covers import covers
from tests.integration.test_up import Up, start, started

DOCUMENT = Path(__file__).parents[2] / "docs" / "pairing.md"
WITHIN_S = 60.0
__all__ = ["started"]  # the fixture


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """With `tandembus` and `python` as an installation has them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    python = shlex.quote(sys.executable)
    for name, words in (("tandembus", f"{python} -m tandembus"), ("python", python)):
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@covers("N1", "N17")
def test_the_first_example_runs_as_it_is_written(tmp_path: Path, started: list[Up], bin_folder: Path) -> None:
    start(started, tmp_path, "--json", "--brokers", "0").found()
    (tmp_path / "example.py").write_text(blocks("python")[0])
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    prepare, syphon = blocks("sh")
    done = subprocess.run(
        ["sh", "-e", "-c", f"{prepare}python example.py\n{syphon.strip()} --once >/dev/null 2>&1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "one pair of shoes"
