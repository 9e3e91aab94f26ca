"""The blocking twin of pairing is what the tool writes, and the tool writes Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.generate_sync import MODULES, PAIRING, blocking, twins

NO_ASYNC = (ast.AsyncFunctionDef, ast.AsyncWith, ast.AsyncFor, ast.Await)


@pytest.mark.parametrize("path", twins(), ids=lambda path: path.stem)
def test_what_is_committed_is_what_the_tool_writes(path: Path) -> None:
    assert path.read_text() == twins()[path], "run: python tools/generate_sync.py"


@pytest.mark.parametrize("path", twins(), ids=lambda path: path.stem)
def test_nothing_in_the_twin_waits_for_an_event_loop(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, NO_ASYNC)]
    assert "asyncio" not in {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }


def test_every_module_that_waits_has_a_twin() -> None:
    waiting = {path.stem for path in PAIRING.glob("*.py") if "async def" in path.read_text()} - {"runtime"}
    assert waiting - _without_twin() <= set(MODULES)


def test_words_in_docstrings_are_left_alone() -> None:
    source = 'async def f() -> None:\n    """Nothing between two lines without `await`."""\n    await g()\n'
    assert blocking(source, "m").splitlines()[1:] == [
        "def f() -> None:",
        '    """Nothing between two lines without `await`."""',
        "    g()",
    ]


def _without_twin() -> set[str]:
    """What only programs use, which have event loops of their own."""
    return {"client_ports", "status"}
