"""Forwarding: what leaves a queue or subscription for another entity, its dead letters, and what was sent via it.

In order, lane by lane, a pass at a time: read what is next, find where it goes, stage the moves, and go on when they
are committed. A destination that takes nothing for now makes its messages wait, ever longer; one that never will sends
them to the transfer dead letters. How a pass decides is in `transfer_pass.py`; here is when there is one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tandembus.broker.fragment import Fragment
from tandembus.broker.moving import has_transfers
from tandembus.broker.transfer_job import OURSELVES, Job, WhenMoved
from tandembus.broker.transfer_pass import MAX_HOPS, TransferPass
from tandembus.broker.transfer_port import TransferPort
from tandembus.clock import Clock
from tandembus.errors import StoreFull, StoreUnavailable
from tandembus.large_messages import LARGE_BYTES
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, TRANSFER

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

log = logging.getLogger("tandembus.broker")


class Forwarding:
    def __init__(self, broker: MessageBroker, clock: Clock) -> None:
        self.port: TransferPort | None = None
        """Nothing is forwarded while there is none."""
        self.max_hops = MAX_HOPS
        self.when_moved: WhenMoved | None = None
        self.on_forwarded: Callable[[str, int, int, int], None] = _nothing
        """Told of what was moved: from which entity, messages, billable operations, bytes."""
        self._broker = broker
        self._clock = clock
        self._jobs: dict[tuple[int, int], Job] = {}
        self._queue: deque[Job] = deque()
        self._work = asyncio.Event()
        self._full: set[int] = set()
        """Destinations without room that somebody waits for."""

    def look(self, fragment: Fragment) -> None:
        """Something has changed in this fragment: it was opened, a commit is over, it has other settings."""
        if int(fragment.key) in self._full:
            self._full.discard(int(fragment.key))
            self._retry(fragment)
        if self.port is None or fragment.is_void or not has_transfers(fragment):
            return
        if fragment.transfer.live_count > 0:
            self._ask(fragment, TRANSFER)
        if fragment.settings.forward_to and fragment.main.live_count > 0:
            self._ask(fragment, MAIN)
        if fragment.settings.forward_dead_letters_to and fragment.dead_letter.live_count > 0:
            self._ask(fragment, DEAD_LETTER)

    def _ask(self, fragment: Fragment, lane: int) -> None:
        key = (int(fragment.key), lane)
        job = self._jobs.get(key)
        if job is None or job.fragment is not fragment:
            job = self._jobs[key] = Job(fragment, lane, self.when_moved)
        self._enqueue(job)

    def hold_again(self, fragment: Fragment) -> None:
        """It was read anew: what may have arrived in other stores is nobody else's here."""
        for lane in (MAIN, DEAD_LETTER, TRANSFER):
            job = self._jobs.get((int(fragment.key), lane))
            if job is not None and job.fragment is fragment:
                for target, flight in list(job.flights.items()):
                    flight.hold_again()
                    if flight.messages:
                        job.wait_for(target, self._clock.monotonic())

    def _enqueue(self, job: Job) -> None:
        if job.is_busy:
            job.is_asked_again = True
        elif not job.is_queued:
            job.is_queued = True
            self._queue.append(job)
            self._work.set()

    def retry_due(self) -> None:
        """Destinations that took nothing are asked again when their time has come."""
        now = self._clock.monotonic()
        for job in self._jobs.values():
            if job.is_due(now):
                self._enqueue(job)

    def retry_all(self) -> None:
        """Destinations may have changed: all that are waited for are asked again at once."""
        self._retry(None)

    def _retry(self, full: Fragment | None) -> None:
        """Of a destination without room: something has happened there, so there may be some now."""
        for job in self._jobs.values():
            if job.waiting and job.stop_waiting(self._clock.monotonic(), full):
                self._enqueue(job)

    def is_quiet(self) -> bool:
        """Nothing can be moved at the moment."""
        return not self._queue and not any(job.is_busy for job in self._jobs.values())

    async def run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._queue:
                await self._take_turn(self._queue.popleft())
                await asyncio.sleep(0)

    async def _take_turn(self, job: Job) -> None:
        job.is_queued = False
        memory = self._broker.budget.large
        if job.fragment.settings.may_have_large and not memory.can_give(LARGE_BYTES):
            memory.wait(job, lambda: self._enqueue(job))
            return
        if not self._is_over(job):
            job.is_running = True
            try:
                await self._advance(job)
            finally:
                job.is_running = False
        self._rest(job)

    def _is_over(self, job: Job) -> bool:
        """Whether it stands for nothing any more: its fragment was closed, dropped, or is about to be read anew."""
        fragment = job.fragment
        return fragment.is_void or fragment.is_closed or self._broker.failure is not None

    def _rest(self, job: Job) -> None:
        """A pass is over, or the last of its moves."""
        if job.is_busy:
            return
        if job.is_asked_again and not self._is_over(job):
            job.is_asked_again = False
            self._enqueue(job)
        elif not job.is_queued and (job.fragment.is_closed or not self._has_a_future(job)):
            key = (int(job.fragment.key), job.lane)
            if self._jobs.get(key) is job:
                del self._jobs[key]

    def _has_a_future(self, job: Job) -> bool:
        """What may have arrived in another store is remembered even while the own one is out of reach."""
        return bool(job.flights) or (bool(job.waiting) and not self._is_over(job))

    async def _advance(self, job: Job) -> None:
        port, store = self.port, self._broker.store
        if port is None:
            return
        transfer = TransferPass(self._broker, port, self._clock, job, self.max_hops, self._done)
        try:
            await transfer.run()
        except StoreFull as error:
            log.warning("forwarding is put off: %s", error)
            job.wait_for(OURSELVES, self._clock.monotonic())
        except StoreUnavailable as error:
            self._broker.give_up(store, error)
        except Exception:
            log.exception("forwarding from '%s' is put off", job.fragment.settings.path)
            job.wait_for(OURSELVES, self._clock.monotonic())
        self._full.update(int(one.key) for one in job.full_ones())
        if job.moving_count > 0 and transfer.size_bytes > LARGE_BYTES:
            job.large_bytes += transfer.size_bytes
            self._broker.budget.large.give(transfer.size_bytes)

    def _done(self, job: Job) -> None:
        """The last of a pass's moves is over."""
        if job.large_bytes > 0:
            self._broker.budget.large.end_giving(job.large_bytes)
            job.large_bytes = 0
        messages, operations, size_bytes = job.take_moved()
        if messages > 0:
            self.on_forwarded(job.fragment.settings.path, messages, operations, size_bytes)
        self._rest(job)


def _nothing(_path: str, _messages: int, _operations: int, _size_bytes: int) -> None:
    return
