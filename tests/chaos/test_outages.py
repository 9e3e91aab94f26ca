"""What is judged of outages: which kill belongs to which return, who may fail, what may be there twice."""

from __future__ import annotations

import random

import pytest

from tests.chaos.events import NUMBER_BITS, Event
from tests.chaos.history import History
from tests.chaos.outages import IN_DOUBT_WAIT_S, FailedShare, losses_of, needless_copies, stray_failures
from tests.chaos.targets import key_in

LOST = [0, 4, 8, 12]
BEGAN_AT = 100.0


class Story:
    """Sends to a partitioned queue around the loss of a quarter of it."""

    def __init__(self, lasted_s: float = 3.0) -> None:
        self.events = [
            Event("run", 0.0),
            Event("entity", 0.0, entity="q", fragments=16),
            Event("down", BEGAN_AT, kill=7, broker=0, places={"q": LOST}, took_s=0.1),
            Event("up", BEGAN_AT + lasted_s, kill=7, broker=0, took_s=lasted_s, out_s=lasted_s - 0.1),
        ]
        self._op = 0

    def send(self, key: str | None, at: float, outcome: str = "ok", copies: int = 1) -> Story:
        self._op += 1
        self.events.append(Event("send", at, op=self._op, entity="q", id=str(self._op), key=key))
        self.events.append(Event(outcome, at + 0.01, op=self._op, error="" if outcome == "ok" else "StoreUnavailable"))
        for copy in range(copies):
            number = (copy << NUMBER_BITS) + self._op
            self.events.append(Event("left", 1000.0, entity="q", id=str(self._op), number=number))
        return self

    @property
    def history(self) -> History:
        return History(self.events)


def test_a_return_belongs_to_the_kill_of_its_number() -> None:
    story = Story()
    story.events += [
        Event("down", BEGAN_AT + 0.0004, kill=8, broker=0, took_s=0.1),
        Event("up", BEGAN_AT + 9.0, kill=8, broker=0, took_s=9.0),
    ]
    assert [one.ended_at for one in losses_of(story.history)] == [BEGAN_AT + 3.0, BEGAN_AT + 9.0]


@pytest.mark.parametrize(("fragment", "at", "strays"), [(4, 101.0, 0), (5, 101.0, 1), (4, 99.0, 1), (4, 104.0, 1)])
def test_only_sends_to_lost_fragments_may_fail(fragment: int, at: float, strays: int) -> None:
    assert len(stray_failures(Story().send(key_in(fragment), at, "unknown", copies=0).history)) == strays


@pytest.mark.parametrize(
    ("lasted_s", "at", "copies"), [(3.0, 101.0, 1), (IN_DOUBT_WAIT_S + 1.0, 101.0, 0), (IN_DOUBT_WAIT_S + 1.0, 99.0, 1)]
)
def test_a_copy_is_excused_only_by_a_broker_that_stayed_away(lasted_s: float, at: float, copies: int) -> None:
    assert len(needless_copies(Story(lasted_s).send(None, at, copies=2).history)) == copies


@pytest.mark.parametrize(("failing", "is_as_expected"), [(LOST, True), ([], False), (range(16), False), ([0], False)])
def test_the_share_of_failed_sends_is_that_of_the_lost_fragments(failing: list[int], is_as_expected: bool) -> None:
    story, chance = Story(), random.Random(1)
    for number in range(1000):
        fragment = chance.randrange(16)
        story.send(key_in(fragment, number), 101.0, "failed" if fragment in failing else "ok")
    assert FailedShare.of(story.history).is_as_expected is is_as_expected


def test_a_share_of_nothing_is_none_that_was_expected() -> None:
    assert not FailedShare.of(Story().send(key_in(1), 99.0).history).is_as_expected
