"""Adds up the results of several test sessions, given as JUnit files: test_total.py FILE...

Tests that failed and passed at the second try (see second_try.py) are in a file of their own, `NAME.second.xml` beside
`NAME.xml`: they count once, as passed.
"""

import sys
from collections import Counter
from pathlib import Path

# The files are our own test runner's, so the parser's weakness against hostile input does not matter.
from xml.etree import ElementTree

SECOND = ".second.xml"


def counts_of(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        counts.update({name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")})
    return counts


def main() -> None:
    passed = failed = skipped = unsteady = 0
    for path in map(Path, sys.argv[1:]):
        counts = counts_of(path)
        bad = counts["failures"] + counts["errors"]
        if path.name.endswith(SECOND):
            again = counts["tests"] - bad
            unsteady += again
            passed += again
            failed -= again
        else:
            passed += counts["tests"] - bad - counts["skipped"]
            failed += bad
            skipped += counts["skipped"]
    if unsteady:
        print(f"{unsteady} of them only at the second try")
    print(f"total: {passed} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    main()
