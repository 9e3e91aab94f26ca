"""Adds up the results of several test sessions, given as JUnit files: test_total.py FILE..."""

import sys
from collections import Counter
from pathlib import Path

# The files are our own test runner's, so the parser's weakness against hostile input does not matter.
from xml.etree import ElementTree


def counts_of(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        counts.update({name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")})
    return counts


def main() -> None:
    total: Counter[str] = Counter()
    for argument in sys.argv[1:]:
        total.update(counts_of(Path(argument)))
    failed = total["failures"] + total["errors"]
    print(f"total: {total['tests'] - failed - total['skipped']} passed, {failed} failed, {total['skipped']} skipped")


if __name__ == "__main__":
    main()
