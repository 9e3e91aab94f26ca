"""Random lives of a partitioned queue: every accepted message is received once, whatever the receivers do."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tandembus.broker.locks import ABANDON, COMPLETE, RELEASE, MessageLock
from tandembus.errors import BusError, MessageLockLost, StoreUnavailable
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.message import Message
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, body_of, small
from tests.unit.namespace.partitioned_queue import PartitionedQueue, Receiver, keyed


class Life:
    """What was accepted, what was done with it, and who receives."""

    def __init__(self, queue: PartitionedQueue, seed: int, is_destructive: bool) -> None:
        self.queue = queue
        self.chance = random.Random(seed)
        self.is_destructive = is_destructive
        self.sent: dict[str, Answer] = {}
        self.receivers: list[Receiver] = []
        self.delivered: Counter[str] = Counter()
        self.completed: list[tuple[str, Answer]] = []
        self.lost_count = 0
        """Removed for a receiver that left before the commit: that is what the mode means."""
        self.open: dict[int, list[tuple[str, MessageLock]]] = {}

    async def step(self) -> None:
        act = self.chance.choice(
            [self.send, self.send, self.send_batch, self.come, self.want, self.want, self.drain, self.settle, self.go]
        )
        act()
        if self.chance.random() < 0.3:
            await self.queue.quiet()
        if self.chance.random() < 0.05:
            await self.queue.pass_time(self.chance.choice([0.2, 3.0, 11.0]))
        self.take_in()
        self.check_bounds()

    def check_bounds(self) -> None:
        cache = self.queue.traffic.cache(MAIN)
        if cache is not None:
            credit = sum(max(int(one.consumer.credit), 0) for one in self.receivers)
            assert cache.feeders.outstanding + len(cache) <= credit + 16
            assert cache.kept_bytes <= self.queue.partition_settings.cache_bytes
            assert cache.kept_bytes == sum(int(one.lock.size_bytes) for one in cache._kept)

    def send(self) -> None:
        body = f"m{len(self.sent)}"
        key = self.chance.choice([None, None, "a", "b", "c"])
        self._stage([keyed(body, key, padding=self.chance.choice([0, 0, 300]))], [body])

    def send_batch(self) -> None:
        bodies = [f"m{len(self.sent) + number}" for number in range(self.chance.randrange(2, 5))]
        self._stage([keyed(body) for body in bodies], bodies)

    def _stage(self, messages: list[Message], bodies: list[str]) -> None:
        try:
            answer = self.queue.stage(*messages)
        except StoreUnavailable as error:
            answer = Answer()
            answer.give(error)
        for body in bodies:
            self.sent[body] = answer

    def come(self) -> None:
        if len(self.receivers) < 4:
            self.receivers.append(self.queue.receiver(is_destructive=self.is_destructive))

    def _any(self) -> Receiver | None:
        return self.chance.choice(self.receivers) if self.receivers else None

    def want(self) -> None:
        receiver = self._any()
        if receiver is not None:
            receiver.want(self.chance.choice([1, 1, 2, 5, 30]))

    def drain(self) -> None:
        receiver = self._any()
        if receiver is not None:
            receiver.want(self.chance.choice([1, 3, 20]), True)

    def go(self) -> None:
        receiver = self._any()
        if receiver is None or self.chance.random() < 0.5:
            return
        self.take_in()
        self.receivers.remove(receiver)
        self.lost_count += int(receiver.consumer.removing_count)
        receiver.leave()

    def take_in(self) -> None:
        """What the receivers have got since the last time."""
        for receiver in self.receivers:
            for message, lock in zip(receiver.messages, receiver.locks, strict=True):
                body = body_of(message)
                assert int(message.delivery_count) <= self.delivered[body], "nothing counts but what a client saw"
                self.delivered[body] += 1
                if not self.is_destructive:
                    self.open.setdefault(id(receiver), []).append((body, lock))
            receiver.messages.clear()
            receiver.locks.clear()

    def settle(self) -> None:
        for held in self.open.values():
            while held and self.chance.random() < 0.7:
                body, lock = held.pop(self.chance.randrange(len(held)))
                settlement = self.chance.choice([COMPLETE, COMPLETE, COMPLETE, ABANDON, RELEASE])
                try:
                    answer = self.queue.settle(lock, settlement)
                except BusError:
                    continue
                if settlement == COMPLETE:
                    self.completed.append((body, answer))

    async def end(self) -> None:
        """Everybody leaves, and one receiver takes all that is left."""
        self.take_in()
        for receiver in self.receivers:
            receiver.leave()
        self.receivers = []
        await self.queue.quiet()
        await self.queue.pass_time(120.0)
        await self.queue.quiet()
        last = self.queue.receiver(is_destructive=self.is_destructive)
        for _ in range(100):
            if not await last.take(50):
                break
        self.receivers = [last]
        self.open = {}

    def completes(self, *errors: type[BusError] | None) -> list[str]:
        """The messages whose completion was answered in one of these ways; None: it was done."""
        return [
            body for body, answer in self.completed if (None if answer.error is None else type(answer.error)) in errors
        ]


PATIENT = ChannelSettings(in_doubt_wait_s=1e9, fragment_timeout_s=1e9)
"""A store that fails comes back before anybody gives up: then nothing may be there twice."""


def roomy(channels: ChannelSettings | None = None) -> PartitionedQueue:
    settings = small(60.0, 1000, window_messages=6, block_size=16)
    return PartitionedQueue(settings, 3, cache_bytes=2000, channels=channels)


@covers("P6", "M1", "M2")
@pytest.mark.parametrize("seed", range(5))
async def test_every_accepted_message_is_completed_once_or_still_there(seed: int) -> None:
    async with roomy() as queue:
        life = Life(queue, seed, False)
        for _ in range(300):
            await life.step()
        await life.end()
        (last,) = life.receivers
        accepted = {body for body, answer in life.sent.items() if answer.is_accepted}
        done = [body for body, answer in life.completed if answer.is_accepted]
        assert accepted == set(life.sent), "nothing was wrong with any of them"
        assert sorted(done + last.bodies) == sorted(accepted)


@covers("P6", "M1", "M2")
@pytest.mark.parametrize("seed", range(5))
async def test_what_is_received_and_deleted_comes_once(seed: int) -> None:
    async with roomy() as queue:
        life = Life(queue, seed, True)
        for _ in range(300):
            await life.step()
        await queue.quiet()
        life.take_in()
        await life.end()
        life.take_in()
        assert set(life.delivered.values()) <= {1}
        assert len(life.delivered) + life.lost_count == len(life.sent)
        assert sum(queue.counts()) == 0


@covers("P3", "P13", "M1")
@pytest.mark.parametrize("seed", range(8))
async def test_nothing_accepted_is_lost_or_doubled_while_stores_fail_and_return(seed: int) -> None:
    async with roomy(PATIENT) as queue:
        life = Life(queue, seed, False)
        for step in range(300):
            await life.step()
            if step % 40 == 20:
                fault = life.chance.choice([Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
                await queue.fail(life.chance.randrange(3), fault, stays_down=life.chance.random() < 0.5)
            if step % 40 == 35:
                for index in range(3):
                    await queue.heal(index)
        for index in range(3):
            await queue.heal(index)
        await life.end()
        (last,) = life.receivers
        done, unknown = life.completes(None), life.completes(StoreUnavailable)
        refused = set(life.completes(MessageLockLost))
        assert len(done) + len(unknown) + len(life.completes(MessageLockLost)) == len(life.completed)
        accepted = {body for body, answer in life.sent.items() if answer.is_accepted}
        lost = accepted - set(done) - set(unknown) - set(last.bodies)
        assert not lost, f"of these a completion was refused: {lost & refused}"
        again = Counter(done + last.bodies)
        assert max(again.values()) == 1, f"there twice: {[body for body in again if again[body] > 1]}"
        assert set(last.bodies) <= set(life.sent)
