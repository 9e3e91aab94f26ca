"""The tasks of the syphon on Spark: each runs the pairing engine for its share of the backlog queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from tandembus.client import ClientFailure, ServiceBus, connect
from tandembus.clock import SystemClock
from tandembus.errors import InvalidArgument
from tandembus.loop_thread import LoopThread
from tandembus.pairing.client_ports import ClientBacklog, ClientPrimary, SharedConnection
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon_observer import SyphonFigures
from tandembus.pairing.syphon_queue import QueueSyphon
from tandembus.pairing.syphon_rules import LONG_POLL_S, SyphonSettings
from tandembus.spark.source.marks import sequence_number_of

NAME: Final = "servicebus-backlog"
ANSWER_TIMEOUT_S: Final = 30.0
SLICE_S: Final = 8.0
"""How long a batch lasts, unless it drains: less than a query that is stopped has to end. While nothing is moved, each
lasts twice as long as the one before, up to a long poll: a batch begins with a receive and a peek for each queue."""
PAGE: Final = 250
SCHEMA: Final = (
    "queue string, path string, moved long, moved_bytes long, dead_lettered long, left long, is_dead boolean, "
    "is_done boolean, trouble string"
)
ARROW: Final = pa.schema(
    [("queue", pa.string()), ("path", pa.string())]
    + [(name, pa.int64()) for name in ("moved", "moved_bytes", "dead_lettered", "left")]
    + [("is_dead", pa.bool_()), ("is_done", pa.bool_()), ("trouble", pa.string())]
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two namespaces, and whose certificates to trust. Nothing made from this shows a secret."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    primary_ca: str | None = None
    secondary_ca: str | None = None

    async def connect_primary(self) -> ServiceBus:
        return await connect(self.primary, ca_path=self.primary_ca, timeout_s=ANSWER_TIMEOUT_S)

    async def connect_secondary(self) -> ServiceBus:
        return await connect(self.secondary, ca_path=self.secondary_ca, timeout_s=ANSWER_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Work:
    """What a query does."""

    pair: Pair
    primary_name: str
    queues: tuple[str, ...]
    settings: SyphonSettings
    is_drain: bool
    """A batch ends when nothing more can be moved, not after a while."""
    task_count: int
    most: int
    """Messages that a task moves, some more or less, before its batch ends."""
    idle_file: str = ""
    """In which the job notes, beside the reader, how many batches in a row have moved nothing."""


@dataclass(slots=True)
class Row:
    """What became of messages of a backlog queue; without a path it is about the queue as a whole."""

    queue: str
    path: str = ""
    moved: int = 0
    moved_bytes: int = 0
    dead_lettered: int = 0
    left: int = 0
    is_dead: bool = False
    """The destination takes no messages."""
    is_done: bool = False
    """Nothing more can be moved."""
    trouble: str | None = None
    """Why the queue cannot be used."""


class _Figures(SyphonFigures):
    """Counts by destination, and says when it is enough for a batch."""

    def __init__(self, most: int) -> None:
        super().__init__(SystemClock())
        self._most: Final = most
        self.is_enough: Final = asyncio.Event()
        self.homes: Final[dict[tuple[str, str], Row]] = {}
        self.buried: Final[Counter[str]] = Counter()
        self.troubles: Final[dict[str, str]] = {}
        """Of queues that have moved nothing since."""

    def moved(self, queue: str, path: str, count: int, size_bytes: int) -> None:
        super().moved(queue, path, count, size_bytes)
        self.troubles.pop(queue, None)
        row = self.homes.setdefault((queue, path), Row(queue, path))
        row.moved += count
        row.moved_bytes += size_bytes
        if self.moved_count >= self._most:
            self.is_enough.set()

    def dead_lettered(
        self, queue: str, path: str | None, numbers: Sequence[int | None], reason: str, description: str
    ) -> None:
        super().dead_lettered(queue, path, numbers, reason, description)
        self.buried[queue] += len(numbers)

    def troubled(self, queue: str, error: BaseException) -> None:
        super().troubled(queue, error)
        self.troubles[queue] = f"{queue}: {error}"

    def dead(self) -> list[Row]:
        return [Row(queue, path, is_dead=True) for queue, path in self._stuck]


async def work_on(work: Work, queues: Sequence[str], slice_s: float = SLICE_S) -> list[Row]:
    """One batch of one task."""
    figures, runtime = _Figures(work.most), Runtime(SystemClock())
    secondary = SharedConnection(work.pair.connect_secondary)
    primary = ClientPrimary(SharedConnection(work.pair.connect_primary))
    backlogs = [ClientBacklog(secondary, queue) for queue in queues]
    syphons = [QueueSyphon(each, primary, work.settings, figures, runtime) for each in backlogs]
    stopping = asyncio.ensure_future(_stop_when_due(figures.is_enough, syphons, None if work.is_drain else slice_s))
    try:
        ends = await asyncio.gather(*[each.run(work.is_drain) for each in syphons], return_exceptions=True)
        is_done = not figures.is_enough.is_set()
        rows = [await _row_of(backlog, end, is_done) for backlog, end in zip(backlogs, ends, strict=True)]
    finally:
        stopping.cancel()
        for each in backlogs:
            await each.close()
        await primary.close()
        await secondary.close()
    for row in rows:
        row.dead_lettered = figures.buried[row.queue]
        if not work.is_drain:
            row.trouble = figures.troubles.get(row.queue)
    return [*rows, *figures.homes.values(), *figures.dead()]


async def _stop_when_due(is_enough: asyncio.Event, syphons: Sequence[QueueSyphon], limit_s: float | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await is_enough.wait()
    is_enough.set()
    for each in syphons:
        await each.stop()


async def _row_of(backlog: ClientBacklog, end: bool | BaseException, is_done: bool) -> Row:
    """`end`: whether nothing is left behind, or what went wrong."""
    try:
        if isinstance(end, BaseException):
            raise end
        left = await _count(backlog) if is_done and not end else 0
    except ClientFailure as error:
        return Row(backlog.queue, is_done=True, trouble=f"{backlog.queue}: {error}")
    return Row(backlog.queue, left=left, is_done=is_done)


async def _count(backlog: ClientBacklog) -> int:
    """Of messages that wait, put aside and in others' hands included."""
    count, first = 0, 0
    while page := await backlog.browse(first, PAGE):
        count += len(page)
        first = max(first, *map(sequence_number_of, page)) + 1
    return count


