"""A backlog queue and a primary in memory, for the syphon's engine: calls take time, locks lapse, links have an
identity, and anything fails when the dice say so."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from tandembus.amqp.encoding.sections import header_section, message_annotations_section
from tandembus.amqp.encoding.values import int_, timestamp
from tandembus.client import OutgoingMessage
from tandembus.errors import EntityDisabled
from tandembus.pairing.aliases import IS_HOME, PATH
from tandembus.pairing.payloads import browsed, to_backlog
from tandembus.pairing.syphon_messages import Delivery, LocksLost
from tandembus.pairing.syphon_rules import PrimaryUnreachable

LOCK_S = 60.0


class LinkLost(Exception):
    """The connection to the secondary broke."""


@dataclass(frozen=True)
class Costs:
    """Seconds that each call takes; `page` messages are browsed at a time."""

    receive_s: float = 0.01
    settle_s: float = 0.005
    deferred_s: float = 0.02
    renew_s: float = 0.002
    browse_s: float = 0.01
    page: int = 250


@dataclass(eq=False)
class Lock:
    """By whom, and until when. Each delivery has one of its own."""

    holder: object
    until: float


@dataclass(eq=False)
class Stored:
    """A message, where it is, and in whose hands."""

    number: int
    stored: bytes
    is_deferred: bool = False
    delivery_count: int = 0
    lock: Lock | None = None

    def delivered(self) -> bytes:
        annotations: dict[str, object] = {"x-opt-sequence-number": self.number}
        if self.lock is not None:
            annotations["x-opt-locked-until"] = timestamp(int(self.lock.until * 1000))
        if self.is_deferred:
            annotations["x-opt-message-state"] = int_(1)
        head = header_section(durable=True, delivery_count=self.delivery_count)
        return head + message_annotations_section(annotations) + self.stored

    def is_free(self, now: float) -> bool:
        if self.lock is not None and self.lock.until <= now:
            self.lapse()
        return self.lock is None

    def lapse(self) -> None:
        self.lock = None
        self.delivery_count += 1


class Origin(NamedTuple):
    """What a port settles a message by: its lock, on the link that it came on."""

    message: Stored
    lock: Lock
    link: int


class SimulatedQueue:
    """What is in the queue. Ports come and go; a lock outlives its port, as the service's do, until it lapses."""

    def __init__(self, lock_s: float = LOCK_S) -> None:
        self.lock_s = lock_s
        self.messages: dict[int, Stored] = {}
        self.mistakes: list[str] = []
        """What nobody may do, and an engine that survives everything would hide."""
        self._last = 0
        self._waiters: list[asyncio.Future[None]] = []

    def put(self, path: str, body: int, is_deferred: bool = False, delivery_count: int = 0) -> None:
        self._last += 1
        payload = to_backlog(OutgoingMessage(str(body), message_id=str(body)).encode(), path)
        # The header of a stored message is the broker's to write.
        stored = payload[payload.index(b"\x00\x53\x73") :]
        self.messages[self._last] = Stored(self._last, stored, is_deferred, delivery_count)
        self.stir()

    def holder_of(self, number: int) -> object:
        lock = self.messages[number].lock
        return None if lock is None else lock.holder

    def give_back(self, holder: object) -> None:
        """At once, as when a link is closed in order."""
        for each in self.messages.values():
            if each.lock is not None and each.lock.holder is holder:
                each.lapse()
        self.stir()

    def stir(self) -> None:
        """Whoever waits looks again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, limit_s: float) -> None:
        """Until something may have come: new, given back, or with a lock that lapses."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        lapses = [each.lock.until for each in self.messages.values() if each.lock is not None and not each.is_deferred]
        await asyncio.wait((waiter,), timeout=max(0.0, min([limit_s, *[until - _now() for until in lapses]])))


