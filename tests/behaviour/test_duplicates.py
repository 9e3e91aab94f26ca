"""Messages whose id was seen before."""

from __future__ import annotations

import pytest

from tandembus.errors import BusError, ServerBusy
from tandembus.limits import Limits
from tests.behaviour.driver import Bus, Fault, Queue, message, ping
from tests.behaviour.shapes import PLAIN, SPREAD, UNPARTITIONED, on_shapes
from tests.covers import covers

WINDOW_S = 30.0
FEW_IDS = Limits(max_duplicate_ids=3)


@pytest.fixture
async def queue(bus: Bus) -> Queue:
    return await detecting(bus)


async def detecting(bus: Bus, window_s: float = WINDOW_S) -> Queue:
    return await bus.queue(requires_duplicate_detection=True, duplicate_detection_history_time_window_s=window_s)


@covers("M8")
async def test_a_second_message_with_the_same_id_is_accepted_and_dropped(bus: Bus, queue: Queue) -> None:
    plain = await bus.queue("plain")
    await queue.send("a", "b", "a", "c")
    await plain.send("a", "a")
    found = await queue.peek()
    assert [one.body for one in found] == ["a", "b", "c"]
    assert found[2].number == found[0].number + 2, "no number is used for it"
    assert await plain.held() == ["a", "a"]


@covers("M8", "M12")
async def test_within_a_batch_each_message_is_judged_on_its_own(queue: Queue) -> None:
    await queue.send("a")
    await queue.send_batch("x", "a", "x", "y")
    assert await queue.held() == ["a", "x", "y"]


@covers("M8")
async def test_an_id_counts_for_the_window_and_not_longer(bus: Bus, queue: Queue) -> None:
    await queue.send("a")
    assert await queue.bodies() == ["a"]
    await bus.advance(WINDOW_S - 0.01)
    await queue.send("a")
    assert await queue.held() == [], "also when it was received"
    await bus.advance(0.01)
    await queue.send("a")
    assert await queue.held() == ["a"], "the duplicate in between did not prolong it"


@covers("M5", "M8")
async def test_a_scheduled_message_counts_from_when_it_was_sent(bus: Bus, queue: Queue) -> None:
    assert (await queue.schedule("a", in_s=5.0))[0] > 0
    assert await queue.schedule("a", in_s=1.0) == [0]
    await queue.send("a")
    await bus.advance(6.0)
    assert await queue.bodies() == ["a"]
    await bus.advance(WINDOW_S - 6.0)
    await queue.send("a")
    assert await queue.held() == ["a"]


