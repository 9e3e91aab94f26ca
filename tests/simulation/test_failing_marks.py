"""Several fragments of one entity in a store whose commits fail one after the other: whatever a channel was answered,
its mark tells exactly what was carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tandembus.broker import browsing, message_broker
from tandembus.broker.budget import Budget
from tandembus.broker.channel_marks import ChannelMark
from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import COMPLETE, CallbackSettleReply, MessageLock
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.clock import ManualClock
from tandembus.errors import BusError, StoreFull
from tandembus.message import Message
from tandembus.store.memory import Fault, MemoryDisk, MemoryStore
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, MessagingStore
from tests.covers import covers
from tests.unit.broker.one_queue import body_of, message, small

FRAGMENTS = 4
CHANNEL = b"channel of tests"

Place = tuple[int, int]
"""Fragment and lane."""


@pytest.fixture(autouse=True)
def _reopens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 0.0)


class Asked:
    """One numbered operation: what it was answered, and what it does to what is there."""

    def __init__(self, number: int, mark: ChannelMark, carry_out: Callable[[dict[str, Place]], None]) -> None:
        self.number = number
        self.carry_out = carry_out
        self.error: BusError | None = None
        self.is_answered = False
        self._mark = mark

    def collected(self, _operation: object) -> None:
        self._mark.done(self.number)

    def answer(self, _operation: object, error: BusError | None) -> None:
        assert not self.is_answered
        self.is_answered = True
        self.error = error
        if error is not None:
            self._mark.undo(self.number)


class ManyFragments:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = ManualClock()
        self.asked: list[Asked] = []
        self.locks: dict[str, MessageLock] = {}
        self._fragments: list[Fragment] = []
        self._begin()

    def _begin(self) -> None:
        self.broker = MessageBroker(self._open_store, self.clock, Budget(self.clock))
        self.is_open = asyncio.Event()
        self.broker.on_failed.append(lambda _error: self.is_open.clear())
        self.broker.on_reopened.append(self.is_open.set)

    async def _open_store(self) -> MessagingStore:
        return MemoryStore(self.disk)

    async def start(self) -> None:
        await self.broker.start()
        self.is_open.set()
        self.mark = self.broker.channel_marks.open(CHANNEL, self.clock.now_ms())
        self._fragments = []
        for index in range(FRAGMENTS):
            if index + 1 not in self.disk.heads:
                await self.broker.make_fragment(index + 1, 1, index)
            self._fragments.append(await self.broker.open_fragment(index + 1, index, small()))

    async def crash(self) -> None:
        """The process is gone; another reads what the disk holds."""
        tasks = [task for task in (*self.broker._tasks, self.broker._forwarder) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.broker._tasks, self.broker._store = [], None
        self.disk.is_held = False
        self._begin()
        await self.start()

    async def quiet(self) -> None:
        await self.is_open.wait()
        await self.broker.next_turn()
        await self.broker.finish_staged()
        await self.is_open.wait()

    def _next(self, carry_out: Callable[[dict[str, Place]], None]) -> Asked:
        asked = Asked(len(self.asked) + 1, self.mark, carry_out)
        self.asked.append(asked)
        return asked

    def _refused(self, asked: Asked, error: BusError) -> None:
        if not asked.is_answered:
            asked.answer(None, error)

    # What the channel asks for.

    def send(self, index: int, *bodies: str) -> None:
        asked = self._next(lambda there: there.update(dict.fromkeys(bodies, (index, MAIN))))
        messages = [message(body) for body in bodies]
        reply = CallbackSendReply(asked.answer, asked.collected)
        try:
            size = sum(len(one.sections) for one in messages)
            self._fragments[index].send(SendOperation(messages, size, reply, 0))
        except BusError as error:
            self._refused(asked, error)

    async def receive(self, index: int, count: int) -> None:
        consumer = CallbackConsumer(False, self._delivered)
        fragment = self._fragments[index]
        fragment.consumers(MAIN).add(consumer)
        consumer.credit = count
        self.broker.want(fragment)
        await self.quiet()
        fragment.consumers(MAIN).remove(consumer)

    def _delivered(self, delivered: Message, lock: MessageLock) -> None:
        self.locks[body_of(delivered)] = lock

    def settle(self, body: str, settlement: int) -> None:
        lock = self.locks.pop(body, None)
        if lock is None:
            return
        index = int(lock.index)

        def carry_out(there: dict[str, Place]) -> None:
            del there[body]
            if settlement == TO_DEAD_LETTERS:
                there[body] = (index, DEAD_LETTER)

        asked = self._next(carry_out)
        try:
            reply = CallbackSettleReply(asked.answer, asked.collected)
            self._fragments[index].settle(lock, settlement, reply)
        except BusError as error:
            self._refused(asked, error)

    def transact(self, index: int, sent: str, completed: str) -> None:
        lock = self.locks.pop(completed, None)
        if lock is None:
            return

        def carry_out(there: dict[str, Place]) -> None:
            del there[completed]
            there[sent] = (index, MAIN)

        asked = self._next(carry_out)
        one = message(sent)
        sends = [SendOperation([one], len(one.sections), CallbackSendReply(lambda *_: None), -1)]
        reply = CallbackTransactionReply(asked.answer, asked.collected)
        try:
            self._fragments[index].discharge(
                TransactionOperation(sends, [TransactionSettlement(lock, COMPLETE)], reply)
            )
        except BusError as error:
            self._refused(asked, error)

    # The script.

    async def run(self, in_between: Callable[[], None]) -> None:
        for step in (self._send_all, self._receive_all, self._settle_some, self._transact_all, self._send_more):
            await step()
            in_between()
            await self.quiet()

    async def _send_all(self) -> None:
        for index in range(FRAGMENTS):
            self.send(index, *[f"f{index}-{number}" for number in range(6)])
            self.send(index, f"f{index}-x")

    async def _receive_all(self) -> None:
        for index in range(FRAGMENTS):
            await self.receive(index, 7)

    async def _settle_some(self) -> None:
        for index in range(FRAGMENTS):
            self.settle(f"f{index}-0", COMPLETE)
            self.settle(f"f{index}-1", TO_DEAD_LETTERS)
            self.send(index, f"f{index}-late")
        await self.quiet()
        for index in range(FRAGMENTS):
            self.settle(f"f{index}-2", COMPLETE)

    async def _transact_all(self) -> None:
        for index in range(FRAGMENTS):
            self.transact(index, f"f{index}-t", f"f{index}-3")
            self.send(index, f"f{index}-beside")

    async def _send_more(self) -> None:
        for index in range(FRAGMENTS):
            self.send(index, f"f{index}-last")

    # What is there.

    async def found(self) -> dict[str, Place]:
        found: dict[str, Place] = {}
        for fragment in self._fragments:
            for lane in (MAIN, DEAD_LETTER):
                for one in await browsing.peek(self.broker, fragment, lane, 1, 1000, 1 << 20):
                    assert body_of(one.message) not in found, "there twice"
                    found[body_of(one.message)] = (int(fragment.index), lane)
        return found

    async def check(self) -> None:
        """What is there is the work of exactly those operations that the mark names, whatever was answered."""
        expected: dict[str, Place] = {}
        for asked in self.asked:
            is_done = self.mark.is_done(asked.number)
            if is_done:
                asked.carry_out(expected)
            if asked.is_answered and asked.error is None:
                assert is_done, f"operation {asked.number} was answered as done"
            if isinstance(asked.error, StoreFull):
                assert not is_done, f"operation {asked.number} was refused"
        assert await self.found() == expected


def nothing() -> None:
    return


async def commits_of_the_script() -> int:
    fragments = ManyFragments()
    await fragments.start()
    begun = fragments.disk.commit_count
    await fragments.run(nothing)
    await fragments.check()
    assert all(asked.is_answered and asked.error is None for asked in fragments.asked)
    await fragments.broker.stop()
    return fragments.disk.commit_count - begun


@covers("P15", "M1", "F3")
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
@pytest.mark.parametrize("times", [1, 2])
async def test_whichever_commit_fails_the_mark_tells_what_was_carried_out(fault: Fault, times: int) -> None:
    commits = await commits_of_the_script()
    assert commits >= 6
    for k in range(1, commits + 1):
        fragments = ManyFragments()
        await fragments.start()
        for time in range(times):
            fragments.disk.faults[fragments.disk.commit_count + k + time] = fault
        await fragments.run(fragments.broker.check_room)
        assert all(asked.is_answered for asked in fragments.asked)
        assert any(asked.error is not None for asked in fragments.asked)
        await fragments.check()
        await fragments.crash()
        await fragments.check()
        await fragments.broker.stop()


@covers("P15", "M1", "F2")
async def test_a_process_that_dies_in_any_commit_leaves_a_mark_that_is_right() -> None:
    for k in range(1, await commits_of_the_script() + 1):
        fragments = ManyFragments()
        await fragments.start()
        fragments.disk.faults[fragments.disk.commit_count + k] = Fault.HANG
        script = asyncio.ensure_future(fragments.run(nothing))
        await fragments.disk.is_hanging.wait()
        script.cancel()
        await asyncio.gather(script, return_exceptions=True)
        await fragments.crash()
        await fragments.check()
        assert any(not asked.is_answered for asked in fragments.asked)
        await fragments.broker.stop()
