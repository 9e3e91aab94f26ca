"""What commands answer, as transcripts: every file in `transcripts` is run against a namespace of every shape.

A line that begins with `$` is a command, and `<` gives it lines of input. Its answer stands below it: `[3]` is an exit
code other than 0, `*` stands for any text and `...` for any lines. An object of JSON has to have these fields; a text
such as `"$key"` in it takes the value there for later commands. NAME is a prefix of names that nobody else uses.
"""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.covers import covers
from tests.integration.command_line import Run
from tests.integration.shapes import PARTITIONED, PLAIN, PLAIN_ON_BROKERS, on_shapes

pytestmark = on_shapes(PLAIN, PARTITIONED, PLAIN_ON_BROKERS)  # one process, two stores, three brokers
TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@covers("M3", "M4", "M5", "M7", "M9", "M10", "M15")
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_commands_answer_as_written(run: Run, path: Path) -> None:
    text = path.read_text().replace("NAME", f"cli-{uuid.uuid4().hex[:12]}")
    known: dict[str, object] = {}
    for command, answer in steps(text.splitlines()):
        line, _, stdin = command.partition(" < ")
        words = [str(known.get(word, word)) for word in shlex.split(line)]
        code = int(answer.pop(0).strip("[]")) if answer and re.fullmatch(r"\[\d+]", answer[0]) else 0
        result = run(*words, exit_code=code, stdin=stdin.replace(r"\n", "\n") or None)
        found = [" ".join(each.split()) for each in result.output.splitlines()]
        assert fits(found, answer, known), f"{path.name}: {command}\n{result.output}"


def steps(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    command, answer = "", list[str]()
    for line in [*[each for each in lines if each and not each.startswith("#")], "$ "]:
        if not line.startswith("$ "):
            answer.append(line)
            continue
        if command:
            yield command, answer
        command, answer = line[2:], []


def fits(found: list[str], answer: Sequence[str], known: dict[str, object]) -> bool:
    if not answer:
        return not found
    if answer[0] == "...":
        return any(fits(found[place:], answer[1:], known) for place in range(len(found) + 1))
    return bool(found) and is_line(found[0], answer[0], known) and fits(found[1:], answer[1:], known)


def is_line(found: str, answer: str, known: dict[str, object]) -> bool:
    if answer.startswith("{") and found.startswith("{"):
        return has(json.loads(found), json.loads(answer), known)
    return re.fullmatch(".*".join(map(re.escape, " ".join(answer.split()).split("*"))), found) is not None


def has(found: object, wanted: object, known: dict[str, object]) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and has(found[name], each, known) for name, each in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(has, found, wanted, [known] * len(found)))
    if isinstance(wanted, str) and wanted.startswith("$") and wanted != "$Default":
        known[wanted] = found
        return True
    return found == wanted
