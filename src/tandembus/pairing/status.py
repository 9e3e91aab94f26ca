"""The state of a pair as the secondary sees it: what waits in its backlog queues, and whether a syphon receives it.

Works while the primary is away. It only reads counts, and peeks once into each queue that has messages.
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
    """It is not known for which primary to show the backlog queues."""


class SyphonState(Enum):
    """Whether a syphon receives from the backlog queues."""

    AT_WORK = "at work"
    PARTLY = "at work on some queues"
    NONE = "not at work"
    UNKNOWN = "unknown"
    """The service does not report receivers."""


@dataclass(frozen=True, slots=True)
class BacklogQueueStatus:
    index: int
    path: str
    messages: int | None
    """None while the whole queue is unavailable; the same for its dead letters."""
    dead_letters: int | None
    oldest_at: float | None
    """When the oldest message was enqueued; None if there is none, or peeking is not allowed."""
    receivers: int | None
    """None if the service does not report it."""
    is_extra: bool
    """Not one of the queues that senders use: they and `tandembus syphon` leave it and its messages alone (N3)."""
    is_limited: bool = False
    """A part of the queue is unavailable, and its messages are not counted."""


@dataclass(frozen=True, slots=True)
class BacklogStatus:
    """The backlog of one primary."""

    primary_name: str
    queues: Sequence[BacklogQueueStatus]
    missing: Sequence[int]
    """Indexes of queues that senders would use and that do not exist."""
    other_primaries: Sequence[str]
    """Primaries with a backlog on the same secondary."""

    @property
    def messages(self) -> int | None:
        """Messages in all queues that can be counted; None if no queue can be."""
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
    """`receivers`: how many receive from each queue in use."""
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
    """How many queues senders use: as many as asked for, else all up to the first that is missing."""
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
    """Without a name, the status of the only primary that has a backlog there. Raises `UnknownPrimary` if there is
    none, or more than one."""
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
    """Only a tandembus namespace reports receivers; None for any other service."""
    try:
        found = await topology_of(administration.requests, path)
    except BusError:
        return None
    receivers = found.entities[0].get("receivers") if found.entities else None
    return receivers if isinstance(receivers, int) else None
