"""Checks `docs/requirements.md` against the `covers` marks of the tests: check_requirements.py [--write].

Every requirement that is not called planned needs a test, and every mark a requirement. `--write` writes the document
with the tests of each requirement to `.build/requirements.md`. The script reads the tests without importing them, so it
needs nothing installed and finds tests that cannot run here.
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "requirements.md"
WRITTEN = ROOT / ".build" / "requirements.md"
TESTS = ROOT / "tests"
HEADING = re.compile(r"^### (?P<id>[A-Z]\d+)(?P<planned> \(planned\))?$", re.MULTILINE)
SECTION = re.compile(r"^### (?P<id>[A-Z]\d+)\n.*?(?=^#|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, order=True)
class Test:
    """A test, and how it reads in the document."""

    path: str
    name: str

    @property
    def sentence(self) -> str:
        return re.sub(r"^test_", "", self.name).replace("_", " ")


class UnreadableMark(Exception):
    """A `covers` mark in a place or a form that this script does not follow."""


def marked_ids(node: ast.expr) -> list[str]:
    """The ids, if this expression is `covers("M1", ...)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "covers"):
        return []
    ids = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    if len(ids) != len(node.args) or not all(isinstance(one, str) for one in ids):
        raise UnreadableMark(f"line {node.lineno}: the ids must be plain strings")
    return [str(one) for one in ids]


def ids_of_decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    return [one for decorator in node.decorator_list for one in marked_ids(decorator)]


def marks_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every (id, name of the test) of a module: marks on functions, on methods, and on classes of tests."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in ids_of_decorators(node):
                yield one, node.name
        elif isinstance(node, ast.ClassDef):
            yield from marks_of_class(node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            # TestQueue = covers("M1")(QueueMachine.TestCase)
            for one in marked_ids(node.value.func):
                yield one, ast.unparse(node.targets[0])


def marks_of_class(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    common = ids_of_decorators(node)
    functions = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    methods = [item for item in functions if item.name.startswith("test_")]
    for method in methods:
        for one in common + ids_of_decorators(method):
            yield one, method.name
    if not methods:
        for one in common:
            yield one, node.name


def collect_tests() -> dict[str, list[Test]]:
    """Requirement -> its tests, from all test files."""
    found: dict[str, set[Test]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        if "node_modules" in path.parts:
            continue
        text = path.read_text()
        relative = path.relative_to(ROOT).as_posix()
        tree = ast.parse(text)
        try:
            marks = list(marks_in(tree))
        except UnreadableMark as problem:
            sys.exit(f"{relative}: {problem}")
        for one, name in marks:
            found[one].add(Test(relative, name))
        refuse_marks_elsewhere(relative, tree, marks)
    return {one: sorted(tests) for one, tests in found.items()}


def refuse_marks_elsewhere(relative: str, tree: ast.Module, marks: list[tuple[str, str]]) -> None:
    """A mark that is not counted would make the document claim too little."""
    written = {one for node in ast.walk(tree) if isinstance(node, ast.expr) for one in marked_ids(node)}
    missed = written - {one for one, _ in marks}
    if missed:
        sys.exit(f"{relative}: covers({', '.join(sorted(missed))}) stands on no test and no class of tests")


def listed(tests: list[Test]) -> str:
    lines: list[str] = []
    for path in sorted({test.path for test in tests}):
        lines.append(f"- [{path}](../{path})")
        lines.extend(f"  - {test.sentence}" for test in tests if test.path == path)
    return "".join(f"{line}\n" for line in lines)


def with_tests(text: str, tests: dict[str, list[Test]]) -> str:
    """The document with the list of tests below each requirement."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[0].rstrip()}\n\n{listed(tests.get(match['id'], []))}\n"

    return SECTION.sub(fill, text)


def problems_of(text: str, tests: dict[str, list[Test]]) -> list[str]:
    headings = {match["id"]: bool(match["planned"]) for match in HEADING.finditer(text)}
    problems = [f"{one}: tests cover it, but the document does not state it" for one in tests if one not in headings]
    for one, is_planned in headings.items():
        if is_planned and one in tests:
            problems.append(f"{one}: called planned, but {tests[one][0].path} covers it")
        if not is_planned and one not in tests:
            problems.append(f"{one}: no test covers it")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the document with its tests to .build/requirements.md"
    )
    tests = collect_tests()
    text = DOCUMENT.read_text()
    if parser.parse_args().write:
        WRITTEN.parent.mkdir(exist_ok=True)
        WRITTEN.write_text(with_tests(text, tests))
    problems = problems_of(text, tests)
    for problem in problems:
        print(f"docs/requirements.md: {problem}")
    if problems:
        sys.exit(1)
    print(f"docs/requirements.md: {len(tests)} requirements, {sum(map(len, tests.values()))} tests of them")


if __name__ == "__main__":
    main()
