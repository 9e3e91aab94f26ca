"""Correlation filters, and the filters that look at nothing."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from tandembus.amqp.encoding import Described, Typed, byte_, int_, symbol, timestamp, uint, ulong
from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.descriptions import CorrelationFilter, FalseFilter, Filter, RuleDescription, SqlFilter, TrueFilter
from tandembus.errors import InvalidArgument
from tandembus.message import parse_message
from tandembus.rules import ERROR, FALSE, TRUE, MessageView, compile_rule
from tests.covers import covers
from tests.unit.rules.corpus_message import GUID, HOUR_TICKS, MOMENT, MOMENT_MS, a_view


def result_of(wanted: Filter, view: MessageView | None = None) -> int:
    return int(compile_rule(RuleDescription("rule", wanted)).matches(view or a_view()))


@covers("M9")
@pytest.mark.parametrize(
    "wanted",
    [
        CorrelationFilter(correlation_id="c-77"),
        CorrelationFilter(message_id="m-1"),
        CorrelationFilter(to="warehouse"),
        CorrelationFilter(reply_to="replies"),
        CorrelationFilter(label="order"),
        CorrelationFilter(session_id="session-1"),
        CorrelationFilter(reply_to_session_id="answers-1"),
        CorrelationFilter(content_type="application/json"),
        CorrelationFilter(label="order", to="warehouse", properties=(("color", "blue"), ("size", 12))),
    ],
)
def test_a_correlation_filter_matches_when_all_its_fields_are_equal(wanted: CorrelationFilter) -> None:
    assert result_of(wanted) == TRUE


@covers("M9")
@pytest.mark.parametrize(
    "wanted",
    [
        CorrelationFilter(correlation_id="C-77"),
        CorrelationFilter(label=""),
        CorrelationFilter(label="order", to="shop"),
        CorrelationFilter(label="order", properties=(("color", "red"),)),
        CorrelationFilter(label="order", properties=(("missing", "red"),)),
    ],
)
def test_one_field_that_differs_is_enough_not_to_match(wanted: CorrelationFilter) -> None:
    assert result_of(wanted) == FALSE


@covers("M9")
@pytest.mark.parametrize("number", [5, 5.0, int_(5), uint(5), ulong(5), byte_(5), Typed(0x72, 5.0)])
@pytest.mark.parametrize("wanted", [5, 5.0, int_(5), ulong(5)])
def test_numbers_are_equal_by_value_whatever_their_types(number: object, wanted: object) -> None:
    view = a_view({"n": number})
    assert result_of(CorrelationFilter(properties=(("n", wanted),)), view) == TRUE
    assert result_of(CorrelationFilter(properties=(("n", 6),)), view) == FALSE


@covers("M9")
@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (symbol("blue"), "blue"),
        (GUID, uuid.UUID(int=GUID.int)),
        (b"\x01", b"\x01"),
        (timestamp(MOMENT_MS), MOMENT),
        (Described("com.microsoft:timespan", HOUR_TICKS), timedelta(hours=1)),
        (True, True),
    ],
)
def test_values_of_the_other_types_are_equal_by_type_and_value(found: object, wanted: object) -> None:
    assert result_of(CorrelationFilter(properties=(("x", wanted),)), a_view({"x": found})) == TRUE


@covers("M9", "F15")
@pytest.mark.parametrize(
    ("found", "wanted"),
    [("5", 5), (5, "5"), (True, 1), (1, True), (None, "x"), ([1], 1), (GUID, str(GUID)), (b"x", "x")],
)
def test_a_value_of_another_type_is_not_equal_and_no_error(found: object, wanted: object) -> None:
    assert result_of(CorrelationFilter(properties=(("x", wanted),)), a_view({"x": found})) == FALSE


@covers("M9")
def test_names_of_properties_are_compared_without_case() -> None:
    assert result_of(CorrelationFilter(properties=(("COLOR", "blue"),))) == TRUE


@covers("M9")
@pytest.mark.parametrize(
    ("message_id", "text"), [(GUID, str(GUID)), (ulong(7), "7"), (b"\xab", "ab"), ("m", "m")], ids=str
)
def test_an_id_of_another_type_is_compared_as_text(message_id: object, text: str) -> None:
    view = MessageView(parse_message(properties_section(message_id) + data_section(b"")), 1, 0)
    assert result_of(CorrelationFilter(message_id=text), view) == TRUE


@covers("M9")
def test_a_message_without_any_properties_matches_no_correlation() -> None:
    view = MessageView(parse_message(data_section(b"body")), 1, 0)
    assert result_of(CorrelationFilter(label="order"), view) == FALSE
    assert result_of(CorrelationFilter(properties=(("color", "blue"),)), view) == FALSE
    assert result_of(SqlFilter("color = 'blue' OR sys.Label = 'order'"), view) == FALSE


@covers("M9")
def test_a_correlation_filter_needs_something_to_compare() -> None:
    with pytest.raises(InvalidArgument, match="at least one property"):
        compile_rule(RuleDescription("rule", CorrelationFilter()))


@covers("M9")
@pytest.mark.parametrize(("value", "reason"), [(None, "null"), ([1], "cannot be compared"), ({}, "cannot be compared")])
def test_a_correlation_filter_cannot_ask_for_null_or_for_lists(value: object, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        compile_rule(RuleDescription("rule", CorrelationFilter(properties=(("x", value),))))


@covers("M9")
def test_true_and_false_filters_look_at_nothing() -> None:
    assert result_of(TrueFilter()) == TRUE
    assert result_of(FalseFilter()) == FALSE
    assert ERROR not in (result_of(TrueFilter()), result_of(FalseFilter()))
