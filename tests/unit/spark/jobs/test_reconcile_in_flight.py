"""Browsing for a reconciliation, without Spark: every message is found, and what cannot be looked at is told."""

from __future__ import annotations

import uuid

import pytest

from tandembus.client import OutgoingMessage
from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.reconcile_in_flight import (
    CLOSED,
    EVERY_FRAGMENT,
    FOUND,
    UNREACHED,
    Row,
    Target,
    browsed_rows,
    named,
    targets_in,
)
from tandembus.spark.jobs.reconcile_stores import Lane
from tandembus.spark.source.loop_thread import LoopThread
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage

NAME = "tandembus"


def look(connection_string: str, entity: str, *fragments: int) -> list[Row]:
    with LoopThread() as loop:
        target = Target(7, "contoso", entity, fragments or (0,))
        return [row for page in browsed_rows(loop, (connection_string, None), target) for row in page]


def send(stage: Stage, count: int) -> None:
    stage.send([OutgoingMessage(b"x", message_id=f"id-{n}", partition_key=str(n)) for n in range(count)])


def ids(rows: list[Row]) -> list[str]:
    return sorted([text for _, outcome, _, text, _ in rows if outcome == FOUND])


@covers("D5")
def test_all_messages_of_all_fragments_are_found(stage: Stage) -> None:
    stage.create(enable_partitioning=True)
    send(stage, 100)
    rows = look(stage.namespace.connection_string, stage.queue)
    assert ids(rows) == sorted([f"id-{n}" for n in range(100)])
    assert len({row[2] for row in rows}) == 100
    assert all(row[0] == 7 and row[4] > 0 for row in rows)
    assert look(stage.namespace.connection_string, f"{stage.queue}/$DeadLetterQueue") == []


@covers("D5")
def test_a_fragment_that_is_out_is_told_and_the_others_are_browsed(stage: Stage) -> None:
    stage.create(enable_partitioning=True)
    send(stage, 100)
    whole = look(stage.namespace.connection_string, stage.queue)
    with stage.namespace.fault(f"fragment/{stage.queue}/3", "unavailable"):
        rows = look(stage.namespace.connection_string, stage.queue, *range(16))
    assert [row[:3] for row in rows if row[1] != FOUND] == [(7, UNREACHED, 3)]
    assert [row for row in rows if row[1] == FOUND] == [row for row in whole if row[2] >> 48 != 3]


@covers("D5")
def test_what_cannot_be_browsed_is_no_failure(stage: Stage, plain_namespace: EmbeddedNamespace) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    stage.namespace.create_topic(topic)
    assert [row[1] for row in look(stage.namespace.connection_string, topic)] == [CLOSED]
    assert [row[1:3] for row in look(stage.namespace.connection_string, "nowhere")] == [(UNREACHED, EVERY_FRAGMENT)]
    plain = Stage(plain_namespace, stage.queue)
    plain.create()
    send(plain, 3)
    assert ids(look(plain_namespace.connection_string, stage.queue)) == ["id-0", "id-1", "id-2"]


@covers("D5")
def test_a_namespace_that_is_gone_is_told_for_each_entity() -> None:
    with EmbeddedNamespace() as running:
        gone = running.connection_string
    (row,) = look(gone, "orders")
    assert row[1:3] == (UNREACHED, EVERY_FRAGMENT)
    assert "SharedAccessKey" not in row[3]


@covers("D5")
def test_a_namespace_tells_its_name_and_is_known_by_it(namespace: EmbeddedNamespace) -> None:
    one = (namespace.connection_string, None)
    assert named([one], ["Tandembus", "other"]) == {NAME: one}
    with pytest.raises(InvalidArgument, match="the records are of other"):
        named([one], ["other"])
    with pytest.raises(InvalidArgument, match="both called 'tandembus'"):
        named([one, one], ["tandembus"])


@covers("D5")
async def test_a_namespace_is_asked_for_its_name_from_within_a_loop_too(namespace: EmbeddedNamespace) -> None:
    """As in a notebook."""
    one = (namespace.connection_string, None)
    assert named([one], [NAME]) == {NAME: one}


@covers("D5")
def test_each_entity_is_browsed_once_in_its_own_namespace() -> None:
    def lane(number: int, namespace: str, entity: str | None, index: int, dropped: int | None = None) -> Lane:
        return Lane(number, "ab", namespace, number, 0, entity, index, 0, dropped, dropped)

    lanes = [
        lane(0, "Contoso", "orders", 0),
        lane(1, "Contoso", "orders", 1),
        lane(2, "fabrikam", "orders", 0),
        lane(3, "elsewhere", "orders", 0),
        lane(4, "fabrikam", "gone", 0, dropped=5),
        lane(5, "fabrikam", "orders/$transfer", 0),
        lane(6, "fabrikam", None, 0),
    ]
    assert targets_in(lanes, {"contoso", "fabrikam"}) == [
        Target(0, "Contoso", "orders", (0, 1)),
        Target(1, "fabrikam", "orders", (0,)),
    ]
