"""Everything that goes over a channel, with the line cut at any byte: what was answered is what the broker has."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tandembus.broker.locks import COMPLETE, RELEASE
from tandembus.broker.operations import CallbackConsumer
from tandembus.broker.transactions import TransactionSettlement
from tandembus.clock import SystemClock
from tandembus.errors import BusError, FragmentUnavailable, MessageLockLost, SessionLockLost
from tandembus.interconnect.remote_traffic import RemoteTraffic
from tandembus.interconnect.traffic import SessionHold, SessionWish
from tandembus.message import Message
from tandembus.store.memory import MemoryDisk
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, body_of, message, small
from tests.unit.interconnect.two_ends import (
    KEY,
    BrokerEnd,
    Cutter,
    FrontEnd,
    Receiver,
    discharge,
    settle,
    stage,
    until,
)

PLENTY = 1 << 30
SESSIONS = KEY + 1


class Drained:
    """A receive-and-delete receiver that notes what comes when its drain is over."""

    def __init__(self, traffic: RemoteTraffic) -> None:
        self.traffic = traffic
        self.bodies: list[str] = []
        self.late: list[str] = []
        self.is_over = True
        self.consumer = CallbackConsumer(True, self._deliver, self._drained)
        traffic.attach(self.consumer, MAIN)

    def _deliver(self, message: Message, _lock: object) -> None:
        (self.late if self.is_over else self.bodies).append(body_of(message))

    def _drained(self) -> None:
        self.is_over = True
        self.consumer.credit = 0

    async def drain(self, credit: int) -> None:
        self.is_over = False
        self.consumer.credit = credit
        self.traffic.feed(self.consumer, MAIN, True)
        await until(lambda: self.is_over)


class Client:
    """One life of a front end: it does a bit of everything, and does again what is known not to have been done."""

    def __init__(self, front_end: FrontEnd, name: str) -> None:
        self.front_end = front_end
        self.name = name
        self.traffic = front_end.traffic()
        self.sessions = front_end.traffic(SESSIONS, 1, True)
        self.scheduled: dict[str, int] = {}

    async def run(self) -> None:
        await self.receive(await self.send("locked", 4))
        await self.drain(await self.send("drained", 4))
        await self.move()
        await self.schedule()
        await self.use_session()

    async def up(self) -> None:
        assert await self.front_end.channel.until_up(10.0)

    async def send(self, what: str, count: int, session_id: str | None = None) -> list[str]:
        bodies = [f"{self.name} {what} {number}" for number in range(count)]
        traffic = self.traffic if session_id is None else self.sessions
        waiting = list(bodies)
        while waiting:
            await self.up()
            answers = [(body, stage(traffic, message(body, session_id=session_id))) for body in waiting]
            errors = [(body, await answer.wait()) for body, answer in answers]
            assert all(error is None or isinstance(error, FragmentUnavailable) for _, error in errors)
            waiting = [body for body, error in errors if error is not None]
        return bodies

    async def completed(self, traffic: RemoteTraffic, receiver: Receiver) -> list[str]:
        """Complete all it has; what is lost comes again."""
        got = list(zip(receiver.bodies, receiver.locks, strict=True))
        receiver.messages, receiver.locks = [], []
        answers: list[tuple[str, Answer]] = []
        for body, lock in got:
            try:
                answers.append((body, settle(traffic, lock, COMPLETE)))
            except (MessageLockLost, FragmentUnavailable):
                continue
        errors = [(body, await answer.wait()) for body, answer in answers]
        assert all(error is None or isinstance(error, (MessageLockLost, FragmentUnavailable)) for _, error in errors)
        return [body for body, error in errors if error is None]

    async def receive(self, bodies: list[str]) -> None:
        receiver = Receiver(self.traffic).attach()
        done: Counter[str] = Counter()
        receiver.want(len(bodies))
        while len(done) < len(bodies):
            await until(lambda: len(receiver.messages) > 0)
            done.update(await self.completed(self.traffic, receiver))
            await self.up()
            receiver.want(len(bodies))
        receiver.leave()
        assert done == Counter(bodies), "each is completed once, and never comes again"

    async def drain(self, bodies: list[str]) -> None:
        receiver = Drained(self.traffic)
        while len(receiver.bodies) + len(receiver.late) < len(bodies):
            await self.up()
            await receiver.drain(3)
        self.traffic.detach(receiver.consumer, MAIN)
        assert (sorted(receiver.bodies), receiver.late) == (bodies, [])

    async def move(self) -> None:
        """A message is replaced by another, in one transaction."""
        (old,) = await self.send("old", 1)
        receiver = Receiver(self.traffic).attach()
        error: BusError | None = MessageLockLost("not yet")
        while error is not None:
            await self.up()
            receiver.messages, receiver.locks = [], []
            receiver.want(1)
            await until(lambda: len(receiver.messages) > 0 or not self.front_end.channel.is_up)
            if not receiver.locks:
                continue
            assert receiver.bodies == [old]
            try:
                part = TransactionSettlement(receiver.locks[0], COMPLETE)
                error = await discharge(self.traffic, [message(f"{self.name} new")], part).wait()
            except (MessageLockLost, FragmentUnavailable) as refusal:
                error = refusal
            assert error is None or isinstance(error, (MessageLockLost, FragmentUnavailable))
            if isinstance(error, FragmentUnavailable) and receiver.locks:
                await self.up()
                self.give_back(receiver)
        receiver.leave()
        await self.receive([f"{self.name} new"])

    def give_back(self, receiver: Receiver) -> None:
        """It is to come again, with a lock that is known to be good."""
        try:
            self.traffic.settle(receiver.locks[0], RELEASE, None)
        except (MessageLockLost, FragmentUnavailable):
            return

    async def schedule(self) -> None:
        body = f"{self.name} later"
        at_ms = SystemClock().now_ms() + 3_600_000
        while body not in self.scheduled:
            await self.up()
            try:
                later = message(body, scheduled_at_ms=at_ms)
                (self.scheduled[body],) = await self.front_end.requests().schedule([later], 100)
            except FragmentUnavailable:
                continue

    async def use_session(self) -> None:
        bodies = await self.send("session", 3, self.name)
        done: Counter[str] = Counter()
        while len(done) < len(bodies):
            await self.up()
            done.update(await self.hold_session())
        assert done == Counter(bodies)

    async def hold_session(self) -> list[str]:
        holds: list[SessionHold] = []
        refusals: list[BusError] = []
        self.sessions.wish_session(SessionWish(self.name, False, holds.append, refusals.append))
        await until(lambda: len(holds) + len(refusals) > 0)
        if refusals:
            return []
        receiver = Receiver(self.sessions)
        self.sessions.hold_session(holds[0], receiver.consumer)
        receiver.want(3)
        await until(lambda: len(receiver.messages) > 0 or receiver.loss is not None)
        assert receiver.loss is None or isinstance(receiver.loss, SessionLockLost)
        done = await self.completed(self.sessions, receiver)
        self.sessions.leave_session(holds[0])
        return done


class Line:
    def __init__(self, folder: Path) -> None:
        queue = small(window_messages=1000, block_size=1024, max_locks=50_000)
        sessions = small(window_messages=1000, block_size=1024, max_locks=50_000, requires_session=True)
        fragments = {KEY: queue, SESSIONS: sessions}
        self.broker = BrokerEnd(folder / "broker", MemoryDisk(), SystemClock(), fragments)
        self.cutter = Cutter(folder / "line", folder / "broker")
        self.scheduled: dict[str, int] = {}
        self.count = 0

    async def __aenter__(self) -> Line:
        await self.broker.start()
        await self.cutter.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cutter.stop()
        await self.broker.stop()

    async def run_over_a_cut(self, after: int, is_forward: bool) -> int:
        """Returns how many bytes went through."""
        before = sum(self.cutter.passed)
        self.cutter.cut_after(after, is_forward)
        front_end = FrontEnd(self.cutter.path, SystemClock())
        front_end.channel.start()
        self.count += 1
        client = Client(front_end, f"{self.count:03}")
        try:
            await asyncio.wait_for(client.run(), 30.0)
        except BaseException as error:
            raise AssertionError(f"cut after {after} bytes: {error!r}") from error
        finally:
            await front_end.stop()
        self.cutter.cut_after(PLENTY, True)
        self.scheduled.update(client.scheduled)
        return sum(self.cutter.passed) - before


@covers("P13", "P15", "P24", "P6", "P4", "P16")
@pytest.mark.parametrize("is_forward", [True, False])
async def test_whatever_goes_over_a_line_that_is_cut_after_any_byte_is_done_once(
    run_folder: Path, is_forward: bool
) -> None:
    async with Line(run_folder) as line:
        await line.run_over_a_cut(PLENTY, is_forward)
        before = line.cutter.passed[0 if is_forward else 1]
        for number in range(60):
            await line.run_over_a_cut(300 + number * (before - 320) // 60, is_forward)
        assert line.cutter.cut_count >= 50
        queue, sessions = await line.broker.fragment(), await line.broker.fragment(SESSIONS)
        assert (int(queue.main.scheduled_count), len(queue.locks)) == (61, 0)
        assert (int(queue.main.live_count), int(sessions.main.live_count)) == (61, 0), "all else is completed"
        for body, number in line.scheduled.items():
            assert body_of(line.broker.disk.bodies[KEY, MAIN, number]) == body
