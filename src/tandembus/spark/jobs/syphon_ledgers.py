"""The backlog queues of a syphon on Spark from its beginning to its end: opened as its own, given back.

The epochs are this run's: whatever it gives back in the end is its own, and not that of a run that took over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from tandembus.client import ClientFailure
from tandembus.errors import StaleEpoch
from tandembus.pairing.client_ports import SharedConnection
from tandembus.spark.jobs.streaming import JobFailed, spark_errors
from tandembus.spark.jobs.syphon_driver import FATAL, explained
from tandembus.spark.jobs.syphon_home import Pair
from tandembus.spark.jobs.syphon_ledger import OWNER, PATIENCE_S, LeftThere, QueueLedger
from tandembus.spark.jobs.syphon_plan import epochs_in
from tandembus.spark.source.loop_thread import LoopThread

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

T = TypeVar("T")


class Ledgers:
    """In the process that has started the query. A queue that cannot be opened now is left to the query, which tries
    again and tells the epoch in its offsets."""

    def __init__(self, pair: Pair, queues: Sequence[str], loop: LoopThread, patience_s: float = PATIENCE_S) -> None:
        self._loop: Final = loop
        self._secondary: Final = SharedConnection(pair.connect_secondary)
        self._patience_s: Final = patience_s
        self._ledgers: Final = {queue: self._ledger(queue) for queue in queues}
        self._ends: Final[dict[str, dict[int, int]]] = {}
        self._troubles: Final[dict[str, str]] = {}

    def __enter__(self) -> Ledgers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call(self._secondary.close())

    @property
    def epochs(self) -> dict[str, int | None]:
        return {queue: ledger.epoch if ledger.is_open else None for queue, ledger in self._ledgers.items()}

    def open(self) -> None:
        """Whoever was it before is refused from now on. Raises what no waiting mends."""
        self._of_all(self._open)
        self._troubles.clear()

    def learn(self, query: StreamingQuery) -> None:
        """The epochs of queues that the query has opened; where Spark is gone, they stay its secret."""
        if None not in self.epochs.values():
            return
        with suppress(*spark_errors(), OSError):
            for batch in query.recentProgress:
                epochs = epochs_in(json.loads(batch["sources"][0]["endOffset"]) or {})
                for queue in self._ledgers.keys() & epochs.keys():
                    self._ledgers[queue] = self._ledger(queue, epochs[queue])

    def left_there(self) -> LeftThere:
        """Of what was there at the start, and is nobody's plan."""
        found = self._of_all(self._left_there)
        return LeftThere(*[sum(counts) for counts in zip(*found, strict=True)]) if found else LeftThere()

    def release(self) -> int:
        """Returns how many messages. Raises `JobFailed` once all are asked, if there was trouble with one."""
        count = sum(self._of_all(self._release))
        if self._troubles:
            raise JobFailed(
                f"not all backlog queues could be looked at and given back: {self._told()}. `tandembus spark release "
                f"QUEUE --owner {OWNER}` gives back what is reserved there"
            )
        return count

    def release_after_failure(self) -> str:
        """As far as that can be done at once; returns what is to be said about it."""
        for ledger in self._ledgers.values():
            ledger.patience_s = 0.0
        try:
            self._of_all(self._release)
        except ClientFailure as error:
            return f". What it had reserved stays so until it is started again: {error}"
        return f". What it had reserved stays so until it is started again: {self._told()}" if self._troubles else ""

    def _ledger(self, queue: str, epoch: int | None = None) -> QueueLedger:
        ledger = QueueLedger(self._secondary, queue, epoch)
        ledger.patience_s = self._patience_s
        return ledger

    def _of_all(self, work: Callable[[QueueLedger], Awaitable[T]]) -> list[T]:
        """Of those that could be asked."""
        return self._loop.call(self._asked(work))

    async def _asked(self, work: Callable[[QueueLedger], Awaitable[T]]) -> list[T]:
        answers = await asyncio.gather(*map(work, self._ledgers.values()), return_exceptions=True)
        found: list[T] = []
        for queue, answer in zip(self._ledgers, answers, strict=True):
            if not isinstance(answer, BaseException):
                found.append(answer)
            elif isinstance(answer, FATAL) or not isinstance(answer, ClientFailure):
                raise explained(answer)
            else:
                self._troubles[queue] = str(answer)
        return found

    async def _open(self, ledger: QueueLedger) -> None:
        await ledger.open()
        self._ends[ledger.queue] = await ledger.ends()

    async def _left_there(self, ledger: QueueLedger) -> LeftThere:
        if not ledger.is_open:
            return LeftThere()
        try:
            return await ledger.left_there(self._ends.get(ledger.queue) or await ledger.ends())
        except StaleEpoch:
            return LeftThere()  # What is there is the business of a syphon that has taken over.

    async def _release(self, ledger: QueueLedger) -> int:
        if not ledger.is_open:
            return 0
        try:
            return await ledger.release()
        except StaleEpoch:
            return 0  # They are the messages of a syphon that has taken over.

    def _told(self) -> str:
        return "; ".join(f"{queue}: {why}" for queue, why in sorted(self._troubles.items()))
