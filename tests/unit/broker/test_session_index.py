"""The session index under tight limits: few sessions and few numbers in memory, columns of eight, bodies for four."""

from __future__ import annotations

import hashlib
import random

import pytest

from tandembus.broker.dropping import drop_fragments
from tandembus.broker.locks import ABANDON, COMPLETE, DEFER, MessageLock
from tandembus.broker.session_columns import TailColumn, column_entry, column_of, end_of_run, offsets_of, session_hash
from tandembus.broker.session_locks import renew_session
from tandembus.broker.settings import FragmentSettings
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import SESSION_HASH_BYTES, Changes
from tests.covers import covers
from tests.scale import scaled
from tests.unit.broker.one_queue import message
from tests.unit.broker.session_queue import SessionReceiver, session_queue


def tight(max_sessions: int = 3, max_session_numbers: int = 4, lock_duration_s: float = 60.0) -> FragmentSettings:
    return FragmentSettings(
        lock_duration_s=lock_duration_s,
        max_delivery_count=1000,
        window_messages=4,
        block_size=8,
        requires_session=True,
        max_sessions=max_sessions,
        max_session_numbers=max_session_numbers,
    )


@covers("M7")
async def test_more_sessions_than_fit_into_memory_are_all_found_oldest_first() -> None:
    async with session_queue(tight()) as queue:
        for i in range(50):
            await queue.send_to(f"s{i}", f"m{i}")
        assert len(queue.fragment.sessions or []) <= 11, "the limit, and what one more block brought"
        assert list(await queue.drain()) == [f"s{i}" for i in range(50)]


@covers("M7")
async def test_more_messages_than_are_known_of_a_session_are_all_found_in_order() -> None:
    async with session_queue(tight()) as queue:
        bodies = [f"m{i}" for i in range(100)]
        for body in bodies:
            await queue.send_to("a", body)
            await queue.send_to(f"other {body}", body)
        receiver = await queue.accept("a")
        assert await receiver.take(1000) == bodies


@covers("M7")
async def test_a_session_that_is_searched_for_alone_gets_what_comes_meanwhile() -> None:
    async with session_queue(tight()) as queue:
        for i in range(30):
            await queue.send_to(f"s{i}", f"m{i}")
        receiver = await queue.accept("late")
        assert await receiver.take(5) == []
        await queue.send_to("late", "l1", "l2")
        await queue.send_to("s0", "more")
        await queue.send_to("late", "l3")
        assert receiver.bodies == ["l1", "l2", "l3"]


@covers("M7")
async def test_behind_many_messages_of_a_held_session_the_next_one_is_found() -> None:
    async with session_queue(tight()) as queue:
        await queue.send_to("huge", *(f"m{i}" for i in range(500)))
        await queue.send_to("small", "here")
        await queue.accept("huge")
        receiver = await queue.accept()
        assert receiver.session_id == "small"
        assert await receiver.take(1) == ["here"]
    async with await queue.again() as again:
        await again.accept("huge")
        assert (await again.accept()).session_id == "small", "also when nothing is in memory yet"


@covers("M7")
async def test_a_session_let_go_with_more_than_is_known_is_offered_again() -> None:
    async with session_queue(tight()) as queue:
        await queue.send_to("a", *(f"m{i}" for i in range(40)))
        received: list[str] = []
        for _ in range(8):
            receiver = await queue.accept()
            received += await receiver.take(5)
            for lock in receiver.locks:
                await queue.complete(lock)
            await receiver.leave()
        assert received == [f"m{i}" for i in range(40)]
        waiting = queue.accepting()
        await queue.quiet()
        assert not waiting.done()
        waiting.cancel()


@covers("M7", "F6")
async def test_a_damaged_column_costs_nothing_but_time() -> None:
    async with session_queue(tight()) as queue:
        for i in range(40):
            await queue.send_to(f"s{i % 5}", f"m{i}")
        again = await queue.again()
    again.disk.damaged_columns = set(again.disk.columns)
    assert again.disk.damaged_columns
    async with again:
        assert await again.drain() == {f"s{k}": [f"m{i}" for i in range(40) if i % 5 == k] for k in range(5)}


