"""Installs what tandembus needs to be built, run and tested, for the Python that runs this script.

With names of extras as arguments, only what these need.

Reads `pyproject.toml`, the only place that names dependencies, without building the package for it.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def pip_install(*requirements: str) -> bool:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "install",
        *requirements,
    ]
    return subprocess.run(command, check=False).returncode == 0


def load_settings() -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        if not pip_install("tomli>=2"):
            sys.exit("tomli could not be installed")
        import tomli as tomllib
    settings: dict[str, Any] = tomllib.loads(PROJECT.read_text())
    return settings


def main() -> None:
    settings = load_settings()
    extras: dict[str, list[str]] = settings["project"]["optional-dependencies"]
    if sys.argv[1:]:
        if not pip_install(*[requirement for name in sys.argv[1:] for requirement in extras[name]]):
            sys.exit(f"what {' and '.join(sys.argv[1:])} needs could not be installed")
        return
    wanted = settings["build-system"]["requires"] + settings["project"]["dependencies"]
    if not pip_install("pip>=24", *wanted, *extras["test"], *extras["check"], *extras["spark"]):
        sys.exit("the dependencies could not be installed")
    if not pip_install(*extras["proton"]):
        # It comes as C source; everything else works without it.
        print("notice: qpid-proton could not be built here: its tests are skipped")


if __name__ == "__main__":
    main()
