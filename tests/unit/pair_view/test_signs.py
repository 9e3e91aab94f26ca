"""Signs become runs: memory that does not grow with traffic, and says when something went on."""

from __future__ import annotations

from tandembus.pair_view.signs import MAX_RUNS, RECENT_S, EntityRecord, Run, Sign, joined, summed_signs
from tests.covers import covers
from tests.unit.pair_view.told import START, signs


def record(*noted: tuple[float, Sign]) -> EntityRecord:
    made = EntityRecord("", "orders")
    for at, sign in noted:
        made.note(sign, 1, START + at)
    return made


def runs(made: EntityRecord, sign: Sign) -> list[tuple[float, float, int]]:
    found = made.signs(START).runs.get(sign, ())
    return [(run.first_at - START, run.last_at - START, run.count) for run in found]


@covers("B4")
def test_a_million_messages_are_one_run() -> None:
    made = EntityRecord("contoso", "orders")
    for second in range(100):
        made.note(Sign.DIVERTED, 10_000, START + second)
    assert runs(made, Sign.DIVERTED) == [(0, 99, 1_000_000)]
    assert made.signs(START).total(Sign.DIVERTED) == 1_000_000


@covers("B4")
def test_pings_that_are_far_apart_are_one_run_until_one_is_accepted() -> None:
    made = record(*[(1800.0 * n, Sign.PING_REFUSED) for n in range(3)])
    assert runs(made, Sign.PING_REFUSED) == [(0, 3600, 3)]
    made.note(Sign.PING_ACCEPTED, 1, START + 5400)
    made.note(Sign.PING_REFUSED, 1, START + 9000)
    assert runs(made, Sign.PING_REFUSED) == [(0, 3600, 3), (9000, 9000, 1)]


@covers("B4")
def test_an_entity_that_refuses_every_other_send_has_one_run_of_each() -> None:
    made = record(*[(float(n), (Sign.REFUSED, Sign.ACCEPTED)[n % 2]) for n in range(1_000)])
    assert runs(made, Sign.REFUSED) == [(0, 998, 500)]
    assert runs(made, Sign.ACCEPTED) == [(1, 999, 500)]


@covers("B4")
def test_the_oldest_runs_go_and_the_total_stays() -> None:
    made = record(*[(1000.0 * n, Sign.TAKEN) for n in range(MAX_RUNS + 5)])
    found = runs(made, Sign.TAKEN)
    assert len(found) == MAX_RUNS
    assert found[0][0] == 5_000
    assert made.signs(START).total(Sign.TAKEN) == MAX_RUNS + 5


@covers("B4")
def test_what_is_recent_is_what_came_in_the_last_seconds() -> None:
    made = record(*[(float(n), Sign.TAKEN) for n in range(30)])
    assert made.signs(START + 29.5).recent[Sign.TAKEN] == RECENT_S
    assert made.signs(START + 35.5).recent[Sign.TAKEN] == RECENT_S - 6
    assert Sign.TAKEN not in made.signs(START + 100).recent


@covers("B4")
def test_a_clock_that_is_set_back_makes_no_run_that_ends_before_it_began() -> None:
    made = record((100.0, Sign.REFUSED), (-3600.0, Sign.REFUSED))
    assert runs(made, Sign.REFUSED) == [(100, 100, 2)]


@covers("B4")
def test_what_several_processes_saw_is_told_as_one() -> None:
    one = signs("orders", {Sign.DIVERTED: [(0, 10, 5)], Sign.TAKEN: [(100, 110, 3)]}, "contoso", {Sign.TAKEN: 3})
    other = signs("Orders", {Sign.DIVERTED: [(5, 20, 7), (500, 510, 1)]}, "CONTOSO", {Sign.TAKEN: 4})
    (whole,) = summed_signs([one, other])
    assert (whole.total(Sign.DIVERTED), whole.total(Sign.TAKEN), whole.recent[Sign.TAKEN]) == (13, 3, 7)
    assert whole.runs[Sign.DIVERTED] == [Run(START, START + 20, 12), Run(START + 500, START + 510, 1)]


def test_joining_runs_changes_none_of_them() -> None:
    first, second = Run(START, START + 1, 1), Run(START + 1, START + 2, 1)
    joined(Sign.TAKEN, [first, second])
    assert (first, second) == (Run(START, START + 1, 1), Run(START + 1, START + 2, 1))
