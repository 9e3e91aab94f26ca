"""Queues over several stores, each with a broker of its own, everything small, time in the hands of the test.

Where real processes have sockets between them there are outlets here, which lose what the test tells them to lose.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from tandembus.broker import browsing
from tandembus.broker.budget import Budget
from tandembus.broker.fragment import Fragment
from tandembus.broker.message_broker import MessageBroker
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.timers import DueWork
from tandembus.broker.topics import SubscriptionPart, open_topic
from tandembus.broker.transfer_destination import set_destination
from tandembus.broker.transfer_port import Destination, Outlet
from tandembus.clock import ManualClock
from tandembus.errors import BusError, EntityNotFound, FragmentUnavailable, OutcomeUnknown
from tandembus.message import Message, copy_of
from tandembus.store.memory import MemoryDisk, MemoryStore
from tandembus.store.messaging_store import MAIN, MessagingStore
from tests.unit.broker.one_queue import Answer, body_of
from tests.unit.broker.several_queues import numbered

KEYS_APART = 100


@dataclass
class Placed:
    """An entity: its settings, the store of each of its fragments, and the key of the first of them."""

    settings: FragmentSettings
    stores: tuple[int, ...]
    first_key: int = 0
    subscriptions: Sequence[SubscriptionPart] = ()
    """Of the topic's first fragment; those of the next have the next keys."""
    is_topic: bool = False


