"""Batches of the syphon on Spark, without Spark: what is planned, what waits, and in which order messages arrive."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from tandembus.client.reservations import Ranges, Reservation
from tandembus.clock import ManualClock
from tandembus.spark.jobs.syphon_plan import QueueBatch, QueuePlan, batches_in, offset_of, passes
from tandembus.spark.source.ranges import count_of, first_of, full_number, ranges_of, without
from tests.covers import covers

RETRY_S = 1.0


def ranges_at(places: Iterable[tuple[int, int]]) -> Ranges:
    return ranges_of([full_number(*place) for place in places])


class Backlog:
    """A backlog queue with a ledger, and the primary behind it."""

    def __init__(self) -> None:
        self.messages: dict[tuple[int, int], str] = {}
        self.held: set[tuple[int, int]] = set()
        self.dead: set[str] = set()
        self.is_out = False
        """It can be asked for nothing new."""
        self.missing: set[int] = set()
        """Fragments out of reach."""
        self.arrived: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.read_count = 0
        self._last: defaultdict[int, int] = defaultdict(int)

    def send(self, destination: str, count: int = 1, fragment: int = 0) -> None:
        for _ in range(count):
            self._last[fragment] += 1
            self.messages[fragment, self._last[fragment]] = destination

    async def reserved(self) -> Ranges:
        """As the ledger tells it: a range spans what is gone."""
        ends = self._last.items()
        gone = {(at, number) for at, last in ends for number in range(1, last) if (at, number) not in self.messages}
        spans = ranges_at(gone | self.held)
        return {at: kept for at, some in spans.items() if (kept := self._trimmed(at, some))}

    def _trimmed(self, fragment: int, some: list[tuple[int, int]]) -> list[tuple[int, int]]:
        inner = [[number for at, number in self.held if at == fragment and a <= number <= b] for a, b in some]
        return [(min(numbers), max(numbers)) for numbers in inner if numbers]

    async def reserve(self, max_messages: int, up_to: Mapping[int, int] | None) -> Reservation:
        if self.is_out:
            raise ConnectionError
        free = [
            (fragment, number)
            for fragment, number in self.messages
            if (fragment, number) not in self.held
            and fragment not in self.missing
            and (up_to is None or number <= up_to.get(fragment, 0))
        ]
        taken = first_of(ranges_at(free), max_messages)
        self.held |= {(at, number) for at, some in taken.items() for a, b in some for number in range(a, b + 1)}
        return Reservation(taken, tuple(sorted(self.missing)))

    async def destinations(self, ranges: Ranges) -> list[tuple[int, int, str]]:
        return [
            (*place, path) for place, path in sorted(self.messages.items()) if not without(ranges_at([place]), ranges)
        ]

    def move(self, batch: QueueBatch, fails_after: int | None = None) -> None:
        """As the tasks do: each fragment in order; a destination that refuses one gets no more of this batch."""
        offset = json.loads(json.dumps(offset_of(1, {"queue": batch}, {})))
        batch = batches_in(offset)["queue"]
        dead = set(self.dead)
        for fragment, some in batch.ranges.items():
            for number in [number for first, last in some for number in range(first, last + 1)]:
                if (fragment, number) not in self.messages:
                    continue
                self.read_count += 1
                destination = self.messages[fragment, number]
                if not passes(batch, fragment, number, destination) or destination in dead:
                    continue
                if fails_after is not None and self.read_count > fails_after:
                    dead.add(destination)
                    continue
                self.arrived[destination].append((fragment, number))
                self.held.remove((fragment, number))
                del self.messages[fragment, number]


async def next_batch(plan: QueuePlan, max_messages: int = 1000, up_to: dict[int, int] | None = None) -> QueueBatch:
    await plan.finish()
    return await plan.plan(max_messages, up_to)


class Forgetful(Backlog):
    """The first request is carried out, and its answer lost; asked again, it is the same."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: Reservation | None = None

    async def reserve(self, max_messages: int, up_to: Mapping[int, int] | None) -> Reservation:
        if self._answer is None:
            self._answer = await super().reserve(max_messages, up_to)
            raise ConnectionError
        return self._answer


@covers("D2")
async def test_what_an_earlier_run_left_is_planned_though_the_first_request_fails() -> None:
    backlog = Forgetful()
    backlog.send("orders", 3)
    backlog.held = set(backlog.messages)
    backlog.send("orders", 2)
    plan = QueuePlan(backlog, ManualClock(), RETRY_S)
    with pytest.raises(ConnectionError):
        await next_batch(plan)
    assert (await next_batch(plan)).ranges == {0: [(1, 5)]}


