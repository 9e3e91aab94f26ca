"""One fragment on a message broker over a memory store, everything small, time in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tandembus.amqp.encoding import timestamp
from tandembus.amqp.encoding.sections import (
    data_section,
    decode_message,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.broker import browsing
from tandembus.broker.auditing import AuditSink
from tandembus.broker.budget import Budget
from tandembus.broker.fragment import Fragment
from tandembus.broker.lapsing import release_consumer
from tandembus.broker.locks import ABANDON, COMPLETE, DEFER, CallbackSettleReply, MessageLock
from tandembus.broker.locks import DEAD_LETTER as TO_DEAD_LETTERS
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.timers import DueWork
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.clock import ManualClock
from tandembus.errors import BusError
from tandembus.message import Message, parse_message
from tandembus.store.memory import Fault, MemoryDisk, MemoryStore
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, MessagingStore

KEY = 5
PING = "application/vnd.ms-servicebus-ping"


def small(
    lock_duration_s: float = 60.0,
    max_delivery_count: int = 3,
    default_ttl_ms: int = 0,
    dead_letter_expired: bool = False,
    max_size_bytes: int = 1 << 30,
    max_locks: int = 1000,
    window_messages: int = 4,
    block_size: int = 8,
    duplicate_window_ms: int = 0,
    requires_session: bool = False,
    dead_letter_filter_errors: bool = False,
    is_partitioned: bool = False,
) -> FragmentSettings:
    """Settings under which ten messages already fill windows and blocks."""
    return FragmentSettings(
        lock_duration_s=lock_duration_s,
        max_delivery_count=max_delivery_count,
        default_ttl_ms=default_ttl_ms,
        dead_letter_expired=dead_letter_expired,
        max_size_bytes=max_size_bytes,
        max_locks=max_locks,
        window_messages=window_messages,
        block_size=block_size,
        duplicate_window_ms=duplicate_window_ms,
        requires_session=requires_session,
        dead_letter_filter_errors=dead_letter_filter_errors,
        is_partitioned=is_partitioned,
    )


def message(
    body: str,
    ttl_ms: int | None = None,
    scheduled_at_ms: int | None = None,
    padding: int = 0,
    session_id: str | None = None,
) -> Message:
    """A message whose id is its body, so that it can be told from others wherever it turns up."""
    payload = header_section(ttl_ms=ttl_ms) if ttl_ms is not None else b""
    if scheduled_at_ms is not None:
        payload += message_annotations_section({"x-opt-scheduled-enqueue-time": timestamp(scheduled_at_ms)})
    properties = properties_section(body, group_id=session_id)
    return parse_message(payload + properties + data_section(body.encode() + bytes(padding)))


def ping() -> Message:
    return parse_message(header_section(ttl_ms=1000) + properties_section("ping", content_type=PING))


def body_of(message: Message) -> str:
    body = decode_message(message.sections).body
    assert isinstance(body, bytes)
    return body.rstrip(b"\0").decode()


def properties_of(message: Message) -> dict[object, object]:
    """Its application properties as a receiver sees them."""
    section = message.application_properties or message.sections[message.properties_end : message.application_end]
    return decode_message(section).application_properties or {}


class Answer:
    """What became of one operation."""

    def __init__(self) -> None:
        self.is_given = False
        self.error: BusError | None = None
        self.messages: list[Message] = []
        self._given = asyncio.Event()

    def give(self, error: BusError | None) -> None:
        assert not self.is_given, "an operation is answered once"
        self.is_given = True
        self.error = error
        self._given.set()

    async def wait(self) -> BusError | None:
        await self._given.wait()
        return self.error

    @property
    def is_accepted(self) -> bool:
        return self.is_given and self.error is None


class Receiver:
    """A consumer that notes what it is given."""

    def __init__(self, queue: OneQueue, lane: int, is_destructive: bool) -> None:
        self.consumer = CallbackConsumer(is_destructive, self._deliver)
        self.locks: list[MessageLock] = []
        self.messages: list[Message] = []
        self._queue = queue
        self._lane = lane
        queue.fragment.consumers(lane).add(self.consumer)

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.messages.append(message)
        self.locks.append(lock)

    @property
    def bodies(self) -> list[str]:
        return [body_of(message) for message in self.messages]

    async def take(self, credit: int) -> list[str]:
        """Give this credit, and see what comes of it at once."""
        before = len(self.messages)
        self.consumer.credit += credit
        self._queue.broker.want(self._queue.fragment)
        await self._queue.quiet()
        return self.bodies[before:]

    async def take_one(self) -> MessageLock:
        assert len(await self.take(1)) == 1
        return self.locks[-1]

    def leave(self) -> None:
        release_consumer(self._queue.fragment, self.consumer, self._lane)
        self._queue.broker.want(self._queue.fragment)


class OneQueue:
    def __init__(
        self,
        settings: FragmentSettings | None = None,
        disk: MemoryDisk | None = None,
        clock: ManualClock | None = None,
        budget: Callable[[ManualClock], Budget] = Budget,
        window_bytes: int = 256 << 20,
        index: int = 0,
        audit_sink: AuditSink | None = None,
    ) -> None:
        self.index = index
        self.audit_sink = audit_sink
        self.disk = disk or MemoryDisk()
        self.clock = clock or ManualClock()
        self.settings = settings or small()
        self.budget = budget(self.clock)
        self.broker = MessageBroker(self._open_store, self.clock, self.budget, window_bytes, 5.0, audit_sink)
        self.fragment: Fragment
        self.open_faults: list[BusError] = []
        """What opening the store raises, one after the other, before it succeeds."""
        self._turn_ended = asyncio.Event()
        self.broker.on_turn_end = self._turn_ended.set

    async def _open_store(self) -> MessagingStore:
        if self.open_faults:
            raise self.open_faults.pop(0)
        return MemoryStore(self.disk)

    async def __aenter__(self) -> OneQueue:
        await self.broker.start()
        if KEY not in self.disk.heads:
            await self.broker.make_fragment(KEY, 1, self.index)
        self.broker.open_by_key = self._open_by_key
        self.fragment = await self.broker.open_fragment(KEY, self.index, self.settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.disk.go_on.set()
        await self.broker.stop()

    async def _open_by_key(self, key: int) -> Fragment | None:
        return await self.broker.open_fragment(KEY, self.index, self.settings) if key == KEY else None

    async def after_crash(self) -> OneQueue:
        """The broker is gone without a word; another takes over what the disk holds."""
        for task in self.broker._tasks:
            task.cancel()
        await asyncio.gather(*self.broker._tasks, return_exceptions=True)
        self.broker._tasks, self.broker._store = [], None
        self.disk.is_held = False
        return OneQueue(self.settings, self.disk, self.clock, index=self.index, audit_sink=self.audit_sink)

    # Doing.

    def stage(self, *messages: Message) -> Answer:
        """Send these as one batch, without waiting."""
        return self._stage(list(messages), is_via=False)

    def stage_via(self, *messages: Message) -> Answer:
        """The same for messages that are on their way to somewhere else."""
        return self._stage(list(messages), is_via=True)

    def _stage(self, messages: list[Message], is_via: bool) -> Answer:
        answer = Answer()
        answer.messages = messages
        size = sum(len(message.sections) for message in messages)
        reply = CallbackSendReply(lambda _operation, error: answer.give(error))
        self.fragment.send(SendOperation(messages, size, reply, 0, is_via))
        return answer

    async def send(self, *bodies: str, ttl_ms: int | None = None, padding: int = 0) -> list[int]:
        """Send one message for each body; returns their numbers."""
        answers = [self.stage(message(body, ttl_ms, padding=padding)) for body in bodies]
        await self.quiet()
        assert all(answer.is_accepted for answer in answers)
        return [int(answer.messages[0].number) for answer in answers]

    async def schedule(self, body: str, in_s: float, ttl_ms: int | None = None) -> int:
        at_ms = self.clock.now_ms() + int(in_s * 1000)
        answer = self.stage(message(body, ttl_ms, at_ms))
        await self.quiet()
        assert answer.is_accepted
        return int(answer.messages[0].number)

    def receiver(self, lane: int = MAIN, is_destructive: bool = False) -> Receiver:
        return Receiver(self, lane, is_destructive)

    def settle(self, lock: MessageLock, settlement: int) -> Answer:
        answer = Answer()
        self.fragment.settle(lock, settlement, CallbackSettleReply(lambda _lock, error: answer.give(error)))
        return answer

    def discharge(self, sends: list[Message], *settlements: TransactionSettlement, is_via: bool = False) -> Answer:
        """One transaction of these sends and settlements, without waiting."""
        answer = Answer()
        answer.messages = sends
        operations = [
            SendOperation([one], len(one.sections), CallbackSendReply(lambda *_: None), -1, is_via) for one in sends
        ]
        reply = CallbackTransactionReply(lambda _operation, error: answer.give(error))
        self.fragment.discharge(TransactionOperation(operations, list(settlements), reply))
        return answer

    async def complete(self, lock: MessageLock) -> None:
        await self._settled(lock, COMPLETE)

    async def abandon(self, lock: MessageLock) -> None:
        await self._settled(lock, ABANDON)

    async def defer(self, lock: MessageLock) -> None:
        await self._settled(lock, DEFER)

    async def dead_letter(self, lock: MessageLock, reason: str | None = None) -> None:
        lock.reason = reason
        await self._settled(lock, TO_DEAD_LETTERS)

    async def _settled(self, lock: MessageLock, settlement: int) -> None:
        answer = self.settle(lock, settlement)
        await self.quiet()
        assert answer.is_accepted

    async def quiet(self) -> None:
        """Until everything staged is committed and handed over."""
        await self.broker.next_turn()
        await self.broker.next_turn()
        await self.broker.finish_staged()

    async def failed(self) -> BusError:
        """Until the fragment takes nothing any more; why."""
        while self.fragment.failure is None:
            self._turn_ended.clear()
            await self._turn_ended.wait()
        return self.fragment.failure

    async def pass_time(self, seconds: float) -> None:
        """Let time go by, and do what is due then."""
        self.clock.advance(seconds)
        await self.do_due_work()

    async def do_due_work(self) -> None:
        await DueWork(self.broker, self.clock).work()
        await self.quiet()

    # Looking.

    async def peek(self, lane: int = MAIN) -> list[str]:
        found = await browsing.peek(self.broker, self.fragment, lane, 1, 1000, 1 << 20)
        return [body_of(one.message) for one in found]

    async def dead_letters(self) -> list[str]:
        return await self.peek(DEAD_LETTER)

    def fault_next(self, fault: Fault) -> None:
        """The next commit goes wrong in this way."""
        self.disk.faults[self.disk.commit_count + 1] = fault
