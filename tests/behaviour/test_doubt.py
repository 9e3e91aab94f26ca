"""What clients are told when a line breaks or a message broker dies while something is under way."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from tandembus.errors import BusError, MessageLockLost, OutcomeUnknown
from tests.behaviour.driver import Answer, Bus, Fault, Queue
from tests.behaviour.shapes import CHANNEL, PARTITIONED_CHANNEL, on_shapes
from tests.covers import covers

IN_DOUBT_S = 5.0
SILENT_S = 15.0
BACK_S = 2.0
"""Whoever lost a connection has it again by then."""

pytestmark = on_shapes(CHANNEL, PARTITIONED_CHANNEL)

CUTS = [*range(0, 200, 23), 400, 900]
"""After so many bytes: within a frame's head, its operations, and between two frames."""


def assert_true(answers: dict[str, Answer], left: list[str]) -> None:
    """What was accepted is there once; what was refused is not there; nobody is left without an answer."""
    assert sorted(set(left)) == sorted(left)
    for body, answer in answers.items():
        assert answer.is_given
        if not isinstance(answer.error, OutcomeUnknown):
            assert (body in left) is answer.is_accepted, (body, answer.error)


@covers("F2", "P17")
@pytest.mark.parametrize("is_towards_broker", [False, True])
@pytest.mark.parametrize("after_bytes", CUTS)
async def test_a_line_cut_after_any_byte_loses_and_doubles_nothing(
    bus: Bus, queue: Queue, after_bytes: int, is_towards_broker: bool
) -> None:
    async def over_a_cut_line(*begun: Awaitable[Answer]) -> list[Answer]:
        bus.cut_lines(after_bytes, is_towards_broker)
        answers = [await one for one in begun]
        await bus.advance(BACK_S)
        bus.cut_lines(None, is_towards_broker)
        return answers

    bodies = ["a", "b", "c"]
    answers = await over_a_cut_line(*[queue.stage(body) for body in bodies])
    assert_true(dict(zip(bodies, answers, strict=True)), await queue.held())
    await queue.send("d", "e")
    found = await queue.receive()
    settled = await over_a_cut_line(*[one.stage("complete") for one in found[1:]])
    assert [answer.error for answer in settled] == [None] * len(settled), "repeated where it had not arrived"
    assert await queue.held() == [found[0].body]


@covers("F2", "P17")
@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_broker_killed_at_any_moment_loses_and_doubles_nothing(bus: Bus, queue: Queue, turns: int) -> None:
    await queue.send("before")
    one = await queue.receive_one()
    answers = {body: await queue.stage(body) for body in ("a", "b")}
    settled = await one.stage("complete")
    await bus.turn(turns)
    bus.kill_brokers()
    await bus.quiet()
    with pytest.raises(BusError):
        await queue.send("nobody is there")
    await bus.restart_brokers()
    await bus.advance(IN_DOUBT_S + 1)
    left = await queue.held()
    assert_true(answers, left)
    assert settled.is_given
    assert ("before" in left) is not settled.is_accepted
    with pytest.raises(MessageLockLost):
        await one.complete()
    await queue.send("after")
    assert await queue.bodies() == [*left, "after"]


@covers("F2", "P15")
async def test_a_broker_that_stays_away_leaves_the_outcome_unknown(bus: Bus, queue: Queue) -> None:
    await queue.send("before")
    bus.fail_next(Fault.HANG)
    answer = await queue.stage("a")
    await bus.quiet()
    bus.kill_brokers()
    await bus.advance(IN_DOUBT_S - 1)
    assert not answer.is_given
    await bus.advance(2.0)
    assert isinstance(answer.error, OutcomeUnknown)
    refused = await queue.stage("b")
    assert isinstance(refused.error, BusError)
    assert not isinstance(refused.error, OutcomeUnknown)


@covers("P15")
async def test_a_silent_fragment_is_given_fifteen_seconds_and_then_no_new_send(bus: Bus, queue: Queue) -> None:
    await queue.send("before")
    bus.fail_next(Fault.HANG)
    answer = await queue.stage("a")
    await bus.advance(SILENT_S - 1)
    assert not answer.is_given
    assert (await queue.stage("b")).error is not None, "the store's hanging is told before"
    await bus.advance(2.0)
    assert isinstance(answer.error, OutcomeUnknown)
    bus.go_on()
    await bus.advance(BACK_S)
    await queue.send("c")
    assert await queue.held() == ["before", "a", "c"]


@covers("F3", "M5", "P17")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
async def test_what_a_store_did_is_told_when_it_is_open_again(bus: Bus, queue: Queue, fault: Fault) -> None:
    is_kept = fault is Fault.UNKNOWN_KEPT
    bus.fail_next(fault)
    answer = await queue.stage("a")
    await bus.advance(IN_DOUBT_S - 1)
    assert answer.is_accepted is is_kept
    bus.fail_next(fault)
    scheduling = bus.loop.create_task(queue.schedule("later", in_s=60.0))
    await bus.advance(IN_DOUBT_S - 1)
    if is_kept:
        (number,) = await scheduling
        await queue.cancel(number)
    else:
        with pytest.raises(BusError):
            await scheduling
    assert await queue.held() == (["a"] if is_kept else [])


@covers("F2", "M12")
@pytest.mark.parametrize("is_destructive", [False, True])
async def test_a_receiver_gets_everything_over_many_cuts(bus: Bus, queue: Queue, is_destructive: bool) -> None:
    receiver = await queue.receiver(is_destructive)
    receiver.want(1000)
    bodies = [f"m{number}" for number in range(60)]
    for number, body in enumerate(bodies):
        if number % 5 == 0:
            bus.cut_lines(number * 7, is_towards_broker=number % 2 == 0)
        answer = await queue.stage(body)
        await bus.advance(BACK_S)
        bus.cut_lines(None, is_towards_broker=number % 2 == 0)
        if not answer.is_accepted:
            await queue.send(body)
    await bus.advance(61.0)
    assert set(receiver.bodies) == set(bodies)
    if is_destructive:
        assert sorted(receiver.bodies) == sorted(bodies)


@covers("F2", "M7")
async def test_a_broker_that_dies_takes_its_sessions_along_and_they_come_again(bus: Bus) -> None:
    queue = await bus.queue(requires_session=True)
    await queue.send("a1", session="a")
    receiver = await queue.accept("a")
    await receiver.set_state(b"state")
    await receiver.take(1)
    bus.kill_brokers()
    await bus.advance(0.5)
    assert receiver.loss is not None
    await bus.restart_brokers()
    await bus.advance(BACK_S)
    again = await queue.accept("a")
    assert await again.state() == b"state"
    assert [one.body for one in await again.take(1)] == ["a1"]
