"""LIKE against a matcher that is slow and obviously right, and what matching costs at worst."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tandembus.rules.like_pattern import LikePattern, PatternError
from tandembus.rules.values import FALSE, TRUE, UNKNOWN
from tests.covers import covers

PLENTY = 1_000_000_000
MANY = 60_000
ALPHABET = st.text(alphabet="ab%_!", max_size=12)


def matches_slowly(text: str, pattern: str, escape: str | None) -> bool:
    """By the definition, one character of the pattern after the other: which lengths of text can it have matched?"""
    ends = {0}
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == escape:
            character, at = pattern[at], at + 1
            ends = {end + 1 for end in ends if text[end : end + 1] == character}
        elif character == "%":
            ends = set(range(min(ends), len(text) + 1)) if ends else set()
        else:
            ends = {end + 1 for end in ends if end < len(text) and character in ("_", text[end])}
    return len(text) in ends


def is_dangling(pattern: str, escape: str | None) -> bool:
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            if at + 1 == len(pattern):
                return True
            at += 1
        at += 1
    return False


@covers("M9", "F15")
@given(text=st.text(alphabet="ab%_!", max_size=16), pattern=ALPHABET, escape=st.none() | st.sampled_from("!%_a"))
@example("abab", "%ab%b", None)
@example("aab", "%_b%", None)
@example("ab", "a%%b", None)
@example("a", "%a%a%", None)
def test_a_pattern_matches_what_its_definition_says(text: str, pattern: str, escape: str | None) -> None:
    if is_dangling(pattern, escape):
        with pytest.raises(PatternError):
            LikePattern(pattern, escape)
        return
    expected = TRUE if matches_slowly(text, pattern, escape) else FALSE
    assert LikePattern(pattern, escape).match(text, PLENTY) == expected


@covers("F15")
@pytest.mark.parametrize(
    "pattern",
    [
        "%a" * 500 + "%b",
        "%" + "a" * 500 + "b%",
        "%" + "a" * 1_022 + "b",
        "%" + "a" * 500 + "b" + "a" * 500 + "%",
        "%" + "ab" * 250 + "%" + "ba" * 250 + "%",
        "%" * 1_024,
        "_" * 1_024,
        "%_" * 512,
    ],
    ids=lambda pattern: f"{pattern[:6]}...{pattern[-6:]}",
)
def test_without_underscores_between_letters_the_cost_is_linear(pattern: str) -> None:
    """Each character of the text is looked at once by each piece that has not been found before it."""
    like = LikePattern(pattern)
    assert like.match("a" * MANY, PLENTY) in (TRUE, FALSE)
    assert PLENTY - like.steps_left <= MANY // 8 + 16 * 1_024


@covers("F15")
@pytest.mark.parametrize("pattern", ["%" + "a_" * 500 + "b%", "%a_b%", "%aaaa_aaab%"])
@pytest.mark.parametrize("size", [10_000, MANY])
def test_a_match_that_would_cost_too_much_is_given_up(pattern: str, size: int) -> None:
    like = LikePattern(pattern)
    assert like.match("a" * size, 20_000) == UNKNOWN
    assert like.steps_left > -MANY


@covers("M9")
def test_a_pattern_has_at_most_1024_characters() -> None:
    LikePattern("x" * 1_024)
    with pytest.raises(PatternError, match="at most 1024 characters"):
        LikePattern("x" * 1_025)
