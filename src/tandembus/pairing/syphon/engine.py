"""Empties backlog queues: receives, sends home, and completes only what the primary has accepted (N11, N12).

One task works on each backlog queue, turn by turn: it settles probes, looks ahead by a page, receives, sends and
settles. Beside it run the probes of destinations that take nothing and the renewal of locks.

While every message in sight is for such a destination nothing is received, so that an outage costs nothing per message.
Messages for them are deferred only where live ones stand behind them; they come home by number when a look finds them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, final

from tandembus.clock import Clock
from tandembus.pairing.payloads import Browsed
from tandembus.pairing.syphon.destinations import DeadDestination, Destinations
from tandembus.pairing.syphon.hold import HeldMessages
from tandembus.pairing.syphon.home import HomeSender, Sent
from tandembus.pairing.syphon.look_ahead import PAGE, LookAhead
from tandembus.pairing.syphon.observer import SyphonObserver, log
from tandembus.pairing.syphon.ports import BacklogPort, Held, PrimaryPort, by_destination, destination_of
from tandembus.pairing.syphon.settings import SyphonSettings, Window

GROUPS_AT_ONCE: Final = 16
NO_WAIT_S: Final = 0.05
QUIET_WALK_S: Final = 0.5
"""How often a queue that is quiet is received from during a walk."""
LOOK_INTERVAL_S: Final = 60.0
"""The shortest time between two walks through the whole queue."""
IDLE_S: Final = 60.0
"""A poll that lasted longer was probably detached by a service that detaches idle links."""


@final
class QueueSyphon:
    """The syphon of one backlog queue."""

    def __init__(
        self,
        backlog: BacklogPort,
        primary: PrimaryPort,
        settings: SyphonSettings,
        observer: SyphonObserver,
        clock: Clock,
    ) -> None:
        self._backlog: Final = backlog
        self._settings: Final = settings
        self._observer: Final = observer
        self._clock: Final = clock
        self._news: Final = asyncio.Event()
        """A probe has ended, a lock or the link is lost, or the syphon is to stop."""
        self._held: Final = HeldMessages(backlog, clock, observer, self._news.set)
        self._home: Final = HomeSender(primary, self._held.are_safe, settings, clock)
        self._dead: Final = Destinations(self._home, settings, clock, self._news.set)
        self._look: Final = LookAhead()
        self._window: Final = Window(settings)
        self._batch_window: Final = Window(settings)
        """How many deferred messages are asked for at a time."""
        self._is_bringing_home = False
        """The walk under way finds deferred messages for live destinations."""
        self._anchor: Held | None = None
        """A message that is home and not completed yet, while deferred ones are on their way: should this syphon die,
        whoever receives the message looks through the queue and finds them."""
        self._is_stopping = False
        self._is_quiet: bool | None = None
        """The last receive returned nothing; None before the first."""
        self._must_walk = True
        """Deferred messages may be anywhere: at the start, and after messages came."""
        self._walk_at = -math.inf
        self._walk_interval_s = LOOK_INTERVAL_S
        self._look_at = 0.0
        self._look_interval_s = settings.retry_interval_s
        self._is_missing = False
        """Somebody else held deferred messages that the last walk found."""
        self._page_at = 0.0
        self._poll_ends_at: float | None = None
        self._polled_at = self._active_at = 0.0
        self._last_surprise = ""
        self._is_waiting_told = False

    @property
    def dead_destinations(self) -> list[str]:
        return self._dead.paths

    async def run(self, once: bool = False) -> bool:
        """Until it is stopped; `once`: until nothing more can be moved. Returns whether nothing is left, as far as is
        known."""
        self._active_at = self._now()
        try:
            while not self._is_stopping:
                try:
                    is_idle = await self._turn(once)
                except Exception as error:
                    if once:
                        raise
                    await self._start_again(error)
                    continue
                if once and is_idle and not self._others_go_on():
                    break
            await self._let_go()
            return not self._dead and (self._is_stopping or not self._look.has_left)
        finally:
            self._dead.cancel()
            self._held.drop()

    async def stop(self) -> None:
        """Finishes what it holds, then `run` returns."""
        self._is_stopping = True
        self._news.set()
        await self._backlog.interrupt()

    # A turn.

    async def _turn(self, once: bool) -> bool:
        """Returns whether there was nothing to do."""
        self._news.clear()
        self._held.check()
        self._check_leads()
        await self._settle_probes()
        self._dead.start_probes()
        if not self._dead.is_primary_away:
            self._start_look(once)
            if not self._look.is_over and (not self._dead or not self._look.in_sight):
                await self._look_on()
        if self._dead and (self._dead.is_primary_away or not self._look.in_sight):
            return await self._wait(once)
        if not await self._receive(once):
            return self._look.is_over and not self._must_walk
        return False

    async def _wait(self, once: bool) -> bool:
        """Every message in sight is for a dead destination."""
        is_away = self._dead.is_primary_away
        if not (self._look.is_over or is_away):
            return False
        if not once:
            look_at = min(self._look_at, self._walk_at if self._is_walk_wanted(once) else math.inf)
            look_in_s = math.inf if is_away else max(look_at - self._now(), 0.0)
            await self._news_within(min(self._dead.due_in_s(), look_in_s))
        return is_away or not self._must_walk

    async def _news_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await self._news.wait()

    def _others_go_on(self) -> bool:
        """Whether others hold messages that may still come back, because their holder was killed."""
        left_s = self._active_at + self._settings.others_wait_s - self._now()
        if self._dead or not self._look.has_left or left_s <= 0:
            return False
        if not self._is_waiting_told:
            self._is_waiting_told = True
            log.info("%s: waits up to %.0f s for messages in the hands of another syphon", self._backlog.queue, left_s)
        self._must_walk = True
        return True

    # Probes.

    def _check_leads(self) -> None:
        """A lead whose lock is lost comes again, to whoever receives next."""
        for dead in self._dead:
            if not self._held.holds(dead.lead):
                self._dead.remove(dead)
                self._walk_soon()

    async def _settle_probes(self) -> None:
        for dead, sent in self._dead.answered():
            if sent.error is not None:
                self._observer.retried(self._backlog.queue, dead.lead.path, sent.error)
            elif sent.accepted or sent.refused:
                await self._returned(dead, sent)

    async def _returned(self, dead: DeadDestination, sent: Sent) -> None:
        """The destination takes messages again. Deferred ones are looked for first, then the lead is completed."""
        was_away = self._dead.is_primary_away
        self._dead.remove(dead)
        if dead.first_deferred is not None:
            self._is_bringing_home = True
        if dead.first_deferred is not None or self._dead or not self._look.is_over:
            self._look_from(1 if was_away else dead.first_number)
        self._batch_window.reset()
        self._look_interval_s = self._settings.retry_interval_s
        await self._settle([sent])

    # Looking ahead.

    def _is_walk_wanted(self, once: bool) -> bool:
        return self._must_walk or (self._is_missing and not once)

    def _start_look(self, once: bool) -> None:
        now = self._now()
        if not self._look.is_over:
            return
        is_walk_due = self._is_walk_wanted(once) and (once or now >= self._walk_at)
        if is_walk_due and (self._is_quiet is not False or self._dead):
            self._start_walk()
        elif self._dead and now >= self._look_at:
            if self._held.is_partitioned:
                self._look.start()
            else:
                self._look.resume()
            self._look_interval_s = self._settings.doubled(self._look_interval_s)

    def _start_walk(self) -> None:
        """Through the whole queue. While something waits, less and less often."""
        if self._is_missing or self._dead:
            self._walk_interval_s = min(2 * self._walk_interval_s, self._settings.poll_s)
        else:
            self._walk_interval_s = LOOK_INTERVAL_S
        self._walk_at = self._now() + self._walk_interval_s
        self._must_walk = self._is_missing = False
        # Receivers get messages in order, so nobody has deferred what stands behind messages that nobody ever received.
        self._look.start(scan_beyond=None if self._is_quiet else self._settings.window)

    def _walk_soon(self) -> None:
        self._must_walk, self._walk_at = True, -math.inf

    def _look_from(self, number: int) -> None:
        position = 1 if self._held.is_partitioned else min(number, self._look.position)
        self._look.start(position, scan_beyond=None if self._dead else self._settings.window)

    async def _look_on(self) -> None:
        """By a page. Deferred messages for live destinations come home at once."""
        if not self._dead and self._is_quiet is False and self._now() < self._page_at:
            return  # Half of the time is for messages that come.
        began_at = self._now()
        numbers = {*self._dead.numbers, *([] if self._anchor is None else [self._anchor.sequence_number])}
        page = await self._held.browse(self._look.position, PAGE)
        await self._bring_home(self._look.see(page, self._dead, numbers, self._held.is_partitioned))
        self._page_at = 2 * self._now() - began_at
        if self._look.in_sight:
            self._look_interval_s = self._settings.retry_interval_s
        if self._look.is_over:
            await self._looked()

    async def _looked(self) -> None:
        self._look_at = self._now() + self._look_interval_s
        self._look.has_left = self._look.has_left or self._is_missing
        if self._look.is_cut_short:
            self._must_walk = True
            return
        self._is_bringing_home = False
        if not self._dead.has_deferred_lead:
            anchor, self._anchor = self._anchor, None
            await self._held.complete([] if anchor is None else [anchor])

    async def _bring_home(self, deferred: Sequence[Browsed]) -> None:
        while deferred and not self._is_stopping:
            live = []
            for message in deferred:
                destination = destination_of(message.path or "")
                if destination in self._dead:
                    self._dead[destination].note_deferred(message.sequence_number)
                else:
                    live.append(message)
            some, deferred = live[: self._batch_window.count], live[self._batch_window.count :]
            if not some:
                return
            self._is_bringing_home = True
            held = await self._held.receive_deferred([each.sequence_number for each in some])
            if len(held) < len(some):
                self._is_missing = True
            self._batch_window.received(1, len(some))
            await self._send(held)

    # Receiving and sending.

    async def _receive(self, once: bool) -> bool:
        """Returns whether messages came."""
        is_walking = self._is_quiet and not (self._look.is_over or self._dead)
        if is_walking and self._now() < self._polled_at + QUIET_WALK_S:
            return False
        count = min(self._window.count, self._look.in_sight) if self._dead else self._window.count
        self._polled_at = self._now()
        deliveries = await self._held.receive(count, self._wait_s(once))
        # A poll that was cut off goes on for the rest of its time; this one ran its course.
        self._poll_ends_at = None
        self._is_quiet = not deliveries
        if self._dead:
            self._look.received(len(deliveries))
        if not deliveries:
            self._window.reset()
            return False
        self._must_walk = True
        self._active_at = self._now()
        self._window.received(max([len(each.payload) for each in deliveries]), len(deliveries))
        held = await self._held.read(deliveries)
        if any(each.is_inherited for each in held) and (self._look.is_over or not self._is_bringing_home):
            self._is_bringing_home = True
            self._start_walk()
        groups = by_destination(held)
        for destination in [each for each in groups if each in self._dead]:
            await self._put_aside(self._dead[destination], groups.pop(destination))
        await self._send([each for held in groups.values() for each in held])
        return True

    def _wait_s(self, once: bool) -> float:
        now = self._now()
        if self._dead or not self._look.is_over:
            return NO_WAIT_S
        if once:
            return self._settings.quiet_s
        if self._is_walk_wanted(once):
            return max(self._walk_at - now, NO_WAIT_S) if self._is_quiet else self._settings.quiet_s
        if self._poll_ends_at is None:
            self._poll_ends_at = now + self._settings.poll_s
        return max(self._poll_ends_at - now, NO_WAIT_S)

    async def _put_aside(self, dead: DeadDestination, held: list[Held]) -> None:
        """They stand before live messages. One becomes the lead if the lead is a deferred message: those go back to
        nobody else when this syphon dies."""
        if dead.lead.is_deferred and dead.probe is None:
            former, dead.lead = dead.lead, held.pop(0)
            await self._held.release([former])
        if held:
            await self._held.defer(held)
            dead.note_deferred(min([each.sequence_number for each in held]))
            self._observer.deferred(self._backlog.queue, dead.lead.path, len(held))

    async def _send(self, held: Iterable[Held]) -> None:
        groups = list(by_destination(held).values())
        for first in range(0, len(groups), GROUPS_AT_ONCE):
            some = groups[first : first + GROUPS_AT_ONCE]
            if self._dead.is_primary_away:
                await self._held.release([each for group in some for each in group])
            elif len(some) == 1:
                await self._settle([await self._home.send(some[0])])
            else:
                async with asyncio.TaskGroup() as tasks:
                    sends = [tasks.create_task(self._home.send(group)) for group in some]
                await self._settle([each.result() for each in sends])

    async def _settle(self, outcomes: Sequence[Sent]) -> None:
        accepted = [each for sent in outcomes for each in sent.accepted]
        done = accepted
        if self._is_bringing_home and self._anchor is None and accepted and not accepted[0].is_deferred:
            self._anchor, done = accepted[0], accepted[1:]
        await self._held.complete(done)
        self._held.tell_moved(accepted)
        for sent in outcomes:
            await self._held.dead_letter(sent.refused)
            await (self._held.release(sent.rest) if sent.error is None else self._refused(sent, sent.error))

    async def _refused(self, sent: Sent, error: Exception) -> None:
        """A destination takes nothing now: the first message that it did not take is held and tried again."""
        path = sent.rest[0].path
        if sent.is_primary_away and self._dead.is_primary_away:
            await self._held.release(sent.rest)
        elif self._dead.is_full:
            received = [each for each in sent.rest if not each.is_deferred]
            await self._held.defer(received)
            await self._held.release([each for each in sent.rest if each.is_deferred])
            self._observer.deferred(self._backlog.queue, path, len(received))
        else:
            if not self._dead:
                self._start_walk()
            self._look_from(self._dead.add(sent).first_number)
            self._window.reset()
            self._batch_window.reset()
            self._look_interval_s = self._settings.retry_interval_s
            self._observer.stuck(self._backlog.queue, path, error)
            await self._held.release(sent.rest[1:])

    # Its end.

    async def _start_again(self, error: Exception) -> None:
        """The link is lost. Whatever was held comes again, at once or when its lock lapses."""
        if not isinstance(error, self._backlog.failures) and repr(error) != self._last_surprise:
            self._last_surprise = repr(error)
            log.exception("%s: an unexpected failure", self._backlog.queue)
        is_idle = self._poll_ends_at is not None and self._now() >= self._polled_at + IDLE_S
        tell = self._observer.detached if is_idle else self._observer.troubled
        tell(self._backlog.queue, error)
        self._held.drop()
        if self._dead or self._anchor is not None or not self._look.is_over:
            self._walk_soon()
        self._dead.forget()
        self._anchor = None
        self._is_bringing_home = False
        self._look.is_over = True
        self._window.reset()
        try:
            await self._backlog.close()
        except Exception:
            log.exception("%s: was not closed in order", self._backlog.queue)
        ends_at = self._now() + self._settings.retry_interval_s
        while not self._is_stopping and (left_s := ends_at - self._now()) > 0:
            self._news.clear()
            await self._news_within(left_s)

    async def _let_go(self) -> None:
        """Gives back the leads. The anchor tells its next receiver of deferred messages, and that it is home."""
        try:
            await self._dead.ended()
            await self._settle_probes()
            leads = [each.lead for each in self._dead if not each.is_told_by_lead]
            await self._held.release(leads)
            await self._held.hand_on([each.lead for each in self._dead if each.is_told_by_lead], is_home=False)
            anchor = [] if self._anchor is None else [self._anchor]
            is_needed = self._is_bringing_home or self._dead.has_deferred_lead
            await (self._held.hand_on(anchor, is_home=True) if is_needed else self._held.complete(anchor))
        except self._backlog.failures as error:
            self._observer.troubled(self._backlog.queue, error)

    def _now(self) -> float:
        return self._clock.monotonic()


class Syphon:
    """Empties several backlog queues, each by itself. Any number of syphons may work on the same queues, here and
    elsewhere: only one holds a message at a time."""

    def __init__(
        self,
        backlogs: Sequence[BacklogPort],
        primary: PrimaryPort,
        settings: SyphonSettings,
        observer: SyphonObserver,
        clock: Clock,
    ) -> None:
        self._backlogs: Final = tuple(backlogs)
        self._primary: Final = primary
        self._queues: Final = [QueueSyphon(each, primary, settings, observer, clock) for each in backlogs]

    @property
    def dead_destinations(self) -> set[str]:
        """Paths that take no messages now."""
        return {path for queue in self._queues for path in queue.dead_destinations}

    async def run(self, once: bool = False) -> bool:
        """Until `stop`; `once`: until nothing more can be moved. Returns whether the backlog queues are empty then."""
        try:
            ends = await asyncio.gather(
                *[self._run(queue, each.queue, once) for queue, each in zip(self._queues, self._backlogs, strict=True)],
                return_exceptions=True,
            )
        finally:
            for backlog in self._backlogs:
                await backlog.close()
            await self._primary.close()
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return all(ends)

    async def stop(self) -> None:
        """Finishes what is held, gives back the rest; then `run` returns."""
        for queue in self._queues:
            await queue.stop()

    async def _run(self, queue: QueueSyphon, name: str, once: bool) -> bool:
        try:
            return await queue.run(once)
        except Exception as error:
            log.error("%s: given up: %s", name, error)  # The other queues go on, maybe for long.
            raise
