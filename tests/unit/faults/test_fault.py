"""What may be asked for as a fault, and what is said to everything else."""

from __future__ import annotations

import pytest

from tandembus.errors import InvalidArgument
from tandembus.faults.fault import (
    Fault,
    Kind,
    Scope,
    Target,
    Topology,
    check_is_there,
    parse_target,
    read_fault,
)
from tests.covers import covers

OUT = {"target": "namespace", "kind": "unavailable"}


@covers("B3")
@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("namespace", Target(Scope.NAMESPACE)),
        ("entity/orders", Target(Scope.ENTITY, "orders")),
        ("entity/shops/Berlin/orders", Target(Scope.ENTITY, "shops/Berlin/orders")),
        ("entity/news/Subscriptions/all", Target(Scope.ENTITY, "news/Subscriptions/all")),
        ("fragment/orders/0", Target(Scope.FRAGMENT, "orders", 0)),
        ("fragment/shops/7/15", Target(Scope.FRAGMENT, "shops/7", 15)),
        ("fragment/news/subscriptions/all/3", Target(Scope.FRAGMENT, "news/subscriptions/all", 3)),
        ("broker/0", Target(Scope.BROKER, index=0)),
        ("store/12", Target(Scope.STORE, index=12)),
    ],
)
def test_a_target_is_written_in_one_of_five_forms(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert str(target) == text


@covers("B3")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no target"),
        ("namespace/", "is no target"),
        ("namespace/x", "is no target"),
        ("Namespace", "is no target"),
        ("queue/orders", "is no target"),
        ("entity", "needs a name"),
        ("entity/", "needs a name"),
        ("entity/a//b", "empty path segment"),
        ("entity//a", "empty path segment"),
        ("entity/a b", "is not valid"),
        ("entity/$cbs", "is not valid"),
        ("entity/..", "'.' or '..'"),
        ("entity/" + "a" * 261, "at most 260"),
        ("entity/news/Subscriptions/" + "s" * 51, "at most 50"),
        ("entity/Gr\u00fc\u00dfe", "is no target"),
        ("entity/a\x1b[31m", "is no target"),
        ("entity/\ud800", "is no target"),
        ("fragment/orders", "is no target"),
        ("fragment/3", "is no target"),
        ("fragment/orders/", "is no target"),
        ("fragment/orders/x", "is no target"),
        ("fragment/orders/-1", "is no target"),
        ("fragment/orders/03", "is no target"),
        ("fragment/orders/16", "0 to 15"),
        ("fragment/orders/99999999999999999999", "is no target"),
        ("broker/", "is no target"),
        ("broker/a", "is no target"),
        ("broker/1/2", "is no target"),
        ("store/\u0661", "is no target"),
        ("store/ 1", "is no target"),
        ("x" * 100_000, "is no target"),
    ],
)
def test_other_targets_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_target(text)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 1000
    str(refused.value).encode()
    assert "\x1b" not in str(refused.value)


@covers("B3")
def test_a_fault_has_what_was_asked_for_and_defaults_for_the_rest() -> None:
    assert read_fault("f1", OUT) == Fault("f1", Target(Scope.NAMESPACE), Kind.UNAVAILABLE, 0, 1.0, None)
    document = {"target": "store/1", "kind": "slow", "latency_ms": 250, "probability": 0.5, "for_s": 30}
    assert read_fault("a.b-c_1", document) == Fault("a.b-c_1", Target(Scope.STORE, index=1), Kind.SLOW, 250, 0.5, 30.0)
    assert read_fault("f1", {**OUT, "latency_ms": None, "probability": 1, "for_s": None}) == read_fault("f1", OUT)


@covers("B3")
def test_a_fault_as_it_is_told_can_be_sent_back() -> None:
    told = {**OUT, "id": "f1", "state": "active", "started_at": "2026-01-01T00:00:00Z", "ends_in_s": None}
    assert read_fault("f1", told) == read_fault("f1", OUT)


