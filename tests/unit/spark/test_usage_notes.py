"""Heads, gaps and removed files in metering files: what they tell a bill."""

from __future__ import annotations

import json

import pytest

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.usage_notes import Head, RemovedNote, UnreadableNote, earlier_in, gaps_in, read_note
from tandembus.spark.jobs.usage_result import Earlier, Gap
from tests.covers import covers


def head(file: str, calls: int, **changes: object) -> str:
    row = {"operation": "send", "reason": "normal", "calls": calls, "messages": 2, "operations": 3, "bytes": 4}
    return json.dumps({"meter": {"format": 1, "namespace": "contoso", "carried": [row] if calls else [], **changes}})


def gap(first: int, last: int) -> str:
    return json.dumps({"gap": {"from": first, "to": last, "namespace": "contoso"}})


@covers("D4")
def test_what_the_oldest_file_of_each_folder_carries_was_counted_earlier() -> None:
    files = ["meter/00000002.jsonl", "meter/00000003.jsonl", "meter/front-end-1/00000001.jsonl"]
    notes = [
        read_note(files[1], head(files[1], 9)),
        read_note(files[0], head(files[0], 7)),
        read_note(files[0], head(files[0], 5)),
        read_note(files[2], head(files[2], 0)),
    ]
    assert earlier_in(notes) == (Earlier("contoso", "send", "normal", 5, 2, 3, 4),)


@covers("D4")
def test_gaps_come_in_order_and_once() -> None:
    notes = [read_note("a", gap(20, 30)), read_note("a", gap(5, 6)), read_note("b", gap(20, 30))]
    assert gaps_in(notes) == (Gap("contoso", 5, 6), Gap("contoso", 20, 30))


def test_a_removed_file_is_a_note() -> None:
    removed = {"removed": {"number": 1, "bytes": 100, "namespace": "contoso"}}
    assert read_note("a", json.dumps(removed)) == RemovedNote("a")


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
def test_what_cannot_be_read_is_told(text: str) -> None:
    assert read_note("a", text) == UnreadableNote("a")


def test_a_file_of_a_newer_version_is_refused() -> None:
    assert isinstance(read_note("a", head("a", 1)), Head)
    with pytest.raises(InvalidArgument, match="format 2"):
        read_note("a", head("a", 1, format=2))