def source_of(work: Work) -> type[DataSource]:
    """A source whose batches are what tasks did. Spark copies the class with what it works on, so that no option, which
    Spark would show, holds a key."""

    class BacklogDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return BacklogReader(work)

    return BacklogDataSource


class Share(InputPartition):
    """The backlog queues of one task, and how long it works on them."""

    def __init__(self, queues: tuple[str, ...], slice_s: float) -> None:
        super().__init__(None)
        self.queues: Final = queues
        self.slice_s: Final = slice_s


class BacklogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets only count batches: what is home is completed in the backlog, and nowhere else noted."""

    def __init__(self, work: Work) -> None:
        self._work: Final = work
        self._is_last = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"n": self._work.primary_name.lower(), "e": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """One batch, then the query ends."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        name = self._work.primary_name.lower()
        if start.get("n") != name:
            raise InvalidArgument(
                f"this checkpoint is of the backlog of '{start.get('n')}', not of '{name}': "
                "give each pair of namespaces a checkpoint of its own"
            )
        if self._is_last:
            return start
        self._is_last = self._work.is_drain
        return {"n": name, "e": start["e"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        queues, count = self._work.queues, min(self._work.task_count, len(self._work.queues))
        slice_s = min(SLICE_S * 2 ** self._idle_count(), LONG_POLL_S)
        return [Share(queues[index::count], slice_s) for index in range(count)]

    def _idle_count(self) -> int:
        try:
            return int(Path(self._work.idle_file).read_text())
        except (OSError, ValueError):
            return 0

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        with LoopThread() as loop:
            rows = loop.call(work_on(self._work, partition.queues, partition.slice_s))
        yield pa.RecordBatch.from_pylist([asdict(each) for each in rows], schema=ARROW)
