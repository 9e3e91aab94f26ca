"""The views of both namespaces as one picture, whoever asks and whoever can be asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tandembus.pair_view.picture import Answer, EntityPicture, PairPicture, last_failover, picture
from tandembus.pair_view.signs import Sign
from tandembus.pair_view.timeline import Segment, State
from tandembus.pair_view.view import PairView, shifted
from tests.covers import covers
from tests.unit.pair_view.told import START, Runs, queue, signs, states, story, view

AT_HOME: Runs = {
    Sign.REFUSED: [(0, 9, 5)],
    Sign.PING_REFUSED: [(11, 91, 5)],
    Sign.PING_ACCEPTED: [(101, 101, 1)],
    Sign.HOME: [(104, 110, 300)],
}
IN_BACKLOG: Runs = {Sign.DIVERTED: [(10, 100, 300)], Sign.TAKEN: [(104, 110, 300)]}
WHOLE = ["failing", "failed-over", "pinging", "back", "syphoning", "back", "healthy"]


def primary(at: float = 200, seen: Runs = AT_HOME, name: str = "contoso") -> PairView:
    return view(name, at, signs("orders", seen))


def secondary(at: float = 200, seen: Runs = IN_BACKLOG, active: int = 0, oldest: float | None = None) -> PairView:
    return view("backup", at, signs("orders", seen, "contoso"), queues=[queue("contoso", active, oldest, 1)])


def answered(asked: PairView, now: float = 200) -> Answer:
    return Answer(asked, START + now - 0.01, START + now)


def only(found: PairPicture) -> EntityPicture:
    (entity,) = found.entities
    return entity


@covers("B4", "N16")
def test_both_sides_tell_the_same_story() -> None:
    here = picture(primary(), answered(secondary()), START + 200)
    there = picture(secondary(), answered(primary()), START + 200)
    assert only(here) == only(there)
    assert states(only(here).segments) == WHOLE
    assert (only(here).diverted, only(here).moved, only(here).waiting) == (300, 300, 0)
    assert (only(here).pings_accepted, only(here).pings_refused, only(here).pinged_at) == (1, 5, START + 101)
    assert (here.is_primary, here.is_secondary) == (True, False)
    assert (there.is_primary, there.is_secondary) == (False, True)
    assert not here.is_partial
    assert not there.is_partial


@covers("B4")
@pytest.mark.parametrize("ahead_s", [-3600.0, -7.3, 0.2, 12.0, 86_400.0])
def test_clocks_that_differ_change_nothing_in_the_story(ahead_s: float) -> None:
    """The partner's times are all by its own clock, and it says what that shows."""
    expected = story(only(picture(secondary(), answered(primary()), START + 200)).segments)
    found = story(only(picture(secondary(), answered(shifted(primary(), ahead_s)), START + 200)).segments)
    assert [state for state, _, _ in found] == [state for state, _, _ in expected]
    pairs = zip(found, expected, strict=True)
    assert all(abs(one[1] - other[1]) <= 0.3 for one, other in pairs)


@covers("B4")
def test_clocks_that_all_but_agree_are_not_set_right() -> None:
    trembling = [Answer(view("contoso", 200 + off), START + 200, START + 200.02).offset_s for off in (-0.2, 0.0, 0.2)]
    assert trembling == [0.0, 0.0, 0.0]
    slow = Answer(view("contoso", 201), START + 200, START + 203)
    assert slow.offset_s == 0.0, "an answer that took so long says no more"


@covers("B4")
def test_while_the_primary_is_down_the_secondary_tells_the_story_alone() -> None:
    seen: Runs = {Sign.DIVERTED: [(10, 99, 300)]}
    found = picture(secondary(100, seen, active=300, oldest=10), None, START + 100)
    entity = only(found)
    assert story(entity.segments) == [("failed-over", 10, None)]
    assert (entity.diverted, entity.moved, entity.waiting) == (300, 0, 300)
    assert found.is_secondary
    assert found.is_partial
    assert found.queues[0].counts is not None
    assert found.queues[0].counts.active == 300


