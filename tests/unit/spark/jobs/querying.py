"""The syphon on Spark without Spark: what Spark does with its source and its function, between two real namespaces."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.spark.jobs.syphon import sending_home
from tandembus.spark.jobs.syphon_home import Pair as Namespaces
from tandembus.spark.jobs.syphon_ledger import LeftThere
from tandembus.spark.jobs.syphon_ledgers import Ledgers
from tandembus.spark.jobs.syphon_source import BacklogPartition, BacklogReader
from tandembus.spark.source.loop_thread import LoopThread
from tests.integration.syphons import PRIMARY, Pair

LIMIT = ReadAllAvailable()


class Query:
    """Does what Spark does with the source and the function behind it, one task after the other."""

    def __init__(
        self, both: Pair, max_messages: int = 1000, primary_name: str = PRIMARY, queues: Sequence[str] = ()
    ) -> None:
        self.queues = queues or both.queues
        self.namespaces = Namespaces(both.primary.connection_string, both.secondary.connection_string)
        self.reader = BacklogReader(
            {
                "connection": self.namespaces.secondary,
                "primaryname": primary_name,
                "epochs": json.dumps(dict.fromkeys(self.queues)),
                "retryinterval": "0.05",
                "patience": "0.5",
                "maxmessages": str(max_messages),
                "numpartitions": "2",
            }
        )
        self.offset = self.reader.initialOffset()
        self.outcome: Counter[str] = Counter()

    async def drain(self) -> None:
        await asyncio.to_thread(self._drain)

    async def plan(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.reader.latestOffset, self.offset, LIMIT)

    async def move(self, end: dict[str, Any]) -> None:
        await asyncio.to_thread(self._move, end)

    def _drain(self) -> None:
        self.reader.prepareForTriggerAvailableNow()
        while (end := self.reader.latestOffset(self.offset, LIMIT)) != self.offset:
            self._move(end)

    def _move(self, end: dict[str, Any]) -> None:
        for partition in self.reader.partitions(self.offset, end):
            self.attempt(partition)
        self.offset = end

    def attempt(self, partition: InputPartition) -> None:
        """One of a task."""
        assert isinstance(partition, BacklogPartition)
        for batch in sending_home(self.namespaces)(self.reader.read(partition)):
            for row in batch.to_pylist():
                self.outcome.update({name: row[name] for name in ("moved", "dead_lettered")})

    async def end(self) -> LeftThere:
        """As the job that has this query's epochs; what it has given back is in `outcome`."""
        return await asyncio.to_thread(self._end)

    def _end(self) -> LeftThere:
        with LoopThread() as loop, Ledgers(self.namespaces, self.queues, loop, patience_s=0.5) as ledgers:
            ledgers.learn(cast(StreamingQuery, Told(self.offset)))
            left = ledgers.left_there()
            self.outcome["given_back"] = ledgers.release()
            return left


class Told:
    """A query of Spark, with what it tells of its last batch."""

    def __init__(self, offset: dict[str, Any]) -> None:
        self.recentProgress = [{"sources": [{"endOffset": told}]} for told in ("null", json.dumps(offset))]


async def set_status(both: Pair, queue: str, status: str) -> None:
    async with Administration(both.primary.connection_string) as administration:
        await administration.update_queue(queue, QueueSettings(status=status))
