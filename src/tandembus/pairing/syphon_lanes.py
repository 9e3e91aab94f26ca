"""The lanes of one backlog queue: their leads are tried again, their followers are found and brought home (N12)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final, final

from tandembus.pairing.runtime import Runtime
from tandembus.pairing.syphon_hands import Hands
from tandembus.pairing.syphon_lane import Lane, Sent
from tandembus.pairing.syphon_messages import Held
from tandembus.pairing.syphon_observer import SyphonObserver, log
from tandembus.pairing.syphon_rules import SyphonSettings, Verdict, destination_of
from tandembus.pairing.syphon_search import PAGE, Look, read_page
from tandembus.pairing.syphon_sending import HOLD_S, RowSender

SLICE: Final = 250
"""Deferred messages that are moved at a time."""
TURN_S: Final = 0.5
"""How long deferred ones are moved, or looked for, before it is somebody else's turn."""
FIRST_LOOK_S: Final = 5.0
"""The same at the start, before anything is received: what an earlier syphon left behind goes first."""
TRIES_AT_ONCE: Final = 64
SWEEP_INTERVAL_S: Final = 60.0
SOMEBODY_ELSES_S: Final = 5.0
"""After that one looks whether deferred messages that somebody else had in hand are still there."""


@final
class Lanes:
    """One for each destination that takes no messages now, or of which deferred ones are left."""

    def __init__(
        self,
        queue: str,
        hands: Hands,
        rows: RowSender,
        settings: SyphonSettings,
        observer: SyphonObserver,
        runtime: Runtime,
    ) -> None:
        self._queue = queue
        self._hands = hands
        self._rows = rows
        self._settings = settings
        self._observer = observer
        self._runtime = runtime
        """Leads are tried beside all else: what became of one, and whether it still leads, go together."""
        self._lanes: dict[str, Lane] = {}
        """By destination; the one whose turn it is comes first."""
        self.unreachable: Lane | None = None
        """Whose lead asks whether the primary is back; meanwhile nothing is received."""
        self._look: Look | None = None
        self._is_fresh = True
        self._suspected: set[str] = set()
        """Destinations of which somebody has deferred messages: what comes for them may be a lead."""
        self.must_sweep = True
        """There may be deferred messages without a lead: at the start, and after anything has happened."""
        self._swept_at = -math.inf
        self._has_swept = False
        self._looks_again_at = math.inf
        """Somebody else's deferred messages are looked after: their lead may come home, and they be left behind."""
        self._look_again_s = settings.others_wait_s
        self.has_others = False
        """Somebody else has messages of this queue in hand, or had when we looked last."""

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def dead_destinations(self) -> list[str]:
        return [lane.path for lane in list(self._lanes.values()) if lane.is_stuck and not lane.is_moving]

    @property
    def is_full(self) -> bool:
        return len(self._lanes) >= self._settings.max_dead_destinations

    @property
    def is_looking(self) -> bool:
        return self._look is not None

    @property
    def will_sweep(self) -> bool:
        return self.must_sweep or self._looks_again_at < math.inf

    @property
    def sweep_in_s(self) -> float:
        """If the queue stays quiet."""
        due_at = self._swept_at + self._sweep_interval_s(is_quiet=True, once=False) if self.must_sweep else math.inf
        return min(due_at, self._looks_again_at) - self._now()

    def is_any_tried(self) -> bool:
        return any(lane.is_trying for lane in self._lanes.values())

    def is_any_busy(self) -> bool:
        return any(lane.is_busy(self._now()) for lane in self._lanes.values())

    def is_any_going(self) -> bool:
        return self.unreachable is None and any(lane.is_going(self._now()) for lane in self._lanes.values())

    def due_in_s(self) -> float:
        return min([lane.due_at(self._now()) for lane in self._lanes.values()]) - self._now()

    def wants(self, key: str, held: Sequence[Held]) -> bool:
        """Whether they have to queue up. Those that were in somebody's hands before may have led a lane: then deferred
        ones are behind them."""
        if key in self._lanes:
            return True
        return not self.is_full and (key in self._suspected or any(each.was_here_before for each in held))

    async def queue_up(self, key: str, held: list[Held]) -> None:
        """The first of a new lane leads it. It is found out later what follows, once it is home."""
        held.sort(key=_sequence_number)
        is_new = key not in self._lanes
        lane = self._add(held[0], self._now()) if is_new else self._lanes[key]
        behind: list[Held] = []
        for each in held:
            if key in self._suspected or (each.was_here_before and (is_new or not lane.is_lead(each))):
                lane.followers.look_again(1 if self._hands.is_partitioned else each.sequence_number + 1)
            behind += lane.queue_up(each)
            if lane.lead is each:
                lane.retry_at = self._now()
        self._suspected.discard(key)
        await self._defer(lane, behind)

    async def refused(self, sent: Sent, error: Exception) -> None:
        """A destination takes no messages now: the first that it did not take leads, the others wait."""
        lane = self._add(sent.rest[0], self._now() + self._settings.retry_interval_s)
        self._has_failed(lane, error)
        if sent.verdict is Verdict.UNREACHABLE:
            # All others would meet the same, so they stay where they are: deferring a whole backlog helps nobody.
            self.unreachable = lane
            await self._hands.release(sent.rest[1:])
        else:
            await self._defer(lane, sent.rest[1:])

    async def tend(self, is_stopping: bool) -> None:
        """What is due: for a while those that move, one after the other, and tries of leads beside it."""
        ends_at = self._now() + TURN_S
        tries = self._free_tries()
        for key, lane in list(self._lanes.items()):
            if lane.is_waiting(self._now()) and lane.check_at <= self._now() < ends_at:
                await self._check_lead(lane)
            if not self._is_due(lane):
                continue
            if lane.is_moving:
                await self._move(key, lane, ends_at)
            elif lane.lead is not None and tries > 0 and not is_stopping:
                tries -= 1
                self._start_try(lane, lane.lead)

    @property
    def is_patient(self) -> bool:
        """Nothing is to be done but to try leads now and then, which needs nothing of the queue."""
        return self.unreachable is None and all(self._is_patient(lane) for lane in self._lanes.values())

    def _is_patient(self, lane: Lane) -> bool:
        return not lane.is_moving and lane.lead is not None and self._hands.holds(lane.lead.delivery)

    def try_leads(self) -> None:
        """Those that are due, while the queue is waited for."""
        due = [lane for lane in self._lanes.values() if self._is_patient(lane) and self._is_due(lane)]
        for lane in due[: self._free_tries()]:
            if lane.lead is not None:
                self._start_try(lane, lane.lead)

    def _free_tries(self) -> int:
        return TRIES_AT_ONCE - len([lane for lane in self._lanes.values() if lane.is_trying])

    def _start_try(self, lane: Lane, lead: Held) -> None:
        lane.is_trying = True
        self._runtime.start(partial(self._try_lead, lane, lead))

    async def look_around(self, is_quiet: bool, once: bool) -> None:
        """For deferred messages, for a while. Nothing but leads is in hand meanwhile."""
        look = self._look = self._look or self._next_look(is_quiet, once)
        if look is None:
            return
        ends_at = self._now() + (FIRST_LOOK_S if self._is_fresh else TURN_S)
        while not look.is_over(self._lanes) and self._now() < ends_at:
            look.see(await self._hands.browse(look.position, PAGE), self._lanes)
        self._is_fresh = False
        if look.is_over(self._lanes):
            self._look = None
            if look.is_sweep:
                self._swept(look)

    def link_lost(self) -> None:
        """Leads come back, at once or when their locks lapse; until then nothing overtakes what is behind them. What
        was being deferred then may be, or may not."""
        for lane in self._lanes.values():
            self._lose_lead(lane)
            lane.followers.look_again(1 if self._hands.is_partitioned else lane.first_number + 1)

    def wait_for_leads(self) -> None:
        """Nothing can come back as long as nothing is received."""
        for lane in self._lanes.values():
            lane.wait_until(self._now() + self._settings.others_wait_s)

    def end_sweep(self) -> None:
        self._look, self.must_sweep, self._looks_again_at = None, False, math.inf

    async def let_go(self) -> None:
        """Leads go back to the queue, where they tell whoever receives them of the deferred messages behind them."""
        held = [
            (lane, lead) for lane in self._lanes.values() if (lead := lane.lead) and self._hands.holds(lead.delivery)
        ]
        await self._hands.release([lead for lane, lead in held if not lane.has_followers and not lane.is_moving])
        for are_home in (False, True):
            leads = [lead for lane, lead in held if lane.has_followers and lane.is_home == are_home]
            await self._hands.hand_on(leads, are_home)
        for lane, _ in held:
            if not lane.has_followers:
                await self._settle_lead(lane)
            elif lane.is_moving:
                log.info("%s: stopped while messages for %s were on their way home", self._queue, lane.path)

    def _add(self, lead: Held, retry_at: float) -> Lane:
        lane = self._lanes[destination_of(lead.path)] = Lane(lead.path, lead, retry_at)
        return lane

    async def _defer(self, lane: Lane, held: Sequence[Held]) -> None:
        if held:
            await self._hands.defer(held)
            lane.followers.add([each.sequence_number for each in held])
            self._observer.deferred(self._queue, lane.path, len(held))

    def _is_due(self, lane: Lane) -> bool:
        now = self._now()
        if lane.lead is not None and not self._hands.holds(lane.lead.delivery):
            self._lose_lead(lane)
        is_vain = self.unreachable is not None and self.unreachable is not lane
        if is_vain or lane.is_trying or now < lane.retry_at or (lane.is_waiting(now) and not lane.is_moving):
            return False
        if lane.lead is None and not lane.is_moving:
            lane.outcome = Sent()
        return True

    def _lose_lead(self, lane: Lane) -> None:
        """Its lock is gone, and it will come back, unless somebody has removed it."""
        lane.lead = None
        if self.unreachable is lane:
            self.unreachable = None
        lane.wait_until(self._now() + self._settings.others_wait_s)
        self.must_sweep = True

    async def _check_lead(self, lane: Lane) -> None:
        """Whoever got it, because its lock lapsed, may have brought it home already, or somebody has removed it."""
        lane.check_at = self._now() + SOMEBODY_ELSES_S
        page = read_page(await self._hands.browse(lane.first_number, 1))
        if lane.first_number not in [message.sequence_number for message in page]:
            lane.waits_until = 0.0

    async def _try_lead(self, lane: Lane, lead: Held) -> None:
        try:
            sent = await self._rows.send(lane.path, [lead], self._now() + HOLD_S)
            if sent.accepted or sent.refused:
                lane.outcome = sent
                lane.retry_at = 0.0
            if lane.lead is lead:
                self._has_answered(lane, sent.verdict)
            if sent.error is not None:
                self._has_failed(lane, sent.error)
        finally:
            # Whatever an observer raises: a lead that seems to be tried for ever would hold up its lane and every stop.
            lane.is_untried = lane.is_trying = False

    def _has_failed(self, lane: Lane, error: Exception) -> None:
        tell = self._observer.retried if lane.is_stuck else self._observer.stuck
        tell(self._queue, lane.path, error)
        lane.is_stuck, lane.is_untried, lane.is_flowing = True, False, False
        lane.retry_at = self._now() + self._settings.retry_interval_s

    def _has_answered(self, lane: Lane, verdict: Verdict) -> None:
        if verdict is Verdict.UNREACHABLE:
            self.unreachable = self.unreachable or lane
        elif self.unreachable is lane:
            self.unreachable = None

    async def _move(self, key: str, lane: Lane, ends_at: float) -> None:
        """Its followers, in order. Then it is the others' turn."""
        while key in self._lanes and lane.retry_at <= self._now() < ends_at:
            self._lanes[key] = self._lanes.pop(key)
            if numbers := lane.followers.take(SLICE if lane.is_flowing else 1):
                await self._move_some(lane, numbers)
            elif lane.followers.look_from is None and not lane.is_waiting(self._now()):
                await self._finish(key, lane)
            else:
                break

    async def _move_some(self, lane: Lane, numbers: list[int]) -> None:
        """What fails is not forgotten, and what is home already is not there any more."""
        left: Sequence[int] = numbers
        try:
            held = await self._hands.receive_deferred(numbers)
            if len(held) < len(numbers):
                held = await self._before_missing(lane, numbers, held)
            sent = await self._rows.send(lane.path, held, self._now() + HOLD_S)
            await self._hands.complete(sent.accepted)
            await self._hands.dead_letter_all(sent.refused)
            await self._hands.defer(sent.rest)
            left = [each.sequence_number for each in sent.rest]
        finally:
            lane.followers.put_back(left)
        lane.is_flowing = True
        self._has_answered(lane, sent.verdict)
        if sent.error is not None:
            self._has_failed(lane, sent.error)

    async def _before_missing(self, lane: Lane, numbers: list[int], held: list[Held]) -> list[Held]:
        """Some are home, or in somebody's hands: then those behind them wait until they are back."""
        missing = set(numbers).difference([each.sequence_number for each in held])
        locked = await self._still_deferred(missing)
        if not locked:
            return held
        behind = [each for each in held if each.sequence_number > min(locked)]
        await self._hands.defer(behind)
        lane.followers.put_back([*locked, *[each.sequence_number for each in behind]])
        lane.retry_at = self._now() + SOMEBODY_ELSES_S
        return held[: len(held) - len(behind)]

    async def _still_deferred(self, numbers: set[int]) -> list[int]:
        found: list[int] = []
        left = sorted(numbers)
        while left:
            page = read_page(await self._hands.browse(left[0], PAGE))
            deferred = {message.sequence_number for message in page if message.is_deferred}
            found += [number for number in left if number in deferred]
            last = max([message.sequence_number for message in page], default=left[-1])
            left = [number for number in left if number > last]
        return found

    async def _finish(self, key: str, lane: Lane) -> None:
        """No deferred message is left behind the lead: it can go."""
        if not await self._settle_lead(lane):
            self._lose_lead(lane)
            return
        del self._lanes[key]
        self.must_sweep = True  # Another syphon may have deferred messages for the same destination.
        if lane.is_stuck:
            self._observer.freed(self._queue, lane.path)

    async def _settle_lead(self, lane: Lane) -> bool:
        """If it is through. False if its lock was lost."""
        if lane.lead is None or lane.outcome is None:
            return True
        for _, reason, description in lane.outcome.refused:
            return await self._hands.dead_letter([lane.lead.delivery], lane.path, reason, description)
        return await self._hands.complete([lane.lead])

    def _next_look(self, is_quiet: bool, once: bool) -> Look | None:
        now = self._now()
        scan_beyond, is_partitioned = self._settings.scan_beyond, self._hands.is_partitioned
        is_due = self.must_sweep and now >= self._swept_at + self._sweep_interval_s(is_quiet, once)
        if is_due or now >= self._looks_again_at:
            self.must_sweep = False
            self._swept_at = now
            # At first as many as one may have had in hand: the rest is looked at when the queue is quiet.
            return Look(1, scan_beyond if self._has_swept else self._settings.window, is_partitioned, is_sweep=True)
        starts = [start for lane in self._lanes.values() if (start := lane.must_look_from(now)) is not None]
        return Look(min(starts), scan_beyond, is_partitioned) if starts else None

    def _sweep_interval_s(self, is_quiet: bool, once: bool) -> float:
        if self._lanes or not is_quiet:
            return self._settings.poll_s
        return 0.0 if once else SWEEP_INTERVAL_S

    def _look_after(self, has_suspected: bool) -> None:
        """Less and less often, since a destination may be dead for days."""
        if not has_suspected:
            self._looks_again_at, self._look_again_s = math.inf, self._settings.others_wait_s
            return
        self._looks_again_at = self._now() + self._look_again_s
        self._look_again_s = min(2 * self._look_again_s, self._settings.poll_s)

    def _swept(self, look: Look) -> None:
        """Deferred messages that no lead brings home any more get a lane of their own."""
        self.has_others = look.has_active
        self.must_sweep = self.must_sweep or look.is_partial or (look.has_more and not self._has_swept)
        self._has_swept = True
        self._suspected = look.suspected
        self._look_after(bool(look.suspected))
        for key, lane in look.leaderless.items():
            if key in self._lanes:
                self._lanes[key].followers.look_again(1)
            elif self.is_full:
                self.must_sweep = True
            else:
                self._lanes[key] = lane

    def _now(self) -> float:
        return self._runtime.clock.monotonic()


def _sequence_number(held: Held) -> int:
    return held.sequence_number
