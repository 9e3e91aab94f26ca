"""Which build of tandembus is running: compiled or interpreted, and from which sources.

A build (see `setup.py`) leaves `_build_info.py` in the built package, never in the source tree. This module
imports nothing of the package, because `setup.py` loads it before the package can be imported.
"""

import hashlib
import importlib
import importlib.util
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent.resolve()
BUILD_INFO: Final = "_build_info"


@dataclass(frozen=True, slots=True)
class Build:
    """What is running, from which sources, and whether the sources beside it are those."""

    is_compiled: bool
    source_hash: str
    sources_fit: bool

    @property
    def kind(self) -> str:
        return "compiled" if self.is_compiled else "interpreted"


def hash_of_sources(folder: Path) -> str:
    """One hash over every Python file of a package: an edit of any module changes it, compiled or not."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        if path.stem != BUILD_INFO:
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def build_info(compiled_modules: list[str], source_hash: str) -> str:
    """The text of `_build_info.py` for a build of these modules."""
    return (
        '"""Written by the build: what it was made from."""\n\n'
        f"COMPILED_MODULES = {tuple(compiled_modules)!r}\nSOURCE_HASH = {source_hash!r}\n"
    )


def current() -> Build:
    """The build this process runs; the sources themselves, put on the path, count as an interpreted build."""
    present = hash_of_sources(FOLDER)
    try:
        info = importlib.import_module(f"tandembus.{BUILD_INFO}")
    except ModuleNotFoundError:
        return Build(is_compiled=False, source_hash=present, sources_fit=True)
    modules: tuple[str, ...] = info.COMPILED_MODULES
    return Build(
        is_compiled=bool(modules) and all(_is_extension(module) for module in modules),
        source_hash=info.SOURCE_HASH,
        sources_fit=present == info.SOURCE_HASH,
    )


def describe() -> str:
    """For people: `compiled` or `interpreted`, and a warning if it is not what the sources beside it say."""
    build = current()
    if build.sources_fit:
        return build.kind
    return f"{build.kind}, but not from the sources beside it"


def _is_extension(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))
