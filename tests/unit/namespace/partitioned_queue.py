"""A partitioned queue over several message brokers in this process, time in the hands of the test."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence

from tandembus.amqp.encoding import timestamp
from tandembus.amqp.encoding.sections import (
    data_section,
    header_section,
    message_annotations_section,
    properties_section,
)
from tandembus.broker.budget import Budget
from tandembus.broker.fragment import Fragment
from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackConsumer, CallbackSendReply, SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.timers import DueWork
from tandembus.clock import ManualClock
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import BusError, StoreUnavailable
from tandembus.interconnect.channel_settings import ChannelSettings
from tandembus.interconnect.in_process import InProcessChannel
from tandembus.interconnect.local_requests import LocalRequests
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.interconnect.requests import Requests
from tandembus.interconnect.traffic import SessionHold, SessionWish, Traffic
from tandembus.message import Message, parse_message
from tandembus.namespace.partitioned_requests import PartitionedRequests
from tandembus.namespace.partitioned_traffic import PartitionedTraffic
from tandembus.namespace.partitioning import PartitionSettings
from tandembus.store.memory import Fault, MemoryDisk, MemoryStore
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, MessagingStore
from tests.unit.broker.one_queue import PING, Answer, body_of, small

FIRST_KEY = 100


def keyed(
    body: str,
    partition_key: str | None = None,
    session_id: str | None = None,
    message_id: str | None = None,
    padding: int = 0,
    ttl_ms: int | None = None,
    scheduled_at_ms: int | None = None,
    content_type: str | None = None,
) -> Message:
    annotations: dict[str, object] = {}
    if partition_key is not None:
        annotations["x-opt-partition-key"] = partition_key
    if scheduled_at_ms is not None:
        annotations["x-opt-scheduled-enqueue-time"] = timestamp(scheduled_at_ms)
    payload = header_section(ttl_ms=ttl_ms) if ttl_ms is not None else b""
    payload += message_annotations_section(annotations) if annotations else b""
    payload += properties_section(message_id or body, group_id=session_id, content_type=content_type)
    return parse_message(payload + (data_section(body.encode() + bytes(padding)) if content_type is None else b""))


async def until(is_so: Callable[[], bool]) -> None:
    """Let others run until something is so."""
    for _ in range(1_000_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was")


class Timers:
    """What is to happen later, when the test lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self._due, (self._clock.monotonic() + delay_s, self.count, callback))

    def __len__(self) -> int:
        return len(self._due)

    def advance(self, seconds: float) -> None:
        """Each at its time."""
        end = self._clock.monotonic() + seconds
        while self._due and self._due[0][0] <= end:
            at, _, callback = heapq.heappop(self._due)
            self._clock.advance(max(at - self._clock.monotonic(), 0.0))
            callback()
        self._clock.advance(max(end - self._clock.monotonic(), 0.0))


class Receiver:
    """A link that notes what it is given."""

    def __init__(self, queue: PartitionedQueue, lane: int, is_destructive: bool) -> None:
        self.consumer = CallbackConsumer(is_destructive, self._deliver, self._drained)
        self.messages: list[Message] = []
        self.locks: list[MessageLock] = []
        self.drain_count = 0
        self._queue = queue
        self._lane = lane
        queue.traffic.attach(self.consumer, lane)

    def _deliver(self, message: Message, lock: MessageLock) -> None:
        self.messages.append(message)
        self.locks.append(lock)

    def _drained(self) -> None:
        self.consumer.credit = 0
        self.drain_count += 1

    @property
    def bodies(self) -> list[str]:
        return [body_of(one) for one in self.messages]

    def want(self, credit: int, is_draining: bool = False) -> None:
        """More credit, without waiting."""
        self.consumer.credit += credit
        self._queue.traffic.feed(self.consumer, self._lane, is_draining)

    async def take(self, credit: int) -> list[str]:
        """Give this credit, and see what comes of it at once."""
        before = len(self.messages)
        self.want(credit)
        await self._queue.quiet()
        return self.bodies[before:]

    async def drain(self, credit: int) -> list[str]:
        before, drains = len(self.messages), self.drain_count
        self.want(credit, True)
        await self._queue.quiet()
        assert self.drain_count == drains + 1
        return self.bodies[before:]

    def leave(self) -> None:
        self._queue.traffic.detach(self.consumer, self._lane)