@covers("B4")
def test_without_the_secondary_the_primary_tells_what_it_has_seen_and_that_it_is_not_all() -> None:
    found = picture(primary(), None, START + 200)
    assert states(only(found).segments) == ["failing", "pinging", "back", "syphoning", "back", "healthy"]
    assert (only(found).moved, only(found).waiting) == (300, None)
    assert (found.is_primary, found.is_partial) == (True, True)


@covers("B4", "N1")
def test_several_primaries_that_share_a_secondary_have_stories_of_their_own() -> None:
    shared = view(
        "backup",
        100,
        signs("orders", {Sign.DIVERTED: [(10, 99, 300)]}, "contoso"),
        signs("orders", {Sign.DIVERTED: [(50, 60, 7)]}, "fabrikam"),
        queues=[queue("contoso", 300, 10), queue("fabrikam", 7, 50)],
    )
    partner = view("contoso", 100, signs("orders", {Sign.REFUSED: [(0, 9, 5)]}))
    there = picture(shared, answered(partner, 100), START + 100)
    found = {one.primary: (states(one.segments), one.waiting) for one in there.entities}
    assert found == {"contoso": (["failing", "failed-over"], 300), "fabrikam": (["failed-over"], 7)}
    here = picture(partner, answered(shared, 100), START + 100)
    assert [one.primary for one in here.entities] == ["contoso"], "what others have there is not its business"
    assert [one.path for one in here.queues] == ["contoso/x-servicebus-transfer/0"]


@covers("B4")
def test_two_that_are_each_others_secondary_play_both_roles() -> None:
    here = view("contoso", 100, signs("jobs", {Sign.DIVERTED: [(1, 2, 4)]}, "backup"), queues=[queue("backup", 4, 1)])
    there = view(
        "backup", 100, signs("orders", {Sign.DIVERTED: [(3, 4, 9)]}, "contoso"), queues=[queue("contoso", 9, 3)]
    )
    found = picture(here, answered(there, 100), START + 100)
    assert (found.is_primary, found.is_secondary) == (True, True)
    assert {(one.primary, one.path): one.waiting for one in found.entities} == {
        ("backup", "jobs"): 4,
        ("contoso", "orders"): 9,
    }


@covers("B4")
def test_entities_of_the_partner_that_never_came_to_the_backlog_are_told_on_the_secondary_too() -> None:
    partner = primary(10, {Sign.REFUSED: [(0, 9, 5)]})
    found = picture(secondary(10, {}), answered(partner, 10), START + 10)
    assert {one.path: one.state for one in found.entities if one.segments} == {"orders": State.FAILING}


@covers("B4")
def test_refused_sends_alone_make_nobody_a_primary() -> None:
    found = picture(primary(10, {Sign.REFUSED: [(0, 9, 5)]}), None, START + 10)
    assert (found.is_primary, found.is_secondary, found.is_partial) == (False, False, False)
    assert only(found).state is State.FAILING


@covers("B4")
def test_what_the_backlog_held_before_the_secondary_was_restarted_is_nobodys_for_certain() -> None:
    fresh = replace(secondary(100, {Sign.DIVERTED: [(50, 60, 5)]}, active=25, oldest=10))
    fresh = replace(fresh, seen=replace(fresh.seen, since=START + 40))
    found = picture(fresh, None, START + 100)
    assert (only(found).diverted, only(found).waiting) == (5, None)
    drained = replace(fresh, queues=[queue("contoso", 0)])
    assert only(picture(drained, None, START + 100)).waiting == 0, "nothing waits in an empty queue"


