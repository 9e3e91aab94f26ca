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
    yield _python()
    yield _build()
    yield AREA.ok("LMDB", ".".join(str(part) for part in lmdb.version()))
    if _is_there("uvloop"):
        yield AREA.ok("event loop", "uvloop")
    else:
        yield AREA.warning("event loop", "uvloop is missing: every read takes twice as long", "`pip install uvloop`")
    for extra, module in _EXTRAS.items():
        text = "installed" if _is_there(module) else f"not installed; `pip install 'tandembus[{extra}]'` adds it"
        yield AREA.ok(extra, text)


def _python() -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < OLDEST_PYTHON:
        return AREA.problem("Python", text, f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or later is needed.")
    return AREA.ok("Python", text)


def _build() -> Finding:
    current = build.current()
    text = f"tandembus {tandembus.__version__}, {build.describe()}"
    if not current.sources_fit:
        return AREA.warning("build", text, "Build it again: `make install`, or `pip install` of this version.")
    if not current.is_compiled:
        return AREA.warning("build", text, "It works, more slowly. Install it where a C compiler is found.")
    return AREA.ok("build", text)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
