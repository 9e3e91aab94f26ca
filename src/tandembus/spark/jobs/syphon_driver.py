"""The driver's side of the syphon on Spark: which messages of the backlog queues the next batch has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

from tandembus.client import ClientFailure
from tandembus.clock import Clock, SystemClock
from tandembus.errors import (
    EntityNotFound,
    InvalidArgument,
    NotSupported,
    StaleEpoch,
    StoreUnavailable,
    Unauthorized,
)
from tandembus.pairing.client_ports import SharedConnection
from tandembus.spark.jobs.syphon_ledger import OWNER, PATIENCE_S, QueueLedger
from tandembus.spark.jobs.syphon_plan import QueueBatch, QueuePlan, batches_in, epochs_in, offset_of
from tandembus.spark.source.ranges import intersection

log: Final = logging.getLogger("tandembus.syphon")
Offset: TypeAlias = dict[str, object]
ONCE_TRIES: Final = 2
"""How often a drain asks a destination that takes nothing."""
NOT_THERE: Final = (
    "the secondary has no reservations, which are what the syphon on Spark works with: run `tandembus syphon` instead"
)
TAKEN_OVER: Final = "another syphon on Spark has taken over these backlog queues; this one ends, and nothing is lost"
FATAL: Final = (StaleEpoch, NotSupported, Unauthorized)
"""What no waiting mends."""


class BacklogDriver:
    """Plans over all backlog queues of one primary. A queue that cannot be used now is left out of a batch, and a drain
    that could not empty it fails in the end."""

    def __init__(
        self,
        secondary: SharedConnection,
        primary_name: str,
        epochs: Mapping[str, int | None],
        retry_interval_s: float,
        max_messages: int,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
    ) -> None:
        """`epochs`: of each queue, if it is open already."""
        self._secondary: Final = secondary
        self._primary_name: Final = primary_name.lower()
        self._retry_interval_s: Final = retry_interval_s
        self._patience_s: Final = patience_s
        self._share: Final = max(1, max_messages // len(epochs))
        self._ledgers: Final = {queue: QueueLedger(secondary, queue, epoch) for queue, epoch in epochs.items()}
        clock = clock or SystemClock()
        self._plans: Final = {
            queue: QueuePlan(ledger, clock, retry_interval_s) for queue, ledger in self._ledgers.items()
        }
        self._troubles: Final[dict[str, str]] = {}
        """What was told last of a queue that cannot be used."""
        self._ends: dict[str, dict[int, int]] | None = None
        """Of a drain: what comes later is left."""
        self._is_begun = False

    def first_offset(self) -> Offset:
        return self._offset(0, {})

    def only_what_is_there(self) -> None:
        """Of each queue, when it is asked for the first time."""
        self._ends = {}

    async def latest(self, start: Offset) -> Offset:
        """The next batch; `start` itself if there is nothing to do."""
        await self._begin(start)
        batches = await self._planned(False)
        if not batches and self._ends is not None:
            batches = await self._last_planned()
        if not batches:
            return start
        counter = start["e"]
        assert isinstance(counter, int)
        return self._offset(counter + 1, batches)

    async def batches(self, end: Offset) -> dict[str, tuple[int, QueueBatch]]:
        """With the epoch, and only what is still reserved: what was given back since is somebody else's."""
        await self._begin(end)
        found: dict[str, tuple[int, QueueBatch]] = {}
        for queue, batch in batches_in(end).items():
            if queue in self._ledgers and (left := await self._still_reserved(queue, batch)) is not None:
                found[queue] = (self._ledgers[queue].epoch, left)
        return found

    async def _begin(self, offset: Offset) -> None:
        """The first offset that Spark shows is the checkpoint's."""
        self._check(offset)
        if self._is_begun:
            return
        self._is_begun = True
        for queue, epoch in epochs_in(offset).items():
            if queue not in self._ledgers:
                await self._give_back(queue, epoch)

    async def _give_back(self, queue: str, epoch: int) -> None:
        """What an earlier run had of a queue that this one was not given."""
        try:
            count = await QueueLedger(self._secondary, queue, epoch).release()
            log.warning("%s: the job emptied this one, too, when it ran last; given back: %d messages", queue, count)
        except (StaleEpoch, EntityNotFound):
            return  # It is another job's by now, or gone.
        except ClientFailure as error:
            advice = f"`tandembus spark release {queue} --owner {OWNER}` gives back what is reserved there"
            log.warning("%s: the job emptied this one, too, when it ran last, and now: %s. %s", queue, error, advice)

    async def _last_planned(self) -> dict[str, QueueBatch]:
        """Of a drain that finds nothing more: another try, with patience. Raises when queues are left unread."""
        batches: dict[str, QueueBatch] = {}
        if self._troubles or any(plan.tries_left(ONCE_TRIES) for plan in self._plans.values()):
            await asyncio.sleep(self._retry_interval_s)
            batches = await self._planned(True)
        if not batches and self._troubles:
            told = "; ".join(f"{queue}: {why}" for queue, why in sorted(self._troubles.items()))
            raise StoreUnavailable(f"messages may be left in backlog queues that could not be used: {told}")
        return batches

    async def _planned(self, retry_all: bool) -> dict[str, QueueBatch]:
        planned = await asyncio.gather(*[self._plan(queue, retry_all) for queue in self._ledgers])
        found = zip(self._ledgers, planned, strict=True)
        return {queue: batch for queue, batch in found if batch is not None and batch.ranges}

    async def _plan(self, queue: str, retry_all: bool) -> QueueBatch | None:
        ledger, plan = self._ledgers[queue], self._plans[queue]
        # A queue that is out keeps the others waiting once.
        ledger.patience_s = self._patience_s if retry_all or queue not in self._troubles else 0.0
        try:
            await ledger.open()
            await plan.finish()
            planned = await plan.plan(self._share, await self._end_of(queue), retry_all)
        except FATAL as error:
            raise explained(error) from None
        except ClientFailure as error:
            self._note(queue, str(error))
            return None
        if plan.missing_fragments:
            self._note(queue, f"fragments {', '.join(map(str, plan.missing_fragments))} are out of reach")
        else:
            self._troubles.pop(queue, None)
        return planned

    async def _end_of(self, queue: str) -> dict[int, int] | None:
        if self._ends is None:
            return None
        if queue not in self._ends:
            self._ends[queue] = await self._ledgers[queue].ends()
        return self._ends[queue]

    async def _still_reserved(self, queue: str, batch: QueueBatch) -> QueueBatch | None:
        ledger = self._ledgers[queue]
        ledger.patience_s = self._patience_s
        try:
            await ledger.open()
            reserved = await ledger.reserved()
        except FATAL as error:
            raise explained(error) from None
        except ClientFailure as error:
            self._note(queue, str(error))  # They stay reserved, for a later batch.
            return None
        ranges = intersection(batch.ranges, reserved)
        return QueueBatch(ranges, batch.waiting, batch.held_back) if ranges else None

    def _note(self, queue: str, trouble: str) -> None:
        if self._troubles.get(queue) != trouble:
            self._troubles[queue] = trouble
            log.warning("%s: left out until it can be used again: %s", queue, trouble)

    def _offset(self, counter: int, batches: Mapping[str, QueueBatch]) -> Offset:
        epochs = {queue: ledger.epoch for queue, ledger in self._ledgers.items() if ledger.is_open}
        return {**offset_of(counter, batches, epochs), "n": self._primary_name}

    def _check(self, offset: Offset) -> None:
        if offset.get("n") != self._primary_name:
            raise InvalidArgument(
                f"this checkpoint is of the backlog of '{offset.get('n')}', not of '{self._primary_name}': "
                "give each pair of namespaces a checkpoint of its own"
            )


def explained(error: BaseException) -> BaseException:
    if isinstance(error, StaleEpoch):
        return StaleEpoch(TAKEN_OVER)
    return NotSupported(NOT_THERE) if isinstance(error, NotSupported) else error
