"""Python, the build, and what is installed beside it."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Iterator
from typing import Final

import lmdb

import tandembus
from tandembus import build
from tandembus.cli.diagnosis.finding import Area, Finding

AREA: Final = Area("installation")
OLDEST_PYTHON: Final = (3, 10)
_EXTRAS: Final = {"pairing": "azure.servicebus", "spark": "pyspark"}


def examine() -> Iterator[Finding]:
    yield python(sys.version_info[:3])
    yield build_of(build.current())
    yield AREA.ok("LMDB", ".".join(str(part) for part in lmdb.version()))
    yield event_loop("uvloop")
    for extra, module in _EXTRAS.items():
        yield addition(extra, module)


def python(version: tuple[int, ...]) -> Finding:
    text = f"{platform.python_implementation()} {'.'.join(str(part) for part in version)}"
    if version < OLDEST_PYTHON:
        return AREA.problem("Python", text, f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or later is needed.")
    return AREA.ok("Python", text)


def build_of(current: build.Build) -> Finding:
    text = f"tandembus {tandembus.__version__}, {current.kind}"
    if not current.sources_fit:
        advice = "Build it again: `make install`, or `pip install` of this version."
        return AREA.warning("build", f"{text}, but not from the sources beside it", advice)
    if not current.is_compiled:
        return AREA.warning("build", text, "It works, more slowly. Install it where a C compiler is found.")
    return AREA.ok("build", text)


def event_loop(module: str) -> Finding:
    if _is_there(module):
        return AREA.ok("event loop", module)
    return AREA.warning("event loop", f"{module} is missing: every read takes twice as long", f"`pip install {module}`")


def addition(extra: str, module: str) -> Finding:
    text = "installed" if _is_there(module) else f"not installed; `pip install 'tandembus[{extra}]'` adds it"
    return AREA.ok(extra, text)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
