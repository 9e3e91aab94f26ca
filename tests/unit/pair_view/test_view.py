"""Views on their way: between processes in AMQP's types, between namespaces as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.errors import MalformedData
from tandembus.pair_view.signs import MAX_RUNS, Sign
from tandembus.pair_view.view import (
    MAX_QUEUES,
    Seen,
    seen_from_document,
    seen_to_document,
    summed_seen,
    view_from_document,
    view_to_document,
)
from tests.covers import covers
from tests.unit.pair_view.told import START, queue, signs, view

ORDERS = signs("orders", {Sign.DIVERTED: [(0, 1.5, 7)], Sign.TAKEN: [(9, 9, 7)]}, "contoso", {Sign.TAKEN: 2})
BACKUP = view("backup", 10.25, ORDERS, queues=[queue("contoso", 3, 1.5, 2), queue("contoso", index=1)])


@covers("B4")
def test_a_view_arrives_as_it_was_sent() -> None:
    assert view_from_document(json.loads(json.dumps(view_to_document(BACKUP)))) == BACKUP


@covers("B4")
def test_what_a_process_has_seen_arrives_as_it_was_sent() -> None:
    part = Seen(START, [ORDERS], {"contoso/x-servicebus-transfer/0": 2}, 3, is_complete=False)
    value, _ = decode(encode(seen_to_document(part)))
    assert seen_from_document(value) == part


@covers("B4")
def test_what_several_processes_have_seen_is_told_as_one() -> None:
    one = Seen(START, [ORDERS], {"a": 1, "b": 1}, 1)
    other = Seen(START + 5, [ORDERS], {"b": 2}, 2, is_complete=False)
    whole = summed_seen([one, other])
    assert (whole.since, whole.receivers, whole.syphon_senders, whole.is_complete) == (
        START + 5,
        {"a": 1, "b": 3},
        3,
        False,
    )
    assert whole.entities[0].total(Sign.DIVERTED) == 14


@covers("B4")
def test_signs_that_a_later_version_may_know_are_passed_over() -> None:
    document: Any = view_to_document(BACKUP)
    document["seen"]["entities"][0]["totals"]["something-new"] = "?"
    assert view_from_document(document) == BACKUP


@covers("B4")
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("name",), 7),
        (("name",), "x" * 5_000),
        (("at",), "now"),
        (("at",), -1.0),
        (("at",), float("nan")),
        (("at",), 1e300),
        (("at",), True),
        (("seen",), []),
        (("seen", "since"), None),
        (("seen", "entities"), [{}] * 1_001),
        (("seen", "entities", 0), "orders"),
        (("seen", "entities", 0, "path"), None),
        (("seen", "entities", 0, "totals", "taken"), -1),
        (("seen", "entities", 0, "totals", "taken"), 2**63),
        (("seen", "entities", 0, "totals", "taken"), 1.5),
        (("seen", "entities", 0, "runs", "taken"), [[1.0, 2.0, 3]] * (MAX_RUNS + 1)),
        (("seen", "entities", 0, "runs", "taken"), [[1.0, 2.0]]),
        (("seen", "entities", 0, "runs", "taken"), {}),
        (("seen", "receivers"), {"a": "b"}),
        (("queues",), [view_to_document(BACKUP)["queues"]] * (MAX_QUEUES + 1)),
        (("queues", 0, "oldest_at"), "long ago"),
        (("queues", 0, "active"), True),
    ],
)
def test_what_is_no_view_is_refused(place: tuple[str | int, ...], value: object) -> None:
    document: Any = json.loads(json.dumps(view_to_document(BACKUP)))
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    with pytest.raises(MalformedData):
        view_from_document(document)


@pytest.mark.parametrize("value", [None, [], "view", {}])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(MalformedData):
        view_from_document(value)
