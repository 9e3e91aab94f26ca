"""Giving what is in memory to those who have credit: all there is to do for most fragments after most commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from tandembus.broker.consumers import LaneConsumers

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment


def serve_from_memory(fragment: Fragment) -> bool:
    """Returns whether that was all: nothing has to be read from the store for anybody, and nobody waits for a
    session."""
    if fragment.sessions is not None:
        return False
    fragment.pump()
    for consumers in fragment.lane_consumers:
        if consumers.is_empty():
            continue
        if wants_reading(fragment, consumers):
            return False
        consumers.finish_drains()
    return True


def wants_reading(fragment: Fragment, consumers: LaneConsumers) -> bool:
    """Somebody has credit for more than the window of this lane holds, and may lock it."""
    settings = fragment.settings
    if i64(len(fragment.locks)) >= settings.max_locks or not consumers.is_hungry():
        return False
    # At least one: a window of a single message or byte must be filled again, too.
    low_messages = max(settings.window_messages // 2, i64(1))
    low_bytes = max(settings.window_bytes // 2, i64(1))
    return consumers.lane.wants_refill(low_messages, low_bytes)
