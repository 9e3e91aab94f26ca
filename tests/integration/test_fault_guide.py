"""The drill in docs/faults.md is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.covers import covers
from tests.integration.command_line import command_line
from tests.integration.serving import start_namespace

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"


def transcript() -> list[tuple[list[str], list[str]]]:
    """The commands of the guide, each with what it is said to answer."""
    steps: list[tuple[list[str], list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ tandembus "):
                steps.append((shlex.split(line)[2:], []))
            else:
                steps[-1][1].append(line)
    return steps


def alike(line: str) -> str:
    """Without what is another one each time: times, ids, sizes, and spaces of a table."""
    return re.sub(r"\S*\d\S*", "#", " ".join(line.split()))


@covers("B3")
def test_the_drill_of_the_guide_goes_as_it_says(tmp_path: Path) -> None:
    namespace = start_namespace(tmp_path / "data", "--stores", "2")
    run = command_line(namespace)
    steps = transcript()
    assert len(steps) > 10
    for command, answer in steps:
        is_failure = answer[0].startswith("Error:")
        result = run(*command, exit_code=7 if is_failure else 0)
        given = (result.stderr if is_failure else result.stdout).splitlines()
        said = answer[:1] if command[:2] == ["queue", "create"] else answer
        found, expected = [alike(line) for line in given][: len(said)], [alike(line) for line in said]
        if command[0] == "receive":  # from several fragments, whichever answers first
            found, expected = sorted(found), sorted(expected)
        assert found == expected
    assert namespace.stop() == 0
