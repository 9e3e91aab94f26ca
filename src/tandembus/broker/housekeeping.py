"""What a broker clears away beside its work: memory that nobody needs, records that nobody will ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tandembus.store.messaging_store import Changes

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

THIN_DEBT = 64
SOURCES_LOOK_S = 60.0


async def thin(broker: MessageBroker) -> bool:
    """While nothing else is going on: free the bodies of settled messages that stragglers keep in place. Only bits
    that are durable count, hence under the commit lock. Returns whether there was anything to free."""
    async with broker.commit_lock:
        changes = Changes()
        for fragment in broker.by_key.values():
            if fragment.is_void:
                continue  # its bits may be those of a commit that never happened
            if any(lane.thin(changes, THIN_DEBT) for lane in fragment.lanes):
                break
        if changes.dropped_bodies:
            await broker.commit_watched(changes)
    return bool(changes.dropped_bodies)


def check_windows(broker: MessageBroker, max_bytes: int) -> None:
    """Many quiet queues must not fill the memory together: where nobody is waiting, the window is given up."""
    used = sum(int(lane.ready_bytes) for one in broker.by_key.values() for lane in one.lanes)
    for fragment in broker.by_key.values():
        if used <= max_bytes:
            return
        for consumers in fragment.lane_consumers:
            if not consumers.is_hungry():
                used -= int(consumers.lane.ready_bytes)
                consumers.lane.evict()
                if consumers.sessions is not None:
                    consumers.sessions.forget_bodies()


async def forget_marks(broker: MessageBroker) -> None:
    """Of channels that are long gone."""
    outdated = broker.channel_marks.take_outdated(broker.clock.now_ms())
    if outdated:
        changes = Changes()
        changes.dropped_marks = outdated
        await broker.commit_alone(changes)


async def forget_high_waters(broker: MessageBroker) -> None:
    """Of sources that are long gone: nothing can be on its way from there any more."""
    changes = Changes()
    for fragment in broker.by_key.values():
        for one in fragment.high_waters.outdated(broker.clock.now_ms()):
            if not broker.is_known_fragment(one.source):
                fragment.high_waters.forget(one)
                changes.dropped_high_waters.append(one)
    if changes.dropped_high_waters:
        await broker.commit_alone(changes)
