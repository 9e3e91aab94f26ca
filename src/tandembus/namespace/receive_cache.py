"""Messages that fragments answered with, kept ready for the receivers of an entity.

All fragments are asked at once (`feeders.py`) and the first message found is handed over; what the others answered with
waits here for the next receive. A message kept ready is a lock of its fragment that no client has seen: it goes back
uncounted, after a while, with the last receiver, or when there is no room for it.

Fragments push, and nothing here polls: when nobody has credit, or nothing is there, nothing happens at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.consumers import TURN_BYTES, TURN_MESSAGES
from tandembus.broker.locks import OPEN, RELEASE, REMOVE, MessageLock, SettleReply
from tandembus.broker.operations import Consumer
from tandembus.clock import Clock
from tandembus.errors import BusError
from tandembus.interconnect.traffic import Traffic
from tandembus.large_messages import LARGE_BYTES
from tandembus.message import Message
from tandembus.namespace.feeders import Fed, Feeders
from tandembus.namespace.partitioning import PartitionSettings

Later = Callable[[float, Callable[[], None]], None]
"""Calls a function after so many seconds."""

FAVOUR_S: Final = 0.05
"""For so long only those fragments are asked that could not be served the last time."""
REFUSED_S: Final = 0.05
"""A message whose removal was refused goes back after this time."""
_NOBODY: Final = Fed()
"""Takes nothing: without fragments, nothing comes."""


def call_later(delay_s: float, callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, callback)


@final
class Kept:
    """A message kept ready."""

    __slots__ = ("kept_at", "lock", "message")

    def __init__(self, message: Message, lock: MessageLock, kept_at: float) -> None:
        self.message: Final = message
        self.lock: Final = lock
        self.kept_at: float = kept_at


@final
class CacheLink:
    """A receiver of the entity."""

    __slots__ = ("consumer", "is_draining", "is_gone", "is_touched", "removals")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer: Final = consumer
        self.is_draining: bool = False
        self.is_touched: bool = False
        """It was given something, and has not been told to write it out."""
        self.is_gone: bool = False
        self.removals: Final[dict[bytes, MessageLock]] = {}
        """What is being removed for it, by token."""


@final
class Removal(SettleReply):
    """A receive-and-delete on its way: the removal is committed first, the transfer follows."""

    def __init__(self, cache: ReceiveCache, link: CacheLink, message: Message) -> None:
        self.cache: Final = cache
        self.link: Final = link
        self.message: Final = message

    def is_wanted(self) -> bool:
        return not self.link.is_gone

    def settled(self, lock: MessageLock, error: BusError | None) -> None:
        self.cache.removed(self.link, self.message, lock, error)


@final
class _DrainEnd:
    """A drain waits only so long; a later one has a time of its own."""

    def __init__(self, cache: ReceiveCache, drain: i64) -> None:
        self.cache: Final = cache
        self.drain: i64 = drain

    def due(self) -> None:
        self.cache.drain_is_due(self.drain)


@final
class ReceiveCache(Fed):
    """Of one lane of an entity, shared by its receivers."""

    def __init__(
        self, fragments: list[Traffic], lane: i64, settings: PartitionSettings, clock: Clock, later: Later
    ) -> None:
        self.settings: PartitionSettings = settings
        self.kept_bytes: i64 = 0
        self.feeders: Feeders = Feeders(fragments, lane, self)
        self._fragments: Final = fragments
        self._clock: Final = clock
        self._later: Final = later
        self._kept: deque[Kept] = deque()
        self._refused: list[MessageLock] = []
        """Those whose removal came to nothing."""
        self._links: list[CacheLink] = []
        self._by_consumer: dict[Consumer, CacheLink] = {}
        self._touched: list[CacheLink] = []
        self._turn: i64 = 0
        self._turn_messages: i64 = 0
        self._turn_bytes: i64 = 0
        self._is_asking: bool = False
        self._is_stirred: bool = False
        self._is_timed: bool = False
        self._is_favouring: bool = False
        self._drain: i64 = 0
        self._is_draining: bool = False

    def __len__(self) -> int:
        return len(self._kept)

    # Receivers come, have credit, and go.

    def is_unused(self) -> bool:
        return not self._links

    def attach(self, consumer: Consumer) -> None:
        link = CacheLink(consumer)
        self._links.append(link)
        self._by_consumer[consumer] = link
        if len(self._links) == 1:
            self.feeders.attach()

    def feed(self, consumer: Consumer, is_draining: bool) -> None:
        link = self._by_consumer.get(consumer)
        if link is None:
            return
        was_draining = link.is_draining
        link.is_draining = is_draining
        if is_draining and (not was_draining or self.feeders.is_drained()):
            self._start_drain()
        self.run_ended()

    def detach(self, consumer: Consumer) -> None:
        link = self._by_consumer.pop(consumer, None)
        if link is None:
            return
        self._links.remove(link)
        self._pass_turn()
        self._take_back_removals(link)
        if self._links:
            self.run_ended()
            return
        # The last one is gone. What crosses its going is given back as it comes.
        self._is_draining = False
        for lock in self.take_all():
            self._release(lock)
        self.feeders.detach()

    def end(self) -> None:
        """Nobody will receive from it any more. It drops what refers back to it; what still arrives is given back."""
        self.feeders.end()
        self.feeders = Feeders([], self.feeders.lane, _NOBODY)

    def _take_back_removals(self, link: CacheLink) -> None:
        """Of what was to be removed for it, the fragments may not have heard yet: a slow one, or one with much to do.
        That goes back at once; where it cannot be said now, the removal that waits finds that nobody wants it."""
        link.is_gone = True
        for lock in list(link.removals.values()):
            self._release(lock)

    # Messages come.

    def has_room_for(self, size_bytes: i64) -> bool:
        for link in self._links:
            if link.consumer.can_take() and link.consumer.has_room_for(size_bytes):
                return True
        return False

    def arrived(self, message: Message, lock: MessageLock) -> None:
        link = self._next_hungry() if not self._kept else None
        if link is not None and lock.size_bytes > LARGE_BYTES and lock.counted_in is None:
            # It was read in another process, which knows nothing of the room in this one.
            while link is not None and not link.consumer.has_room_for(lock.size_bytes):
                link = self._next_hungry()
        if link is not None:
            self._give(link, message, lock)
        elif self._links and self.kept_bytes + lock.size_bytes <= self.settings.cache_bytes:
            self._keep(message, lock)
        else:
            self.feeders.pass_over(lock.index)
            self._release(lock)

    def run_ended(self) -> None:
        """Let the receivers write what they got, and ask for more. In this process the fragments deliver while they are
        asked, and come here again from within: then it goes on from the outermost call."""
        self._is_stirred = True
        if self._is_asking:
            return
        self._is_asking = True
        try:
            while self._is_stirred:
                self._is_stirred = False
                self._serve()
                self._flush()
                if self._is_draining:
                    self._go_on_draining()
                self._ask()
        finally:
            self._is_asking = False

    def _flush(self) -> None:
        if self._touched:
            touched = self._touched
            self._touched = []
            for link in touched:
                link.is_touched = False
                link.consumer.flush()

    def _ask(self) -> None:
        """For as much as the receivers can take."""
        wanted: i64 = 0
        for link in self._links:
            if link.consumer.can_take():
                wanted += link.consumer.credit
        if wanted == 0 or self.kept_bytes >= self.settings.cache_bytes:
            self.feeders.withdraw()
        else:
            self.feeders.ask(wanted, self.settings.cache_bytes)
            if self.feeders.is_passing_over() and not self._is_favouring:
                self._is_favouring = True
                self._later(FAVOUR_S, self.favour_ended)

    def favour_ended(self) -> None:
        self._is_favouring = False
        self.feeders.ask_all_again()
        self.run_ended()

    def lost_locks_of(self, index: i64) -> None:
        """It will come again."""
        kept: deque[Kept] = deque()
        for one in self._kept:
            if one.lock.index == index:
                self.kept_bytes -= one.lock.size_bytes
            else:
                kept.append(one)
        self._kept = kept
        self.run_ended()

    # Handing over.

    def _serve(self) -> None:
        """What is kept goes first, the oldest of it before all."""
        while self._kept:
            link = self._next_hungry()
            if link is None:
                return
            one = self._kept.popleft()
            self.kept_bytes -= one.lock.size_bytes
            if self._is_good(one):
                self._give(link, one.message, one.lock)
            else:
                self._release(one.lock)

    def _is_good(self, one: Kept) -> bool:
        """Whether a client that gets it now can still do something with it."""
        lock, expires_at = one.lock, one.message.expires_at
        if lock.settlement != OPEN or self._fragments[lock.index].is_out():
            return False
        if expires_at != 0 and expires_at <= self._clock.now_ms():
            return False
        return self._clock.monotonic() - one.kept_at < self.keep_s()

    def _next_hungry(self) -> CacheLink | None:
        """The receiver whose turn it is: for a number of messages, then the next."""
        if self._turn_messages >= TURN_MESSAGES or self._turn_bytes >= TURN_BYTES:
            self._pass_turn()
        count: i64 = len(self._links)
        passed: i64 = 0
        while passed < count:
            link = self._links[self._turn % count]
            if link.consumer.can_take():
                return link
            self._pass_turn()
            passed += 1
        return None

    def _pass_turn(self) -> None:
        count: i64 = max(len(self._links), 1)
        self._turn = (self._turn + 1) % count
        self._turn_messages = 0
        self._turn_bytes = 0

    def _give(self, link: CacheLink, message: Message, lock: MessageLock) -> None:
        consumer = link.consumer
        consumer.credit -= 1
        self._turn_messages += 1
        self._turn_bytes += lock.size_bytes
        if consumer.is_destructive:
            self._remove(link, message, lock)
            return
        owner = lock.owner
        if owner is not None:
            owner.remove(lock)
        consumer.locks.add(lock)
        self._fragments[lock.index].handed_over(lock)
        consumer.deliver(message, lock)
        if not link.is_touched:
            link.is_touched = True
            self._touched.append(link)

    def _remove(self, link: CacheLink, message: Message, lock: MessageLock) -> None:
        link.consumer.removing_count += 1
        link.removals[lock.token] = lock
        try:
            self._fragments[lock.index].settle(lock, REMOVE, Removal(self, link, message))
        except BusError:
            self._not_removed(link, lock)

    def removed(self, link: CacheLink, message: Message, lock: MessageLock, error: BusError | None) -> None:
        if error is not None:
            self._not_removed(link, lock)
        else:
            self._no_longer_removing(link, lock)
            link.consumer.deliver(message, lock)
            link.consumer.flush()
        if self._is_draining:
            self.run_ended()

    def _not_removed(self, link: CacheLink, lock: MessageLock) -> None:
        """Nothing came of it, and the credit is still the client's. The message goes back, but not at once: it would
        come again, and be refused again, without an end."""
        self._no_longer_removing(link, lock)
        link.consumer.credit += 1
        self._refused.append(lock)
        if len(self._refused) == 1:
            self._later(REFUSED_S, self.give_back_refused)

    def _no_longer_removing(self, link: CacheLink, lock: MessageLock) -> None:
        link.consumer.removing_count -= 1
        link.removals.pop(lock.token, None)

    def give_back_refused(self) -> None:
        """And ask for what their receivers still want."""
        refused = self._refused
        self._refused = []
        for lock in refused:
            self._release(lock)
        self.run_ended()

    # Keeping and giving back.

    def keep_s(self) -> float:
        """A client must see at least three quarters of the lock."""
        return min(self.settings.lock_duration_s / 4.0, self.settings.cache_keep_s)

    def _keep(self, message: Message, lock: MessageLock) -> None:
        self._kept.append(Kept(message, lock, self._clock.monotonic()))
        self.kept_bytes += lock.size_bytes
        self._look_again_in(self.keep_s())

    def _look_again_in(self, delay_s: float) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._later(delay_s, self.due)

    def due(self) -> None:
        """What has been kept for long enough goes back."""
        self._is_timed = False
        now, keep_s = self._clock.monotonic(), self.keep_s()
        while self._kept and now - self._kept[0].kept_at >= keep_s:
            self._give_back_first()
        if self._kept:
            self._look_again_in(self._kept[0].kept_at + keep_s - now)

    def take_all(self) -> list[MessageLock]:
        """What is kept, for somebody else to give back."""
        locks: list[MessageLock] = []
        for one in self._kept:
            locks.append(one.lock)
        self._kept.clear()
        self.kept_bytes = 0
        return locks

    def _give_back_first(self) -> None:
        one = self._kept.popleft()
        self.kept_bytes -= one.lock.size_bytes
        self._release(one.lock)

    def _release(self, lock: MessageLock) -> None:
        """It was never delivered, and nothing is counted."""
        if lock.settlement != OPEN:
            return  # its fragment has started over
        try:
            self._fragments[lock.index].settle(lock, RELEASE, None)
        except BusError:
            pass  # out of reach, or lapsed: it comes back by itself, and uncounted, too

    # Draining.

    def _start_drain(self) -> None:
        self._drain += 1
        self._is_draining = True
        self.feeders.begin_drain()
        self.run_ended()
        if self._is_draining:
            self._later(self.settings.drain_wait_s, _DrainEnd(self, self._drain).due)

    def drain_is_due(self, drain: i64) -> None:
        """The client waits no longer, whoever has not answered yet."""
        if drain == self._drain and self._is_draining:
            self.feeders.end_drain()
            self.run_ended()

    def _go_on_draining(self) -> None:
        """Until the credit is used up, or all are empty."""
        credit = self._draining_credit(True)
        while credit > 0 and self.feeders.has_more_to_drain():
            self.feeders.drain(credit)
            credit = self._draining_credit(True)
        if self._draining_credit(False) == 0 or self.feeders.is_drained():
            self._finish_drain()

    def _draining_credit(self, is_to_be_taken: bool) -> i64:
        """Of the receivers that drain; to be taken: as far as their connections have room."""
        credit: i64 = 0
        for link in self._links:
            if link.is_draining and (not is_to_be_taken or link.consumer.can_take()):
                credit += max(link.consumer.credit, i64(0))
        return credit

    def _finish_drain(self) -> None:
        """But not before the removals are committed whose messages belong to it, nor while its connection is full: when
        there is room, it begins again."""
        self._flush()
        self.feeders.end_drain()
        self._is_draining = False
        for link in list(self._links):
            consumer = link.consumer
            if link.is_draining and consumer.removing_count == 0 and (consumer.credit <= 0 or consumer.can_take()):
                link.is_draining = False
                consumer.drained()
            elif link.is_draining:
                self._is_draining = True
