"""`make demo`, with less patience: it must come to its end, and its exit code must mean something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.covers import covers

ROOT = Path(__file__).parents[2]
QUICK = ["--no-spark", "--calm", "2", "--outage", "2", "--failover-interval", "1", "--ping-interval", "1"]
BUSY_S = "1.0"
"""Other tests run beside this one: reactions are timed exactly where the clock is a test's own."""


@covers("N5", "N6", "N10", "N11", "N13")
@pytest.mark.timeout(250)
def test_the_demonstration_ends_with_a_balance_in_which_nothing_is_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo", *QUICK, "--tolerance", BUSY_S],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was lost." in done.stdout
    for line in ("kill -9 of the primary", "orders: failover", "orders: ping accepted", "the backlog is empty"):
        assert line in done.stdout
    assert done.stderr == ""