@covers("M7", "F6")
async def test_a_damaged_message_is_passed_over_in_its_session() -> None:
    async with session_queue(tight()) as queue:
        numbers = await queue.send_to("a", *(f"m{i}" for i in range(20)))
        again = await queue.again()
    again.disk.damaged.add((5, 0, numbers[0]))
    again.disk.damaged.add((5, 0, numbers[7]))
    async with again:
        expected = [f"m{i}" for i in range(20) if i not in (0, 7)]
        assert await again.drain() == {"a": expected}


@covers("M7")
async def test_columns_go_with_their_blocks() -> None:
    async with session_queue(tight()) as queue:
        await queue.send_to("a", *(f"m{i}" for i in range(40)))
        assert len(queue.disk.columns) == 5
        await queue.drain()
        await queue.send_to("b", "one more")
        assert len(queue.disk.columns) <= 1, "only the newest block is left"


@covers("M7")
async def test_nothing_of_a_dropped_fragment_is_left() -> None:
    async with session_queue(tight()) as queue:
        await queue.send_to("a", *(f"m{i}" for i in range(40)))
        await queue.set_state("a", b"state")
        await drop_fragments(queue.broker, [5])
        disk = queue.disk
        assert (disk.columns, disk.session_states, disk.bodies, disk.blocks) == ({}, {}, {}, {})


@covers("M7")
async def test_a_search_that_comes_too_late_adds_nothing_twice() -> None:
    async with session_queue(tight(max_session_numbers=100)) as queue:
        await queue.send_to("a", *(f"m{i}" for i in range(20)))
        index = queue.fragment.sessions
        assert index is not None
        session = index.get("a")
        before = list(session.numbers)
        assert index.begin_search(session) == queue.fragment.main.visible_end, "everything is known already"
        column = column_of([column_entry(session_hash("a"), offset) for offset in range(1, 8)])
        assert not index.searched(session, 0, column, 8)
        index.scanned(0, column, 8)
        assert session.numbers == before
        assert await (await queue.accept("a")).take(100) == [f"m{i}" for i in range(20)]


# Two sessions whose ids have the same hash.