@covers("M8")
async def test_ids_are_known_to_the_next_life(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b")
    await bus.advance(10.0)
    await queue.send("c")
    await bus.kill(down_s=WINDOW_S - 10.0)
    await queue.send("a", "b", "c", "d")
    assert await queue.held() == ["a", "b", "c", "a", "b", "d"]


@covers("M8", "F2", "F3")
@on_shapes(*UNPARTITIONED)
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
@pytest.mark.parametrize("commit", range(4))
async def test_whichever_commit_fails_a_sender_that_repeats_itself_is_heard_once(
    bus: Bus, queue: Queue, fault: Fault, commit: int
) -> None:
    bodies = [f"m{number}" for number in range(6)]
    bus.fail_next(fault, after=commit)
    for body in bodies:
        for _ in range(9):
            first, second = await queue.stage(body), await queue.stage(body)
            await bus.advance(20.0)
            if first.is_accepted and second.is_accepted:
                break
    assert await queue.bodies() == bodies


@covers("M8", "M13")
@on_shapes(*UNPARTITIONED)
async def test_an_id_that_a_full_store_refused_is_not_a_duplicate_later(bus: Bus, queue: Queue) -> None:
    await queue.send("a")
    bus.fail_next(Fault.FULL)
    with pytest.raises(BusError):
        await queue.send("b", "a", "b", "c")
    await bus.advance(60.0 - WINDOW_S)
    await queue.send("b", "b")
    await bus.kill()
    await queue.send("b", "c", "c")
    assert await queue.held() == ["a", "b", "c"]


@covers("M8")
async def test_a_shorter_and_a_longer_window_hold_at_once(bus: Bus) -> None:
    queue = await detecting(bus, 30.0)
    await queue.send("a")
    await bus.advance(25.0)
    await queue.update(duplicate_detection_history_time_window_s=20.0)
    await queue.send("a")
    assert await queue.held() == ["a", "a"]
    await queue.update(duplicate_detection_history_time_window_s=60.0)
    await bus.advance(59.0)
    await queue.send("a")
    assert await queue.held() == ["a", "a"]


@covers("M8", "F9")
async def test_a_clock_that_is_set_back_makes_ids_count_longer_not_shorter(bus: Bus, queue: Queue) -> None:
    await queue.send("a")
    bus.set_wall_clock(-3600.0)
    await queue.send("a", "b")
    await bus.kill()
    await queue.send("a", "b", "c")
    assert await queue.held() == ["a", "b", "c"]
    bus.set_wall_clock(3600.0 + WINDOW_S)
    await queue.send("a", "c")
    assert await queue.held() == ["a", "b", "c", "a", "c"]


@covers("M8")
@on_shapes(PLAIN)
@pytest.mark.parametrize("limits", [FEW_IDS])
async def test_at_the_most_ids_sends_are_throttled_and_nothing_is_forgotten(bus: Bus, queue: Queue) -> None:
    await queue.send_batch("a", "b", "c", "more than all that can be remembered is taken when nothing is")
    with pytest.raises(ServerBusy, match="wait 10 seconds"):
        await queue.send("d")
    await queue.bodies()
    await bus.advance(WINDOW_S + 1)
    await queue.send("d", "a")
    assert await queue.held() == ["d", "a"]


@covers("M8", "N10")
@on_shapes(PLAIN)
@pytest.mark.parametrize("limits", [FEW_IDS])
async def test_pings_are_no_messages_and_their_ids_are_not_kept(bus: Bus, queue: Queue) -> None:
    for number in range(5):
        await queue.send(ping(str(number)))
    await queue.send("a", "b", "c")
    assert await queue.held() == ["a", "b", "c"]


@covers("M8")
@on_shapes(PLAIN)
@pytest.mark.parametrize("limits", [FEW_IDS])
async def test_a_queue_that_is_deleted_gives_its_ids_back(bus: Bus, queue: Queue) -> None:
    await queue.send("a", "b", "c")
    await queue.delete()
    queue = await detecting(bus)
    await queue.send("a", "b", "c")
    assert await queue.held() == ["a", "b", "c"]


@covers("M8")
@pytest.mark.parametrize("is_down", [False, True])
async def test_ids_leave_the_store_when_their_time_is_over(bus: Bus, queue: Queue, is_down: bool) -> None:
    """More than one look takes, and also those that became old while nobody ran."""
    for first in range(0, 2100, 300):
        await queue.send_batch(*[message(str(number)) for number in range(first, first + 300)])
    assert bus.record_count("history") == 7
    if is_down:
        await bus.kill(down_s=WINDOW_S)
    assert len(await queue.held()) == 2100
    await bus.advance(3 * WINDOW_S)
    assert bus.record_count("history") == 0


@covers("P10", "M8")
@pytest.mark.parametrize("crashes", [False, True])
async def test_an_id_counts_under_its_key_on_partitioned_entities_alone(bus: Bus, queue: Queue, crashes: bool) -> None:
    sent = [message(f"{key}/{one}", id=one, key=key) for one, key in (("a", "k1"), ("a", "k2"), ("b", "k1"))]
    await queue.send(*sent)
    if crashes:
        await bus.kill()
    await queue.send(*sent, message("k3/a", id="a", key="k3"))
    everything = ["k1/a", "k1/b", "k2/a", "k3/a"]
    assert sorted(await queue.held()) == (everything if bus.shape.is_partitioned else ["k1/a", "k1/b"])


@covers("P10", "M8")
@on_shapes(*SPREAD)
async def test_without_a_key_an_id_names_its_fragment(bus: Bus, queue: Queue) -> None:
    for _ in range(5):
        await queue.send("a", "b", is_spread=True)
    assert sorted(await queue.held()) == ["a", "b"]


@covers("M8", "M9")
async def test_a_topic_drops_what_came_before_for_all_its_subscriptions(bus: Bus) -> None:
    topic = await bus.topic(requires_duplicate_detection=True, duplicate_detection_history_time_window_s=WINDOW_S)
    everything = await bus.subscription(topic, "everything")
    some = await bus.subscription(topic, "some", "sys.MessageId LIKE 'r%'")
    nothing = await bus.subscription(topic, "nothing", "1=0")
    await topic.send(message("r", in_s=5.0), "r", "g", "r2")
    await bus.advance(6.0)
    await bus.kill()
    later = await bus.subscription(topic, "later")
    await topic.send("r", "g", "r3")
    assert await everything.held() == ["g", "r2", "r", "r3"]
    assert (await some.held(), await nothing.held(), await later.held()) == (["r2", "r", "r3"], [], ["r3"])


@covers("M8", "M9", "M13")
@on_shapes(*UNPARTITIONED)
async def test_a_topic_without_room_takes_the_ids_back(bus: Bus) -> None:
    topic = await bus.topic(requires_duplicate_detection=True)
    everything = await bus.subscription(topic, "everything")
    await topic.send("a")
    bus.fail_next(Fault.FULL)
    with pytest.raises(BusError):
        await topic.send_batch("b", "a")
    await bus.advance(20.0)
    await topic.send("b", "a")
    assert await everything.held() == ["a", "b"]
