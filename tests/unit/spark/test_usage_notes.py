"""Heads, gaps and removed files in metering files: what they tell a bill."""

from __future__ import annotations

import json

import pytest

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.usage import Notes
from tandembus.spark.jobs.usage_result import Earlier, Gap
from tests.covers import covers


def head(file: str, calls: int, **changes: object) -> str:
    row = {"operation": "send", "reason": "normal", "calls": calls, "messages": 2, "operations": 3, "bytes": 4}
    return json.dumps({"meter": {"format": 1, "namespace": "contoso", "carried": [row] if calls else [], **changes}})


def gap(first: int, last: int) -> str:
    return json.dumps({"gap": {"from": first, "to": last, "namespace": "contoso"}})


def noted(*lines: tuple[str, str]) -> Notes:
    notes = Notes()
    for file, text in lines:
        notes.add(file, text)
    return notes


@covers("D4")
def test_what_the_oldest_file_of_each_folder_carries_was_counted_earlier() -> None:
    files = ["meter/00000002.jsonl", "meter/00000003.jsonl", "meter/front-end-1/00000001.jsonl"]
    heads = [(files[1], 9), (files[0], 7), (files[0], 5), (files[2], 0)]
    notes = noted(*[(file, head(file, calls)) for file, calls in heads])
    assert notes.earlier == (Earlier("contoso", "send", "normal", 5, 2, 3, 4),)


@covers("D4")
def test_gaps_are_sorted_and_listed_once_and_a_removed_file_is_no_damage() -> None:
    removed = {"removed": {"number": 1, "bytes": 100, "namespace": "contoso"}}
    notes = noted(("a", gap(20, 30)), ("a", gap(5, 6)), ("b", gap(20, 30)), ("a", json.dumps(removed)))
    assert notes.gaps == (Gap("contoso", 5, 6), Gap("contoso", 20, 30))
    assert notes.unreadable == []


@pytest.mark.parametrize(
    "text",
    [
        "{",
        head("a", 1, carried=3),
        head("a", 1, carried=[{"calls": "many"}]),
        head("a", 1, carried=[7]),
        head("a", 1, namespace=None),
        head("a", 1, format=True),
        json.dumps({"gap": {"from": -1, "to": 3, "namespace": "contoso"}}),
        json.dumps({"gap": {"from": 1}}),
        "[" * 100_000,
    ],
)
@covers("D4")
def test_a_note_that_cannot_be_read_is_counted(text: str) -> None:
    assert noted(("a", text)).unreadable == ["a"]


def test_a_file_of_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="format 2"):
        noted(("a", head("a", 1)), ("a", head("a", 1, format=2)))
