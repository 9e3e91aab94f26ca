"""A namespace over records and a disk in memory, whose power goes out after so many commits of either."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import Enum
from functools import partial

from tandembus.broker import browsing
from tandembus.broker.locks import MessageLock
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.clock import ManualClock
from tandembus.errors import BusError, StoreUnavailable
from tandembus.limits import Limits
from tandembus.message import Message
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.entity import Entity
from tandembus.namespace.local_namespace import LocalNamespace
from tandembus.store.embedded.catalog_store import DamagedRecord, Document
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import (
    MAIN,
    AuditPage,
    BlockRecord,
    Changes,
    CommitCost,
    Damage,
    Due,
    FragmentHead,
    HighWater,
    HistoryRecord,
    Mark,
    MessagingStore,
    Overlay,
    Place,
    Room,
    SessionColumn,
    SessionState,
)
from tandembus.store.owner_records import OwnerRecord, ReservedRecord
from tests.unit.broker.one_queue import Answer, body_of, message
from tests.unit.namespace.entity_fragment import fragment_of


class Outcome(Enum):
    WRITTEN = "as it should be"
    LOST = "the power went out before"
    KEPT = "the power went out after"


class Power:
    """Lasts for so many commits; the one behind them is the last, written or not."""

    def __init__(self) -> None:
        self.commit_count = 0
        self.went_out = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._fails_at: int | None = None
        self._is_last_kept = False

    def fail_after(self, commits: int, is_last_kept: bool) -> None:
        self._fails_at = self.commit_count + commits + 1
        self._is_last_kept = is_last_kept

    def cut(self) -> None:
        self.fail_after(0, False)

    def restore(self) -> None:
        self._fails_at = None
        self.went_out.clear()

    @property
    def is_out(self) -> bool:
        return self._fails_at is not None and self.commit_count >= self._fails_at

    def next(self) -> Outcome:
        self.commit_count += 1
        if self._fails_at is None or self.commit_count < self._fails_at:
            return Outcome.WRITTEN
        self._loop.call_soon_threadsafe(self.went_out.set)
        if self.commit_count == self._fails_at and self._is_last_kept:
            return Outcome.KEPT
        return Outcome.LOST


class Records:
    """What the catalog writes to."""

    def __init__(self, power: Power) -> None:
        self.documents: dict[bytes, str] = {}
        self.damaged: list[bytes] = []
        self._power = power

    def read_all(self) -> tuple[dict[bytes, Document], list[DamagedRecord]]:
        damaged = [DamagedRecord(key, "its checksum is wrong") for key in self.damaged]
        return {key: json.loads(text) for key, text in self.documents.items()}, damaged

    def commit(self, puts: Mapping[bytes, Document], drops: Iterable[bytes] = ()) -> None:
        outcome = self._power.next()
        if outcome is not Outcome.LOST:
            for key in drops:
                self.documents.pop(key, None)
            self.documents.update({key: json.dumps(document) for key, document in puts.items()})
        if outcome is not Outcome.WRITTEN:
            raise StoreUnavailable("the power is out")

    def reopen(self) -> None:
        if self._power.is_out:
            raise StoreUnavailable("the power is out")

    def close(self) -> None:
        return


class PoweredStore:
    """A memory store whose commits need power."""

    def __init__(self, store: MemoryStore, power: Power, number: int = 0, out: Set[int] = frozenset()) -> None:
        self._store = store
        self._power = power
        self._number = number
        self._out = out

    @property
    def epoch(self) -> int:
        return self._store.epoch

    async def commit(self, changes: Changes) -> None:
        if self._number in self._out:
            raise StoreUnavailable(f"store {self._number} is out")
        outcome = self._power.next()
        if outcome is not Outcome.LOST:
            await self._store.commit(changes)
        if outcome is not Outcome.WRITTEN:
            raise StoreUnavailable("the power is out")

    async def heads(self) -> Sequence[FragmentHead]:
        return await self._store.heads()

    async def blocks(self, fragment: int, lane: int) -> Sequence[BlockRecord]:
        return await self._store.blocks(fragment, lane)

    async def bodies(
        self, fragment: int, lane: int, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        return await self._store.bodies(fragment, lane, numbers, max_bytes)

    async def overlays(self, fragment: int, lane: int, first: int, last: int) -> Sequence[Overlay]:
        return await self._store.overlays(fragment, lane, first, last)

    async def overlays_at(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[Overlay]:
        return await self._store.overlays_at(fragment, lane, numbers)

    async def columns(self, fragment: int, lane: int, blocks: Sequence[int]) -> Sequence[SessionColumn | None]:
        return await self._store.columns(fragment, lane, blocks)

    async def session_state(self, fragment: int, session_id: str) -> SessionState | None:
        return await self._store.session_state(fragment, session_id)

    async def session_states(self, fragment: int, after: str | None, limit: int) -> Sequence[SessionState]:
        return await self._store.session_states(fragment, after, limit)

    async def schedules_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        return await self._store.schedules_before(at_ms, limit)

    async def expiries_before(self, at_ms: int, limit: int) -> Sequence[Due]:
        return await self._store.expiries_before(at_ms, limit)

    async def earliest_due(self) -> int:
        return await self._store.earliest_due()

    async def bodies_left(self, fragment: int, lane: int, limit: int) -> Sequence[int]:
        return await self._store.bodies_left(fragment, lane, limit)

    async def history(self, fragment: int, at_ms: int, number: int, max_bytes: int) -> Sequence[HistoryRecord]:
        return await self._store.history(fragment, at_ms, number, max_bytes)

    async def marks(self) -> Sequence[Mark]:
        return await self._store.marks()

    async def high_waters(self, fragment: int) -> Sequence[HighWater]:
        return await self._store.high_waters(fragment)

    @property
    def store_id(self) -> bytes:
        return self._store.store_id

    async def audit_pages(self, first: int, max_bytes: int) -> Sequence[AuditPage]:
        return await self._store.audit_pages(first, max_bytes)

    async def newest_audit_page(self) -> AuditPage | None:
        return await self._store.newest_audit_page()

    @property
    def last_commit(self) -> CommitCost:
        return self._store.last_commit

    async def enqueued_times(self, places: Sequence[Place]) -> Sequence[int]:
        return await self._store.enqueued_times(places)

    async def sizes(self, fragment: int, lane: int, numbers: Sequence[int]) -> Sequence[int]:
        return await self._store.sizes(fragment, lane, numbers)

    async def owners(self, fragment: int, lane: int) -> Sequence[OwnerRecord]:
        return await self._store.owners(fragment, lane)

    async def reserved(self, fragment: int, lane: int) -> Sequence[ReservedRecord]:
        return await self._store.reserved(fragment, lane)

    def room(self) -> Room:
        return self._store.room()

    async def close(self) -> None:
        await self._store.close()


class Machine:
    """What outlives the process: records, disk, clock, and the power."""

    def __init__(self, limits: Limits | None = None, stores: int = 1) -> None:
        self.power = Power()
        self.records = Records(self.power)
        self.disks = [MemoryDisk() for _ in range(stores)]
        self.clock = ManualClock()
        self.limits = limits or Limits()
        self.out: set[int] = set()
        """Stores whose commits fail and that cannot be opened."""

    @property
    def disk(self) -> MemoryDisk:
        return self.disks[0]

    async def open_store(self, number: int = 0) -> MessagingStore:
        if self.power.is_out or number in self.out:
            raise StoreUnavailable("the power is out")
        return PoweredStore(MemoryStore(self.disks[number]), self.power, number, self.out)

    def life(self, new_stores: int | None = None) -> Life:
        return Life(self, new_stores)


class Life:
    """One life of the process. It ends without a word: nothing is written when it is over."""

    def __init__(self, machine: Machine, new_stores: int | None = None) -> None:
        machine.power.restore()
        self.machine = machine
        self.clock = machine.clock
        self.catalog = Catalog(machine.records, machine.clock.now())
        self.brokers = [
            MessageBroker(partial(machine.open_store, number), machine.clock) for number in range(len(machine.disks))
        ]
        self.broker = self.brokers[0]
        self.namespace = LocalNamespace("bus", self.catalog, self.brokers, machine.limits, machine.clock, new_stores)

    async def __aenter__(self) -> Life:
        for broker in self.brokers:
            await broker.start()
        await self.namespace.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.machine.power.cut()
        with contextlib.suppress(StoreUnavailable):
            await self.namespace.stop()
        for broker in self.brokers:
            await broker.stop()
        await self.catalog.settled()  # or its last write would come into the next life
        for disk in self.machine.disks:
            disk.is_held = False

    async def quiet(self) -> None:
        for _ in range(2):
            for broker in self.working():
                await broker.next_turn()
        for broker in self.working():
            await broker.finish_staged()

    def working(self) -> list[MessageBroker]:
        return [broker for broker in self.brokers if broker.failure is None]

    async def forwarded(self) -> None:
        """Until nothing more can be forwarded."""
        await asyncio.gather(*self.namespace.resuming)
        await self.quiet()
        while not all(broker.forwarding.is_quiet() for broker in self.working()):
            await self.quiet()
        await self.quiet()

    async def dropped(self) -> None:
        """Until everything of what was deleted is gone."""
        for host in self.namespace.hosts:
            await host.dropper.finished()

    async def dropped_or_out_of_power(self) -> None:
        out = asyncio.ensure_future(self.machine.power.went_out.wait())
        dropping = asyncio.ensure_future(self.dropped())
        await asyncio.wait((out, dropping), return_when=asyncio.FIRST_COMPLETED)
        out.cancel()

    async def take_out(self, *stores: int) -> None:
        """These stores fail, and everybody knows."""
        for number in stores:
            self.machine.out.add(number)
            failed = asyncio.Event()
            self.brokers[number].on_failed.append(lambda _error, failed=failed: failed.set())  # type: ignore[misc]
            self.brokers[number].lose_store(StoreUnavailable(f"store {number} is out"))
            await failed.wait()

    async def bring_back(self) -> None:
        """All of them."""
        self.machine.out.clear()
        for broker in self.brokers:
            if broker.failure is not None:
                reopened = asyncio.Event()
                broker.on_reopened.append(reopened.set)
                broker.reopen_soon()
                await reopened.wait()

    async def send(self, name: str, *bodies: str, scheduled_in_s: float | None = None) -> list[int]:
        entity = await self.namespace.entity(name)
        at_ms = None if scheduled_in_s is None else self.clock.now_ms() + int(scheduled_in_s * 1000)
        answers = [staged(entity, message(body, scheduled_at_ms=at_ms)) for body in bodies]
        await self.quiet()
        assert all(answer.is_accepted for answer in answers)
        return [int(answer.messages[0].number) for answer in answers]

    async def receive(self, name: str, count: int) -> list[MessageLock]:
        """Lock the next messages; whoever did it stays away from the entity."""
        entity = await self.namespace.entity(name)
        locks: list[MessageLock] = []
        consumer = CallbackConsumer(False, lambda _message, lock: locks.append(lock))
        fragment_of(entity).consumers(MAIN).add(consumer)
        consumer.credit = count
        self.broker.want(fragment_of(entity))
        await self.quiet()
        fragment_of(entity).consumers(MAIN).remove(consumer)
        return locks

    async def settle(self, name: str, lock: MessageLock, settlement: int) -> None:
        fragment_of(await self.namespace.entity(name)).settle(lock, settlement, None)
        await self.quiet()

    async def peek(self, name: str, lane: int = MAIN) -> list[str]:
        entity = await self.namespace.entity(name)
        found = await browsing.peek(self.broker, fragment_of(entity), lane, 1, 1000, 1 << 20)
        return [body_of(one.message) for one in found]


def assert_disks_hold_just_the_entities(life: Life) -> None:
    """Every fragment that the catalog names is in its store, and nothing else is anywhere."""
    assert life.catalog.tombstones() == []
    for store, disk in enumerate(life.machine.disks):
        named = {entry.fragment_key + index for entry in life.catalog.entries() for index in entry.indexes_in(store)}
        assert set(disk.heads) == named
        assert {key[0] for key in (*disk.bodies, *disk.blocks, *disk.overlays)} <= named


def staged(entity: Entity, sent: Message) -> Answer:
    answer = Answer()
    answer.messages = [sent]
    reply = CallbackSendReply(lambda _operation, error: answer.give(error))
    fragment_of(entity).send(SendOperation([sent], len(sent.sections), reply, 0))
    return answer


class Attached:
    """A link that notes what happens to it."""

    def __init__(self, is_sender: bool, lane: int = MAIN) -> None:
        self.is_sender = is_sender
        self.lane = lane
        self.errors: list[BusError] = []
        self.change_count = 0

    def cut(self, error: BusError) -> None:
        self.errors.append(error)

    def entity_changed(self) -> None:
        self.change_count += 1
