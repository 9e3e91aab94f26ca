"""How injected faults change the traffic of one fragment, in this process or in another one.

Without a fault `fault` is None, and an operation looks at nothing else. With one, an operation first asks whether it is
delayed: the answer raises what the fault does to it, or the switch keeps it and calls it again when it is due.
"""

from __future__ import annotations

from functools import partial

from mypy_extensions import i64

from tandembus.broker.locks import RELEASE, MessageLock, SettleReply
from tandembus.broker.operations import Consumer, SendOperation
from tandembus.broker.transactions import TransactionOperation
from tandembus.errors import BusError
from tandembus.faults.switch import FragmentSwitch
from tandembus.interconnect.traffic import SessionHold, SessionWatch, SessionWish, Traffic
from tandembus.store.messaging_store import MAIN


class FragmentTraffic(Traffic):
    def __init__(self, index: i64) -> None:
        super().__init__(index, False)
        self.fault: FragmentSwitch | None = None
        """The faults injected into the fragment; None while there are none."""
        self._late_watch: SessionWatch | None = None
        """Set while the fragment was out of reach, to be set again when it is back."""

    def outage(self) -> BusError | None:
        """The fault that puts it out of reach."""
        fault = self.fault
        return None if fault is None else fault.outage()

    def cut_off(self, error: BusError) -> None:
        """A fault puts the fragment out of reach: its receivers stay attached and get nothing, drains are over, what
        was delivered stays locked, and sessions are lost."""
        raise AssertionError("traffic of a fragment must be implemented")

    def reconnect(self) -> None:
        """It can be reached again: its receivers are fed."""
        raise AssertionError("traffic of a fragment must be implemented")

    def watch_again(self) -> None:
        watch = self._late_watch
        self._late_watch = None
        if watch is not None:
            self.watch_sessions(watch)

    # Whether a fault delays an operation. Asked only while there is one.

    def delays_send(self, fault: FragmentSwitch, operation: SendOperation) -> bool:
        if fault.lets_pass():
            return False
        fail = partial(operation.reply.sent, operation)
        return fault.keeps(fault.hit(True, True), operation.size_bytes, partial(self.send, operation), fail)

    def delays_settle(
        self, fault: FragmentSwitch, lock: MessageLock, settlement: i64, reply: SettleReply | None
    ) -> bool:
        """Nothing keeps a message from going back that was only kept ready."""
        if fault.lets_pass() or (reply is None and settlement == RELEASE):
            return False
        act = partial(self._settle_late, lock, settlement, reply)
        return fault.keeps(fault.hit(False, False), 0, act, partial(_fail_settle, lock, reply))

    def _settle_late(self, lock: MessageLock, settlement: int, reply: SettleReply | None) -> None:
        if reply is None or reply.is_wanted():
            self.settle(lock, settlement, reply)
        else:
            self.settle(lock, RELEASE, None)

    def delays_discharge(self, operation: TransactionOperation) -> bool:
        """A transaction is hit by the faults of every fragment that takes part in it."""
        slowest: FragmentSwitch | None = None
        delay_s = 0.0
        for traffic, part in [(self, operation)] + [
            (_fragment(one.traffic), one.operation) for one in operation.others
        ]:
            fault = traffic.fault
            if fault is None:
                continue
            if fault.lets_pass():
                return False
            grows = len(part.sends) > 0
            part_delay_s = fault.hit(grows, grows)
            if slowest is None or part_delay_s > delay_s:
                slowest, delay_s = fault, part_delay_s
        if slowest is None:
            return False
        fail = partial(operation.reply.discharged, operation)
        return slowest.keeps(delay_s, operation.size_bytes, partial(self.discharge, operation), fail)

    def delays_feed(self, fault: FragmentSwitch, consumer: Consumer, lane: i64, is_draining: bool) -> bool:
        """A receiver waits once, however often it asks."""
        if consumer not in fault.feeds:
            act = partial(self._feed_late, fault, consumer, lane)
            if not fault.keeps_receiver(act, _leave_to_cut_off):
                return False
        fault.feeds[consumer] = is_draining
        return True

    def _feed_late(self, fault: FragmentSwitch, consumer: Consumer, lane: int) -> None:
        is_draining = fault.feeds.pop(consumer, None)
        if is_draining is not None:
            self.feed(consumer, lane, is_draining)

    def waiting_drains(self) -> list[object]:
        """The receivers that drain and wait in the line, which is about to be cut off. None of them waits any more."""
        feeds = self.fault.feeds if self.fault is not None else {}
        drains = [consumer for consumer, is_draining in feeds.items() if is_draining]
        feeds.clear()
        return drains

    def forget_feed(self, consumer: Consumer) -> None:
        """The receiver is gone, or is about to be."""
        if self.fault is not None:
            self.fault.feeds.pop(consumer, None)

    def delays_wish(self, fault: FragmentSwitch, wish: SessionWish) -> bool:
        """Waiting for a session is receiving: delayed as that is, and refused only while the fragment is out."""
        outage = fault.outage()
        if outage is None:
            return fault.keeps_receiver(partial(self._wish_late, wish), partial(_refuse_wish, wish))
        _refuse_wish(wish, outage)
        return True

    def _wish_late(self, wish: SessionWish) -> None:
        if not wish.is_over:
            self.wish_session(wish)

    def delays_leave(self, fault: FragmentSwitch, hold: SessionHold, consumer: Consumer) -> bool:
        """Settlements of a session's holder may wait in the line; the fragment would take back what they settle if it
        heard first that the holder leaves. Until then the holder gets nothing. One that receives and deletes settles
        nothing, and what is removed for it must be given back at once."""
        fault.feeds.pop(consumer, None)
        if fault.lets_pass() or consumer.is_destructive or not fault.is_waited_for():
            return False
        consumer.credit = 0
        fault.pass_by(partial(self.feed, consumer, MAIN, False))
        act = partial(self.leave_session, hold)
        fault.add(0.0, 0, act, partial(_ignoring_error, act))
        return True

    def delays_watch(self, fault: FragmentSwitch, watch: SessionWatch) -> bool:
        """While the fragment is out of reach, free sessions in it are announced to nobody."""
        if not fault.is_out():
            return False
        self._late_watch = watch
        return True


def _fragment(traffic: object) -> FragmentTraffic:
    assert isinstance(traffic, FragmentTraffic)
    return traffic


def _fail_settle(lock: MessageLock, reply: SettleReply | None, error: BusError) -> None:
    if reply is not None:
        reply.settled(lock, error)


def _refuse_wish(wish: SessionWish, error: BusError) -> None:
    if not wish.is_over:
        wish.is_over = True
        wish.refused(error)


def _leave_to_cut_off(_error: BusError) -> None:
    return


def _ignoring_error(act: partial[None], _error: BusError) -> None:
    act()