class Wish:
    """A wish for a session and what became of it."""

    def __init__(self, queue: PartitionedQueue, session_id: str | None = None, is_patient: bool = True) -> None:
        self.hold: SessionHold | None = None
        self.error: BusError | None = None
        self.answer_count = 0
        self.wish = SessionWish(session_id, is_patient, self._granted, self._refused)
        self._queue = queue
        queue.traffic.wish_session(self.wish)

    def _granted(self, hold: SessionHold) -> None:
        self.answer_count += 1
        self.hold = hold

    def _refused(self, error: BusError) -> None:
        self.answer_count += 1
        self.error = error

    @property
    def session(self) -> str | None:
        return None if self.hold is None else self.hold.session_id

    def give_up(self) -> None:
        self._queue.traffic.give_up_session(self.wish)

    def leave(self) -> None:
        assert self.hold is not None
        self._queue.traffic.leave_session(self.hold)


class PartitionedQueue:
    """Fragment k lives in the store of broker k mod `broker_count`."""

    def __init__(
        self,
        settings: FragmentSettings | None = None,
        broker_count: int = 2,
        fragment_count: int = FRAGMENT_COUNT,
        cache_bytes: int = 1 << 20,
        wrap: Callable[[Traffic], Traffic] | None = None,
        channels: ChannelSettings | None = None,
    ) -> None:
        """`channels`: with these, sends are numbered and marked, as those of a whole namespace are."""
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.settings = settings or small(window_messages=100, block_size=64)
        self.settings.is_partitioned = True
        self.partition_settings = PartitionSettings(
            self.settings.duplicate_window_ms > 0,
            self.settings.requires_session,
            self.settings.lock_duration_s,
            cache_bytes,
        )
        self.disks = [MemoryDisk() for _ in range(broker_count)]
        self.is_down = [False] * broker_count
        """Whether each store can be opened."""
        self.brokers: list[MessageBroker] = []
        self.fragments: list[Fragment] = []
        self.traffic: PartitionedTraffic
        self.requests: PartitionedRequests
        self._fragment_count = fragment_count
        self._wrap = wrap
        self._channel_settings = channels
        self._channels: list[InProcessChannel] = []

    async def __aenter__(self) -> PartitionedQueue:
        for index, disk in enumerate(self.disks):
            broker = MessageBroker(self._opener(index, disk), self.clock, Budget(self.clock))
            broker.open_by_key = self._open_by_key
            self.brokers.append(broker)
            await broker.start()
        for index in range(self._fragment_count):
            key, broker = FIRST_KEY + index, self.broker_of(index)
            await broker.make_fragment(key, 1, index)
            self.fragments.append(await broker.open_fragment(key, index, self.settings))
        self.connect()
        return self

    def connect(self) -> None:
        """A front end of its own: nothing is kept ready here yet."""
        if self._channel_settings is not None:
            self._channels = [InProcessChannel(one, self.clock, self._channel_settings) for one in self.brokers]
        self.traffic = PartitionedTraffic(self.locals(), self.partition_settings, self.clock, self.timers.later)
        requests: list[Requests] = [
            LocalRequests(self.broker_of(index), one) for index, one in enumerate(self.fragments)
        ]
        self.requests = PartitionedRequests(requests, self.traffic)

    def locals(self) -> list[Traffic]:
        found: list[Traffic] = []
        for index, fragment in enumerate(self.fragments):
            broker = self.broker_of(index)
            channel = self._channels[index % len(self.brokers)].core if self._channels else None
            one: Traffic = LocalTraffic(fragment, broker.want, broker.session_serving.want, channel)
            found.append(self._wrap(one) if self._wrap is not None else one)
        return found

    def _opener(self, index: int, disk: MemoryDisk) -> Callable[[], Awaitable[MessagingStore]]:
        async def open_store() -> MessagingStore:
            if self.is_down[index]:
                raise StoreUnavailable("It is down.")
            return MemoryStore(disk)

        return open_store

    async def _open_by_key(self, key: int) -> Fragment | None:
        return self.fragments[key - FIRST_KEY] if 0 <= key - FIRST_KEY < len(self.fragments) else None

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            channel.close()
        for broker, disk in zip(self.brokers, self.disks, strict=True):
            disk.go_on.set()
            await broker.stop()

    def broker_of(self, index: int) -> MessageBroker:
        return self.brokers[index % len(self.brokers)]

    # Doing.

    def stage(self, *messages: Message) -> Answer:
        """Send these as one batch, without waiting."""
        answer = Answer()
        answer.messages = list(messages)
        reply = CallbackSendReply(lambda _operation, error: answer.give(error))
        size = sum(int(one.wire_size) for one in messages)
        self.traffic.send(SendOperation(list(messages), size, reply, 0))
        return answer

    async def send(self, *messages: Message | str) -> None:
        """One after the other; all are accepted."""
        answers = [self.stage(keyed(one) if isinstance(one, str) else one) for one in messages]
        await self.quiet()
        assert [answer.error for answer in answers if not answer.is_accepted] == []

    async def send_to(self, index: int, *messages: Message | str) -> None:
        """Straight to one fragment."""
        for one in messages:
            self.stage_to(index, one)
        await self.quiet()

    def stage_to(self, index: int, one: Message | str) -> None:
        message = keyed(one) if isinstance(one, str) else one
        reply = CallbackSendReply(lambda _operation, _error: None)
        self.fragments[index].send(SendOperation([message], int(message.wire_size), reply, 0))

    def receiver(self, lane: int = MAIN, is_destructive: bool = False) -> Receiver:
        return Receiver(self, lane, is_destructive)

    def settle(self, lock: MessageLock, settlement: int) -> Answer:
        answer = Answer()
        self.traffic.settle(lock, settlement, CallbackSettleReply(lambda _lock, error: answer.give(error)))
        return answer

    async def quiet(self) -> None:
        """Until everything staged is committed and handed over."""
        for _ in range(2):
            for broker in self.brokers:
                if broker.failure is None:
                    await broker.next_turn()
                    await broker.next_turn()
                    await broker.finish_staged()
        await until(lambda: all(broker.session_serving.is_idle() for broker in self.brokers))

    async def pass_time(self, seconds: float) -> None:
        self.timers.advance(seconds)
        for broker in self.brokers:
            if broker.failure is None:
                await DueWork(broker, self.clock).work()
        await self.quiet()

    async def fail(self, broker_index: int, fault: Fault = Fault.UNKNOWN_LOST, stays_down: bool = True) -> None:
        """The store's next commit fails, and it cannot be opened again until it is healed."""
        disk = self.disks[broker_index]
        disk.faults[disk.commit_count + 1] = fault
        self.is_down[broker_index] = stays_down
        victim = next(one for index, one in enumerate(self.fragments) if index % len(self.brokers) == broker_index)
        reply = CallbackSendReply(lambda _operation, _error: None)
        victim.send(SendOperation([keyed("lost", session_id="lost", content_type=PING)], 10, reply, 0))
        await until(lambda: victim.failure is not None)

    async def heal(self, broker_index: int) -> None:
        self.is_down[broker_index] = False
        own = [one for index, one in enumerate(self.fragments) if index % len(self.brokers) == broker_index]
        await until(lambda: all(one.failure is None for one in own))
        await self.quiet()

    # Looking.

    def counts(self) -> list[int]:
        """Of waiting and locked messages in each fragment."""
        return [int(one.main.live_count) for one in self.fragments]

    async def peek(self, lane: int = MAIN) -> list[str]:
        found: list[str] = []
        at = 0
        while part := await self.requests.peek(lane, at, 100, 1 << 20):
            found += [body_of(one.message) for one in part]
            at = part[-1].sequence_number + 1
        return found

    async def dead_letters(self) -> Sequence[str]:
        return await self.peek(DEAD_LETTER)

    def locked_count(self) -> int:
        return sum(len(one.locks) for one in self.fragments)