@pytest.fixture
def one_hash_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst there is: every session has the hash of every other. Compiled code looks the library up, too."""
    blake2b = hashlib.blake2b

    def of_sessions_or_others(data: bytes, *, digest_size: int) -> object:
        return SameHash() if digest_size == SESSION_HASH_BYTES else blake2b(data, digest_size=digest_size)

    monkeypatch.setattr(hashlib, "blake2b", of_sessions_or_others)
    assert session_hash("one") == session_hash("another")


class SameHash:
    def digest(self) -> bytes:
        return b"samehash"


@covers("M7")
@pytest.mark.usefixtures("one_hash_for_all")
async def test_sessions_of_the_same_hash_are_told_apart_by_their_bodies() -> None:
    expected = {f"s{k}": [f"m{i}" for i in range(60) if i % 5 == k] for k in range(5)}
    async with session_queue(tight()) as queue:
        for i in range(60):
            await queue.send_to(f"s{i % 5}", f"m{i}")
        again = await queue.again()
    async with again:
        held = await again.accept("s3")
        assert await held.take(100) == expected["s3"]
        for lock in held.locks:
            await again.complete(lock)
        await held.leave()
        del expected["s3"]
        assert await again.drain() == expected


@covers("M7")
@pytest.mark.usefixtures("one_hash_for_all")
async def test_sessions_of_the_same_hash_are_held_apart() -> None:
    async with session_queue() as queue:
        await queue.send_to("a", "a1")
        await queue.send_to("b", "b1")
        a, b = await queue.accept("a"), await queue.accept("b")
        assert (await a.take(5), await b.take(5)) == (["a1"], ["b1"])


# Any history.


class History:
    """Random sends, accepts, settlements, losses and restarts, against what must be true of every session."""

    def __init__(self, seed: int, is_colliding: bool = False) -> None:
        self.is_colliding = is_colliding
        self.chance = random.Random(seed)
        self.settings = tight(self.chance.choice((2, 5, 100)), self.chance.choice((1, 4, 100)), lock_duration_s=30.0)
        self.queue = session_queue(self.settings)
        self.sent: dict[str, list[str]] = {}
        self.done: dict[str, set[str]] = {}
        self.deferred: set[str] = set()
        self.holders: dict[str, SessionReceiver] = {}
        self.count = 0

    async def run(self, steps: int) -> None:
        await self.queue.__aenter__()
        try:
            for _ in range(steps):
                step = self.chance.choice(
                    (self.send, self.send, self.send_many, self.accept, self.accept_named, self.take, self.take)
                    + (self.settle, self.settle, self.settle, self.leave, self.lapse, self.renew)
                    + ((self.restart,) if self.chance.random() < 0.2 else ())
                    + ((self.fill,) if self.chance.random() < 0.2 else ())
                )
                await step()
            await self.finish()
        finally:
            await self.queue.__aexit__()

    async def send(self) -> None:
        session_id = f"s{self.chance.randrange(6)}"
        self.count += 1
        await self.queue.send_to(session_id, f"{session_id}-{self.count}")
        self.sent.setdefault(session_id, []).append(f"{session_id}-{self.count}")

    async def send_many(self) -> None:
        for _ in range(self.chance.randrange(12)):
            await self.send()

    async def accept(self) -> None:
        waiting = self.queue.accepting()
        await self.queue.quiet()
        if waiting.done():
            self._hold(SessionReceiver(self.queue, waiting.result()))
            return
        waiting.cancel()
        await self.queue.quiet()
        free = [one for one in self.sent if one not in self.holders and self.left(one)]
        # Behind a held session of the same hash another one is found only when its messages are read.
        assert self.is_colliding or not free, f"{free} wait for a receiver, and one was waiting"

    async def accept_named(self) -> None:
        session_id = f"s{self.chance.randrange(7)}"
        if session_id not in self.holders:
            self._hold(await self.queue.accept(session_id))

    def _hold(self, receiver: SessionReceiver) -> None:
        assert receiver.session_id not in self.holders, "a session is held twice"
        self.holders[receiver.session_id] = receiver

    def holder(self) -> SessionReceiver | None:
        return self.chance.choice(list(self.holders.values())) if self.holders else None

    async def take(self) -> None:
        receiver = self.holder()
        if receiver is None:
            return
        receiver.consumer.credit = 0
        before = len(receiver.messages)
        open_before = self.open_of(receiver)
        taken = await receiver.take(self.chance.choice((1, 3, 50)))
        expected = [body for body in self.left(receiver.session_id) if body not in open_before]
        assert taken == expected[: len(taken)], "out of order, or somebody else's"
        assert receiver.consumer.credit == 0 or len(taken) == len(expected), "something waits, and there is credit"
        assert len(receiver.messages) == before + len(taken)

    def open_of(self, receiver: SessionReceiver) -> list[str]:
        pairs = zip(receiver.bodies, receiver.locks, strict=True)
        return [body for body, lock in pairs if lock.settlement == 0]

    def left(self, session_id: str) -> list[str]:
        done = self.done.get(session_id, set())
        return [body for body in self.sent.get(session_id, []) if body not in done and body not in self.deferred]

    async def settle(self) -> None:
        receiver = self.holder()
        if receiver is None:
            return
        receiver.consumer.credit = 0
        pairs = [pair for pair in zip(receiver.bodies, receiver.locks, strict=True) if pair[1].settlement == 0]
        if not pairs:
            return
        body, lock = self.chance.choice(pairs)
        settlement = self.chance.choice((COMPLETE, COMPLETE, COMPLETE, ABANDON, DEFER))
        await self._settle(body, lock, settlement, receiver.session_id)

    async def _settle(self, body: str, lock: MessageLock, settlement: int, session_id: str) -> None:
        answer = self.queue.settle(lock, settlement)
        await self.queue.quiet()
        assert answer.is_accepted
        if settlement == COMPLETE:
            self.done.setdefault(session_id, set()).add(body)
        elif settlement == DEFER:
            self.deferred.add(body)

    async def leave(self) -> None:
        receiver = self.holder()
        if receiver is not None:
            del self.holders[receiver.session_id]
            await receiver.leave()

    async def lapse(self) -> None:
        if self.chance.random() < 0.5:
            await self.queue.pass_time(31.0)
            assert all(one.loss is not None for one in self.holders.values())
            self.holders = {}

    async def renew(self) -> None:
        await self.queue.pass_time(1.0)
        for receiver in self.holders.values():
            renew_session(self.queue.fragment, receiver.lock)

    async def restart(self) -> None:
        self.queue = await self.queue.again()
        await self.queue.__aenter__()
        self.holders = {}

    async def fill(self) -> None:
        """The store is full for one commit: what was sent with it is refused and must leave no trace."""
        self.queue.fault_next(Fault.FULL)
        answers = [
            self.queue.stage(message("refused", session_id=f"s{i}")) for i in range(self.chance.randrange(1, 20))
        ]
        await self.queue.quiet()
        assert all(answer.error is not None for answer in answers)
        self.queue.broker.check_room()

    async def finish(self) -> None:
        for receiver in self.holders.values():
            await receiver.leave()
        left = {one: self.left(one) for one in self.sent if self.left(one)}
        drained = await self.queue.drain()
        if self.is_colliding:  # a session may be offered for messages that turn out to be another's
            drained = {one: bodies for one, bodies in drained.items() if bodies}
        assert drained == left
        assert self.queue.active_count == len(self.deferred)


@covers("M7")
@pytest.mark.parametrize("seed", range(scaled(30, 300, 3000)))
async def test_any_history_keeps_sessions_whole_in_order_and_reachable(seed: int) -> None:
    await History(seed).run(60)


@covers("M7")
@pytest.mark.usefixtures("one_hash_for_all")
@pytest.mark.parametrize("seed", range(scaled(10, 100, 1000)))
async def test_any_history_does_so_when_all_sessions_have_the_same_hash(seed: int) -> None:
    await History(seed, is_colliding=True).run(60)


# Columns.


def test_a_column_finds_the_offsets_of_a_session_and_of_no_other() -> None:
    ids = ["a", "b", "a", "c", "b", "a"]
    column = column_of([column_entry(session_hash(one), offset) for offset, one in enumerate(ids)])
    for one in "abc":
        assert offsets_of(column, session_hash(one)) == [i for i, each in enumerate(ids) if each == one]
    assert offsets_of(column, session_hash("d")) == []
    assert offsets_of(b"", session_hash("a")) == []


def test_a_run_ends_where_the_next_hash_begins() -> None:
    entries = b"".join(column_entry(bytes([hash_of]) * 8, offset) for hash_of, offset in ((1, 0), (1, 1), (2, 1023)))
    assert (end_of_run(entries, 0), end_of_run(entries, 2)) == (2, 3)


def test_numbers_taken_back_open_a_filled_column_again() -> None:
    column = TailColumn(1, 0, 8, 0, [], False)
    for number in range(1, 20):
        column.add(number, f"s{number}")
    changes = Changes()
    column.emit(20, changes)
    assert [one.block for one in changes.columns] == [0, 1]
    for number in reversed(range(5, 20)):
        column.take_back(number)
    column.emit_again(5, changes)
    assert changes.columns == []
    column.show()
    for number in range(5, 9):
        column.add(number, f"t{number}")
    column.emit(9, changes)
    (written,) = changes.columns
    ids = [f"s{number}" for number in range(1, 5)] + [f"t{number}" for number in range(5, 8)]
    assert written.entries == column_of([column_entry(session_hash(one), i + 1) for i, one in enumerate(ids)])
