"""Empties one backlog queue: receives, sends home, and completes only what the primary has accepted (N11, N12).

One task does everything that concerns the backlog queue, turn by turn: lanes, a look for deferred messages, a receive.
No part of a turn takes long, so nobody waits for anybody else; beside it run only sends to the primary, each
destination's in a row of its own, and the renewal of locks (`Hands`). So the order of a destination's messages is the
order of the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tandembus.pairing.runtime import Runtime, Signal, pause, together
from tandembus.pairing.syphon_hands import Hands
from tandembus.pairing.syphon_lane import Sent
from tandembus.pairing.syphon_lanes import Lanes
from tandembus.pairing.syphon_messages import Delivery, Held
from tandembus.pairing.syphon_observer import SyphonObserver, log
from tandembus.pairing.syphon_ports import BacklogPort, PrimaryPort
from tandembus.pairing.syphon_reading import by_destination
from tandembus.pairing.syphon_rules import SyphonSettings, Verdict, Window
from tandembus.pairing.syphon_sending import HOLD_S, RowSender

GROUPS_AT_ONCE: Final = 16
FINISH_S: Final = 3.0
"""How long a syphon that is stopped goes on with lanes that move."""
NO_WAIT_S: Final = 0.05
REST_S: Final = 0.25
IDLE_S: Final = 60.0
"""A poll that lasted longer was detached by a service that does so with links that are not used, as it seems."""


class QueueSyphon:
    """The syphon of one backlog queue."""

    def __init__(
        self,
        backlog: BacklogPort,
        primary: PrimaryPort,
        settings: SyphonSettings,
        observer: SyphonObserver,
        runtime: Runtime,
    ) -> None:
        self._backlog: Final = backlog
        self._settings: Final = settings
        self._observer: Final = observer
        self._runtime: Final = runtime
        self._hands: Final = Hands(backlog, runtime, observer)
        self._rows: Final = RowSender(primary, self._hands.are_safe, settings, runtime.clock)
        self._lanes: Final = Lanes(backlog.queue, self._hands, self._rows, settings, observer, runtime)
        self._window: Final = Window(settings)
        self._is_stopping = False
        self._is_quiet = True
        self._is_polling = False
        self._poll_ends_at: float | None = None
        self._active_at = 0.0
        self._last_surprise = ""
        self._is_waiting_told = False
        self._polled_at = 0.0

    @property
    def dead_destinations(self) -> list[str]:
        return self._lanes.dead_destinations

    async def run(self, once: bool = False) -> bool:
        """Until it is stopped; `once`: until nothing more can be moved. Returns whether nothing is left behind, as far
        as one knows."""
        self._active_at = self._now()
        try:
            while not self._is_stopping:
                try:
                    is_idle = await self._turn(once)
                except Exception as error:
                    if once:
                        raise
                    await self._start_anew(error)
                    continue
                if once and is_idle and not self._others_go_on():
                    break
            await self._let_go()
        finally:
            self._hands.drop()
        # Whoever is stopped has not looked lately what others have in hand.
        return not self._lanes and (self._is_stopping or not self._lanes.has_others)

    async def stop(self) -> None:
        """Finishes what it is at, then `run` returns."""
        self._is_stopping = True
        await self._backlog.interrupt()

    async def _turn(self, once: bool) -> bool:
        """What is due, then one receive and what follows from it. Returns whether there was nothing to do."""
        await self._lanes.tend(self._is_stopping)
        await self._lanes.look_around(self._is_quiet, once)
        if self._lanes.unreachable is not None:
            await self._rest(REST_S)
            self._lanes.wait_for_leads()
            return True
        deliveries = await self._receive(once)
        self._is_quiet = not deliveries
        if deliveries:
            self._lanes.must_sweep = True
            self._active_at = self._now()
            await self._take(deliveries)
            return False
        return self._is_idle()

    def _is_idle(self) -> bool:
        is_swept = self._lanes or not self._lanes.must_sweep
        return bool(is_swept and not self._lanes.is_looking and not self._lanes.is_any_busy())

    def _others_go_on(self) -> bool:
        """Whether others hold messages that may still come back to us, because their holder was killed."""
        is_late = self._now() >= self._active_at + self._settings.others_wait_s
        if self._lanes or not self._lanes.has_others or is_late:
            return False
        if not self._is_waiting_told:
            self._is_waiting_told = True
            left_s = self._active_at + self._settings.others_wait_s - self._now()
            log.info("%s: waits up to %.0f s for messages in the hands of another syphon", self._backlog.queue, left_s)
        self._lanes.must_sweep = True
        return True

    async def _receive(self, once: bool) -> Sequence[Delivery]:
        now = self._now()
        is_long = not (self._lanes or self._lanes.will_sweep or self._lanes.is_looking or once)
        if is_long and self._poll_ends_at is None:
            self._poll_ends_at = now + self._settings.poll_s
        wait_s = max(NO_WAIT_S, (self._poll_ends_at or now) - now) if is_long else self._short_wait_s(once)
        self._polled_at = now
        if self._is_waiting_for_leads(once):
            deliveries = await self._poll_beside_leads(self._sweep_wait_s())
        else:
            deliveries = await self._hands.receive(self._window.count, wait_s)
        # Only a poll that ran its course is over: one that was cut off goes on for the rest of its time.
        self._poll_ends_at = None
        if deliveries:
            self._window.received(max([len(each.payload) for each in deliveries]), len(deliveries))
        return deliveries

    def _is_waiting_for_leads(self, once: bool) -> bool:
        is_possible = self._is_quiet and not once and not self._lanes.is_looking
        return bool(is_possible and self._lanes and self._lanes.is_patient)

    async def _poll_beside_leads(self, wait_s: float) -> Sequence[Delivery]:
        """So that a dead destination does not cost a receive for each try of its lead."""
        found: list[Delivery] = []
        over = Signal(self._runtime)
        self._is_polling = True
        await together([partial(self._poll, wait_s, over, found), partial(self._try_leads, over)])
        return found

    async def _poll(self, wait_s: float, over: Signal, found: list[Delivery]) -> None:
        try:
            found.extend(await self._hands.receive(self._window.count, wait_s))
        finally:
            self._is_polling = False
            over.give()

    async def _try_leads(self, over: Signal) -> None:
        """Until the poll is over. If a lead is home, or lost, the poll is ended: there is more to do than to wait."""
        while self._is_polling and self._lanes.is_patient:
            self._lanes.try_leads()
            await over.wait(max(NO_WAIT_S, self._lanes.due_in_s()))
        if self._is_polling:
            await self._backlog.wake()

    def _sweep_wait_s(self) -> float:
        return max(self._settings.quiet_s, min(self._settings.poll_s, self._lanes.sweep_in_s))

    def _short_wait_s(self, once: bool) -> float:
        """After messages came: then the queue is swept, when it is quiet and time for that."""
        if self._lanes.is_looking:
            return NO_WAIT_S
        if self._lanes:
            return min(max(NO_WAIT_S, self._lanes.due_in_s()), self._settings.retry_interval_s)
        if once or not self._is_quiet:
            return self._settings.quiet_s
        return self._sweep_wait_s()

    async def _take(self, deliveries: Sequence[Delivery]) -> None:
        groups = by_destination(await self._hands.read(deliveries))
        for key, held in list(groups.items()):
            if self._lanes.wants(key, held):
                await self._lanes.queue_up(key, groups.pop(key))
        await self._send_groups(list(groups.values()))

    async def _send_groups(self, groups: list[list[Held]]) -> None:
        until = self._now() + HOLD_S
        for first in range(0, len(groups), GROUPS_AT_ONCE):
            outcomes: list[Sent] = []
            some = groups[first : first + GROUPS_AT_ONCE]
            if len(some) == 1:
                await self._send(some[0], until, outcomes)
            else:
                await together([partial(self._send, held, until, outcomes) for held in some])
            await self._hands.complete([each for sent in outcomes for each in sent.accepted])
            for sent in outcomes:
                await self._settle_others(sent)

    async def _send(self, held: list[Held], until: float, outcomes: list[Sent]) -> None:
        outcomes.append(await self._rows.send(held[0].path, held, until))

    async def _settle_others(self, sent: Sent) -> None:
        await self._hands.dead_letter_all(sent.refused)
        is_known = sent.verdict is Verdict.UNREACHABLE and self._lanes.unreachable is not None
        if sent.error is None or is_known:
            await self._hands.release(sent.rest)
        elif self._lanes.is_full:
            # Too many to keep the order of each: a sweep will find them.
            await self._hands.defer(sent.rest)
        else:
            await self._lanes.refused(sent, sent.error)

    async def _start_anew(self, error: Exception) -> None:
        """What was in our hands comes back, at once or when its lock lapses. What we know stays."""
        if not isinstance(error, self._backlog.failures) and repr(error) != self._last_surprise:
            self._last_surprise = repr(error)
            log.exception("%s: an unexpected failure", self._backlog.queue)
        is_idle = self._poll_ends_at is not None and self._now() >= self._polled_at + IDLE_S
        tell = self._observer.detached if is_idle else self._observer.troubled
        tell(self._backlog.queue, error)
        self._hands.drop()
        self._lanes.link_lost()
        try:
            await self._backlog.close()
        except Exception:
            log.exception("%s: was not closed in order", self._backlog.queue)
        await self._rest(self._settings.retry_interval_s)

    async def _let_go(self) -> None:
        """Lanes that move go on for a while; the others are given back."""
        while self._lanes.is_any_tried():
            await pause(REST_S)
        ends_at = self._now() + FINISH_S
        self._lanes.end_sweep()
        try:
            while self._now() < ends_at and self._lanes.is_any_going():
                await self._lanes.tend(is_stopping=True)
                await self._lanes.look_around(is_quiet=False, once=False)
            await self._lanes.let_go()
        except self._backlog.failures as error:
            self._observer.troubled(self._backlog.queue, error)

    async def _rest(self, seconds: float) -> None:
        ends_at = self._now() + seconds
        while not self._is_stopping and (left_s := ends_at - self._now()) > 0:
            await pause(min(REST_S, left_s))

    def _now(self) -> float:
        return self._runtime.clock.monotonic()
