"""Builds tandembus: pure Python, with the hot path compiled by mypyc where a C compiler is found.

`pyproject.toml` says everything else. TANDEMBUS_COMPILE=0 in the environment asks for an interpreted build.
"""

import importlib.util
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PACKAGE = ROOT / "src" / "tandembus"
# Other commands only ask for metadata; an editable install would compile into src/, so it stays interpreted.
BUILDING_COMMANDS = {"bdist_wheel", "build", "build_ext", "install"}
PROBE = "#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n"


def compiled_sources() -> list[Path]:
    """The sources that `pyproject.toml` names for compiling and that are there."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns: list[str] = settings["tool"]["tandembus"]["compiled"]["modules"]
    found = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    return sorted(path for path in found if path.name != "__init__.py")


def c_compiler_works() -> bool:
    """Whether an extension can be built here: compiler and Python's headers, tried rather than guessed."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(PROBE)
        command = Distribution({"ext_modules": [Extension("probe", [str(source)])]}).get_command_obj("build_ext")
        command.build_lib = command.build_temp = folder
        try:
            command.ensure_finalized()
            command.run()
        except Exception as problem:  # each platform's compiler fails with an exception of its own
            print(f"tandembus: not compiled, since no C compiler works here ({problem})", file=sys.stderr)
            return False
    return True


def sources_to_compile() -> list[Path]:
    if BUILDING_COMMANDS.isdisjoint(sys.argv):
        return []
    if os.environ.get("TANDEMBUS_COMPILE") == "0":
        print("tandembus: not compiled, as TANDEMBUS_COMPILE=0 asks", file=sys.stderr)
        return []
    sources = compiled_sources()
    return sources if sources and c_compiler_works() else []


def compile_hot_path(sources: list[Path]) -> list[Extension]:
    """One group for all modules: calls between them are then direct C calls."""
    from mypyc.build import mypycify

    relative = [str(path.relative_to(ROOT)) for path in sources]
    extensions: list[Extension] = mypycify(relative, opt_level="3", group_name="tandembus")
    return extensions


def load_build_module() -> ModuleType:
    """`tandembus.build` without the package around it, which is not installed yet."""
    spec = importlib.util.spec_from_file_location("tandembus_build", PACKAGE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def module_name(source: Path) -> str:
    return ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts)


class BuildWithInfo(build_py):  # type: ignore[misc]
    """Leaves in the built package, and only there, what it was built from."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        build = load_build_module()
        text = build.build_info([module_name(path) for path in SOURCES], build.hash_of_sources(PACKAGE))
        (Path(self.build_lib) / "tandembus" / f"{build.BUILD_INFO}.py").write_text(text)


os.chdir(ROOT)
SOURCES = sources_to_compile()
# Metadata goes to build/ as well: a build writes nothing into src/.
(ROOT / "build").mkdir(exist_ok=True)
setup(
    ext_modules=compile_hot_path(SOURCES) if SOURCES else [],
    cmdclass={"build_py": BuildWithInfo},
    options={"egg_info": {"egg_base": "build"}},
)
