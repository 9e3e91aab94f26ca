"""What a channel allows itself: times and sizes, from the namespace's limits."""

from __future__ import annotations

from dataclasses import dataclass

from tandembus.interconnect.frames import MAX_FRAME_BYTES
from tandembus.limits import Limits
from tandembus.store.messaging_store import MARK_NUMBERS


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    in_doubt_wait_s: float = 5.0
    fragment_timeout_s: float = 15.0
    window_bytes: int = 16 << 20
    """Bytes of sends that a broker takes before it has answered them."""
    waiting_bytes: int = 64 << 20
    """Bytes of sends that wait in the front end for that; more are refused."""
    unsent_bytes: int = 4 << 20
    """Bytes of pushes that wait for the front end to read them; above it nobody is given more."""
    unreported_bytes: int = 1 << 20
    """Bytes pushed to one consumer and not yet handed to a client; above it this one is not given more."""
    window_count: int = MARK_NUMBERS
    commit_outage_s: float = 5.0
    max_frame_bytes: int = MAX_FRAME_BYTES
    """The largest message, or what is read of deferred ones at a time, fits into a frame."""

    @staticmethod
    def of(limits: Limits) -> ChannelSettings:
        return ChannelSettings(
            in_doubt_wait_s=limits.in_doubt_wait_s,
            fragment_timeout_s=limits.fragment_timeout_s,
            window_bytes=limits.channel_window_bytes,
            waiting_bytes=limits.channel_waiting_bytes,
            unsent_bytes=limits.channel_unsent_bytes,
            unreported_bytes=limits.consumer_unreported_bytes,
            commit_outage_s=limits.commit_outage_s,
            max_frame_bytes=MAX_FRAME_BYTES + limits.largest_message_bytes,
        )
