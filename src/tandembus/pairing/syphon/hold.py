"""The messages of a backlog queue that the syphon holds: it receives, reads and settles them, and keeps their locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, final

from tandembus.clock import Clock
from tandembus.errors import MalformedData
from tandembus.pairing.aliases import MalformedBacklogMessage
from tandembus.pairing.payloads import browsed, from_backlog, locked_until
from tandembus.pairing.syphon.observer import SyphonObserver
from tandembus.pairing.syphon.ports import BacklogPort, Delivery, Held, LocksLost, by_destination

USUAL_LOCK_S: Final = 60.0
"""Of a backlog queue as pairing creates it. No lock is trusted for longer: clocks differ."""
SHORTEST_LOCK_S: Final = 5.0
"""The shortest that the service has. A lock that seems shorter means that our clock is ahead, by an unknown amount."""
LOOK_EVERY_S: Final = 0.5
FRAGMENT_SHIFT: Final = 48


class HeldLock:
    """The lock of messages that were received, or renewed, together."""

    __slots__ = ("lasts_s", "renew_at", "safe_until")

    def __init__(self, since: float, lasts_s: float) -> None:
        self.lasts_s: Final = lasts_s
        self.renew_at: Final = since + lasts_s / 3
        self.safe_until: Final = since + lasts_s * 2 / 3


@final
class HeldMessages:
    """A task of its own keeps every lock alive, whatever else takes time: a send without an answer, a search.

    A lock that was not renewed in time, or whose link is lost, is not trusted any more (`are_safe`): so no message is
    sent by two syphons. A lost lock costs one message. A lost link costs all; the next call raises it.
    """

    def __init__(
        self, backlog: BacklogPort, clock: Clock, observer: SyphonObserver, has_news: Callable[[], None]
    ) -> None:
        self._backlog: Final = backlog
        self._clock: Final = clock
        self._observer: Final = observer
        self._has_news: Final = has_news
        self._locks: dict[Delivery, HeldLock] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.is_partitioned = False
        """The backlog queue is partitioned: each fragment numbers its messages for itself."""

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        self.check()
        deliveries = await self._backlog.receive(max_count, wait_s)
        if deliveries:
            self._observer.received()
            self._take(deliveries)
        return deliveries

    async def receive_deferred(self, numbers: Sequence[int]) -> list[Held]:
        self.check()
        deliveries = await self._backlog.receive_deferred(numbers)
        self._take(deliveries)
        return await self.read(deliveries, is_deferred=True)

    async def read(self, deliveries: Sequence[Delivery], is_deferred: bool = False) -> list[Held]:
        """What the messages say. Malformed ones become dead letters."""
        held: list[Held] = []
        malformed: dict[tuple[str, str], list[Delivery]] = {}
        for delivery in deliveries:
            try:
                path, payload, number, delivery_count, is_home = from_backlog(delivery.payload)
            except MalformedBacklogMessage as error:
                malformed.setdefault((error.reason, error.description), []).append(delivery)
                continue
            is_inherited = not is_deferred and (is_home or delivery_count > 0)
            held.append(Held(delivery, path, payload, number, is_home, is_inherited, is_deferred))
            if number >> FRAGMENT_SHIFT:
                self.is_partitioned = True
        for (reason, description), some in malformed.items():
            await self._dead_letter(some, None, reason, description)
        return held

    async def browse(self, from_number: int, max_count: int) -> Sequence[bytes]:
        self.check()
        return await self._backlog.browse(from_number, max_count)

    async def complete(self, held: Sequence[Held]) -> None:
        """They are home."""
        await self._settle(held, self._backlog.complete)

    def tell_moved(self, held: Iterable[Held]) -> None:
        for some in by_destination(held).values():
            size_bytes = sum([len(each.payload) for each in some])
            self._observer.moved(self._backlog.queue, some[0].path, len(some), size_bytes)

    async def release(self, held: Sequence[Held]) -> None:
        await self._settle(held, self._backlog.release)

    async def hand_on(self, held: Sequence[Held], is_home: bool) -> None:
        """Gives them back with a delivery counted, so that their next receiver looks for deferred messages."""
        await self._settle(held, partial(self._backlog.abandon, is_home=is_home))

    async def defer(self, held: Sequence[Held]) -> None:
        await self._settle(held, self._backlog.defer)

    async def dead_letter(self, refused: Iterable[tuple[Held, str, str]]) -> None:
        """Those with the same reason together: others wait meanwhile."""
        alike: dict[tuple[str, str], list[Held]] = {}
        for each, reason, description in refused:
            alike.setdefault((reason, description), []).append(each)
        for (reason, description), held in alike.items():
            await self._dead_letter([each.delivery for each in held], held[0].path, reason, description)

    def holds(self, held: Held) -> bool:
        return held.delivery in self._locks

    def are_safe(self, deliveries: Sequence[Delivery]) -> bool:
        """Whether they are locked, and for long enough to begin to send them."""
        now = self._clock.monotonic()
        locks = [self._locks.get(each) for each in deliveries]
        return all(lock and now < lock.safe_until for lock in locks) and not self._backlog.has_lost(deliveries)

    def drop(self) -> None:
        """The link is gone, and the locks with it."""
        self._locks.clear()
        self._failure = None
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None

    def check(self) -> None:
        """Raises what the keeper of the locks met since the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        lock = HeldLock(self._clock.monotonic(), self._lock_s(deliveries[0]))
        self._locks.update(dict.fromkeys(deliveries, lock))
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def _lock_s(self, delivery: Delivery) -> float:
        """A queue that pairing did not create may have shorter locks."""
        try:
            until = locked_until(delivery.payload)
        except MalformedData:
            until = None
        lasts_s = until - self._clock.now() if until is not None else USUAL_LOCK_S
        return min(max(lasts_s, SHORTEST_LOCK_S), USUAL_LOCK_S)

    async def _dead_letter(
        self, deliveries: Sequence[Delivery], path: str | None, reason: str, description: str
    ) -> None:
        bury = partial(self._backlog.dead_letter, reason=reason, description=description)
        buried = await self._settle_deliveries(deliveries, bury)
        if buried:
            numbers = [_number_of(each) for each in buried]
            self._observer.dead_lettered(self._backlog.queue, path, numbers, reason, description)

    async def _settle(
        self, held: Sequence[Held], settle: Callable[[Sequence[Delivery]], Coroutine[Any, Any, None]]
    ) -> None:
        await self._settle_deliveries([each.delivery for each in held], settle)

    async def _settle_deliveries(
        self, deliveries: Sequence[Delivery], settle: Callable[[Sequence[Delivery]], Coroutine[Any, Any, None]]
    ) -> list[Delivery]:
        """Returns those that were locked until now."""
        self.check()
        ours = [each for each in deliveries if self._locks.pop(each, None) is not None]
        if not ours:
            return ours
        try:
            await settle(ours)
        except LocksLost as error:
            self._observer.lost(self._backlog.queue, len(error.deliveries))
            return [each for each in ours if each not in error.deliveries]
        return ours

    async def _keep(self) -> None:
        """Ends when nothing is held any more."""
        try:
            while self._locks:
                due_at = min([lock.renew_at for lock in self._locks.values()])
                await asyncio.sleep(min(LOOK_EVERY_S, max(0.0, due_at - self._clock.monotonic())))
                now = self._clock.monotonic()
                due = {each: lock for each, lock in self._locks.items() if now >= lock.renew_at}
                # A call on a lost link raises what happened to it, even a call about no message.
                if due or self._backlog.has_lost(list(self._locks)):
                    await self._renew(due)
        except Exception as error:
            self._locks.clear()
            self._failure = error
            self._has_news()

    async def _renew(self, due: dict[Delivery, HeldLock]) -> None:
        since = self._clock.monotonic()
        lost: Sequence[Delivery] = ()
        try:
            await self._backlog.renew(list(due))
        except LocksLost as error:
            lost = error.deliveries
        count = len([each for each in lost if self._locks.pop(each, None) is not None])
        for each, lock in due.items():
            if each in self._locks:
                self._locks[each] = HeldLock(since, lock.lasts_s)
        if count:
            self._observer.lost(self._backlog.queue, count)
            self._has_news()


def _number_of(delivery: Delivery) -> int | None:
    """Of a message that may be unreadable."""
    try:
        return browsed(delivery.payload).sequence_number
    except MalformedData:
        return None
