"""Browsing for a reconciliation, without Spark: every message is found, and what cannot be looked at is told."""

from __future__ import annotations

import uuid

import pytest

from tandembus.client import OutgoingMessage
from tandembus.client.topology import OpenStore
from tandembus.clock import SystemClock
from tandembus.errors import InvalidArgument, Unauthorized
from tandembus.loop_thread import LoopThread
from tandembus.security.sas import make_token, parse_connection_string
from tandembus.spark.jobs.reconcile_in_flight import (
    CLOSED,
    EVERY_FRAGMENT,
    FOUND,
    UNREACHED,
    InFlight,
    Row,
    Target,
    browsed_rows,
    named,
    stores_in,
    targets_in,
)
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, Lane, Life, Stream, stores_of
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
def test_a_token_that_has_expired_is_told_as_such_and_not_as_another_namespace(namespace: EmbeddedNamespace) -> None:
    parts = parse_connection_string(namespace.connection_string)
    token = make_token("sb://localhost/", parts.key_name or "", parts.key or "", SystemClock().now() - 60)
    endpoint = namespace.connection_string.partition(";")[0]
    with pytest.raises(Unauthorized, match="expired at 20"):
        named([(f"{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true", None)], [NAME])


@covers("D5")
def test_records_are_complete_up_to_the_last_one_where_their_store_is_open(namespace: EmbeddedNamespace) -> None:
    (told,) = stores_in({NAME: (namespace.connection_string, None)})[NAME].values()
    epoch = told.epoch

    def is_complete(last_epoch: int, epochs: dict[str, dict[int, int]], ended: int = 0, audited: int = 9) -> bool:
        stream = Stream("ab", NAME, 0, 1, 0, ended)
        (store,) = stores_of([Life("ab", last_epoch, 1, 9, 9, 1, 2, 1)], [lane], [stream])
        open_stores = {
            name: {index: OpenStore(one, audited) for index, one in stores.items()} for name, stores in epochs.items()
        }
        in_flight = InFlight(None, [Target(0, NAME, "orders")], unreached, open_stores=open_stores)
        found = in_flight.ends(store, [lane])
        assert found.missing_count == max(0, audited - 9)
        return found.end_at == ALWAYS_MS

    lane = Lane(0, "ab", NAME, 1, 0, "orders", 0, 0, None, None)
    unreached: dict[tuple[int, int], str] = {}
    assert is_complete(epoch, {NAME: {0: epoch}})
    assert not is_complete(epoch, {NAME: {0: epoch}}, audited=11), "the newest file was cut off, or it is an old copy"
    assert not is_complete(epoch, {NAME: {0: epoch + 1}}), "they are of an earlier life"
    assert not is_complete(epoch, {NAME: {0: epoch + 1}}, ended=9), "the store was opened again, without an audit"
    assert not is_complete(epoch, {NAME: {}}), "the store is out"
    assert is_complete(epoch, {NAME: {}}, ended=9), "it was closed in order"
    # The namespace does not say which stores are open: then it counts that the entity was browsed.
    assert is_complete(epoch, {})
    unreached[0, EVERY_FRAGMENT] = "it is out"
    assert not is_complete(epoch, {})


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