class OneStore:
    """A disk, and whoever serves it at the moment."""

    def __init__(self, stores: SeveralStores, number: int) -> None:
        self.disk = MemoryDisk()
        self._stores = stores
        self._number = number
        self.begin()

    def begin(self) -> None:
        self.broker = MessageBroker(self._open_store, self._stores.clock, Budget(self._stores.clock))
        self.broker.open_by_key = self._open_by_key
        self.broker.forwarding.port = Port(self._stores, self._number)
        self.broker.forwarding.on_forwarded = lambda *moved: self._stores.forwarded.append(moved)

    async def _open_store(self) -> MessagingStore:
        return MemoryStore(self.disk)

    async def _open_by_key(self, key: int) -> Fragment | None:
        for name, entity in self._stores.entities.items():
            if 0 <= key - entity.first_key < len(entity.stores):
                return await self._stores.open(name, key - entity.first_key)
        return None

    async def kill(self) -> None:
        """The broker is gone without a word, with all it had not committed."""
        tasks = [task for task in (*self.broker._tasks, self.broker._forwarder) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.broker._tasks, self.broker._store = [], None
        self.disk.is_held = False
        for answer in self._stores.open_sends.pop(self._number, []):
            answer.lose()


class Sent:
    """An operation on its way over a socket: answered once, by the broker or by the loss of the connection."""

    def __init__(self, operation: SendOperation) -> None:
        self._operation = operation
        self._is_answered = False

    def answer(self, error: BusError | None) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._operation.reply.sent(self._operation, error)

    def lose(self) -> None:
        self.answer(OutcomeUnknown("The connection is gone."))


class Wire:
    """An outlet: what is sent goes to whoever serves the other store, in a form of its own."""

    def __init__(self, stores: SeveralStores, name: str, index: int) -> None:
        self._stores = stores
        self._name = name
        self._index = index
        self._store = stores.entities[name].stores[index]

    def failure(self) -> BusError | None:
        return FragmentUnavailable("The broker is down.") if self._store in self._stores.down else None

    def send(self, operation: SendOperation) -> None:
        stores = self._stores
        if self._store in stores.down:
            raise FragmentUnavailable("The broker is down.")
        stores.sent_operations += 1
        sent = Sent(operation)
        stores.open_sends.setdefault(self._store, []).append(sent)
        if stores.lose_requests > 0:
            stores.lose_requests -= 1
            sent.lose()
            return
        stores.begin(self._arrive(operation, sent))

    async def _arrive(self, operation: SendOperation, sent: Sent) -> None:
        stores = self._stores
        if stores.lose_answers > 0:
            stores.lose_answers -= 1
            sent.lose()
        try:
            fragment = await stores.open(self._name, self._index)
            reply = CallbackSendReply(lambda _operation, error: sent.answer(error))
            messages = [travelled(one) for one in operation.messages]
            fragment.send(SendOperation(messages, operation.size_bytes, reply, 0, source=operation.source))
        except BusError as error:
            sent.answer(error)


def travelled(message: Message) -> Message:
    """As another process has it: the facts that travel, and the sections."""
    there = copy_of(message)
    there.session_id, there.partition_key = message.session_id, message.partition_key
    there.ttl_ms, there.scheduled_at = message.ttl_ms, message.scheduled_at
    assert (there.number, there.hops) == (0, message.hops)
    return there


class Somewhere:
    """A destination as one store sees it."""

    most_at_once = 500

    def __init__(self, stores: SeveralStores, name: str, own_store: int) -> None:
        self._stores = stores
        self._name = name
        self._entity = stores.entities[name]
        self._own_store = own_store

    @property
    def settings(self) -> FragmentSettings:
        return self._entity.settings

    @property
    def fragment_count(self) -> int:
        return len(self._entity.stores)

    def index_of(self, message: Message, number: int) -> int:
        key = message.session_id
        return (number if key is None else zlib.crc32(key.encode())) % self.fragment_count

    def key_of(self, index: int) -> int:
        return self._entity.first_key + index

    async def open(self, index: int) -> Fragment | Outlet:
        if self._entity.stores[index] == self._own_store:
            return await self._stores.open(self._name, index)
        return Wire(self._stores, self._name, index)


class Port:
    def __init__(self, stores: SeveralStores, own_store: int) -> None:
        self._stores = stores
        self._own_store = own_store

    async def find(self, path: str) -> Fragment | Destination:
        if path in self._stores.refusals:
            raise self._stores.refusals[path]
        if path not in self._stores.entities:
            raise EntityNotFound(f"The messaging entity '{path}' could not be found.")
        return Somewhere(self._stores, path, self._own_store)


class SeveralStores:
    def __init__(self, count: int, **entities: Placed) -> None:
        self.clock = ManualClock()
        self.entities = entities
        self.down: set[int] = set()
        """Stores whose broker is known to be gone."""
        self.lose_requests = 0
        """So many operations are lost on their way there."""
        self.lose_answers = 0
        """So many are carried out, and never answered."""
        self.refusals: dict[str, BusError] = {}
        self.forwarded: list[tuple[str, int, int, int]] = []
        self.open_sends: dict[int, list[Sent]] = {}
        self.sent_operations = 0
        self._tasks: set[asyncio.Task[None]] = set()
        for position, (name, entity) in enumerate(entities.items(), 1):
            entity.settings.path = name
            entity.first_key = KEYS_APART * position
        self.stores = [OneStore(self, number) for number in range(count)]

    async def __aenter__(self) -> SeveralStores:
        for store in self.stores:
            await store.broker.start()
        for entity in self.entities.values():
            for index, number in enumerate(entity.stores):
                for key in (entity.first_key, *(part[0] for part in entity.subscriptions)):
                    await self.stores[number].broker.make_fragment(key + index, 1, index)
        return self

    async def __aexit__(self, *_: object) -> None:
        for store in self.stores:
            store.disk.go_on.set()
            await store.broker.stop()

    def begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def broker_of(self, name: str, index: int = 0) -> MessageBroker:
        return self.stores[self.entities[name].stores[index]].broker

    async def open(self, name: str, index: int = 0) -> Fragment:
        entity = self.entities[name]
        broker = self.broker_of(name, index)
        key = entity.first_key + index
        if entity.is_topic:
            parts = [(part + index, settings, rules) for part, settings, rules in entity.subscriptions]
            return await open_topic(broker, key, index, entity.settings, parts)
        return await broker.open_fragment(key, index, entity.settings)

    async def open_all(self) -> None:
        """Opened, what has something to forward goes on by itself."""
        for name, entity in self.entities.items():
            for index, store in enumerate(entity.stores):
                if store not in self.down:
                    await self.open(name, index)

    # Trouble.

    async def kill(self, store: int) -> None:
        self.down.add(store)
        await self.stores[store].kill()

    async def restart(self, store: int) -> None:
        self.stores[store].begin()
        await self.stores[store].broker.start()
        self.down.discard(store)
        await self.open_all()
        self.retry()

    def retry(self) -> None:
        """Somebody is back: all that waits is tried again at once."""
        for number, store in enumerate(self.stores):
            if number not in self.down:
                store.broker.forwarding.retry_all()

    async def create_again(self, name: str, new: Placed) -> None:
        """Delete it with all that it has, and create another by its name, whose fragments have new keys."""
        new.settings.path = name
        new.first_key = KEYS_APART + max(entity.first_key for entity in self.entities.values())
        self.entities[name] = new
        for index, store in enumerate(new.stores):
            await self.stores[store].broker.make_fragment(new.first_key + index, 2, index)

    async def change(self, name: str, new: FragmentSettings) -> None:
        new.path = name
        self.entities[name].settings = new
        for index in range(len(self.entities[name].stores)):
            fragment = await self.open(name, index)
            fragment.settings = new
            self.broker_of(name, index).forwarding.look(fragment)
        self.retry()

    # Doing.

    async def stage(self, name: str, message: Message, via: str = "", index: int = 0) -> Answer:
        answer = Answer()
        answer.messages = [message]
        if via:
            set_destination(message, via)
        reply = CallbackSendReply(lambda _operation, error: answer.give(error))
        fragment = await self.open(name, index)
        fragment.send(SendOperation([message], len(message.sections), reply, 0, is_via=bool(via)))
        return answer

    async def send(self, name: str, *bodies: str, via: str = "", session_id: str | None = None, index: int = 0) -> None:
        answers = [await self.stage(name, numbered(body, session_id), via, index) for body in bodies]
        await self.quiet()
        assert all(answer.is_accepted for answer in answers)

    async def quiet(self) -> None:
        """Until nothing moves any more anywhere."""
        still = 0
        while still < 3:
            is_moving = bool(self._tasks)
            await asyncio.sleep(0)
            for number, store in enumerate(self.stores):
                if number not in self.down and store.broker.failure is None:
                    await store.broker.next_turn()
                    await store.broker.finish_staged()
                    is_moving = is_moving or not store.broker.forwarding.is_quiet()
            still = 0 if is_moving or self._tasks else still + 1

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for number, store in enumerate(self.stores):
            if number not in self.down and store.broker.failure is None:
                await DueWork(store.broker, self.clock).work()
        await self.quiet()

    # Looking.

    async def peek(self, name: str, lane: int = MAIN, index: int = 0) -> list[str]:
        fragment = await self.open(name, index)
        found = await browsing.peek(self.broker_of(name, index), fragment, lane, 1, 10_000, 1 << 24)
        return [body_of(one.message) for one in found]

    async def everything(self) -> Counter[str]:
        """How often each message is anywhere."""
        found: Counter[str] = Counter()
        for name, entity in self.entities.items():
            for index in range(len(entity.stores)):
                for lane in range(4):
                    found.update(await self.peek(name, lane, index))
        return found
