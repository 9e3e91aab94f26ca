"""The driver's side of the syphon on Spark: which messages of the backlog queues the next batch has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeAlias

from tandembus.client import ClientFailure
from tandembus.clock import Clock, SystemClock
from tandembus.errors import InvalidArgument, NotSupported, StaleEpoch, Unauthorized
from tandembus.pairing.client_ports import SharedConnection
from tandembus.spark.jobs.number_ranges import Ranges, intersection
from tandembus.spark.jobs.syphon_ledger import QueueLedger
from tandembus.spark.jobs.syphon_plan import QueueBatch, QueuePlan, batches_in, offset_of

log: Final = logging.getLogger("tandembus.syphon")
Offset: TypeAlias = dict[str, object]
ONCE_TRIES: Final = 2
"""How often a drain asks a destination that takes nothing."""
NOT_THERE: Final = (
    "the secondary has no reservations, which are what the syphon on Spark works with: run `tandembus syphon` instead"
)
TAKEN_OVER: Final = "another syphon on Spark has taken over these backlog queues; this one ends, and nothing is lost"


class BacklogDriver:
    """Plans over all backlog queues of one primary. A queue that cannot be used now is left out of a batch."""

    def __init__(
        self,
        secondary: SharedConnection,
        primary_name: str,
        queues: Sequence[str],
        retry_interval_s: float,
        max_messages: int,
        clock: Clock | None = None,
    ) -> None:
        self._primary_name: Final = primary_name
        self._retry_interval_s: Final = retry_interval_s
        self._share: Final = max(1, max_messages // len(queues))
        self._ledgers: Final = {queue: QueueLedger(secondary, queue) for queue in queues}
        clock = clock or SystemClock()
        self._plans: Final = {
            queue: QueuePlan(ledger, clock, retry_interval_s) for queue, ledger in self._ledgers.items()
        }
        self._troubles: Final[dict[str, str]] = {}
        """What was told last of a queue that cannot be used."""
        self._ends: dict[str, dict[int, int]] | None = None
        """Of a drain: what comes later is left."""

    def first_offset(self) -> Offset:
        return {**offset_of(0, {}), "n": self._primary_name}

    async def only_what_is_there(self) -> None:
        ends = await asyncio.gather(*[self._ends_of(queue) for queue in self._ledgers])
        self._ends = dict(zip(self._ledgers, ends, strict=True))

    async def latest(self, start: Offset) -> Offset:
        """The next batch; `start` itself if there is nothing to do."""
        self._check(start)
        batches = await self._planned(False)
        if not batches and self._ends is not None and any(p.tries_left(ONCE_TRIES) for p in self._plans.values()):
            await asyncio.sleep(self._retry_interval_s)
            batches = await self._planned(True)
        if not batches:
            return start
        counter = start["e"]
        assert isinstance(counter, int)
        return {**offset_of(counter + 1, batches), "n": self._primary_name}

    async def batches(self, end: Offset) -> dict[str, tuple[int, QueueBatch]]:
        """With the epoch, and only what is still reserved: what was given back since is somebody else's."""
        self._check(end)
        found: dict[str, tuple[int, QueueBatch]] = {}
        for queue, batch in batches_in(end).items():
            if queue not in self._ledgers:
                continue
            reserved = await self._opened(queue)
            left = QueueBatch(intersection(batch.ranges, reserved), batch.waiting, batch.held_back)
            if left.ranges:
                found[queue] = (self._ledgers[queue].epoch, left)
        return found

    async def _planned(self, retry_all: bool) -> dict[str, QueueBatch]:
        planned = await asyncio.gather(*[self._plan(queue, retry_all) for queue in self._ledgers])
        found = zip(self._ledgers, planned, strict=True)
        return {queue: batch for queue, batch in found if batch is not None and batch.ranges}

    async def _plan(self, queue: str, retry_all: bool) -> QueueBatch | None:
        try:
            await self._ledgers[queue].open()
            await self._plans[queue].finish()
            up_to = None if self._ends is None else self._ends[queue]
            planned = await self._plans[queue].plan(self._share, up_to, retry_all)
        except (StaleEpoch, NotSupported, Unauthorized) as error:
            raise explained(error) from None
        except ClientFailure as error:
            if self._troubles.get(queue) != str(error):
                self._troubles[queue] = str(error)
                log.warning("%s: left out until it can be used again: %s", queue, error)
            return None
        self._troubles.pop(queue, None)
        return planned

    async def _ends_of(self, queue: str) -> dict[int, int]:
        try:
            return await self._ledgers[queue].ends()
        except NotSupported as error:
            raise explained(error) from None

    async def _opened(self, queue: str) -> Ranges:
        try:
            await self._ledgers[queue].open()
            return await self._ledgers[queue].reserved()
        except (StaleEpoch, NotSupported) as error:
            raise explained(error) from None

    def _check(self, offset: Offset) -> None:
        if offset.get("n") != self._primary_name:
            raise InvalidArgument(
                f"this checkpoint is of the backlog of '{offset.get('n')}', not of '{self._primary_name}': "
                "give each pair of namespaces a checkpoint of its own"
            )


def explained(error: Exception) -> Exception:
    if isinstance(error, StaleEpoch):
        return StaleEpoch(TAKEN_OVER)
    return NotSupported(NOT_THERE) if isinstance(error, NotSupported) else error
