"""What `make` installs, for which target, and what it says where that does not work."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.install_dependencies import load_settings, name_of

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src"
LOCK = ROOT / "tests/integration/js/package-lock.json"
OLDEST_NODE = 18
"""The one of Debian 12."""
DEVELOPMENT = (
    "gcc",
    "npm",
    "chromium",
    "install_dependencies build",
    "install_dependencies spark",
    "prometheus",
    "curl",
    "libssl-dev",
)
"""What tests, checks and builds need, as the commands that bring it name it."""
COME_WITH = {"mypyc": "mypy"}


def make(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def commands_of(target: str, folder: Path) -> str:
    """What `make` would run in a clone in which nothing is installed."""
    shown = make("-n", target, f"VENV={folder}/venv", f"STAMPS={folder}/stamps")
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_up_installs_no_compiler_and_nothing_for_tests(tmp_path: Path) -> None:
    commands = commands_of("up", tmp_path)
    assert "install_dependencies runtime" in commands
    assert [each for each in DEVELOPMENT if each in commands] == []


def test_the_tests_install_all_they_need(tmp_path: Path) -> None:
    commands = commands_of("test", tmp_path)
    assert [each for each in DEVELOPMENT if each not in commands] == []


def test_the_demo_installs_spark_and_no_compiler(tmp_path: Path) -> None:
    commands = commands_of("demo", tmp_path)
    assert "install_dependencies spark" in commands
    assert "gcc" not in commands


def test_a_python_that_is_too_old_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    pretend = "import runpy, sys; sys.version_info = (3, 10, 2); runpy.run_path(sys.argv[1], run_name='__main__')"
    program(tmp_path / "python3.10", f'exec {sys.executable} -c "{pretend}" "$@"')
    ended = make("up", f"PYTHON={tmp_path}/python3.10", f"VENV={tmp_path}/venv", f"STAMPS={tmp_path}/stamps")
    assert ended.returncode != 0
    assert "needs Python 3.11 or later" in ended.stderr
    assert "is Python 3.10.2" in ended.stderr
    assert not (tmp_path / "venv").exists()


def test_a_failed_download_is_tried_again_the_next_time(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "package-lock.json").write_text("{}")
    tried = tmp_path / "tried"
    program(tmp_path / "bin" / "node", "true")

    def install(outcome: str) -> str:
        program(tmp_path / "bin" / "npm", f"echo {outcome} >>{tried}; {outcome}")
        ended = make("node", f"JS={tmp_path}/js", f"STAMPS={tmp_path}/stamps", path=tmp_path / "bin")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert "could not be installed" in install("false")
    assert "could not be installed" not in install("true")
    assert install("true") == ""
    assert tried.read_text().split() == ["false", "true"]


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from [f"{node.module}.{alias.name}" for alias in node.names]


def file_of(module: str) -> Path | None:
    path = SOURCES.joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def test_a_build_in_isolation_has_all_that_the_compiled_modules_import() -> None:
    """mypyc reads the types of everything that they import, directly or not."""
    settings = load_settings()
    patterns: list[str] = settings["tool"]["tandembus"]["compiled"]["modules"]
    waiting = [path for pattern in patterns for path in (SOURCES / "tandembus").glob(pattern)]
    seen: set[Path] = set()
    outside: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imports_of(path):
            own = file_of(module)
            waiting += [own] if own is not None else []
            outside |= {module.partition(".")[0]} - {"tandembus"}
    present = {COME_WITH.get(name, name) for name in map(name_of, settings["build-system"]["requires"])}
    assert outside - sys.stdlib_module_names - present - {"mypy_extensions"} == set()


def test_the_javascript_sdk_is_locked_at_versions_for_the_oldest_node() -> None:
    packages = json.loads(LOCK.read_text())["packages"]
    needed = [package.get("engines", {}).get("node", "*") for package in packages.values()]
    majors = [re.fullmatch(r"(?:>= ?(\d+)[.\dx]*|\*)", each) for each in needed]
    assert [
        each for each, major in zip(needed, majors, strict=True) if major is None or int(major[1] or 0) > OLDEST_NODE
    ] == []


def test_the_lock_names_no_registry() -> None:
    """Which one there is, and how it is reached, is the machine's own."""
    assert "resolved" not in LOCK.read_text()
