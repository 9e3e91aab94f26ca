"""Drives a namespace of any shape: send, receive, settle, ask, kill, advance.

A test says what clients do and sees what clients see. How entities, fragments, channels and stores are built and called
is known here and in `installation.py` alone, so that they can be rebuilt without touching a test.

Verbs return when nothing can go on without time passing; `stage` and `want` return before that. A verb raises the
BusError that a client would get.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from tandembus.broker import locks
from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.broker.transfer_destination import set_destination
from tandembus.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    subscription_path,
)
from tandembus.errors import BusError, OperationTimeout, StoreUnavailable
from tandembus.interconnect.requests import Browsed, Counts, Listing
from tandembus.interconnect.traffic import ANY_FRAGMENT, SessionHold, SessionWish
from tandembus.limits import Limits
from tandembus.message import Message, parse_message
from tandembus.message_encoding import encode_delivery
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.store.memory import Fault, MemoryDisk
from tandembus.store.messaging_store import (
    DEAD_LETTER,
    MAIN,
    NUMBER_BITS,
    TRANSFER,
    TRANSFER_DEAD_LETTER,
)
from tests.behaviour.installation import Installation
from tests.behaviour.messages import Draft, Seen, message, ping
from tests.behaviour.shapes import Shape
from tests.behaviour.still_loop import Killed, Process, StillLoop

__all__ = [
    "DAY_S",
    "SMALL",
    "Answer",
    "Bus",
    "Draft",
    "Fault",
    "Queue",
    "Received",
    "Receiver",
    "Seen",
    "Settlement",
    "message",
    "ping",
]

T = TypeVar("T")

DAY_S = 86_400.0
SMALL = Limits(window_messages=4, size_choices_megabytes=(1, 1024))
"""Ten messages are more than a fragment keeps in memory."""
MANY = 1000
HIGH_BYTES = 1 << 20

SETTLEMENTS = {
    "complete": locks.COMPLETE,
    "abandon": locks.ABANDON,
    "defer": locks.DEFER,
    "dead-letter": locks.DEAD_LETTER,
    "release": locks.RELEASE,
}
Settlement = Literal["complete", "abandon", "defer", "dead-letter", "release"]


class Answer:
    """What becomes of something that was begun and not waited for."""

    def __init__(self) -> None:
        self.is_given = False
        self.error: BusError | None = None

    def give(self, error: BusError | None) -> None:
        assert not self.is_given, "an operation is answered once"
        self.is_given = True
        self.error = error

    @property
    def is_accepted(self) -> bool:
        return self.is_given and self.error is None

    def check(self) -> None:
        """Raises what was answered; it has been answered."""
        assert self.is_given, "no answer has come"
        if self.error is not None:
            raise self.error


class Received(Seen):
    """A message that is locked for the client, and can be settled by it."""

    def __init__(self, queue: Queue, entity: Entity, message: Message, lock: MessageLock, hold: SessionHold | None):
        partition = int(lock.index) if queue.bus.shape.is_partitioned else -1
        number = int(lock.index) << NUMBER_BITS | int(message.number)
        super().__init__(encode_delivery(message, number, int(lock.locked_until_ms), 0, bytes(lock.token), partition))
        self.lock = lock
        self.hold = hold
        self._queue = queue
        self._entity = entity
        self._process = queue.bus.process

    async def stage(self, kind: Settlement, reason: str | None = None, **changes: object) -> Answer:
        """Begin to settle it. One of an earlier life of the front end is looked for by its token, as clients do."""
        answer = Answer()
        if self._process is not self._queue.bus.process:
            self._entity = await self._queue.entity()
            self._process = self._queue.bus.process
            self.lock = (await self._queue.ask("find_locks", [bytes(self.lock.token)], self._queue.lane, self.hold))[0]
        self.lock.reason = reason
        self.lock.changes = dict(changes) or None
        reply = CallbackSettleReply(lambda _lock, error: answer.give(error))
        try:
            self._process.run(self._entity.traffic.settle, self.lock, SETTLEMENTS[kind], reply)
        except BusError as error:
            answer.give(error)
        return answer

    async def settle(self, kind: Settlement, reason: str | None = None, **changes: object) -> None:
        answer = await self.stage(kind, reason, **changes)
        await self._queue.bus.quiet()
        answer.check()

    async def complete(self) -> None:
        await self.settle("complete")

    async def abandon(self, **changes: object) -> None:
        await self.settle("abandon", None, **changes)

    async def defer(self, **changes: object) -> None:
        await self.settle("defer", None, **changes)

    async def release(self) -> None:
        await self.settle("release")

    async def dead_letter(self, reason: str | None = None, **changes: object) -> None:
        await self.settle("dead-letter", reason, **changes)

    async def renew(self) -> int:
        """Returns until when it is locked, in milliseconds."""
        found = await self._queue.ask("renew", [bytes(self.lock.token)])
        return int(found[0])


class Receiver:
    """A link that receives: it notes what it is given."""

    def __init__(self, queue: Queue, entity: Entity, is_destructive: bool, hold: SessionHold | None = None) -> None:
        self.received: list[Received] = []
        self.drain_count = 0
        self.loss: BusError | None = None
        self.hold = hold
        self.queue = queue
        self._entity = entity
        self._process = queue.bus.process
        self.consumer = CallbackConsumer(is_destructive, self._deliver, self._drained, self._lost)
        if hold is None:
            self._process.run(entity.traffic.attach, self.consumer, queue.lane)
        else:
            self._process.run(entity.traffic.hold_session, hold, self.consumer)

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.received.append(Received(self.queue, self._entity, message, lock, self.hold))

    def _drained(self) -> None:
        self.drain_count += 1
        self.consumer.credit = 0

    def _lost(self, error: BusError) -> None:
        self.loss = error
        if self.hold is not None:
            self.hold.is_over = True

    @property
    def bodies(self) -> list[str]:
        return [one.body for one in self.received]

    def want(self, credit: int, is_draining: bool = False) -> None:
        """More credit, without waiting for what comes."""
        self.consumer.credit += credit
        self._process.run(self._entity.traffic.feed, self.consumer, self.queue.lane, is_draining)

    def stop_wanting(self) -> None:
        self.consumer.credit = 0
        self._process.run(self._entity.traffic.feed, self.consumer, self.queue.lane, False)

    async def take(self, credit: int) -> list[Received]:
        """Give this credit; returns what comes at once."""
        before = len(self.received)
        self.want(credit)
        await self.queue.bus.quiet()
        return self.received[before:]

    async def drain(self, credit: int) -> list[Received]:
        """Give this credit and have it back when there is nothing more."""
        before, drains = len(self.received), self.drain_count
        self.want(credit, True)
        await self.queue.bus.quiet()
        assert self.drain_count == drains + 1
        return self.received[before:]

    async def leave(self) -> None:
        if self.hold is None:
            self._process.run(self._entity.traffic.detach, self.consumer, self.queue.lane)
        else:
            self._process.run(self._entity.traffic.leave_session, self.hold)
        await self.queue.bus.quiet()

    # A session's receiver.

    @property
    def session(self) -> str:
        assert self.hold is not None
        return self.hold.session_id

    async def state(self) -> bytes | None:
        found: bytes | None = await self.queue.ask("session_state", self.hold)
        return found

    async def set_state(self, state: bytes | None) -> None:
        await self.queue.ask("set_session_state", self.hold, state)

    async def renew(self) -> int:
        return int(await self.queue.ask("renew_session", self.hold))


class Wish:
    """Somebody waits for a session: the one of this name, or the next one."""

    def __init__(self, queue: Queue, entity: Entity, session: str | None, is_patient: bool) -> None:
        self.hold: SessionHold | None = None
        self.error: BusError | None = None
        self.answers = 0
        self._queue = queue
        self._entity = entity
        self._wish = SessionWish(session, is_patient, self._granted, self._refused)
        queue.bus.process.run(entity.traffic.wish_session, self._wish)

    def _granted(self, hold: SessionHold) -> None:
        self.answers += 1
        self.hold = hold

    def _refused(self, error: BusError) -> None:
        self.answers += 1
        self.error = error

    @property
    def is_answered(self) -> bool:
        return self.answers > 0

    @property
    def session(self) -> str | None:
        return None if self.hold is None else self.hold.session_id

    async def give_up(self) -> None:
        self._queue.bus.process.run(self._entity.traffic.give_up_session, self._wish)
        await self._queue.bus.quiet()

    def receiver(self, is_destructive: bool = False) -> Receiver:
        """Of the session that was granted."""
        if self.error is not None:
            raise self.error
        assert self.hold is not None, "no session was granted"
        return Receiver(self._queue, self._entity, is_destructive, self.hold)


class Queue:
    """A queue, topic, subscription, or one of their sub-queues."""

    def __init__(self, bus: Bus, path: str, lane: int = MAIN) -> None:
        self.bus = bus
        self.path = path
        self.lane = lane

    @property
    def dead_letters(self) -> Queue:
        return Queue(self.bus, self.path, DEAD_LETTER)

    @property
    def transfers(self) -> Queue:
        return Queue(self.bus, self.path, TRANSFER)

    @property
    def transfer_dead_letters(self) -> Queue:
        return Queue(self.bus, self.path, TRANSFER_DEAD_LETTER)

    async def entity(self) -> Entity:
        return await self.bus.process.do(self.bus.namespace.entity(self.path))

    async def ask(self, name: str, *arguments: object) -> Any:
        """A request that is answered with a value."""
        entity = await self.entity()
        request: Callable[..., Any] = getattr(entity.requests, name)
        return await self.bus.process.do(request(*arguments))

    # Sending.

    async def stage(self, *drafts: Draft | str, via: str = "", **options: Any) -> Answer:
        """Send these as one batch, without waiting. `via`: they are for that entity, and leave through this one."""
        return self._stage(await self.entity(), self.bus.parsed(drafts, options), via)

    def _stage(self, entity: Entity, messages: list[Message], via: str = "") -> Answer:
        answer = Answer()
        for one in messages if via else ():
            set_destination(one, via)
        reply = CallbackSendReply(lambda _operation, error: answer.give(error))
        operation = SendOperation(messages, sum(int(one.wire_size) for one in messages), reply, 0, bool(via))
        try:
            entity.check_can_send(TRANSFER if via else MAIN)
            self.bus.process.run(entity.traffic.send, operation)
        except BusError as error:
            answer.give(error)
        return answer

    async def send(self, *drafts: Draft | str, via: str = "", **options: Any) -> None:
        """One after the other, in one turn. Raises what the first refused one was answered with."""
        entity = await self.entity()
        answers = [self._stage(entity, [one], via) for one in self.bus.parsed(drafts, options)]
        await self.bus.quiet()
        for answer in answers:
            answer.check()

    async def send_batch(self, *drafts: Draft | str, **options: Any) -> None:
        answer = await self.stage(*drafts, **options)
        await self.bus.quiet()
        answer.check()

    async def schedule(self, *drafts: Draft | str, **options: Any) -> list[int]:
        """Returns their sequence numbers, by which they can be cancelled."""
        messages = self.bus.parsed(drafts, options)
        return list(await self.ask("schedule", messages, sum(int(one.wire_size) for one in messages)))

    async def cancel(self, *numbers: int) -> None:
        await self.ask("cancel_scheduled", list(numbers))
        await self.bus.quiet()

    # Receiving.

    async def receiver(self, is_destructive: bool = False) -> Receiver:
        entity = await self.entity()
        entity.check_can_receive(self.lane)
        return Receiver(self, entity, is_destructive)

    async def receive(self, most: int = MANY, is_destructive: bool = False) -> list[Received]:
        """What comes at once to a link that is opened for it and closed again; what it got stays locked."""
        receiver = await self.receiver(is_destructive)
        await receiver.take(most)
        await receiver.leave()
        return receiver.received

    async def receive_one(self) -> Received:
        (one,) = await self.receive(1)
        return one

    async def bodies(self, most: int = MANY) -> list[str]:
        """Received and deleted, in the order in which they came."""
        return [one.body for one in await self.receive(most, is_destructive=True)]

    async def receive_deferred(
        self, *numbers: int, is_destructive: bool = False, hold: SessionHold | None = None
    ) -> list[Received]:
        entity = await self.entity()
        found = await self.ask("receive_deferred", self.lane, list(numbers), is_destructive, hold)
        return [Received(self, entity, one, lock, hold) for lock, one in found]

    async def wish(self, session: str | None = None, is_patient: bool = True) -> Wish:
        wish = Wish(self, await self.entity(), session, is_patient)
        await self.bus.quiet()
        return wish

    async def accept(self, session: str | None = None, is_destructive: bool = False) -> Receiver:
        """A session that can be had without time passing; else OperationTimeout, as after a wait."""
        wish = await self.wish(session)
        if not wish.is_answered:
            await wish.give_up()
            raise OperationTimeout("There is no such session.")
        return wish.receiver(is_destructive)

    # Looking.

    async def peek(self, first: int = 0, most: int = MANY, max_bytes: int = HIGH_BYTES, **of: Any) -> list[Seen]:
        found: Sequence[Browsed] = await self.ask("peek", self.lane, first, most, max_bytes, of.get("session"))
        partition = 0 if self.bus.shape.is_partitioned else -1
        return [Seen(encode_delivery(one.message, one.sequence_number, 0, one.state, b"", partition)) for one in found]

    async def peek_all(self) -> list[Seen]:
        """All pages, fragment after fragment."""
        found: list[Seen] = []
        while page := await self.peek(found[-1].number + 1 if found else 0):
            found += page
        return found

    async def held(self) -> list[str]:
        """The bodies of all that is here, in whatever state, fragment after fragment."""
        return [one.body for one in await self.peek_all()]

    async def counts(self) -> Counts:
        counts: Counts = await self.ask("counts")
        return counts

    async def delete_batch(self, most: int = MANY, before_s: float = DAY_S, session: str | None = None) -> int:
        """Delete the oldest that wait and were enqueued before so long from now."""
        before_ms = self.bus.now_ms() + int(before_s * 1000)
        return int(await self.ask("delete_batch", self.lane, most, before_ms, session))

    async def sessions(self, changed_since_ms: int | None = None, skip: int = 0, top: int = 100) -> list[str]:
        return list(await self.ask("list_sessions", changed_since_ms, skip, top, Listing()))

    # Transactions.

    async def stage_transaction(
        self, sends: Iterable[Draft | str] = (), settle: Sequence[tuple[Received, Settlement]] = (), via: str = ""
    ) -> Answer:
        answer = Answer()
        entity = await self.entity()
        messages = self.bus.parsed(list(sends), {})
        for one in messages if via else ():
            set_destination(one, via)
        reply = CallbackSendReply(lambda *_: None)
        parts = [SendOperation([one], int(one.wire_size), reply, -1, bool(via)) for one in messages]
        settlements = [TransactionSettlement(taken.lock, SETTLEMENTS[kind]) for taken, kind in settle]
        whole = CallbackTransactionReply(lambda _operation, error: answer.give(error))
        operation = TransactionOperation(parts, settlements, whole)
        traffic, run = entity.traffic, self.bus.process.run
        try:
            for taken, _ in settle:
                run(traffic.check_lock, taken.lock)
            places = [int(run(traffic.transaction_index, part)) for part in parts]
            operation.index = max(places, default=ANY_FRAGMENT)
            run(traffic.discharge, operation)
        except BusError as error:
            answer.give(error)
        return answer

    async def transaction(
        self, sends: Iterable[Draft | str] = (), settle: Sequence[tuple[Received, Settlement]] = (), via: str = ""
    ) -> None:
        answer = await self.stage_transaction(sends, settle, via)
        await self.bus.quiet()
        answer.check()

    # Administration.

    async def update(self, **settings: Any) -> None:
        await self.bus.update(self.path, **settings)

    async def delete(self) -> None:
        await self.bus.delete(self.path)


class Bus:
    """A namespace of one shape, its clock, and whatever goes wrong with it."""

    def __init__(self, shape: Shape, limits: Limits = SMALL) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StillLoop)
        self.shape = shape
        self.loop = loop
        self.installation = Installation(shape, limits, loop)
        self._alarm = Alarm()

    async def __aenter__(self) -> Bus:
        await self.installation.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.installation.kill()
        shutil.rmtree(self.installation.folder)
        self._alarm.ring()

    @property
    def process(self) -> Process:
        """That of the front end."""
        return self.installation.front_end

    @property
    def namespace(self) -> Namespace:
        return self.installation.namespace

    # Time.

    def now_ms(self) -> int:
        return self.installation.clock.now_ms()

    async def quiet(self) -> None:
        await self.loop.quiet()

    async def turn(self, count: int) -> None:
        """Everybody goes on for so many turns of the loop."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        await self.loop.advance(seconds)

    def set_wall_clock(self, seconds: float) -> None:
        """Somebody sets it; no time passes."""
        self.installation.clock.set_by_s += seconds

    # Trouble.

    async def kill(self, down_s: float = 0.0) -> None:
        """The machine loses its power and starts again: what was not durable is lost."""
        self.installation.kill()
        self.loop.skip(down_s)
        await self.installation.start()

    async def restart(self) -> None:
        """Everything stops in order, and starts again."""
        await self.installation.stop()
        await self.installation.start()

    def kill_brokers(self) -> None:
        """Their processes are gone in this moment, and stay so; the front end lives."""
        for one in self.installation.brokers:
            one.kill()

    async def restart_brokers(self) -> None:
        for one in self.installation.brokers:
            await self.process.do(one.restart())
        await self.advance(1.0)

    def disk(self, store: int = 0) -> MemoryDisk:
        return self.installation.disks[store]

    def fail_next(self, fault: Fault, after: int = 0) -> None:
        """The next commit of every store goes wrong in this way (or a later one)."""
        for disk in self.installation.disks:
            disk.faults = {disk.commit_count + 1 + after: fault}

    def cut_lines(self, after_bytes: int | None, is_towards_broker: bool = True) -> None:
        """The line to each message broker breaks once so many more bytes went over it in this direction; None: it does
        not break after all."""
        for number in range(self.shape.stores):
            self.loop.cut(self.installation.path(number), after_bytes, is_towards_broker)

    def set_room(self, free_bytes: int = 1 << 40, reserve_bytes: int = 0) -> None:
        """On every disk, from the next commit on."""
        for disk in self.installation.disks:
            disk.free_bytes, disk.reserve_bytes = free_bytes, reserve_bytes

    def lose(self, body: str) -> None:
        """The record of this message is gone."""
        for disk, place in self._places(body):
            del disk.bodies[place]

    def _places(self, body: str) -> list[tuple[MemoryDisk, tuple[int, int, int]]]:
        return [
            (disk, place)
            for disk in self.installation.disks
            for place, stored in disk.bodies.items()
            if Seen(bytes(stored.sections)).body == body
        ]

    def seize_stores(self) -> None:
        """Somebody else opens the stores, as when this process was paused for long."""
        for disk in self.installation.disks:
            disk.epoch += 1

    def damage(self, body: str) -> None:
        """The bytes of this message go bad."""
        for disk, place in self._places(body):
            disk.damaged.add(place)

    def record_count(self, *kinds: str) -> int:
        """How many records of these kinds the stores hold."""
        return sum(len(getattr(disk, kind)) for disk in self.installation.disks for kind in kinds)

    @property
    def commit_count(self) -> int:
        return sum(disk.commit_count for disk in self.installation.disks)

    def go_on(self) -> None:
        """Commits that hang succeed."""
        for disk in self.installation.disks:
            disk.faults.clear()
            disk.go_on.set()

    async def take_out(self, store: int = 0) -> None:
        """A store fails and cannot be opened again."""
        self.installation.out.add(store)
        self.installation.message_brokers[store].lose_store(StoreUnavailable("it is out"))
        await self.quiet()

    async def bring_back(self) -> None:
        self.installation.out.clear()
        await self.advance(60.0)

    # Entities.

    def parsed(self, drafts: Iterable[Draft | str], options: dict[str, Any]) -> list[Message]:
        whole = [Draft(one, **options) if isinstance(one, str) else replace(one, **options) for one in drafts]
        return [parse_message(one.payload(self.now_ms(), self.shape)) for one in whole]

    async def queue(self, name: str = "orders", **settings: Any) -> Queue:
        partitioning = {"enable_partitioning": self.shape.is_partitioned}
        description = QueueDescription(name, **{**partitioning, **settings})
        await self.do(self.namespace.create_queue(description))
        return Queue(self, name)

    async def topic(self, name: str = "news", **settings: Any) -> Queue:
        partitioning = {"enable_partitioning": self.shape.is_partitioned}
        description = TopicDescription(name, **{**partitioning, **settings})
        await self.do(self.namespace.create_topic(description))
        return Queue(self, name)

    async def subscription(
        self, topic: Queue, name: str, *rules: RuleDescription | str | tuple[str, str], **settings: Any
    ) -> Queue:
        """Rules are SQL filters, or filters with an action; without any it gets everything."""
        ready = [self._rule(f"rule{number}", one) for number, one in enumerate(rules)]
        description = SubscriptionDescription(topic.path, name, **settings)
        await self.do(self.namespace.create_subscription(description, ready[0] if ready else None))
        for rule in ready[1:]:
            await self.do(self.namespace.create_rule(topic.path, name, rule))
        return Queue(self, subscription_path(topic.path, name))

    @staticmethod
    def _rule(name: str, rule: RuleDescription | str | tuple[str, str]) -> RuleDescription:
        if isinstance(rule, RuleDescription):
            return rule
        sql, action = (rule, None) if isinstance(rule, str) else rule
        return RuleDescription(name, SqlFilter(sql), None if action is None else SqlAction(action))

    async def update(self, path: str, **settings: Any) -> None:
        description = (await Queue(self, path).entity()).entry.description
        if isinstance(description, QueueDescription):
            await self.do(self.namespace.update_queue(replace(description, **settings)))
        elif isinstance(description, TopicDescription):
            await self.do(self.namespace.update_topic(replace(description, **settings)))
        else:
            await self.do(self.namespace.update_subscription(replace(description, **settings)))

    async def delete(self, path: str) -> None:
        description = (await Queue(self, path).entity()).entry.description
        if isinstance(description, SubscriptionDescription):
            await self.do(self.namespace.delete_subscription(description.topic_name, description.name))
        elif isinstance(description, TopicDescription):
            await self.do(self.namespace.delete_topic(path))
        else:
            await self.do(self.namespace.delete_queue(path))

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Something that administration does."""
        found = await self.process.do(work)
        await self.quiet()
        return found


class Alarm(logging.Handler):
    """Collects the exceptions that the namespace survives and reports in its log: no test wants any."""

    def __init__(self) -> None:
        super().__init__()
        self._found: list[str] = []
        logging.getLogger("tandembus").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, (BusError, Killed)):
            self._found.append(f"{record.getMessage()}: {error!r}")

    def ring(self) -> None:
        logging.getLogger("tandembus").removeHandler(self)
        assert not self._found
