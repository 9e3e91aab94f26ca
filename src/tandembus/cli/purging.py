"""Deleting all messages of a queue or subscription: what `queue purge` and `subscription purge` share."""

from __future__ import annotations

from typing import Final

from rich.progress import Progress, TaskID

from tandembus.cli.output import counted, print_json, progress_bar, say
from tandembus.cli.target import Target
from tandembus.client import Management, ReceiveMode, ServiceBus, SubQueue, connect
from tandembus.clock import SystemClock
from tandembus.errors import NotSupported

PURGE_BATCH: Final = 4000
PURGE_WAIT_S: Final = 1.0


def part_of(path: str, sub_queue: str | None) -> str:
    return path if sub_queue is None else f"{path} ({sub_queue})"


async def purge(target: Target, path: str, sub_queue: str | None, names: dict[str, str]) -> None:
    """Delete what is there now, and say how much it was; `names` says in JSON what was purged."""
    part = None if sub_queue is None else SubQueue(sub_queue)
    with progress_bar() as progress:
        async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
            purged = await _purge(namespace, path, part, progress)
    if target.as_json:
        print_json({**names, "sub_queue": sub_queue, "purged": purged})
    else:
        say(("purged", "green"), f" {counted(purged, 'message')} from ", (part_of(path, sub_queue), "bold"))


async def _purge(namespace: ServiceBus, path: str, part: SubQueue | None, progress: Progress) -> int:
    task = progress.add_task("purging", total=None)
    try:
        return await _delete_in_batches(await namespace.management(path, part), progress, task)
    except NotSupported:
        return await _receive_and_delete(namespace, path, part, progress, task)


async def _delete_in_batches(management: Management, progress: Progress, task: TaskID) -> int:
    """Up to this moment: messages that keep coming in must not keep this going for ever."""
    before = SystemClock().now()
    purged = 0
    while True:
        deleted = await management.batch_delete(PURGE_BATCH, before)
        purged += deleted
        progress.update(task, completed=purged)
        if deleted == 0:
            return purged


async def _receive_and_delete(
    namespace: ServiceBus, path: str, part: SubQueue | None, progress: Progress, task: TaskID
) -> int:
    """For services without batch deletion."""
    receiver = await namespace.receiver(path, part, mode=ReceiveMode.RECEIVE_AND_DELETE)
    purged = 0
    while messages := await receiver.receive(PURGE_BATCH, PURGE_WAIT_S):
        purged += len(messages)
        progress.update(task, completed=purged)
    return purged
