"""How a pair is doing, seen from the secondary: what waits in its backlog queues, and whether somebody fetches it.

Works while the primary is away, which is when people ask. Looks only, apart from one peek into each queue that has
messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandembus.client import ServiceBus
from tandembus.client.administration import Administration
from tandembus.client.entities import EntityInfo, QueueSettings
from tandembus.client.topology import topology_of
from tandembus.errors import BusError, OperationTimeout, StoreUnavailable

_BACKLOG: Final = re.compile(
    r"(?P<primary>.+)/x-servicebus-transfer/(?P<index>0|[1-9]\d{0,8})", re.IGNORECASE | re.ASCII
)


class UnknownPrimary(Exception):
    """Nobody tells which primary the backlog queues of a secondary are to be looked at for."""


class SyphonState(Enum):
    """Whether somebody receives from the backlog queues."""

    AT_WORK = "at work"
    PARTLY = "at work on some queues"
    NONE = "not at work"
    UNKNOWN = "unknown"
    """The service does not say who receives."""


@dataclass(frozen=True, slots=True)
class BacklogQueueStatus:
    index: int
    path: str
    messages: int | None
    """None while the queue is out of reach as a whole; so with its dead letters."""
    dead_letters: int | None
    oldest_at: float | None
    """When the message that has waited the longest came; None if there is none, or it may not be looked at."""
    receivers: int | None
    """None where the service does not say."""
    is_extra: bool
    """Beyond those that senders use: left alone by them and by `tandembus syphon`, its messages included (N3)."""
    is_limited: bool = False
    """Whether a part of the queue is out of reach, and its messages are not counted."""


@dataclass(frozen=True, slots=True)
class BacklogStatus:
    """The backlog of one primary."""

    primary_name: str
    queues: Sequence[BacklogQueueStatus]
    missing: Sequence[int]
    """Indexes that senders would use, and that are not there."""
    other_primaries: Sequence[str]
    """Whose backlog is on the same secondary."""

    @property
    def messages(self) -> int | None:
        """Messages in all queues that can be counted; None if none can be."""
        return _sum([queue.messages for queue in self.queues])

    @property
    def dead_letters(self) -> int | None:
        return _sum([queue.dead_letters for queue in self.queues])

    @property
    def is_limited(self) -> bool:
        """Whether there may be more messages than are counted."""
        return any(queue.is_limited for queue in self.queues)

    @property
    def oldest_at(self) -> float | None:
        return min((queue.oldest_at for queue in self.queues if queue.oldest_at is not None), default=None)

    @property
    def syphon(self) -> SyphonState:
        return syphon_state([queue.receivers for queue in self.queues if not queue.is_extra])


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return None if counts and not known else sum(known)


def syphon_state(receivers: Sequence[int | None]) -> SyphonState:
    """By how many receive from each of the queues in use."""
    known = [count for count in receivers if count is not None]
    if len(known) < len(receivers):
        return SyphonState.UNKNOWN
    if not any(known):
        return SyphonState.NONE
    return SyphonState.AT_WORK if all(known) else SyphonState.PARTLY


def backlogs_in(paths: Iterable[str]) -> dict[str, dict[int, str]]:
    """Backlog queues by the primary (in lower case, as names are compared) and their index."""
    found: dict[str, dict[int, str]] = {}
    for path in paths:
        match = _BACKLOG.fullmatch(path)
        if match is not None:
            found.setdefault(match["primary"].lower(), {})[int(match["index"])] = path
    return found


def used_count(indexes: Iterable[int], asked: int | None) -> int:
    """How many queues senders use: as many as were asked for, else all up to the first that is not there."""
    if asked is not None:
        return asked
    there = set(indexes)
    count = 0
    while count in there:
        count += 1
    return count


async def backlog_status(
    administration: Administration, secondary: ServiceBus, primary_name: str | None, backlog_queues: int | None
) -> BacklogStatus:
    """Without a name, of the only primary that has a backlog there. Raises `UnknownPrimary` where there is none, or
    more than one to choose from."""
    queues = {queue.name: queue async for queue in administration.queues()}
    backlogs = backlogs_in(queues)
    name = _chosen(primary_name, backlogs)
    indexes = backlogs.get(name.lower(), {})
    count = used_count(indexes, backlog_queues)
    found = [
        await _queue_status(administration, secondary, index, queues[indexes[index]], index >= count)
        for index in sorted(indexes)
    ]
    missing = [index for index in range(count) if index not in indexes]
    return BacklogStatus(name, found, missing, sorted(set(backlogs) - {name.lower()}))


def _chosen(primary_name: str | None, backlogs: Mapping[str, Mapping[int, str]]) -> str:
    if primary_name is not None:
        return primary_name
    if len(backlogs) != 1:
        known = f"there are backlogs of {', '.join(sorted(backlogs))}" if backlogs else "there are no backlog queues"
        raise UnknownPrimary(f"The primary does not tell its name, and on the secondary {known}.")
    return next(iter(backlogs))


async def _queue_status(
    administration: Administration,
    secondary: ServiceBus,
    index: int,
    queue: EntityInfo[QueueSettings],
    is_extra: bool,
) -> BacklogQueueStatus:
    return BacklogQueueStatus(
        index,
        queue.name,
        queue.counts.active,
        queue.counts.dead_letter,
        await _oldest_at(secondary, queue.name) if queue.counts.active else None,
        await _receivers(administration, queue.name),
        is_extra,
        queue.is_limited,
    )


async def _oldest_at(secondary: ServiceBus, path: str) -> float | None:
    management = await secondary.management(path)
    try:
        messages = await management.peek(max_messages=1)
    except (StoreUnavailable, OperationTimeout):
        return None
    finally:
        await management.close()
    return messages[0].enqueued_at if messages else None


async def _receivers(administration: Administration, path: str) -> int | None:
    """Only a tandembus namespace says who receives; whatever else another service answers says nothing."""
    try:
        found = await topology_of(administration.requests, path)
    except BusError:
        return None
    receivers = found.entities[0].get("receivers") if found.entities else None
    return receivers if isinstance(receivers, int) else None
