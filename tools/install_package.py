"""Builds tandembus from this tree and installs it for the Python that runs this script.

Without an argument it is compiled where a C compiler is found. With `--at-once` whatever can be had in seconds is
installed: the compiled build if these sources have been compiled before, else an interpreted one, and the compiled one
is made in the background (`--in-background`), for the next time.

Builds happen in copies of the sources (`.build/`), so nothing is ever written into `src/`. The copies are kept: what
did not change since the last build is not compiled again. A compiled build made in the background is never installed
by it: it would replace the modules of a namespace that runs.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tools.steps import run_step

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / ".build"
INTERPRETED_COPY = COPY / "interpreted"
COMPILED = COPY / "compiled"
LOG = COPY / "compile.log"
LOCK = COPY / "compile.lock"
INSTALLED = Path(sys.prefix) / "tandembus-sources"
"""Says from which sources the installed package was built."""
COPIED_FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
NOT_BUILT = "tandembus could not be built: see above"


def source_files() -> list[Path]:
    """Relative to the tree, and in order."""
    files = [path.relative_to(ROOT) for path in (ROOT / "src").rglob("*") if is_source(path)]
    return sorted([*files, *map(Path, COPIED_FILES)])


def is_source(path: Path) -> bool:
    return path.is_file() and path.suffix not in {".pyc", ".so"} and not path.parent.name.endswith(".egg-info")


def hash_of_sources() -> str:
    """Of everything that a build takes, and of the Python that it is for."""
    digest = hashlib.sha256(repr((sys.implementation.cache_tag, sys.prefix)).encode())
    for relative in source_files():
        digest.update(relative.as_posix().encode() + b"\0" + (ROOT / relative).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def refresh(source: Path, target: Path) -> None:
    """Copy a file unless its content is there already: an untouched time stamp saves the compiler work."""
    if not target.exists() or source.read_bytes() != target.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def refresh_sources(copy: Path) -> None:
    wanted = set(source_files())
    for relative in wanted:
        refresh(ROOT / relative, copy / relative)
    for path in (copy / "src").rglob("*"):
        if path.is_file() and path.relative_to(copy) not in wanted:
            path.unlink()


def forget_removed_modules() -> None:
    """Leave of the last build only the extension modules whose source is still there."""
    for built in (COPY / "build").glob("lib*"):
        for path in [path for path in built.rglob("*") if path.is_file()]:
            module = path.relative_to(built).parent / path.name.partition(".")[0]
            is_shared_library = module.name.endswith("__mypyc")
            if path.suffix != ".so" or not (is_shared_library or (COPY / "src" / module).with_suffix(".py").exists()):
                path.unlink()


@contextlib.contextmanager
def sole_compiler(is_waiting: bool) -> Iterator[bool]:
    """Yields whether no other process compiles in this tree now; waits for it if asked to."""
    COPY.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_waiting:
                yield False
                return
            print(f"waiting for a build in the background to end ({LOG.relative_to(ROOT)})", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield True


def compiled_wheel(hashed: str) -> Path | None:
    """The compiled build of these sources; None if there is none yet."""
    return next((COMPILED / hashed).glob("*.whl"), None)


def build_wheel(hashed: str, *options: str) -> Path | None:
    """Compiled if a C compiler works, and then kept; None if the build failed. Only for the one that compiles."""
    refresh_sources(COPY)
    forget_removed_modules()
    wheels = COPY / "dist"
    shutil.rmtree(wheels, ignore_errors=True)
    what = "building tandembus: where a C compiler is found, this takes some minutes the first time"
    if not run_step(what, [*PIP, "wheel", *options, "--no-deps", "--wheel-dir", str(wheels), str(COPY)]):
        return None
    (wheel,) = wheels.glob("*.whl")
    if wheel.stem.endswith("-none-any"):
        return wheel
    shutil.rmtree(COMPILED, ignore_errors=True)
    COMPILED.mkdir()
    wheels.rename(COMPILED / hashed)
    return compiled_wheel(hashed)


def install(what: str, source: Path, hashed: str) -> None:
    INSTALLED.unlink(missing_ok=True)
    environment = {**os.environ, "TANDEMBUS_COMPILE": "0"}
    options = ("--force-reinstall", "--no-deps", "--no-build-isolation")
    if not run_step(what, [*PIP, "install", *options, str(source)], environment):
        sys.exit(NOT_BUILT)
    INSTALLED.write_text(hashed)


def install_compiled() -> None:
    """As far as a C compiler is there, and unless TANDEMBUS_COMPILE=0 asks for the other."""
    hashed = hash_of_sources()
    with sole_compiler(is_waiting=True):
        kept = compiled_wheel(hashed) if may_compile() else None
        wheel = kept or build_wheel(hashed, "--no-build-isolation")
        if wheel is None:
            sys.exit(NOT_BUILT)
        install("installing tandembus", wheel, hashed)


def install_at_once() -> None:
    hashed = hash_of_sources()
    is_there = INSTALLED.exists() and INSTALLED.read_text() == hashed
    wheel = compiled_wheel(hashed) if may_compile() else None
    if wheel is not None and not (is_there and kind_installed() == "compiled"):
        install("installing tandembus, compiled", wheel, hashed)
    elif not is_there:
        (COPY / "stamps" / "package").unlink(missing_ok=True)
        shutil.rmtree(INTERPRETED_COPY / "build", ignore_errors=True)
        refresh_sources(INTERPRETED_COPY)
        install("installing tandembus, interpreted", INTERPRETED_COPY, hashed)
    kind = kind_installed()
    compiles = kind == "interpreted" and may_compile() and can_compile()
    if compiles:
        command = ["nice", "-n", "19", sys.executable, "-m", "tools.install_package", "--in-background"]
        quiet = None if sys.stderr.isatty() else subprocess.DEVNULL
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=quiet, stderr=quiet, cwd=ROOT, start_new_session=True
        )
    print(f"tandembus runs {kind}{how_to_get_the_faster(compiles) if kind == 'interpreted' else ''}", flush=True)


def how_to_get_the_faster(compiles: bool) -> str:
    if compiles:
        where = f"in the background, see {LOG.relative_to(ROOT)}"
        return f". The compiled build, several times as fast, is made {where}: the next `make up` runs it"
    if not may_compile():
        return ", as TANDEMBUS_COMPILE=0 asks. Without that, the next `make up` compiles it"
    return (
        ", since there is no C compiler with the headers of Python. Compiled it is several times as fast: install them"
        " (Debian: gcc libc6-dev python3-dev), and `make up` compiles it; as root, `make install` does both"
    )


def compile_in_background() -> None:
    """What fails here is tried again by the next `make up`."""
    hashed = hash_of_sources()
    with sole_compiler(is_waiting=False) as is_alone:
        if not is_alone:
            return
        said = os.dup(2)
        with LOG.open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        # With build isolation: the environment of the namespace that runs stays as it is.
        began_at = time.monotonic()
        wheel = build_wheel(hashed)
        print(f"{'done' if wheel else 'failed'} after {time.monotonic() - began_at:,.0f} s", flush=True)
    with contextlib.suppress(OSError):  # the terminal may be closed by now
        if wheel is None:
            os.write(said, f"compiling tandembus failed: see {LOG.relative_to(ROOT)}\n".encode())
        else:
            os.write(said, b"tandembus is compiled: the next `make up` runs the faster build\n")


def may_compile() -> bool:
    return os.environ.get("TANDEMBUS_COMPILE") != "0"


def can_compile() -> bool:
    command = [str(ROOT / "tools" / "can_compile.sh"), sys.executable]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def kind_installed() -> str:
    """Asked of a new process, which finds what has just been installed."""
    command = [sys.executable, "-I", "-c", "from tandembus import build; print(build.current().kind)"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> None:
    if sys.argv[1:] == ["--at-once"]:
        install_at_once()
    elif sys.argv[1:] == ["--in-background"]:
        compile_in_background()
    else:
        install_compiled()


if __name__ == "__main__":
    main()
