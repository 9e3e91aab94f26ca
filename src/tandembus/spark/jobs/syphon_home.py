"""Sends backlog messages home, in the task that read them. The rules are those of every syphon (`tandembus.pairing`).

What the primary has accepted is completed in the backlog at once, so that a batch that Spark repeats finds only the
rest. What a destination does not take now stays reserved, and so does what is behind it in this task: the plan of later
batches has it tried again (`syphon_plan.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tandembus.client import ServiceBus, connect
from tandembus.clock import SystemClock
from tandembus.pairing.client_ports import ClientPrimary, SharedConnection
from tandembus.pairing.syphon_lane import Sent
from tandembus.pairing.syphon_messages import Delivery, Held
from tandembus.pairing.syphon_reading import by_destination, read_deliveries, refused_alike
from tandembus.pairing.syphon_rules import SyphonSettings, Verdict, destination_of
from tandembus.pairing.syphon_sending import RowSender
from tandembus.spark.jobs.syphon_ledger import QueueLedger

ANSWER_TIMEOUT_S: Final = 30.0
GROUPS_AT_ONCE: Final = 16


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


class BacklogRow(NamedTuple):
    queue: str
    sequence_number: int
    epoch: int
    message: bytes


class Outcome(NamedTuple):
    """What became of messages of one backlog queue for one destination."""

    queue: str
    path: str
    moved: int = 0
    moved_bytes: int = 0
    dead_lettered: int = 0
    waiting: int = 0


class HomeTask:
    """One task's way home, with a connection to each namespace."""

    def __init__(self, pair: Pair, settings: SyphonSettings | None = None) -> None:
        self._primary: Final = SharedConnection(pair.connect_primary)
        self._secondary: Final = SharedConnection(pair.connect_secondary)
        self._port: Final = ClientPrimary(self._primary)
        # Reserved messages are ours until somebody with a newer epoch comes, and then they cannot be completed.
        self._rows: Final = RowSender(self._port, lambda _: True, settings or SyphonSettings(), SystemClock())
        self._ledgers: Final[dict[str, QueueLedger]] = {}
        self._dead: Final[set[tuple[str, str]]] = set()
        """Queue and destination that take none in this task any more."""
        self._is_unreachable = False

    async def move(self, rows: Sequence[BacklogRow]) -> list[Outcome]:
        """In their order, queue by queue and destination by destination."""
        outcomes: list[Outcome] = []
        for queue, some in _by_queue(rows).items():
            outcomes += await self._move_some(await self._ledger(queue, some[0].epoch), some)
        return outcomes

    async def close(self) -> None:
        await self._port.close()
        await self._secondary.close()

    async def _ledger(self, queue: str, epoch: int) -> QueueLedger:
        if queue not in self._ledgers:
            ledger = self._ledgers[queue] = QueueLedger(self._secondary, queue, epoch)
            await ledger.reserved()  # Raises StaleEpoch before anything is sent, if another syphon has taken over.
        return self._ledgers[queue]

    async def _move_some(self, ledger: QueueLedger, rows: Sequence[BacklogRow]) -> list[Outcome]:
        deliveries = [Delivery(row.message, row.sequence_number) for row in rows]
        held, malformed = read_deliveries(deliveries, {})
        outcomes: list[Outcome] = []
        for (reason, description), some in malformed.items():
            buried = await ledger.bury([each.origin for each in some], reason, description)
            outcomes.append(Outcome(ledger.queue, "", dead_lettered=buried))
        groups = list(by_destination(held).items())
        for first in range(0, len(groups), GROUPS_AT_ONCE):
            outcomes += await self._send_groups(ledger, groups[first : first + GROUPS_AT_ONCE])
        return outcomes

    async def _send_groups(self, ledger: QueueLedger, groups: list[tuple[str, list[Held]]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        alive: list[list[Held]] = []
        for key, held in groups:
            if self._is_unreachable or (ledger.queue, key) in self._dead:
                outcomes.append(Outcome(ledger.queue, key, waiting=len(held)))
            else:
                alive.append(held)
        sent = await asyncio.gather(*[self._rows.send(held[0].path, held, math.inf) for held in alive])
        await ledger.complete([each.delivery.origin for one in sent for each in one.accepted])
        for held, one in zip(alive, sent, strict=True):
            outcomes.append(await self._account(ledger, held[0].path, one))
        return outcomes

    async def _account(self, ledger: QueueLedger, path: str, sent: Sent) -> Outcome:
        destination = destination_of(path)
        buried = 0
        for (reason, description), some in refused_alike(sent.refused).items():
            buried += await ledger.bury([each.delivery.origin for each in some], reason, description)
        if sent.error is not None:
            self._dead.add((ledger.queue, destination))
            self._is_unreachable = self._is_unreachable or sent.verdict is Verdict.UNREACHABLE
        size_bytes = sum([len(each.payload) for each in sent.accepted])
        return Outcome(ledger.queue, destination, len(sent.accepted), size_bytes, buried, len(sent.rest))


def _by_queue(rows: Iterable[BacklogRow]) -> dict[str, list[BacklogRow]]:
    groups: dict[str, list[BacklogRow]] = {}
    for row in rows:
        groups.setdefault(row.queue, []).append(row)
    return groups
