"""Judges histories: python -m tests.chaos.check HISTORY...

Prints the figures of each, and every breach; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.chaos.checks import CHECKS, breaches_of
from tests.chaos.events import NotAHistory, read_events
from tests.chaos.figures import Figures
from tests.chaos.history import History

SHOWN = 10
"""Of one kind of breach; the first few tell what is wrong."""


def judge(path: Path) -> tuple[History, dict[str, list[str]]]:
    history = History(read_events(path))
    return history, breaches_of(history)


def report(breaches: dict[str, list[str]]) -> str:
    lines: list[str] = []
    for name, found in breaches.items():
        lines.append(f"{name}: {len(found)} breaches")
        lines += [f"  {one}" for one in found[:SHOWN]]
    return "\n".join(lines)


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.chaos.check", description=__doc__)
    arguments.add_argument("histories", nargs="+", type=Path, metavar="HISTORY")
    is_clean = True
    for path in arguments.parse_args().histories:
        try:
            history, breaches = judge(path)
        except (NotAHistory, OSError) as error:
            sys.exit(f"{path}: {error}")
        print(f"{path} (seed {history.seed}{', ' + history.note if history.note else ''})")
        print(Figures.of(history).text())
        print(report(breaches) if breaches else f"{len(CHECKS)} checks, no breach")
        is_clean = is_clean and not breaches
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
