"""The receiving half of a partitioned entity's traffic.

All fragments are asked at once, so receivers share one cache for each lane, where the answers are kept ready, and a
settlement goes to the fragment that gave the lock. A session's messages are not kept ready: they go to its holder
alone, straight from its fragment.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tandembus.broker.locks import MessageLock, SettleReply
from tandembus.broker.operations import Consumer
from tandembus.clock import Clock
from tandembus.errors import MessageLockLost
from tandembus.interconnect.traffic import SessionHold, Traffic
from tandembus.namespace.partitioning import PartitionSettings
from tandembus.namespace.receive_cache import Later, ReceiveCache, call_later
from tandembus.store.messaging_store import MAIN

_NO_SUCH_LOCK: Final = "The lock is lost: no partition of the entity gave this token."


class CachedTraffic(Traffic):
    def __init__(
        self,
        fragments: list[Traffic],
        settings: PartitionSettings,
        clock: Clock,
        later: Later = call_later,
    ) -> None:
        super().__init__(0, True)
        self.fragments: Final = fragments
        """In the order of their indices."""
        self.settings: PartitionSettings = settings
        self.clock: Final = clock
        self.later: Final = later
        self._caches: dict[int, ReceiveCache] = {}
        self._holds: dict[Consumer, SessionHold] = {}
        self._holders: dict[SessionHold, Consumer] = {}

    def changed(self, settings: PartitionSettings) -> None:
        """The entity has another description."""
        self.settings = settings
        for cache in self._caches.values():
            cache.settings = settings

    # Receiving.

    def cache(self, lane: i64) -> ReceiveCache | None:
        """What is kept ready of this lane; None where nobody receives from it."""
        return self._caches.get(int(lane))

    def take_kept(self, lane: i64) -> list[MessageLock]:
        """All that is kept ready of this lane, for somebody who gives it back."""
        cache = self._caches.get(int(lane))
        return cache.take_all() if cache is not None else []

    def attach(self, consumer: Consumer, lane: i64) -> None:
        cache = self._caches.get(int(lane))
        if cache is None:
            cache = ReceiveCache(self.fragments, lane, self.settings, self.clock, self.later)
            self._caches[int(lane)] = cache
        cache.attach(consumer)

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        if lane == MAIN and self.settings.requires_session:
            hold = self._holds.get(consumer)
            if hold is not None:
                self.fragments[hold.index].feed(consumer, lane, is_draining)
            return
        cache = self._caches.get(int(lane))
        if cache is not None:
            cache.feed(consumer, is_draining)

    def detach(self, consumer: Consumer, lane: i64) -> None:
        cache = self._caches.get(int(lane))
        if cache is not None:
            cache.detach(consumer)
            if cache.is_unused():
                del self._caches[int(lane)]
                cache.end()

    def handed_over(self, lock: MessageLock) -> None:
        """To a client, by whoever receives from the whole of it: nobody keeps anything ready there."""

    # Settling.

    def fragment_of(self, lock: MessageLock) -> Traffic:
        """The one that gave it. Tokens come from clients, who may have made them up."""
        if lock.index < 0 or lock.index >= len(self.fragments):
            raise MessageLockLost(_NO_SUCH_LOCK)
        return self.fragments[lock.index]

    def check_lock(self, lock: MessageLock) -> None:
        self.fragment_of(lock).check_lock(lock)

    def settle(self, lock: MessageLock, settlement: i64, reply: SettleReply | None) -> None:
        self.fragment_of(lock).settle(lock, settlement, reply)
        owner = lock.owner
        if owner is not None:
            owner.remove(lock)  # decided on: its receiver's going changes nothing for it

    # Sessions that are held.

    def hold_session(self, hold: SessionHold, consumer: Consumer) -> None:
        self._holds[consumer] = hold
        self._holders[hold] = consumer
        self.fragments[hold.index].hold_session(hold, consumer)

    def leave_session(self, hold: SessionHold) -> None:
        consumer = self._holders.pop(hold, None)
        if consumer is not None:
            self._holds.pop(consumer, None)
        self.fragments[hold.index].leave_session(hold)
