"""How far audit records can be trusted: whole, rolled, interrupted, with holes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tandembus.spark.jobs.reconcile_names import Names, Written
from tandembus.spark.jobs.reconcile_stores import (
    ALWAYS_MS,
    Lane,
    Life,
    Spaces,
    StoreRecords,
    Stream,
    missing_stores,
    stores_of,
)
from tests.covers import covers


def lane(store: str = "ab", namespace: str = "contoso", entity: str | None = "orders", lane: int = 0) -> Lane:
    return Lane(0, store, namespace, 1, lane, entity, 0, 0, None, None)


def life(epoch: int, first: int, last: int, missing: int = 0) -> Life:
    return Life("ab", epoch, first, last, last - first + 1 - missing, first * 1000, last * 1000, 1)


def stream(store: str, index: int = 0, store_count: int = 1, trimmed: int = 0, ended: int = 0) -> Stream:
    return Stream(store, "contoso", index, store_count, trimmed, ended)


def store(*lives: Life) -> StoreRecords:
    (found,) = stores_of(lives, [lane()])
    return found


@covers("D5")
def test_records_without_a_hole_leave_doubt_only_about_what_came_before_them() -> None:
    found = store(life(1, 1, 10), life(2, 11, 12))
    assert (found.first, found.last, found.missing_count, found.doubtful_until) == (1, 12, 0, 0)
    assert found.doubtful_until_at == 1000
    assert not found.is_partial


@covers("D5")
def test_a_life_without_an_audit_leaves_what_was_there_in_doubt() -> None:
    found = store(life(1, 1, 10), life(3, 11, 20), life(4, 21, 30))
    assert (found.doubtful_until, found.doubtful_until_at) == (11, 11_000)


@covers("D5")
def test_an_older_copy_that_was_put_back_does_too() -> None:
    # Lives 4 and 5 were written, then a copy from life 3 was opened: as life 4, behind all records.
    found = store(life(3, 1, 9), Life("ab", 4, 10, 40, 21, 10_000, 40_000, 1), life(5, 20, 29))
    assert found.doubtful_until == 30
    assert found.missing_count == 0


@covers("D5")
def test_where_records_are_missing_nothing_is_certain() -> None:
    found = store(life(1, 1, 10, missing=2))
    assert (found.missing_count, found.doubtful_until, found.is_partial) == (2, 10, True)
    assert store(life(1, 7, 10)).is_partial, "the oldest file gave way"


@covers("D5")
@given(st.sets(st.integers(1, 60), min_size=1), st.integers(1, 5))
def test_every_missing_record_is_counted(numbers: set[int], per_life: int) -> None:
    lives: dict[int, list[int]] = {}
    for number in sorted(numbers):
        lives.setdefault((number - 1) // (12 * per_life) + 1, []).append(number)
    told = [Life("ab", epoch, min(each), max(each), len(each), 1, 1, 1) for epoch, each in lives.items()]
    found = store(*told)
    whole = set(range(min(numbers), max(numbers) + 1))
    assert found.missing_count == len(whole - numbers)
    assert (found.doubtful_until >= max(numbers)) == bool(whole - numbers)


@covers("D5")
def test_a_record_that_is_still_being_written_is_not_missing() -> None:
    found = store(life(1, 1, 10), Life("ab", 2, 11, None, 0, 11_000, 11_000, 1))
    assert (found.last, found.missing_count) == (10, 0)


@covers("D5")
def test_every_store_that_is_named_has_records() -> None:
    def missing(*streams: Stream) -> list[tuple[str, int]]:
        lives = [Life(each.store, 1, 1, 2, 2, 5, 9, 1) for each in streams]
        return missing_stores(stores_of(lives, [lane(each.store) for each in streams], streams))

    both = stream("ab", 0, 2), stream("cd", 1, 2)
    assert missing(*both) == []
    assert missing(both[1]) == [("contoso", 0)]
    assert missing(both[0], stream("ef", 1, 4)) == [("contoso", 2), ("contoso", 3)], "it has more stores than before"
    # Another namespace of the same name: what it has stands for nothing of the first one.
    assert missing(*both, stream("ef", 1, 2)) == [("contoso", 0)]
    assert missing(*both, stream("ef", 1, 2), stream("gh", 0, 2)) == []


@covers("D5", "N15")
def test_a_backlog_belongs_to_the_namespace_that_its_name_tells() -> None:
    stores = stores_of(
        [Life("ab", 1, 1, 2, 2, 5, 9, 1), Life("cd", 1, 1, 2, 2, 7, 9, 1)], [lane(), lane("cd", "Fabrikam")]
    )
    spaces = Spaces.of(stores)
    assert spaces.home_of(lane("cd", "Fabrikam", "Contoso/x-servicebus-transfer/3")) == "contoso"
    # Senders knew the primary by another name: there is one other namespace, and it is meant.
    assert spaces.home_of(lane("cd", "Fabrikam", "localhost/x-servicebus-transfer/3")) == "contoso"
    assert spaces.home_of(lane("cd", "Fabrikam", "orders")) == "fabrikam"
    assert spaces.home_of(lane("cd", "Fabrikam", "contoso/x-servicebus-transfer/3", lane=1)) == "fabrikam"
    assert (spaces.doubt("contoso"), spaces.doubt("fabrikam"), spaces.doubt("nobody")) == (5, 7, ALWAYS_MS)


@covers("D5", "N15")
def test_a_backlog_for_a_namespace_without_records_is_told() -> None:
    lives = [Life("ab", 1, 1, 2, 2, 5, 9, 1), Life("cd", 1, 1, 2, 2, 7, 9, 1)]
    away = [lane("cd", "Fabrikam", f"{name}/x-servicebus-transfer/0") for name in ("contoso", "third", "unused")]
    spaces = Spaces.of(stores_of([*lives, Life("ef", 1, 1, 2, 2, 3, 9, 1)], [lane(), *away, lane("ef", "other")]))
    assert spaces.unrecorded(away, {"contoso", "third"}) == ["third"]
    assert [spaces.backlog_doubt(each) for each in away] == [5, ALWAYS_MS, ALWAYS_MS]
    # Both are called the same: by their senders, or only by their records.
    for known_as in ("sbns", "localhost"):
        same = lane("cd", "sbns", f"{known_as}/x-servicebus-transfer/0")
        spaces = Spaces.of(stores_of(lives, [lane("ab", "sbns"), same]))
        assert spaces.unrecorded([same], {known_as}) == [known_as]
        assert spaces.backlog_doubt(same) == ALWAYS_MS


@covers("D5")
def test_names_are_shown_as_they_are_written_at_home() -> None:
    written = [
        Written("contoso", "orders", "ORDERS", is_backlog=True),
        Written("contoso", "orders", "Orders", is_backlog=False),
        Written("fabrikam", "orders", "orders", is_backlog=False),
    ]
    names = Names.of(written, ["Contoso", "Fabrikam"])
    names.add([Written("contoso", "orders", "oRDERS"), Written("contoso", "new", "New")])
    assert names.entity("contoso", "orders") == "Orders"
    assert names.entity("contoso", "new") == "New"
    assert names.namespace("contoso") == "Contoso"
    assert names.homes["orders"] == "contoso", "it is the one that has a backlog"
