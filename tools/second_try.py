"""Runs the tests that failed once more, one after the other: second_try.py RESULTS PYTEST-ARGUMENT...

Thousands of tests with real sockets, processes and clocks run six files at once on whatever machine there is. A test
that passes by itself is named as unsteady, for somebody to mend, and does not hold up a change that has nothing to do
with it. Few may: many are no accident. And none that looks for lost messages: what such a test finds once, it found.

`RESULTS` is the JUnit file of the first try; the results of the second go beside it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The files are our own test runner's, so the parser's weakness against hostile input does not matter.
from xml.etree import ElementTree

MOST = 3
NEVER_AGAIN = ("tests/chaos", "tests/simulation", "tests/spark/test_kills.py")


def failed_tests(results: Path) -> Iterator[str]:
    """As pytest takes them on its command line."""
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            yield f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def why_not(failed: list[str]) -> str | None:
    """Why they are not tried again; None if they are."""
    if not failed:
        return "no test failed: something else did"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, more than the {MOST} that are tried again"
    for name in failed:
        if name.startswith(NEVER_AGAIN):
            return f"{name} looks for losses: it is not tried again"
    return None


def main() -> int:
    results = Path(sys.argv[1])
    if not results.exists():
        return 1
    failed = list(failed_tests(results))
    reason = why_not(failed)
    if reason is not None:
        print(f"second try: none ({reason})", file=sys.stderr)
        return 1
    second = results.with_suffix(".second.xml")
    command = [sys.executable, "-m", "pytest", f"--junitxml={second}", *sys.argv[2:], *failed]
    code = subprocess.run(command, check=False, env=os.environ).returncode
    for name in failed:
        print(f"second try: {name} {'passed: it is unsteady, mend it' if code == 0 else 'was run again'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
