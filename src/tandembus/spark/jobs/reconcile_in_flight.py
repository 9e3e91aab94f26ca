"""What is in flight: browsed in the namespaces themselves, after their records were read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tandembus.client.addresses import SubQueue
from tandembus.client.service_bus import ServiceBus, connect
from tandembus.errors import EntityNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE_MESSAGES: Final = 1000
DEAD_LETTERS: Final = "/$deadletterqueue"
TRANSFERS: Final = "/$transfer"

Row = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True)
class InFlight:
    rows: list[Row]
    """Entity, sequence number, message id, time of arrival in milliseconds."""
    browsed: list[str]

    def table(self, spark: SparkSession, schema: str) -> DataFrame:
        return spark.createDataFrame(self.rows, schema)


def browse(namespaces: Iterable[tuple[str, str | None]], entities: Sequence[str]) -> InFlight:
    """Looks for each entity in each namespace (connection string, certificate to trust), to its end."""
    return asyncio.run(_browse(list(namespaces), entities))


async def _browse(namespaces: list[tuple[str, str | None]], entities: Sequence[str]) -> InFlight:
    found = InFlight([], [])
    for connection_string, ca_path in namespaces:
        async with await connect(connection_string, ca_path=ca_path) as bus:
            for entity in entities:
                if TRANSFERS not in entity.lower():
                    await _browse_entity(bus, entity, found)
    return found


async def _browse_entity(bus: ServiceBus, entity: str, found: InFlight) -> None:
    is_dead = entity.lower().endswith(DEAD_LETTERS)
    path = entity[: -len(DEAD_LETTERS)] if is_dead else entity
    try:
        node = await bus.management(path, SubQueue.DEAD_LETTER if is_dead else None)
    except EntityNotFound:
        return
    start = 1
    while messages := await node.peek(start, PAGE_MESSAGES):
        for message in messages:
            at_ms = int((message.enqueued_at or 0.0) * 1000)
            found.rows.append((entity, message.sequence_number, str(message.message_id or ""), at_ms))
        start = messages[-1].sequence_number + 1
    found.browsed.append(entity)
    await node.close()