@covers("D2")
async def test_what_a_fragment_reserved_without_saying_so_is_planned_when_it_is_back() -> None:
    backlog = Backlog()
    backlog.dead = {"dead"}
    backlog.send("dead", 2)
    backlog.send("orders", 3, fragment=1)
    plan = QueuePlan(backlog, ManualClock(), RETRY_S)
    backlog.missing = {1}
    backlog.move(await next_batch(plan))
    assert plan.missing_fragments == (1,)
    backlog.held |= {(1, 1), (1, 2)}
    assert (await next_batch(plan)).ranges == {}
    backlog.missing = set()
    assert (await next_batch(plan)).ranges == {1: [(1, 3)]}
    assert not plan.missing_fragments


@covers("D2")
async def test_messages_for_a_dead_destination_stay_reserved_and_others_pass() -> None:
    backlog, clock = Backlog(), ManualClock()
    plan = QueuePlan(backlog, clock, RETRY_S)
    backlog.dead = {"dead"}
    backlog.send("dead", 5_000)
    backlog.send("alive", 10)
    for _ in range(6):
        backlog.move(await next_batch(plan))
    assert len(backlog.arrived["alive"]) == 10
    assert len(backlog.held) == 5_000
    assert backlog.read_count == 5_010


@covers("D2")
async def test_a_destination_that_is_back_gets_what_waits_in_order_and_then_the_rest() -> None:
    backlog, clock = Backlog(), ManualClock()
    plan = QueuePlan(backlog, clock, RETRY_S)
    backlog.dead = {"orders"}
    backlog.send("orders", 500)
    backlog.move(await next_batch(plan))
    backlog.dead = set()
    backlog.send("orders", 10)
    backlog.move(await next_batch(plan))
    assert backlog.arrived["orders"] == [], "later ones overtook"
    clock.advance(RETRY_S)
    for _ in range(3):
        backlog.move(await next_batch(plan))
    assert backlog.arrived["orders"] == [(0, number) for number in range(1, 511)]


@covers("D2")
async def test_a_dead_destination_is_asked_with_few_messages_and_less_and_less_often() -> None:
    backlog, clock = Backlog(), ManualClock()
    plan = QueuePlan(backlog, clock, RETRY_S)
    backlog.dead = {"orders"}
    backlog.send("orders", 900)
    backlog.move(await next_batch(plan))
    asked = []
    for _ in range(20):
        clock.advance(RETRY_S)
        asked.append(count_of((batch := await next_batch(plan)).ranges))
        backlog.move(batch)
    assert asked[:10] == [0, 100, 0, 0, 100, 0, 0, 0, 0, 100]
    assert sum(asked) == 400


@covers("D2")
async def test_what_an_earlier_run_left_reserved_comes_first() -> None:
    backlog = Backlog()
    backlog.send("orders", 30)
    await backlog.reserve(20, None)
    backlog.send("orders", 5)
    plan = QueuePlan(backlog, ManualClock(), RETRY_S)
    assert (await next_batch(plan, 15)).ranges == {0: [(1, 15)]}
    backlog.move(QueueBatch({0: [(1, 15)]}))
    assert (await next_batch(plan, 15)).ranges == {0: [(16, 30)]}


async def test_a_drain_reserves_nothing_that_came_later() -> None:
    backlog = Backlog()
    backlog.send("orders", 10)
    plan = QueuePlan(backlog, ManualClock(), RETRY_S)
    assert (await next_batch(plan, up_to={0: 7})).ranges == {0: [(1, 7)]}


@covers("D2")
@pytest.mark.parametrize("seed", range(20))
async def test_whatever_fails_everything_arrives_once_and_in_order(seed: int) -> None:
    chance, backlog, clock = random.Random(seed), Backlog(), ManualClock()
    plan = QueuePlan(backlog, clock, RETRY_S)
    destinations = ["a", "b", "c"]
    for _ in range(60):
        for _ in range(chance.randrange(40)):
            backlog.send(chance.choice(destinations), fragment=chance.randrange(2))
        backlog.dead = {each for each in destinations if chance.random() < 0.4}
        if chance.random() < 0.1:
            plan = QueuePlan(backlog, clock, RETRY_S)
        backlog.is_out = chance.random() < 0.1
        try:
            batch = await next_batch(plan, chance.randrange(1, 60))
        except ConnectionError:
            continue
        backlog.move(batch, backlog.read_count + 20 if chance.random() < 0.2 else None)
        clock.advance(chance.choice((0.0, 0.5, 3.0)))
    backlog.dead, backlog.is_out = set(), False
    while backlog.messages:
        clock.advance(200.0)
        backlog.move(await next_batch(plan, 50))
    for arrived in backlog.arrived.values():
        for fragment in range(2):
            numbers = [number for at, number in arrived if at == fragment]
            assert numbers == sorted(set(numbers))