@covers("B4")
def test_of_two_that_have_missed_some_the_one_that_has_seen_more_is_believed() -> None:
    """The primary was restarted half-way; the syphon on Spark settles in a way that the secondary does not see."""
    restarted = picture(primary(200, {Sign.HOME: [(108, 110, 100)]}), answered(secondary(200, IN_BACKLOG)), START + 200)
    assert only(restarted).moved == restarted.syphon.moved == 300
    unseen = picture(primary(), answered(secondary(200, {Sign.DIVERTED: [(10, 100, 300)]}, 0)), START + 200)
    assert only(unseen).moved == 300


@covers("B4")
def test_no_more_can_wait_than_there_is() -> None:
    """Somebody has purged the backlog queue."""
    found = picture(secondary(100, {Sign.DIVERTED: [(10, 99, 300)]}, active=20, oldest=90), None, START + 100)
    assert only(found).waiting == 20


def moving(taken: int, came: int, active: int) -> PairPicture:
    recent = {Sign.TAKEN: taken, Sign.DIVERTED: came}
    entity = signs("orders", {Sign.DIVERTED: [(0, 100, 1_000)], Sign.TAKEN: [(90, 100, 100)]}, "contoso", recent)
    return picture(view("backup", 100, entity, queues=[queue("contoso", active, 0, 1)]), None, START + 100)


@covers("B4")
def test_the_time_to_drain_is_told_by_what_leaves_and_what_comes() -> None:
    assert (moving(100, 0, 900).syphon.rate_per_s, moving(100, 0, 900).syphon.eta_s) == (10.0, 90.0)
    assert moving(100, 50, 900).syphon.eta_s == 180.0


@covers("B4")
@pytest.mark.parametrize(("taken", "came", "active"), [(0, 0, 900), (100, 100, 900), (10, 20, 900), (100, 0, 0)])
def test_nobody_knows_when_it_is_drained_if_it_grows_or_stands_still_or_is_empty(
    taken: int, came: int, active: int
) -> None:
    assert moving(taken, came, active).syphon.eta_s is None


@covers("B4")
def test_entities_in_trouble_are_told_first() -> None:
    healthy = signs("a", {Sign.REFUSED: [(0, 1, 1)], Sign.ACCEPTED: [(2, 2, 1)]})
    failing = signs("z", {Sign.REFUSED: [(90, 99, 1)]})
    found = picture(view("contoso", 100, healthy, failing), None, START + 100)
    assert [(one.path, one.state.value) for one in found.entities] == [("z", "failing"), ("a", "healthy")]


@covers("B4")
def test_what_a_process_had_to_forget_makes_the_picture_partial() -> None:
    there = secondary()
    cut = replace(there, seen=replace(there.seen, is_complete=False))
    assert picture(primary(), answered(cut), START + 200).is_partial


def entity(*segments: tuple[State, float, float | None]) -> EntityPicture:
    made = [Segment(state, START + a, None if b is None else START + b) for state, a, b in segments]
    return EntityPicture("contoso", "orders", made, 0, 0, 0, 0, 0, None)


@covers("B4", "N16")
def test_a_failover_lasts_from_the_first_entity_that_fails_to_the_last_that_is_healthy() -> None:
    first = entity(
        (State.FAILING, 0, 10), (State.FAILED_OVER, 10, 90), (State.BACK, 90, 100), (State.HEALTHY, 100, None)
    )
    later = entity((State.FAILED_OVER, 120, 150), (State.HEALTHY, 150, None))
    assert last_failover([first, later]) == (START, START + 150)
    assert last_failover([first]) == (START, START + 100)


@covers("B4")
def test_a_failover_that_lasts_has_no_end_and_an_earlier_one_is_another() -> None:
    earlier = entity((State.FAILED_OVER, 0, 10), (State.HEALTHY, 10, None))
    lasting = entity((State.FAILING, 500, 510), (State.PINGING, 510, None))
    assert last_failover([lasting, earlier]) == (START + 500, None)


@covers("B4")
def test_sends_that_failed_for_a_while_are_no_failover() -> None:
    assert last_failover([entity((State.FAILING, 0, 10), (State.HEALTHY, 10, None))]) is None
    assert last_failover([]) is None
