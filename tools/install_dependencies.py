"""Installs what tandembus needs, for the Python that runs this: python -m tools.install_dependencies PART...

PART is `runtime` (what a namespace needs to run, and what brings the package into the environment), `build` (what
compiles it), or an extra or a dependency group of `pyproject.toml`, the only place that names dependencies. The package
itself is not built.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from tools.steps import run_step

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
PLACED_BY = "setuptools"
"""What builds the package interpreted."""


def pip_install(what: str, *requirements: str) -> bool:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    return run_step(f"installing {what}", [*pip, *requirements])


def load_settings() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(PROJECT.read_text())
    return settings


def name_of(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0]


def requirements_of(part: str, settings: dict[str, Any]) -> list[str]:
    build: list[str] = settings["build-system"]["requires"]
    parts: dict[str, list[str]] = {**settings["project"]["optional-dependencies"], **settings["dependency-groups"]}
    if part == "build":
        return ["pip>=24", *build]
    if part == "runtime":
        # `up` prints a paired client to paste: with the SDK it works in the same environment.
        placing = [requirement for requirement in build if name_of(requirement) == PLACED_BY]
        return [*settings["project"]["dependencies"], *parts["pairing"], *placing]
    return parts[part]


def main() -> None:
    parts = sys.argv[1:]
    settings = load_settings()
    requirements = [requirement for part in parts for requirement in requirements_of(part, settings)]
    names = ", ".join(dict.fromkeys(map(name_of, requirements)))
    if not pip_install(f"{' and '.join(parts)}: {names}", *requirements):
        sys.exit(f"{' and '.join(parts)} could not be installed: see above")


if __name__ == "__main__":
    main()
