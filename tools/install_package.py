"""Builds tandembus from this tree and installs it for the Python that runs this script.

The build happens in a copy of the sources (`.build/`), so nothing is ever written into `src/`. The copy is
kept: what did not change since the last build is not compiled again.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
COPY = ROOT / ".build"
COPIED_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def refresh(source: Path, target: Path) -> None:
    """Copy a file unless its content is there already: an untouched time stamp saves the compiler work."""
    if not target.exists() or source.read_bytes() != target.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def refresh_sources() -> None:
    wanted = {path.relative_to(ROOT) for path in (ROOT / "src").rglob("*") if is_source(path)}
    wanted |= {Path(name) for name in COPIED_FILES}
    for relative in wanted:
        refresh(ROOT / relative, COPY / relative)
    for path in (COPY / "src").rglob("*"):
        if path.is_file() and path.relative_to(COPY) not in wanted:
            path.unlink()


def is_source(path: Path) -> bool:
    return path.is_file() and path.suffix not in {".pyc", ".so"} and not path.parent.name.endswith(".egg-info")


def forget_removed_modules() -> None:
    """Leave of the last build only the extension modules whose source is still there."""
    for built in (COPY / "build").glob("lib*"):
        for path in [path for path in built.rglob("*") if path.is_file()]:
            module = path.relative_to(built).parent / path.name.partition(".")[0]
            is_shared_library = module.name.endswith("__mypyc")
            if path.suffix != ".so" or not (is_shared_library or (COPY / "src" / module).with_suffix(".py").exists()):
                path.unlink()


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    if wait_for(subprocess.Popen(command)) != 0:
        sys.exit("tandembus could not be built: see above")


def wait_for(process: "subprocess.Popen[bytes]") -> int:
    """On a terminal, people see that it goes on."""
    began_at = time.monotonic()
    while True:
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            if sys.stderr.isatty():
                print(f"\r  {time.monotonic() - began_at:,.0f} s ", end="", file=sys.stderr, flush=True)
            continue
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        return code


def main() -> None:
    refresh_sources()
    forget_removed_modules()
    print("building tandembus: where a C compiler is found, this takes some minutes the first time", flush=True)
    wheels = COPY / "dist"
    shutil.rmtree(wheels, ignore_errors=True)
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels), str(COPY))
    (wheel,) = wheels.glob("*.whl")
    pip("install", "--force-reinstall", "--no-deps", str(wheel))


if __name__ == "__main__":
    main()
