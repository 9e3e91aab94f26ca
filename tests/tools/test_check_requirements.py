"""`docs/requirements.md` and the marks of the tests agree."""

import ast

import pytest

from tools.check_requirements import Test as MarkedTest
from tools.check_requirements import UnreadableMark, marks_in, problems_of, with_tests

DOCUMENT = "## Core\n\n### M1\n\nKept.\n\n### M7 (planned)\n\nSessions.\n"
KEPT = MarkedTest("tests/unit/test_queue.py", "test_a_message_is_kept")


def marks(text: str) -> list[tuple[str, str]]:
    return sorted(marks_in(ast.parse(text)))


def test_marks_on_functions_methods_and_classes_are_found() -> None:
    text = """
@covers("M1", "M2")
async def test_one(): ...

@covers("M3")
class TestMany:
    @covers("M4")
    def test_two(self): ...

TestMachine = covers("M5")(Machine.TestCase)
"""
    expected = [("M1", "test_one"), ("M2", "test_one"), ("M3", "test_two"), ("M4", "test_two")]
    assert marks(text) == [*expected, ("M5", "TestMachine")]


def test_ids_that_are_not_plain_strings_are_refused() -> None:
    with pytest.raises(UnreadableMark):
        marks("@covers(ID)\ndef test_one(): ...")


def test_the_tests_of_a_requirement_are_listed_below_it() -> None:
    tests = {"M1": [KEPT]}
    text = with_tests(DOCUMENT, tests)
    assert "Kept.\n\n- [tests/unit/test_queue.py](../tests/unit/test_queue.py)\n  - a message is kept\n\n### M7" in text
    assert problems_of(text, tests) == []


@pytest.mark.parametrize(
    ("tests", "problem"),
    [
        ({}, "M1: no test covers it"),
        ({"M1": [KEPT], "M9": [KEPT]}, "M9: tests cover it, but the document does not state it"),
        ({"M1": [KEPT], "M7": [KEPT]}, "M7: called planned, but tests/unit/test_queue.py covers it"),
    ],
)
def test_what_document_and_marks_disagree_on_is_named(tests: dict[str, list[MarkedTest]], problem: str) -> None:
    assert problem in problems_of(DOCUMENT, tests)
