"""Receivers behind a gate: whom the fragment knows of, who is to be fed later, who drains.

A receiver stays attached here while its fragment is out of reach; the fragment knows it only while it can be reached.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.operations import Consumer
from tandembus.errors import BusError
from tandembus.faults.effects import FragmentFaults
from tandembus.faults.waiting_line import Waiting, WaitingLine
from tandembus.interconnect.traffic import Traffic

LOOK_AGAIN_S: Final = 0.05
"""A removal that is being committed is decided soon: so often it is asked whether it is."""


@final
class WaitingFeed(Waiting):
    """Once for each receiver, however often it asks."""

    def __init__(self, receivers: GatedReceivers, consumer: Consumer, lane: i64) -> None:
        super().__init__()
        self._receivers: Final = receivers
        self.consumer: Final = consumer
        self.lane: i64 = lane
        self.is_draining: bool = False
        self.is_over: bool = False
        """Nobody waits for it any more."""

    def let_pass(self) -> None:
        if not self.is_over:
            self._receivers.feed_now(self)

    def fail(self, error: BusError) -> None:
        if not self.is_over and self.is_draining:
            self.consumer.drained()


@final
class GatedReceivers:
    def __init__(self, inner: Traffic, faults: FragmentFaults, line: WaitingLine) -> None:
        self._inner: Final = inner
        self._faults: Final = faults
        self._line: Final = line
        self._attached: dict[Consumer, int] = {}
        """With their lanes."""
        self._feeds: dict[Consumer, WaitingFeed] = {}
        self._drains: dict[Consumer, bool] = {}
        """Whose drain an outage ended, and who is told of it after removals that are still being committed."""
        self._is_timed: bool = False

    def is_used(self) -> bool:
        return len(self._attached) > 0

    def attach(self, consumer: Consumer, lane: i64) -> None:
        self._faults.listen()
        self._attached[consumer] = int(lane)
        if self._faults.outage is None:
            self._inner.attach(consumer, lane)

    def feed(self, consumer: Consumer, lane: i64, is_draining: bool) -> None:
        """While faults concern the fragment."""
        if self._faults.outage_now() is not None:
            # What is out of reach has nothing to give: it counts as drained.
            if is_draining:
                self._drains[consumer] = True
                self._tell_drained()
            else:
                self._drains.pop(consumer, None)
            return
        delay_s = self._faults.delay_s()
        if delay_s > 0.0 or self._line.is_busy():
            self._feed_later(consumer, lane, is_draining, delay_s)
        else:
            self._inner.feed(consumer, lane, is_draining)

    def _feed_later(self, consumer: Consumer, lane: i64, is_draining: bool, delay_s: float) -> None:
        one = self._feeds.get(consumer)
        if one is None:
            one = WaitingFeed(self, consumer, lane)
            self._feeds[consumer] = one
            self._line.add(one, delay_s)
            self._faults.listen()
        one.is_draining = is_draining

    def feed_now(self, one: WaitingFeed) -> None:
        self._feeds.pop(one.consumer, None)
        self._inner.feed(one.consumer, one.lane, one.is_draining)

    def detach(self, consumer: Consumer, lane: i64) -> None:
        self._attached.pop(consumer, None)
        self._drains.pop(consumer, None)
        self.forget(consumer)
        if self._faults.outage is None:  # else the fragment does not know it
            self._inner.detach(consumer, lane)

    def forget(self, consumer: Consumer) -> None:
        """It wants nothing more, whatever waits for it."""
        one = self._feeds.pop(consumer, None)
        if one is not None:
            one.is_over = True

    def leaves_later(self, consumer: Consumer, lane: i64) -> bool:
        """Whether its leaving a session stands in line, too: what waits there may be its settlements, and the fragment
        would take back what it leaves unsettled. Until then it gets nothing. One that receives and deletes settles
        nothing, and what is removed for it must be given back at once."""
        if consumer.is_destructive or not self._line.is_busy():
            return False
        consumer.credit = 0
        self._inner.feed(consumer, lane, False)
        return True

    # Outages.

    def break_off(self) -> None:
        inner = self._inner
        for consumer, lane in list(self._attached.items()):
            one = self._feeds.get(consumer)
            if inner.is_draining(consumer, lane) or (one is not None and one.is_draining):
                self._drains[consumer] = True
            self.forget(consumer)
            inner.detach(consumer, lane)
            consumer.locks_lost()
        self._tell_drained()

    def _tell_drained(self) -> None:
        """But not before what is being removed for them has come: it is within the credit that ends with the drain."""
        for consumer in list(self._drains):
            if consumer.removing_count == 0:
                del self._drains[consumer]
                consumer.drained()
        if self._drains and not self._is_timed:
            self._is_timed = True
            self._faults.state.later(LOOK_AGAIN_S, self._look_at_drains)

    def _look_at_drains(self) -> None:
        self._is_timed = False
        self._tell_drained()

    def resume(self) -> None:
        inner = self._inner
        for consumer, lane in list(self._attached.items()):
            inner.attach(consumer, lane)
            if consumer.credit > 0 and consumer not in self._drains:
                inner.feed(consumer, lane, False)
