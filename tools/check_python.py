"""Ends with an error where the Python that runs this script is older than tandembus needs.

Written so that versions much older can run it: they name themselves instead of a syntax error.
"""

import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    (found,) = re.findall(r'^requires-python = ">=(\d+)\.(\d+)"', PROJECT.read_text(), re.MULTILINE)
    oldest = tuple(int(part) for part in found)
    if sys.version_info[:2] < oldest:
        version = ".".join(str(part) for part in sys.version_info[:3])
        needed = ".".join(found)
        sys.exit(
            f"tandembus needs Python {needed} or later, and {sys.executable} is Python {version}."
            f" Name another one: make up PYTHON=python{needed}"
        )


if __name__ == "__main__":
    main()
