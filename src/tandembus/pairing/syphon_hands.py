"""What of a backlog queue is in the syphon's hands: how it gets there, is kept, and leaves them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, final

from tandembus.errors import MalformedData
from tandembus.pairing.payloads import locked_until
from tandembus.pairing.runtime import Runtime, pause
from tandembus.pairing.syphon_messages import Delivery, Held, LocksLost
from tandembus.pairing.syphon_observer import SyphonObserver
from tandembus.pairing.syphon_ports import BacklogPort
from tandembus.pairing.syphon_reading import by_destination, number_of, read_deliveries, refused_alike

USUAL_LOCK_S: Final = 60.0
"""Of a backlog queue as pairing makes it. None is taken for longer: clocks do not always agree."""
SHORTEST_LOCK_S: Final = 5.0
"""The service has none that are shorter. One that seems to be is our clock running ahead, by nobody knows how much."""
LOOK_EVERY_S: Final = 0.5
MAX_GIVEN_BACK: Final = 10_000
FRAGMENT_SHIFT: Final = 48


class _Lock:
    """Of messages that came, or were renewed, together."""

    __slots__ = ("lasts_s", "renew_at", "safe_until")

    def __init__(self, since: float, lasts_s: float) -> None:
        self.lasts_s: Final = lasts_s
        self.renew_at: Final = since + lasts_s / 3
        self.safe_until: Final = since + lasts_s * 2 / 3


@final
class Hands:
    """Keeps every lock alive, beside whatever else takes its time: a send without an answer, a search, other lanes.

    A lock that was not renewed in time is not trusted any more (`are_safe`), nor is one whose link is lost, so that its
    message is not sent by two.
    One that is lost costs one message; what breaks the link costs all, and is raised to whoever uses the queue next.
    """

    def __init__(self, backlog: BacklogPort, runtime: Runtime, observer: SyphonObserver) -> None:
        self._backlog = backlog
        self._runtime = runtime
        self._observer = observer
        self._locks: dict[Delivery, _Lock] = {}
        self._generation = 0
        """Of locks: all of one are lost together."""
        self._kept_generation = -1
        """Which somebody keeps alive already."""
        self._failure: Exception | None = None
        self._given_back: dict[int, int] = {}
        """With their delivery counts: those that come back with the same were in nobody else's hands."""
        self.is_partitioned = False
        """The backlog queue is, and its fragments have orders of their own."""

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        self._raise_failure()
        deliveries = await self._backlog.receive(max_count, wait_s)
        if deliveries:
            self._observer.received()
        return self._take(deliveries)

    async def receive_deferred(self, numbers: Sequence[int]) -> list[Held]:
        self._raise_failure()
        return await self.read(self._take(await self._backlog.receive_deferred(numbers)))

    async def read(self, deliveries: Sequence[Delivery]) -> list[Held]:
        """What they say; malformed ones become dead letters."""
        held, malformed = read_deliveries(deliveries, self._given_back)
        if not self.is_partitioned:
            self.is_partitioned = any(each.sequence_number >> FRAGMENT_SHIFT > 0 for each in held)
        for (reason, description), some in malformed.items():
            await self.dead_letter(some, None, reason, description)
        return held

    async def browse(self, from_number: int, max_count: int) -> Sequence[bytes]:
        self._raise_failure()
        return await self._backlog.browse(from_number, max_count)

    async def complete(self, held: Sequence[Held]) -> bool:
        """They are home. Whether all of them were ours until now."""
        settled = await self._settle([each.delivery for each in held], self._backlog.complete)
        for some in by_destination(held).values():
            size_bytes = sum([len(each.payload) for each in some])
            self._observer.moved(self._backlog.queue, some[0].path, len(some), size_bytes)
        return len(settled) == len(held)

    async def release(self, held: Sequence[Held]) -> None:
        """Nothing was deferred behind these; that is not counted, so whoever counts one more may have done so."""
        if len(self._given_back) > MAX_GIVEN_BACK:
            self._given_back.clear()
        self._given_back.update({each.sequence_number: each.delivery_count for each in held})
        await self._settle([each.delivery for each in held], self._backlog.release)

    async def hand_on(self, held: Sequence[Held], are_home: bool) -> None:
        """Give back leads, so that whoever gets them knows by their delivery count that deferred ones are behind them,
        and does not send what is home."""
        await self._settle([each.delivery for each in held], partial(self._backlog.abandon, are_home=are_home))

    async def defer(self, held: Sequence[Held]) -> None:
        await self._settle([each.delivery for each in held], self._backlog.defer)

    async def dead_letter(
        self, deliveries: Sequence[Delivery], path: str | None, reason: str, description: str
    ) -> bool:
        """Whether all of them were ours until now."""
        bury = partial(self._backlog.dead_letter, reason=reason, description=description)
        buried = await self._settle(deliveries, bury)
        if buried:
            numbers = [number_of(each) for each in buried]
            self._observer.dead_lettered(self._backlog.queue, path, numbers, reason, description)
        return len(buried) == len(deliveries)

    async def dead_letter_all(self, refused: Iterable[tuple[Held, str, str]]) -> None:
        for (reason, description), held in refused_alike(refused).items():
            await self.dead_letter([each.delivery for each in held], held[0].path, reason, description)

    def holds(self, delivery: Delivery) -> bool:
        return delivery in self._locks

    def are_safe(self, deliveries: Sequence[Delivery]) -> bool:
        """Whether they are ours, and for so long that one can begin to send them."""
        now = self._now()
        for each in deliveries:
            lock = self._locks.get(each)
            if lock is None or now >= lock.safe_until:
                return False
        return not self._backlog.has_lost(deliveries)

    def drop(self) -> None:
        """The link is gone, and the locks with it."""
        self._generation += 1
        self._locks.clear()
        self._failure = None

    def _take(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        if not deliveries:
            return deliveries
        lock = _Lock(self._now(), self._lock_s(deliveries[0]))
        for each in deliveries:
            self._locks[each] = lock
        generation = self._generation
        is_kept, self._kept_generation = self._kept_generation == generation, generation
        if not is_kept:
            self._runtime.start(partial(self._keep, generation))
        return deliveries

    def _lock_s(self, delivery: Delivery) -> float:
        """Queues that were there already may have shorter locks than ours."""
        try:
            until = locked_until(delivery.payload)
        except MalformedData:
            until = None
        lasts_s = until - self._runtime.clock.now() if until is not None else USUAL_LOCK_S
        return min(max(lasts_s, SHORTEST_LOCK_S), USUAL_LOCK_S)

    async def _settle(
        self, deliveries: Sequence[Delivery], settle: Callable[[Sequence[Delivery]], Coroutine[Any, Any, None]]
    ) -> list[Delivery]:
        """Returns those that were ours until now."""
        self._raise_failure()
        ours = [each for each in deliveries if self._locks.pop(each, None) is not None]
        if not ours:
            return ours
        try:
            await settle(ours)
        except LocksLost as error:
            self._observer.lost(self._backlog.queue, len(error.deliveries))
            return [each for each in ours if each not in error.deliveries]
        return ours

    async def _keep(self, generation: int) -> None:
        """Each generation has a keeper of its own: the last one's may wait for an answer on a link that is gone."""
        while (wait_s := self._next_s(generation)) is not None:
            await pause(wait_s)
            now = self._now()
            is_ours = generation == self._generation
            locks = dict(self._locks) if is_ours else {}
            due = {each: lock for each, lock in locks.items() if now >= lock.renew_at}
            # What became of a link that is gone is an error of the next call, even of one about nothing.
            if due or self._backlog.has_lost(list(locks)):
                await self._renew(generation, due)

    def _next_s(self, generation: int) -> float | None:
        """Until one must be renewed; None if there is none, and nobody keeps them any more."""
        if generation != self._generation:
            return None
        if not self._locks:
            self._kept_generation = -1
            return None
        due_at = min([lock.renew_at for lock in self._locks.values()])
        return min(LOOK_EVERY_S, max(0.0, due_at - self._now()))

    async def _renew(self, generation: int, due: dict[Delivery, _Lock]) -> None:
        since = self._now()
        lost: Sequence[Delivery] = ()
        try:
            await self._backlog.renew(list(due))
        except LocksLost as error:
            lost = error.deliveries
        except Exception as error:
            self._fail(generation, error)
            return
        count = len([each for each in lost if self._locks.pop(each, None) is not None])
        for each, lock in due.items():
            if each in self._locks:
                self._locks[each] = _Lock(since, lock.lasts_s)
        if count:
            self._observer.lost(self._backlog.queue, count)

    def _fail(self, generation: int, error: Exception) -> None:
        """Unless somebody has begun anew meanwhile: what is in hand since then has nothing to do with it."""
        if generation == self._generation:
            self.drop()
            self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _now(self) -> float:
        return self._runtime.clock.monotonic()
