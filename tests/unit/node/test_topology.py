"""What is told of processes, stores and fragments."""

from __future__ import annotations

import pytest

from tandembus.clock import ManualClock
from tandembus.descriptions import QueueDescription, TopicDescription
from tandembus.errors import BusError, EntityNotFound, StoreUnavailable
from tandembus.faults.board import FaultBoard
from tandembus.faults.fault import Topology as FaultTopology
from tandembus.faults.fault import read_fault
from tandembus.front_end.http.topology import MAX_ENTITIES, TopologyQuery, parse_topology_query
from tandembus.namespace.catalog_view import CatalogView
from tandembus.namespace.directory import Directory
from tandembus.namespace.entries import Facts, QueueEntry, TopicEntry
from tandembus.node.topology import Failures, FrontEndFacts, Parts, ProcessFacts, StoreFacts, topology_document
from tests.covers import covers

PARTS = Parts(
    "shop",
    [ProcessFacts(0, 10, "ready"), ProcessFacts(1, None, "down", 2, "was ended by signal 9")],
    [StoreFacts(0, 0, "available", 3, audited=17), StoreFacts(1, 1, "unavailable"), StoreFacts(2, 0, "available", 4)],
    [FrontEndFacts(0, 9, "ready", connections=7)],
)


def catalog(queues: int, topics: int) -> CatalogView:
    directory = Directory(Facts("n", 0.0), [])
    for number in range(queues):
        stores = tuple(index % 3 for index in range(16)) if number == 0 else (number % 3,)
        directory.put(QueueEntry(QueueDescription(f"q{number:04}"), number, 100 * number, 0.0, 0.0, stores=stores))
    for number in range(topics):
        key = 100 * (queues + number)
        directory.put(TopicEntry(TopicDescription(f"t{number:04}"), queues + number, key, 0.0, 0.0, stores=(1,)))
    return CatalogView(directory)


def store_failure(store: int) -> BusError | None:
    return StoreUnavailable("its broker is down") if store == 1 else None


def board() -> FaultBoard:
    return FaultBoard(ManualClock(), FaultTopology(3, 2))


@pytest.fixture
def failures() -> Failures:
    return Failures(store_failure, board())


def paths(document: dict[str, object]) -> list[str]:
    entities = document["entities"]
    assert isinstance(entities, list)
    return [entity["path"] for entity in entities]


@covers("P1", "P2")
def test_every_fragment_has_a_store_and_a_broker_and_a_state(failures: Failures) -> None:
    document = topology_document(PARTS, catalog(2, 0), failures, TopologyQuery())
    assert document["brokers"] == [
        {
            "index": 0,
            "pid": 10,
            "state": "ready",
            "restarts": 0,
            "last_exit": None,
            "store": 0,
            "stores": [0, 2],
            "epoch": 3,
        },
        {
            "index": 1,
            "pid": None,
            "state": "down",
            "restarts": 2,
            "last_exit": "was ended by signal 9",
            "store": 1,
            "stores": [1],
            "epoch": None,
        },
    ]
    entities = document["entities"]
    assert isinstance(entities, list)
    partitioned, plain = entities
    assert (partitioned["partitioned"], plain["partitioned"]) == (True, False)
    assert [one["store"] for one in partitioned["fragments"]] == [index % 3 for index in range(16)]
    assert [one["broker"] for one in partitioned["fragments"]][:3] == [0, 1, 0]
    out = [one["index"] for one in partitioned["fragments"] if one["state"] == "unavailable"]
    assert out == [1, 4, 7, 10, 13]
    assert partitioned["availability"] == "Limited"
    assert plain["fragments"] == [
        {"index": 0, "store": 1, "broker": 1, "state": "unavailable", "reason": "its broker is down"}
    ]


@covers("P1")
def test_entities_are_told_a_page_at_a_time_queues_before_topics(failures: Failures) -> None:
    view = catalog(5, 4)
    everything = [f"q{number:04}" for number in range(5)] + [f"t{number:04}" for number in range(4)]
    for skip in range(10):
        for top in (0, 1, 3, 100):
            document = topology_document(PARTS, view, failures, TopologyQuery(None, skip, top))
            assert paths(document) == everything[skip : skip + top]
            assert document["entity_count"] == 9


@covers("P1")
def test_one_entity_can_be_asked_for_by_its_path_in_whatever_letters(failures: Failures) -> None:
    view = catalog(2, 1)
    assert paths(topology_document(PARTS, view, failures, TopologyQuery("T0000"))) == ["t0000"]
    with pytest.raises(EntityNotFound, match="nowhere"):
        topology_document(PARTS, view, failures, TopologyQuery("nowhere"))


def test_an_answer_is_never_longer_than_a_page() -> None:
    assert parse_topology_query({"top": "1000000", "skip": "3"}) == TopologyQuery(None, 3, MAX_ENTITIES)


@pytest.mark.parametrize(
    ("target", "kind", "out"),
    [
        ("broker/0", "unavailable", [0, 2]),
        ("fragment/q0000/5", "unavailable", [5]),
        ("entity/q0000", "unavailable", list(range(16))),
        ("entity/q0000", "throttled", []),
        ("entity/q0000", "disk-full", []),
    ],
)
@covers("P19", "B3")
def test_what_an_injected_fault_puts_out_of_reach_is_shown_so(target: str, kind: str, out: list[int]) -> None:
    faults = board()
    faults.put(read_fault("f", {"target": target, "kind": kind}))
    document = topology_document(PARTS, catalog(1, 0), Failures(lambda _: None, faults), TopologyQuery())
    entities = document["entities"]
    assert isinstance(entities, list)
    found = [one for one in entities[0]["fragments"] if one["state"] == "unavailable"]
    expected = [index for index in range(16) if index % 3 in out] if target == "broker/0" else out
    assert [one["index"] for one in found] == expected
    assert all("injected fault 'f'" in one["reason"] for one in found)
