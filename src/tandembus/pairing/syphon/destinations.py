"""The destinations of one backlog queue that take nothing now, and the probes that find out when they do (N12)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterator
from typing import Final, final

from tandembus.clock import Clock
from tandembus.pairing.syphon.home import HomeSender, Sent
from tandembus.pairing.syphon.ports import Held
from tandembus.pairing.syphon.settings import SyphonSettings

PROBES_AT_ONCE: Final = 64


@final
class DeadDestination:
    """One message for it, the lead, stays locked and is sent again as a probe; all others wait in the queue.

    Locks of a syphon that dies lapse, so another one receives the lead and learns of the destination.
    """

    __slots__ = ("first_deferred", "interval_s", "lead", "probe", "retry_at")

    def __init__(self, lead: Held, interval_s: float, now: float) -> None:
        self.lead = lead
        self.interval_s = interval_s
        self.retry_at = now + interval_s
        self.probe: asyncio.Task[Sent] | None = None
        self.first_deferred: int | None = None
        """From this number on there are deferred messages for it; None if there are none, as far as is known."""
        if lead.is_deferred:
            self.note_deferred(lead.sequence_number)

    def note_deferred(self, number: int) -> None:
        self.first_deferred = number if self.first_deferred is None else min(number, self.first_deferred)

    @property
    def is_told_by_lead(self) -> bool:
        """The lead tells its next receiver of deferred messages."""
        return self.first_deferred is not None and not self.lead.is_deferred

    @property
    def first_number(self) -> int:
        """No message for it stands before this one."""
        number = self.lead.sequence_number
        return number if self.first_deferred is None else min(number, self.first_deferred)


@final
class Destinations:
    """By destination. Probes run beside all else; the engine settles what came of them."""

    def __init__(self, home: HomeSender, settings: SyphonSettings, clock: Clock, has_news: Callable[[], None]) -> None:
        self._home: Final = home
        self._settings: Final = settings
        self._clock: Final = clock
        self._has_news: Final = has_news
        self._dead: Final[dict[str, DeadDestination]] = {}
        self._probes: Final[set[asyncio.Task[Sent]]] = set()
        self._is_primary_away = False

    def __len__(self) -> int:
        return len(self._dead)

    def __iter__(self) -> Iterator[DeadDestination]:
        return iter(list(self._dead.values()))

    def __contains__(self, destination: object) -> bool:
        return destination in self._dead

    def __getitem__(self, destination: str) -> DeadDestination:
        return self._dead[destination]

    @property
    def is_full(self) -> bool:
        return len(self._dead) >= self._settings.max_dead_destinations

    @property
    def is_primary_away(self) -> bool:
        """No destination can be reached: everything waits for the next probe that gets an answer."""
        return self._is_primary_away and bool(self._dead)

    @property
    def has_deferred_lead(self) -> bool:
        """A lead that was received by number goes back to nobody else when this syphon dies."""
        return any(each.lead.is_deferred for each in self._dead.values())

    @property
    def numbers(self) -> Collection[int]:
        """Of the leads."""
        return {each.lead.sequence_number for each in self._dead.values()}

    @property
    def paths(self) -> list[str]:
        return [each.lead.path for each in self._dead.values()]

    def add(self, sent: Sent) -> DeadDestination:
        """The first message that the destination did not take leads."""
        lead = sent.rest[0]
        self._is_primary_away = sent.is_primary_away
        dead = DeadDestination(lead, self._settings.retry_interval_s, self._clock.monotonic())
        self._dead[lead.destination] = dead
        return dead

    def remove(self, dead: DeadDestination) -> None:
        del self._dead[dead.lead.destination]

    def forget(self) -> None:
        """The leads are lost. Probes that are under way end by themselves."""
        self._dead.clear()

    def cancel(self) -> None:
        for each in self._probes:
            each.cancel()

    async def ended(self) -> None:
        """Returns when no probe is under way."""
        if self._probes:
            await asyncio.wait(self._probes)

    def due_in_s(self) -> float:
        """Until the next probe; while as many as possible are under way, one of them has to end first."""
        if len(self._probes) >= PROBES_AT_ONCE:
            return math.inf
        due = [each.retry_at for each in self._dead.values() if each.probe is None]
        return max(min(due, default=math.inf) - self._clock.monotonic(), 0.0)

    def start_probes(self) -> None:
        now = self._clock.monotonic()
        for each in self._dead.values():
            if len(self._probes) >= PROBES_AT_ONCE:
                return
            if each.probe is None and now >= each.retry_at:
                each.probe = asyncio.get_running_loop().create_task(self._home.send([each.lead]))
                self._probes.add(each.probe)
                each.probe.add_done_callback(self._ended)

    def answered(self) -> list[tuple[DeadDestination, Sent]]:
        """Probes that have ended since the last call. One that the destination refused is due again later."""
        found: list[tuple[DeadDestination, Sent]] = []
        for each in self:
            if each.probe is None or not each.probe.done():
                continue
            sent, each.probe = each.probe.result(), None
            if sent.accepted or sent.refused or sent.error is not None:
                self._is_primary_away = sent.is_primary_away
            each.interval_s = self._settings.doubled(each.interval_s)
            each.retry_at = self._clock.monotonic() + each.interval_s
            found.append((each, sent))
        return found

    def _ended(self, probe: asyncio.Task[Sent]) -> None:
        self._probes.discard(probe)
        self._has_news()