@dataclass(eq=False)
class SimulatedBacklog:
    """One syphon's port on the queue."""

    stored: SimulatedQueue
    dice: random.Random = field(default_factory=random.Random)
    failure_rate: float = 0.0
    costs: Costs = field(default_factory=Costs)
    do_locks_outlive_links: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    queue: str = "backlog"
    failures: tuple[type[Exception], ...] = (LinkLost, LocksLost)
    _link: int = 0
    _is_interrupted: bool = False
    _is_woken: bool = False
    is_cut: bool = False
    """Nobody has found out yet."""

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        await self._call("receive", self.costs.receive_s)
        ends_at = _now() + wait_s
        while not (found := self._available(max_count)) and _now() < ends_at and not self._is_over():
            await self.stored.wait(ends_at - _now())
        if self.is_cut:
            raise LinkLost("the link broke during a receive")
        self._is_woken = False
        return [] if self._is_interrupted else [self._locked(each) for each in found]

    async def interrupt(self) -> None:
        self._is_interrupted = True
        self.stored.stir()

    async def wake(self) -> None:
        self._is_woken = True
        self.stored.stir()

    def _is_over(self) -> bool:
        return self._is_interrupted or self._is_woken or self.is_cut

    def has_lost(self, deliveries: Sequence[Delivery]) -> bool:
        return any(each.origin.link != self._link for each in deliveries)

    async def complete(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle("complete", deliveries, self._gone)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle("release", deliveries, self._back)

    async def abandon(self, deliveries: Sequence[Delivery], are_home: bool) -> None:
        await self._settle("abandon", deliveries, self._told_home if are_home else self._in_vain)

    async def defer(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle("defer", deliveries, self._aside)

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str, description: str) -> None:
        self.stored.mistakes.append(f"nothing here is a dead letter: {reason}: {description}")

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle("renew", deliveries, self._kept)

    async def receive_deferred(self, sequence_numbers: Sequence[int]) -> Sequence[Delivery]:
        await self._call("receive_deferred", self.costs.deferred_s)
        found = [self.stored.messages.get(number) for number in sequence_numbers]
        return [self._locked(each) for each in found if each and each.is_deferred and each.is_free(_now())]

    async def browse(self, from_number: int, max_count: int) -> Sequence[bytes]:
        await self._call("browse", self.costs.browse_s)
        ahead = (each for number, each in self.stored.messages.items() if number >= from_number)
        return [each.delivered() for each in islice(ahead, min(max_count, self.costs.page))]

    async def close(self) -> None:
        """Links that are closed in order give back what they hold, as long as they are there."""
        self.is_cut = False
        self._lose_link(not self.do_locks_outlive_links)

    def cut(self) -> None:
        """The secondary dies and is back at once: all locks are gone, and calls fail until there is a new link."""
        self.is_cut = True
        self._lose_link(True)

    def die(self) -> None:
        """As `kill -9` has it: nothing is done any more, and the locks stay until they lapse."""
        self._lose_link(False)

    async def _call(self, name: str, cost_s: float) -> None:
        link = self._link
        self.calls[name] += 1
        await asyncio.sleep(cost_s)
        if link != self._link or self.is_cut:
            raise LinkLost("the link of this call is gone")
        self._maybe_fail()

    def _maybe_fail(self) -> None:
        """Links break at any time; the next call tells, whoever makes it."""
        if self.dice.random() < self.failure_rate:
            self._lose_link(not self.do_locks_outlive_links)
            raise LinkLost("the connection broke")

    def _lose_link(self, is_orderly: bool) -> None:
        self._link += 1
        if is_orderly:
            self.stored.give_back(self)

    async def _settle(self, name: str, deliveries: Sequence[Delivery], settle: Callable[[Stored], None]) -> None:
        """All that are ours, and then the others are named; it may also be done without anybody hearing of it."""
        await self._call(name, self.costs.renew_s if name == "renew" else self.costs.settle_s)
        lost = [each for each in deliveries if not self._is_ours(name, each)]
        for each in deliveries:
            if each not in lost:
                settle(each.origin.message)
        self._maybe_fail()
        if lost:
            raise LocksLost(lost)

    def _is_ours(self, name: str, delivery: Delivery) -> bool:
        message, lock, link = delivery.origin
        if link != self._link:
            self.stored.mistakes.append(f"{name} of a message that came on another link")
        is_there = message.number in self.stored.messages
        return bool(is_there and message.lock is lock and lock.until > _now())

    def _gone(self, message: Stored) -> None:
        del self.stored.messages[message.number]

    def _back(self, message: Stored) -> None:
        message.lock = None
        self.stored.stir()

    def _in_vain(self, message: Stored) -> None:
        message.lapse()
        self.stored.stir()

    def _told_home(self, message: Stored) -> None:
        message.stored = noted_as_home(message.stored)
        self._in_vain(message)

    def _aside(self, message: Stored) -> None:
        message.lock = None
        message.is_deferred = True
        message.delivery_count += 1

    def _kept(self, message: Stored) -> None:
        assert message.lock is not None
        message.lock.until = _now() + self.stored.lock_s

    def _available(self, max_count: int) -> list[Stored]:
        now = _now()
        free = (each for each in self.stored.messages.values() if not each.is_deferred and each.is_free(now))
        return list(islice(free, max_count))

    def _locked(self, message: Stored) -> Delivery:
        lock = message.lock = Lock(self, _now() + self.stored.lock_s)
        return Delivery(message.delivered(), Origin(message, lock, self._link))


class SimulatedPrimary:
    """Entities by path. `troubled` take nothing; `is_away`: none of them can be reached."""

    def __init__(self, dice: random.Random, unknown_rate: float = 0.0, takes_s: Sequence[float] = (0.02,)) -> None:
        self._dice = dice
        self.takes_s = takes_s
        self.unknown_rate = unknown_rate
        self.troubled: set[str] = set()
        self.is_away = False
        self.arrived: dict[str, list[int]] = {}

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        await asyncio.sleep(self._dice.choice(self.takes_s))
        if self.is_away:
            raise PrimaryUnreachable("away")
        if path in self.troubled:
            raise EntityDisabled("disabled")
        self.arrived.setdefault(path, []).extend([body_of(payload) for payload in payloads])
        if self._dice.random() < self.unknown_rate:
            raise OSError("nobody knows what became of it")

    async def close(self) -> None: ...


def noted_as_home(stored: bytes) -> bytes:
    """As the service does when a message is abandoned with changed properties."""
    path = browsed(stored).path
    noted = OutgoingMessage(str(body_of(stored)), properties={PATH: path, IS_HOME: True}).encode()
    return noted[noted.index(b"\x00\x53\x74") :]


def body_of(payload: bytes) -> int:
    at = payload.index(b"\x00\x53\x75\xa0")
    return int(payload[at + 5 : at + 5 + payload[at + 4]])


def _now() -> float:
    return asyncio.get_running_loop().time()