@covers("B3")
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "must be a JSON object"),
        ("unavailable", "must be a JSON object"),
        (None, "must be a JSON object"),
        ({}, "needs a 'kind'"),
        ({"target": "namespace"}, "needs a 'kind'"),
        ({"kind": "unavailable"}, "needs a 'target'"),
        ({**OUT, "target": 5}, "target must be a string"),
        ({**OUT, "kind": ["slow"]}, "kind must be a string"),
        ({**OUT, "kind": "Unavailable"}, "none of unavailable, slow, throttled, disk-full"),
        ({**OUT, "kind": "down"}, "none of unavailable"),
        ({**OUT, "latency": 5}, "A fault has no 'latency'"),
        ({**OUT, "x" * 5000: 5}, "A fault has no 'xxx"),
        ({**OUT, "id": "other"}, "the one in its address"),
        ({**OUT, "latency_ms": 10}, "only a slow fault"),
        ({**OUT, "latency_ms": False}, "only a slow fault"),
        ({**OUT, "kind": "slow"}, "a slow fault needs one"),
        ({**OUT, "kind": "slow", "latency_ms": 0}, "from 1 to 600000"),
        ({**OUT, "kind": "slow", "latency_ms": -1}, "from 1 to 600000"),
        ({**OUT, "kind": "slow", "latency_ms": 600_001}, "from 1 to 600000"),
        ({**OUT, "kind": "slow", "latency_ms": 1.5}, "from 1 to 600000"),
        ({**OUT, "kind": "slow", "latency_ms": "100"}, "from 1 to 600000"),
        ({**OUT, "kind": "slow", "latency_ms": True}, "from 1 to 600000"),
        ({**OUT, "probability": 0}, "above 0 and up to 1"),
        ({**OUT, "probability": -0.1}, "above 0 and up to 1"),
        ({**OUT, "probability": 1.01}, "above 0 and up to 1"),
        ({**OUT, "probability": "0.5"}, "must be a number"),
        ({**OUT, "probability": True}, "must be a number"),
        ({**OUT, "probability": float("nan")}, "must be a number"),
        ({**OUT, "for_s": 0}, "above 0"),
        ({**OUT, "for_s": -3}, "above 0"),
        ({**OUT, "for_s": 2_592_001}, "up to 2592000"),
        ({**OUT, "for_s": 10**400}, "must be a number"),
        ({**OUT, "for_s": {}}, "must be a number"),
    ],
)
def test_what_is_no_fault_is_refused_with_the_field_that_is_wrong(document: object, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_fault("f1", document)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 500


@covers("B3")
@pytest.mark.parametrize("fault_id", ["", "a" * 65, "a/b", "a b", "\u00fc", "a\n", "%41"])
def test_an_id_is_short_and_plain(fault_id: str) -> None:
    with pytest.raises(InvalidArgument, match="fault id"):
        read_fault(fault_id, OUT)


def fragments_of(path: str) -> int | None:
    return {"orders": 16, "plain": 1}.get(path)


@covers("B3")
@pytest.mark.parametrize(
    ("target", "is_there"),
    [
        ("namespace", True),
        ("entity/Orders", True),
        ("entity/later", False),
        ("fragment/orders/15", True),
        ("fragment/plain/0", True),
        ("fragment/later/15", False),
        ("broker/1", True),
        ("store/3", True),
    ],
)
def test_a_fault_may_wait_for_an_entity_that_is_not_there_yet(target: str, is_there: bool) -> None:
    assert check_is_there(parse_target(target), Topology(stores=4, brokers=2), fragments_of) is is_there


@covers("B3")
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("broker/2", "the brokers 0 to 1"),
        ("store/4", "the stores 0 to 3"),
        ("fragment/plain/1", "is not partitioned"),
    ],
)
def test_what_can_never_be_there_is_refused(target: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        check_is_there(parse_target(target), Topology(stores=4, brokers=2), fragments_of)
