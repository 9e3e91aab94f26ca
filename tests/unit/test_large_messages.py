"""Room for large messages: bounded over both directions, and never none for the first of each."""

from __future__ import annotations

import asyncio

from tandembus.large_messages import LARGE_BYTES, LargeMemory, counted
from tests.covers import covers


@covers("M12")
def test_both_directions_have_one_bound_and_each_has_room_for_one_message() -> None:
    memory = LargeMemory(100)
    assert memory.can_take(1000)
    memory.take(60)
    assert memory.can_take(40)
    assert not memory.can_take(41)
    assert memory.can_give(1000), "the first of its direction"
    memory.give(60)
    assert not memory.can_give(1)
    memory.end_taking(60)
    assert memory.can_give(40)
    assert memory.can_take(1000)


@covers("M12")
async def test_who_waits_is_asked_again_in_turn_when_something_is_given_back() -> None:
    memory, asked = LargeMemory(100), asyncio.Queue[str]()
    memory.give(50)
    for name in ("first", "gone", "second"):
        memory.wait(name, lambda name=name: asked.put_nowait(name))  # type: ignore[misc]
    memory.leave("gone")
    memory.end_giving(50)
    assert [await asked.get(), await asked.get()] == ["first", "second"]
    assert not memory.is_awaited()


def test_other_limits_count_the_beginning_of_a_large_message() -> None:
    assert counted(10) == 10
    assert counted(100 * LARGE_BYTES) == LARGE_BYTES
