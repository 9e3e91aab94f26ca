"""How much each fragment of an entity is asked for, on behalf of all its receivers in this front end.

While somebody has credit, one message of every fragment: so none starves, and whoever has something answers. Beyond
that as much as the receivers can take, of those fragments that have had something lately. A fragment that is drained is
asked for all it has, and answers with a marker behind it: until that has come its credit is left alone, since the
marker says whether it could use all of it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.broker.locks import MessageLock
from tandembus.broker.operations import Consumer
from tandembus.interconnect.traffic import Traffic
from tandembus.message import Message

LEAST_RECENT: Final = 1024
"""A fragment has had something lately if it is among those that delivered the last so many messages."""
WORTH_ASKING: Final = 8
"""Credit is topped up when it has fallen by this part of it."""
TYPICAL_BYTES: Final = 1024

# Where a fragment stands in a drain.
SETTLED: Final = 0
"""Nothing is to be asked of it, and no marker to come: it has said that it has no more, or nobody drains."""
TO_ASK: Final = 1
"""There may be more: it had as much as it was asked for, or was not asked yet."""
ASKED: Final = 2
"""Its marker is still to come."""
TO_ASK_AGAIN: Final = 3
"""As before, but for an earlier drain: for this one it was not asked yet."""


class Fed:
    """Whoever takes what the fragments deliver."""

    def arrived(self, message: Message, lock: MessageLock) -> None:
        raise AssertionError("what arrives must be taken")

    def has_room_for(self, size_bytes: i64) -> bool:
        """Whether somebody could take a large message now."""
        raise AssertionError("what arrives must be taken")

    def run_ended(self) -> None:
        """After a run of deliveries of one fragment, or its marker."""
        raise AssertionError("what arrives must be taken")

    def lost_locks_of(self, index: i64) -> None:
        """All that this fragment has delivered, and nobody has handed over, is void."""
        raise AssertionError("what arrives must be taken")


@final
class Feeder(Consumer):
    """The receivers of an entity as one of its fragments sees them: all as one, who keeps things ready for others."""

    def __init__(self, feeders: Feeders, index: i64, traffic: Traffic) -> None:
        super().__init__(False)
        self.keeps_ready = True
        self.feeders: Final = feeders
        self.index: i64 = index
        self.traffic: Final = traffic
        self.delivered_at: i64 = 0
        """How many messages had come, of all fragments, when this one last delivered; 0: it never did."""
        self.drain_state: i64 = SETTLED

    def owes_marker(self) -> bool:
        return self.drain_state == ASKED or self.drain_state == TO_ASK_AGAIN

    def is_to_be_asked(self) -> bool:
        return self.drain_state == TO_ASK or self.drain_state == TO_ASK_AGAIN

    def has_room_for(self, size_bytes: i64) -> bool:
        return self.feeders.fed.has_room_for(size_bytes)

    def deliver(self, message: Message, lock: MessageLock) -> None:
        self.feeders.delivered(self, message, lock)

    def flush(self) -> None:
        self.feeders.fed.run_ended()

    def drained(self) -> None:
        self.feeders.marker_came(self)

    def locks_lost(self) -> None:
        self.feeders.lost_locks_of(self)


@final
class Feeders:
    def __init__(self, fragments: list[Traffic], lane: i64, fed: Fed) -> None:
        self.lane: i64 = lane
        self.fed: Final = fed
        self._all: list[Feeder] = []
        for position in range(len(fragments)):
            self._all.append(Feeder(self, position, fragments[position]))
        self._delivered_count: i64 = 0
        self._typical_bytes: i64 = TYPICAL_BYTES
        """Of the messages that came lately."""
        self._passed_over: i64 = 0
        """Bits of the fragments whose message came when there was no room to keep it."""

    @property
    def outstanding(self) -> i64:
        """What the fragments may still deliver."""
        credit: i64 = 0
        for feeder in self._all:
            credit += max(feeder.credit, i64(0))
        return credit

    def attach(self) -> None:
        for feeder in self._all:
            feeder.traffic.attach(feeder, self.lane)

    def detach(self) -> None:
        self.end_drain()
        self.withdraw()
        for feeder in self._all:
            feeder.traffic.detach(feeder, self.lane)

    def end(self) -> None:
        """After `detach`, for good: they refer back here."""
        self._all = []

    # Messages come.

    def delivered(self, feeder: Feeder, message: Message, lock: MessageLock) -> None:
        self._delivered_count += 1
        feeder.delivered_at = self._delivered_count
        self._passed_over &= ~(1 << feeder.index)
        self._typical_bytes += (lock.size_bytes - self._typical_bytes) // 16
        self.fed.arrived(message, lock)

    def lost_locks_of(self, feeder: Feeder) -> None:
        if feeder.owes_marker():
            feeder.drain_state = TO_ASK if feeder.drain_state == TO_ASK_AGAIN else SETTLED
        self.fed.lost_locks_of(feeder.index)

    def pass_over(self, index: i64) -> None:
        """Its message went back, since there was no room for it. The next receive is for those that lost this way, or
        the slower ones would lose every time."""
        self._passed_over |= 1 << index

    def is_passing_over(self) -> bool:
        return self._passed_over != 0

    def ask_all_again(self) -> None:
        """Those that were passed over are not alone any more: what they had may be gone."""
        self._passed_over = 0

    # Asking.

    def withdraw(self) -> None:
        """Nobody wants anything."""
        for feeder in self._all:
            self._set_credit(feeder, 0)

    def ask(self, wanted: i64, max_bytes: i64) -> None:
        """For so many messages; not for more than could be kept if the receivers stopped reading meanwhile, but for one
        of each fragment at least."""
        count: i64 = len(self._all)
        most = max(min(wanted, max_bytes // max(self._typical_bytes, i64(1))), count)
        outstanding: i64 = 0
        active: i64 = 0
        for feeder in self._all:
            if self._is_active(feeder, wanted):
                active += 1
                outstanding += max(feeder.credit, i64(1))
            else:
                outstanding += 1
        self._share(most - outstanding, most, active, wanted)

    def _share(self, spare: i64, most: i64, active: i64, wanted: i64) -> None:
        share: i64 = 0
        if active > 0 and spare * WORTH_ASKING >= most:
            share = max(spare // active, i64(1))
        passed_over = self._passed_over if wanted <= _count_of(self._passed_over) else 0
        for feeder in self._all:
            credit: i64 = 1
            if passed_over != 0:
                credit = 1 if passed_over & (1 << feeder.index) else 0
            elif self._is_active(feeder, wanted):
                credit = max(feeder.credit, i64(1))
                change = min(share, spare) if spare > 0 else max(spare, 1 - credit)
                credit += change
                spare -= change
            self._set_credit(feeder, credit)

    def _set_credit(self, feeder: Feeder, credit: i64) -> None:
        if credit != feeder.credit and not feeder.owes_marker():
            feeder.credit = credit
            feeder.traffic.feed(feeder, self.lane, False)

    def _is_active(self, feeder: Feeder, wanted: i64) -> bool:
        """Whether it is worth the while to ask it for more than one."""
        if feeder.delivered_at == 0 or feeder.traffic.is_out():
            return False
        return self._delivered_count - feeder.delivered_at <= max(2 * wanted, i64(LEAST_RECENT))

    # Draining.

    def begin_drain(self) -> None:
        """All that can be reached have to be asked; the others have nothing that anybody could wait for."""
        for feeder in self._all:
            if feeder.traffic.is_out():
                feeder.drain_state = ASKED if feeder.owes_marker() else SETTLED
            else:
                feeder.drain_state = TO_ASK_AGAIN if feeder.owes_marker() else TO_ASK

    def has_more_to_drain(self) -> bool:
        for feeder in self._all:
            if feeder.is_to_be_asked():
                return True
        return False

    def is_drained(self) -> bool:
        for feeder in self._all:
            if feeder.drain_state != SETTLED:
                return False
        return True

    def drain(self, credit: i64) -> None:
        """Ask on where there may be more, for so many messages in all, less what the others may still deliver."""
        asked: list[Feeder] = []
        for feeder in self._all:
            if feeder.is_to_be_asked():
                asked.append(feeder)
                feeder.drain_state = ASKED if feeder.owes_marker() else SETTLED
        share = max((credit - self.outstanding) // i64(len(asked)), i64(1))
        for feeder in asked:
            feeder.drain_state = ASKED
            feeder.credit = max(feeder.credit, share)
            feeder.traffic.feed(feeder, self.lane, True)

    def marker_came(self, feeder: Feeder) -> None:
        """All it has, within its credit, has come; then the credit is gone. One whose time was up is late."""
        if feeder.owes_marker():
            has_more = feeder.credit <= 0 or feeder.drain_state == TO_ASK_AGAIN
            feeder.drain_state = TO_ASK if has_more else SETTLED
        feeder.credit = 0
        self.fed.run_ended()

    def end_drain(self) -> None:
        """Nobody waits for markers any more."""
        for feeder in self._all:
            feeder.drain_state = SETTLED


def _count_of(bits: i64) -> i64:
    count: i64 = 0
    while bits != 0:
        bits &= bits - 1
        count += 1
    return count
