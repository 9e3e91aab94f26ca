"""Messages that are enqueued later, and their cancellation."""

from __future__ import annotations

import pytest

from tandembus.errors import BusError, MessageNotFound
from tests.behaviour.driver import DAY_S, Bus, Fault, Queue
from tests.behaviour.shapes import UNPARTITIONED, on_shapes
from tests.covers import covers


@covers("M5")
async def test_a_scheduled_message_is_enqueued_on_time_at_the_tail(bus: Bus, queue: Queue) -> None:
    receiver = await queue.receiver()
    await receiver.take(5)
    (number,) = await queue.schedule("later", in_s=10.0)
    await queue.send("a")
    await bus.advance(9.9)
    assert receiver.bodies == ["a"]
    await bus.advance(0.1)
    assert receiver.bodies == ["a", "later"]
    later = receiver.received[1]
    assert later.number == later.original_number == receiver.received[0].number + 1 == number + 2
    assert later.enqueued_at_ms == bus.now_ms()


@covers("M5")
async def test_a_time_that_is_past_already_is_now(bus: Bus, queue: Queue) -> None:
    await queue.send("a", in_s=-10.0)
    assert (await queue.bodies(), bus.record_count("schedules")) == (["a"], 0)


@covers("M5")
async def test_scheduled_messages_are_enqueued_in_the_order_of_their_times(bus: Bus, queue: Queue) -> None:
    for body, in_s in (("third", 30.0), ("first", 10.0), ("second", 20.0)):
        await queue.send(body, in_s=in_s)
    await bus.advance(60.0)
    assert await queue.bodies() == ["first", "second", "third"]


@covers("M5")
async def test_a_schedule_survives_a_crash(bus: Bus, queue: Queue) -> None:
    await queue.send("a", in_s=10.0)
    await bus.kill()
    assert await queue.bodies() == []
    await bus.advance(10.0)
    assert await queue.bodies() == ["a"]


@covers("M5")
async def test_what_came_due_while_nobody_ran_is_enqueued_at_the_start(bus: Bus, queue: Queue) -> None:
    """The queue itself is opened by nobody but the schedule."""
    await queue.send("a", in_s=10.0)
    await bus.kill(down_s=DAY_S)
    await bus.advance(1.0)
    assert (await queue.counts()).active == 1
    assert (await queue.counts()).scheduled == 0


@covers("M5", "F3")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
async def test_a_message_is_enqueued_once_though_its_activation_failed(bus: Bus, queue: Queue, fault: Fault) -> None:
    await queue.send("a", in_s=10.0)
    bus.fail_next(fault)
    await bus.advance(60.0)
    counts = await queue.counts()
    assert (counts.active, counts.scheduled) == (1, 0)
    assert await queue.bodies() == ["a"]


@covers("M5")
async def test_more_scheduled_messages_than_one_look_takes_all_come(bus: Bus, queue: Queue) -> None:
    bodies = [f"{index:04}" for index in range(600)]
    await queue.send_batch(*bodies, in_s=1.0)
    await bus.advance(2.0)
    assert await queue.bodies() == bodies


@covers("M5", "F9")
async def test_a_clock_set_forward_enqueues_and_a_clock_set_back_waits(bus: Bus, queue: Queue) -> None:
    await queue.send("a", in_s=10.0)
    bus.set_wall_clock(-3600.0)
    await bus.advance(60.0)
    assert await queue.bodies() == []
    bus.set_wall_clock(3600.0)
    await bus.advance(1.0)
    assert await queue.bodies() == ["a"]


@covers("M1", "F9")
async def test_a_clock_set_back_does_not_turn_the_times_of_enqueueing_around(bus: Bus, queue: Queue) -> None:
    await queue.send("a")
    bus.set_wall_clock(-3600.0)
    await queue.send("b")
    first, second = await queue.receive()
    assert first.enqueued_at_ms <= second.enqueued_at_ms


@covers("F6", "M5")
@on_shapes(*UNPARTITIONED)
async def test_a_scheduled_message_that_went_bad_is_set_aside(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", in_s=10.0)
    bus.damage("a")
    await bus.advance(11.0)
    assert await queue.bodies() == ["b"]
    counts = await queue.counts()
    assert (counts.scheduled, counts.active, bus.record_count("schedules"), bus.record_count("quarantine")) == (
        0,
        0,
        0,
        1,
    )


@covers("M5")
async def test_a_cancelled_message_never_comes(bus: Bus, queue: Queue) -> None:
    first, second = await queue.schedule("a", "b", in_s=10.0)
    assert first != second
    await queue.cancel(first)
    await bus.kill()
    await bus.advance(10.0)
    assert await queue.bodies() == ["b"]
    assert bus.record_count("schedules") == 0


@covers("M5")
async def test_cancelling_is_all_or_none(bus: Bus, queue: Queue) -> None:
    (number,) = await queue.schedule("a", in_s=10.0)
    with pytest.raises(MessageNotFound):
        await queue.cancel(number, number + 99)
    await bus.advance(10.0)
    assert await queue.bodies() == ["a"]


@covers("M5")
async def test_only_what_is_scheduled_can_be_cancelled(bus: Bus, queue: Queue) -> None:
    (due,) = await queue.schedule("due", in_s=10.0)
    await bus.advance(10.0)
    await queue.send("deferred", "locked", "active")
    _, deferred, _ = await queue.receive(3)
    await deferred.defer()
    for number in (due, *[one.number for one in await queue.peek()]):
        with pytest.raises(MessageNotFound):
            await queue.cancel(number)
    assert len(await queue.held()) == 4


@covers("M5", "F3")
async def test_a_cancellation_that_failed_says_so(bus: Bus, queue: Queue) -> None:
    (number,) = await queue.schedule("a", in_s=10.0)
    bus.fail_next(Fault.UNKNOWN_LOST)
    with pytest.raises(BusError):
        await queue.cancel(number)
    await bus.advance(60.0)
    assert await queue.bodies() == ["a"]
