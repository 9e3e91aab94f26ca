"""Queues and topics of one broker that know each other by name, everything small, time in the hands of the test."""

from __future__ import annotations

import asyncio

from tandembus.amqp.encoding.sections import data_section, decode_message, header_section, properties_section
from tandembus.broker import browsing
from tandembus.broker.auditing import AuditSink
from tandembus.broker.budget import Budget
from tandembus.broker.dropping import drop_fragments
from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.timers import DueWork
from tandembus.broker.topics import SubscriptionPart, open_topic
from tandembus.broker.transfer_destination import set_destination
from tandembus.clock import ManualClock
from tandembus.errors import BusError, EntityNotFound
from tandembus.message import Message, parse_message
from tandembus.message_encoding import encode_delivery
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MAIN, MessagingStore
from tests.unit.broker.one_queue import Answer, body_of


def settings(
    forward_to: str = "",
    forward_dead_letters_to: str = "",
    default_ttl_ms: int = 0,
    dead_letter_expired: bool = False,
    max_size_bytes: int = 1 << 30,
    requires_session: bool = False,
    duplicate_window_ms: int = 0,
    max_delivery_count: int = 3,
    is_partitioned: bool = False,
) -> FragmentSettings:
    return FragmentSettings(
        max_delivery_count=max_delivery_count,
        default_ttl_ms=default_ttl_ms,
        dead_letter_expired=dead_letter_expired,
        max_size_bytes=max_size_bytes,
        window_messages=4,
        block_size=8,
        requires_session=requires_session,
        duplicate_window_ms=duplicate_window_ms,
        forward_to=forward_to,
        forward_dead_letters_to=forward_dead_letters_to,
        is_partitioned=is_partitioned,
    )


def numbered(body: str, session_id: str | None = None, ttl_ms: int | None = None, padding: int = 0) -> Message:
    payload = header_section(ttl_ms=ttl_ms) if ttl_ms is not None else b""
    return parse_message(
        payload + properties_section(body, group_id=session_id) + data_section(body.encode() + bytes(padding))
    )


class SeveralQueues:
    """Queues by name, each a fragment; `refusals` says why one takes nothing."""

    def __init__(
        self,
        queues: dict[str, FragmentSettings],
        disk: MemoryDisk | None = None,
        clock: ManualClock | None = None,
        audit_sink: AuditSink | None = None,
    ) -> None:
        self.audit_sink = audit_sink
        self.disk = disk or MemoryDisk()
        self.clock = clock or ManualClock()
        self.queues = queues
        self.topics: dict[str, list[SubscriptionPart]] = {}
        """The subscriptions of those among them that are topics."""
        self.keys = {name: key for key, name in enumerate(queues, 1)}
        self.refusals: dict[str, BusError] = {}
        self.forwarded: list[tuple[str, int, int, int]] = []
        self.find_count = 0
        for name, one in queues.items():
            one.path = name
        self._begin()

    def _begin(self) -> None:
        self.broker = MessageBroker(self._open_store, self.clock, Budget(self.clock), audit_sink=self.audit_sink)
        self.broker.open_by_key = self._open_by_key
        self.broker.forwarding.port = self
        self.broker.forwarding.on_forwarded = lambda *moved: self.forwarded.append(moved)

    async def _open_store(self) -> MessagingStore:
        return MemoryStore(self.disk)

    async def __aenter__(self) -> SeveralQueues:
        await self.broker.start()
        for key in self.keys.values():
            if key not in self.disk.heads:
                await self.broker.make_fragment(key, 1, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.disk.go_on.set()
        await self.broker.stop()

    async def crash(self) -> None:
        """The broker is gone without a word; another takes over what the disk holds."""
        tasks = [*self.broker._tasks, self.broker._forwarder]
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*[task for task in tasks if task is not None], return_exceptions=True)
        self.broker._tasks, self.broker._store = [], None
        self.disk.is_held = False
        self._begin()
        await self.broker.start()

    async def open(self, name: str) -> Fragment:
        if name not in self.queues:
            raise EntityNotFound(f"The messaging entity '{name}' could not be found.")
        key = self.keys[name]
        if name in self.topics:
            return await open_topic(self.broker, key, 0, self.queues[name], self.topics[name])
        return await self.broker.open_fragment(key, 0, self.queues[name])

    async def find(self, path: str) -> Fragment:
        """The port through which forwarding finds its destinations."""
        self.find_count += 1
        if path in self.refusals:
            raise self.refusals[path]
        return await self.open(path)

    async def _open_by_key(self, key: int) -> Fragment | None:
        for name, one in self.keys.items():
            if one == key and name in self.queues:
                return await self.open(name)
        return None

    async def change(self, name: str, new: FragmentSettings) -> None:
        """What an update of the entity does."""
        new.path = name
        self.queues[name] = new
        fragment = await self.open(name)
        fragment.settings = new
        self.broker.forwarding.look(fragment)
        self.broker.forwarding.retry_all()

    async def delete(self, name: str) -> None:
        del self.queues[name]
        await drop_fragments(self.broker, [self.keys[name]])
        self.broker.forwarding.retry_all()

    # Doing.

    async def stage(self, name: str, *messages: Message, via: str = "") -> Answer:
        answer = Answer()
        answer.messages = list(messages)
        for one in messages:
            if via:
                set_destination(one, via)
        size = sum(len(one.sections) for one in messages)
        reply = CallbackSendReply(lambda _operation, error: answer.give(error))
        (await self.open(name)).send(SendOperation(list(messages), size, reply, 0, is_via=bool(via)))
        return answer

    async def send(self, name: str, *bodies: str, via: str = "", ttl_ms: int | None = None) -> None:
        answers = [await self.stage(name, numbered(body, ttl_ms=ttl_ms), via=via) for body in bodies]
        await self.quiet()
        assert all(answer.is_accepted for answer in answers)

    async def quiet(self) -> None:
        """Until everything is committed, and nothing more can be forwarded."""
        forwarding = self.broker.forwarding
        await self.broker.next_turn()
        await self.broker.finish_staged()
        while not forwarding.is_quiet():
            await self.broker.next_turn()
        await self.broker.finish_staged()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await DueWork(self.broker, self.clock).work()
        await self.quiet()

    # Looking.

    async def peek(self, name: str, lane: int = MAIN) -> list[str]:
        return [body_of(one) for one in await self.messages(name, lane)]

    async def messages(self, name: str, lane: int = MAIN) -> list[Message]:
        return await self.messages_of(await self.open(name), lane)

    async def messages_of(self, fragment: Fragment, lane: int = MAIN) -> list[Message]:
        found = await browsing.peek(self.broker, fragment, lane, 1, 1000, 1 << 20)
        return [one.message for one in found]

    async def contents(self) -> dict[str, list[list[str]]]:
        """What every lane of every queue holds."""
        return {name: [await self.peek(name, lane) for lane in range(4)] for name in self.queues}


def delivered(message: Message) -> dict[object, object]:
    """The annotations with which a receiver gets it."""
    payload = encode_delivery(message, message.number, 0, 0)
    return dict(decode_message(payload).message_annotations or {})
