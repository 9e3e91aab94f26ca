"""SQL filters, case by case: `filters.txt` says what each one is for one message that has something of everything."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tandembus.amqp.encoding.sections import data_section, message_annotations_section
from tandembus.descriptions import RuleDescription, SqlFilter
from tandembus.errors import InvalidArgument
from tandembus.message import parse_message
from tandembus.rules import ERROR, FALSE, TRUE, MessageView, compile_rule
from tests.covers import covers
from tests.unit.rules.corpus_message import MOMENT_MS, PARAMETERS, a_view

CORPUS = Path(__file__).parent / "filters.txt"
LEAST_CASES = 500
RESULTS = {"true": TRUE, "false": FALSE, "unknown": FALSE, "error": ERROR}


class Case(NamedTuple):
    line: int
    expression: str
    expected: str
    details: str


def read_corpus() -> list[Case]:
    cases = []
    for number, line in enumerate(CORPUS.read_text().splitlines(), 1):
        if line.startswith("#") or not line:
            continue
        expression, arrow, outcome = line.rpartition(" => ")
        assert arrow, f"line {number} has no outcome"
        expected, _, details = outcome.partition(" ")
        assert expected in (*RESULTS, "refused"), f"line {number}: {expected}"
        cases.append(Case(number, expression, expected, details))
    return cases


CASES = read_corpus()
EVALUATED = [case for case in CASES if case.expected != "refused"]
REFUSED = [case for case in CASES if case.expected == "refused"]


def by_expression(case: Case) -> str:
    return f"{case.line}: {case.expression}"


def rule_for(expression: str) -> RuleDescription:
    return RuleDescription("rule", SqlFilter(expression, PARAMETERS))


@covers("M9", "F15")
@pytest.mark.parametrize("case", EVALUATED, ids=by_expression)
def test_a_filter_is_for_a_message_what_the_corpus_says(case: Case) -> None:
    rule = compile_rule(rule_for(case.expression))
    view = a_view()
    assert rule.matches(view) == RESULTS[case.expected]
    if case.expected == "error":
        assert view.fault is not None
        assert case.details in view.fault.reason


@covers("M9")
@pytest.mark.parametrize("case", [case for case in EVALUATED if case.expected != "error"], ids=by_expression)
def test_the_negation_of_a_filter_tells_false_from_unknown(case: Case) -> None:
    negation = {"true": FALSE, "false": TRUE, "unknown": FALSE}[case.expected]
    assert compile_rule(rule_for(f"NOT ({case.expression})")).matches(a_view()) == negation


@covers("M9", "F15")
@pytest.mark.parametrize("case", REFUSED, ids=by_expression)
def test_a_wrong_filter_is_refused_with_place_and_reason(case: Case) -> None:
    place, _, reason = case.details.partition(" ")
    with pytest.raises(InvalidArgument) as refusal:
        compile_rule(rule_for(case.expression))
    assert f"at character {place}:" in str(refusal.value)
    assert reason in str(refusal.value)


def test_the_corpus_is_large_and_says_nothing_twice() -> None:
    assert len(CASES) >= LEAST_CASES
    assert len({case.expression for case in CASES}) == len(CASES)


@covers("M9")
def test_the_time_of_a_schedule_may_be_written_as_a_number() -> None:
    annotations = message_annotations_section({"x-opt-scheduled-enqueue-time": MOMENT_MS})
    view = MessageView(parse_message(annotations + data_section(b"")), 1, 0)
    rule = compile_rule(rule_for("sys.ScheduledEnqueueTimeUtc = @moment"))
    assert rule.matches(view) == TRUE
