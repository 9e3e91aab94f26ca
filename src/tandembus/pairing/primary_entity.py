"""What all senders of one entity of the primary share: its health, the timer that engages failover, its pings."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Literal, final

from azure.servicebus.aio import ServiceBusSender

from tandembus.pairing.entity_health import EntityHealth, EntityState
from tandembus.pairing.events import EntityHealthy, FailoverEngaged, Listeners
from tandembus.pairing.links import Link
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions
from tandembus.pairing.ping import Pinger
from tandembus.pairing.runtime import Runtime, Timer
from tandembus.pairing.sdk import PingKey

_log = logging.getLogger("tandembus.pairing")


@final
class PrimaryEntity:
    """Acts on what `EntityHealth` decides. A change of state is told to everybody at once: sends that are running on
    the primary when failover engages are given up, and go to the backlog within the same call (N5)."""

    def __init__(
        self,
        path: str,
        open_sender: Callable[[], ServiceBusSender],
        options: SendAvailabilityPairedNamespaceOptions,
        runtime: Runtime,
    ) -> None:
        self.path = path
        self.is_failed_over = False
        self.is_failing = False
        """A spell of failures is under way: the next answer is news."""
        self._open_sender = open_sender
        self._options = options
        self._listeners: Listeners = options.listeners
        self._runtime = runtime
        self._health = EntityHealth(options.failover_interval.total_seconds(), runtime.clock)
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._timer: Timer | None = None
        self._pinger: Pinger | None = None
        self._ping_key: PingKey | None = None
        self._last_error: BaseException | None = None
        self._failed_over_at = 0.0
        self._is_closed = False

    @property
    def state(self) -> EntityState:
        return self._health.state

    # Sends on the primary.

    def new_link(self, open_sender: Callable[[], ServiceBusSender]) -> Link:
        """For sends until the next failover: connections from before it are not trusted after it."""
        link = Link(open_sender(), self._runtime)
        link.is_outdated = self.is_failed_over
        self._links.add(link)
        return link

    def answered(self) -> None:
        """A send succeeded, or was refused in a way that proves that the entity answers."""
        if self._health.entity_answered():
            self.is_failing = False
            self._cancel_timer()

    def send_failed(self, error: BaseException, ping_key: PingKey | None) -> None:
        """A failure that counts. Pings take the key of the first message that failed and had one: opening a link can
        fail without any."""
        self._last_error = error
        if self._is_closed:
            return
        is_first = self._health.send_failed()
        if is_first or (self.is_failing and self._ping_key is None):
            self._ping_key = ping_key
        if not is_first:
            return
        self.is_failing = True
        _log.info("a send to %s failed: failover in %.1f s: %r", self.path, self._health.due_in_s() or 0.0, error)
        if self._health.due_in_s() != 0.0:
            self._start_timer()
            return
        self._interval_elapsed()

    # What follows from it.

    def _start_timer(self) -> None:
        left_s = self._health.due_in_s()
        if left_s is not None:
            self._timer = self._runtime.call_later(left_s, self._interval_elapsed)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _interval_elapsed(self) -> None:
        self._timer = None
        if self._is_closed:
            return
        if not self._health.interval_elapsed():
            self._start_timer()
            return
        failing_for_s = self._health.failing_for_s()
        pinger = self._engage()
        links, now = list(self._links), self._runtime.clock.now()
        self._links.clear()
        for link in links:
            link.outdate()
        self._listeners.tell(FailoverEngaged(now, self.path, failing_for_s, self._last_error))
        pinger.start()

    def _engage(self) -> Pinger:
        self.is_failing, self.is_failed_over = False, True
        self._failed_over_at = self._runtime.clock.monotonic()
        self._pinger = Pinger(
            self.path,
            self._ping_key,
            self._open_sender,
            self._options.ping_primary_interval.total_seconds(),
            self._options.operation_timeout.total_seconds(),
            self._runtime,
            self._listeners,
            self._ping_accepted,
        )
        return self._pinger

    def _ping_accepted(self, pinger: Pinger) -> None:
        """Pings of an earlier failover, answered late, say nothing about this one."""
        if pinger is not self._pinger:
            return
        event = self._recover("ping")
        if event is not None:
            self._listeners.tell(event)

    def mark_healthy(self) -> None:
        """Somebody knows better than pings do."""
        event = self._recover("marked")
        if event is not None:
            self._listeners.tell(event)

    def _recover(self, because: Literal["ping", "marked"]) -> EntityHealthy | None:
        clock = self._runtime.clock
        was_failed_over = self.is_failed_over
        self._health.recovered()
        self._cancel_timer()
        self._stop_pings()
        self.is_failing = self.is_failed_over = False
        if not was_failed_over:
            return None
        return EntityHealthy(clock.now(), self.path, clock.monotonic() - self._failed_over_at, because)

    def _stop_pings(self) -> None:
        pinger, self._pinger = self._pinger, None
        if pinger is not None:
            pinger.stop()

    def close(self) -> None:
        """No timer and no pings any more, however the sends end that are under way."""
        self._is_closed = True
        self._cancel_timer()
        self._stop_pings()
