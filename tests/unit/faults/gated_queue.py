"""A queue behind a gate: real fragment, real broker, memory store; time, timers and chance in the hands of the test."""

from __future__ import annotations

from collections.abc import Callable

from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.clock import ManualClock
from tandembus.errors import BusError
from tandembus.faults.board import FaultBoard, FragmentPlace
from tandembus.faults.fault import Topology, read_fault
from tandembus.faults.gate import FaultGate
from tandembus.faults.requests import FaultyRequests
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.traffic import SessionHold, SessionWish
from tandembus.message import Message
from tandembus.store.messaging_store import MAIN
from tests.unit.broker.one_queue import Answer, body_of, message
from tests.unit.broker.session_queue import SessionQueue


class Timers:
    """Calls later, when the test lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._waiting.append((self._clock.monotonic() + delay_s, act))

    def pass_time(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while due := [one for one in self._waiting if one[0] <= end + 1e-9]:
            first = min(due, key=lambda one: one[0])
            self._waiting.remove(first)
            self._clock.advance(max(first[0] - self._clock.monotonic(), 0.0))
            first[1]()
        self._clock.advance(max(end - self._clock.monotonic(), 0.0))


class Link:
    """A receiver as a front end has it."""

    def __init__(self, queue: GatedQueue, is_destructive: bool = False) -> None:
        self.consumer = CallbackConsumer(is_destructive, self._deliver, self._drained, self._lost)
        self.locks: list[MessageLock] = []
        self.bodies: list[str] = []
        self.drained_count = 0
        self.loss: BusError | None = None
        self.hold: SessionHold | None = None
        self._queue = queue

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.locks.append(lock)
        self.bodies.append(body_of(message))

    def _drained(self) -> None:
        self.consumer.credit = 0
        self.drained_count += 1

    def _lost(self, error: BusError) -> None:
        self.loss = error

    def ask(self, credit: int = 0, is_draining: bool = False) -> None:
        self.consumer.credit += credit
        self._queue.gate.feed(self.consumer, MAIN, is_draining)

    def leave(self) -> None:
        self._queue.gate.detach(self.consumer, MAIN)


class GatedQueue(SessionQueue):
    gate: FaultGate
    requests: FaultyRequests

    def __init__(self, settings: FragmentSettings | None = None) -> None:
        super().__init__(settings)
        self.timers = Timers(self.clock)
        self.draws: list[float] = []
        """What chance brings; then always 0.5."""
        self.board = FaultBoard(
            self.clock,
            Topology(stores=4, brokers=2),
            draw=lambda: self.draws.pop(0) if self.draws else 0.5,
            later=self.timers.later,
        )

    async def __aenter__(self) -> GatedQueue:
        await super().__aenter__()
        traffic = LocalTraffic(self.fragment, self.broker.want, self.broker.session_serving.want)
        self.gate = self.board.gate(traffic, FragmentPlace("orders"))
        self.requests = FaultyRequests(LocalRequests(self.broker, self.fragment), self.gate.faults, self.board)
        return self

    # Faults.

    def inject(
        self, kind: str = "unavailable", target: str = "entity/orders", name: str = "f1", **more: object
    ) -> None:
        self.board.put(read_fault(name, {"target": target, "kind": kind, **more}))

    def heal(self) -> None:
        self.board.clear()

    # Traffic, through the gate.

    def send_through(self, body: str, session_id: str | None = None) -> Answer:
        one = message(body, session_id=session_id)
        answer = Answer()
        reply = CallbackSendReply(lambda _operation, error: answer.give(error))
        self.gate.send(SendOperation([one], len(one.sections), reply, 0))
        return answer

    def link(self, is_destructive: bool = False) -> Link:
        link = Link(self, is_destructive)
        self.gate.attach(link.consumer, MAIN)
        return link

    def settle_through(self, lock: MessageLock, settlement: int) -> Answer:
        answer = Answer()
        self.gate.settle(lock, settlement, CallbackSettleReply(lambda _lock, error: answer.give(error)))
        return answer

    def discharge_through(self, sends: list[Message], *settlements: TransactionSettlement) -> Answer:
        answer = Answer()
        operations = [SendOperation([one], len(one.sections), CallbackSendReply(lambda *_: None), -1) for one in sends]
        reply = CallbackTransactionReply(lambda _operation, error: answer.give(error))
        self.gate.discharge(TransactionOperation(operations, list(settlements), reply))
        return answer

    def wish(self, session_id: str | None, is_patient: bool = True) -> Wisher:
        wisher = Wisher(self, session_id, is_patient)
        self.gate.wish_session(wisher.wish)
        return wisher


class Wisher:
    """Somebody who wants a session."""

    def __init__(self, queue: GatedQueue, session_id: str | None, is_patient: bool) -> None:
        self.wish = SessionWish(session_id, is_patient, self._granted, self._refused)
        self.link: Link | None = None
        self.refusal: BusError | None = None
        self._queue = queue

    def _granted(self, hold: SessionHold) -> None:
        self.link = Link(self._queue)
        self.link.hold = hold
        self._queue.gate.hold_session(hold, self.link.consumer)

    def _refused(self, error: BusError) -> None:
        self.refusal = error

    @property
    def holder(self) -> Link:
        assert self.link is not None
        return self.link
