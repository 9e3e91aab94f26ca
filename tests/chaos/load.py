"""The load of the fault matrix: senders and receivers that never give up, and write down what they did and saw.

What is sent, to where and under which key follows from the seed; when, and in which order, from the machine. A lost
connection is made again, a lost link attached again, until the load is told to stop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tandembus.client import OutgoingMessage, ReceivedMessage, Receiver, Sender, ServiceBus, SessionReceiver, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.errors import ClientFailure
from tandembus.errors import BusError
from tests.chaos.recorder import Recorder, body_of

PATIENCE_S = 60.0
LARGEST_BODY = 2000
WAIT_S = 0.5
WINDOW = 8
"""Sends that one sender has under way."""
FETCH = 20
IN_A_SESSION = 30
REPEATS = 8
"""One in so many messages of a queue with duplicate detection is sent again."""


@dataclass(frozen=True, slots=True)
class Target:
    """A queue of the load, and what is sent to it."""

    name: str
    settings: QueueSettings
    keys: int = 0
    """How many partition keys its senders choose from; 0: they give none."""
    sessions: int = 0
    """The same for sessions."""
    batch: int = 1
    """How many messages go in one transfer."""

    @property
    def is_deduplicating(self) -> bool:
        return bool(self.settings.requires_duplicate_detection)

    @property
    def lock_s(self) -> float:
        return self.settings.lock_duration_s or 60.0


class Load:
    """Senders and receivers in this event loop, spread over the targets in turn."""

    def __init__(self, connection_string: str, recorder: Recorder, targets: Sequence[Target]) -> None:
        self.targets = targets
        self._connection_string = connection_string
        self._recorder = recorder
        self._tasks: list[asyncio.Task[None]] = []
        self._is_sending = True
        self._is_receiving = True
        self._progress = asyncio.Event()

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Whatever is still under way when a test fails."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def prepare(self) -> None:
        """The entities; then everything that the history has to say of them."""
        async with Administration(self._connection_string) as administration:
            for target in self.targets:
                await administration.create_queue(target.name, target.settings)
        self.introduce()

    def introduce(self) -> None:
        for target in self.targets:
            self._recorder.say(
                "entity",
                entity=target.name,
                fragments=16 if target.settings.partitioning else 1,
                has_sessions=target.sessions > 0,
                duplicate_window_s=target.settings.duplicate_detection_window_s or 0.0,
                lock_s=target.lock_s,
            )

    def start(self, senders: int, receivers: int) -> None:
        for at in range(senders):
            target = self.targets[at % len(self.targets)]
            self._begin(f"sender {at} of {target.name}", partial(self._send, target, at))
        for at in range(receivers):
            target = self.targets[at % len(self.targets)]
            chance = random.Random(f"{self._recorder.seed} receiver {at}")
            self._begin(f"receiver {at}", partial(self._receive, target, chance))

    async def until_accepted(self, count: int) -> None:
        """Until so many more sends are accepted; by then many others are under way."""
        goal = self._recorder.accepted_count + count
        while self._recorder.accepted_count < goal:
            self._progress.clear()
            self._raise_failures()
            await asyncio.wait_for(self._progress.wait(), PATIENCE_S)

    async def stop(self) -> None:
        """Sends end with their answers; receivers settle what they have."""
        self._is_sending = self._is_receiving = False
        await asyncio.wait_for(asyncio.gather(*self._tasks), PATIENCE_S)
        self._tasks.clear()
        self._is_sending = self._is_receiving = True

    def _raise_failures(self) -> None:
        """A mistake of the load itself must not look like a broker that does nothing."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _begin(self, name: str, work: Callable[[ServiceBus], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(self._connected(work), name=name))

    async def _connected(self, work: Callable[[ServiceBus], Awaitable[None]]) -> None:
        while self._is_sending:
            with suppress(*ClientFailure):
                async with await connect(self._connection_string, timeout_s=PATIENCE_S) as client:
                    await work(client)
            await asyncio.sleep(0.02)  # a service that is down refuses faster than it comes back

    async def _send(self, target: Target, number: int, client: ServiceBus) -> None:
        sender = await client.sender(target.name)
        lanes = 1 if target.sessions else WINDOW
        await asyncio.gather(*(self._send_along(sender, target, f"{number}-{lane}") for lane in range(lanes)))

    async def _send_along(self, sender: Sender, target: Target, lane: str) -> None:
        """One after the other. Each life of a lane has a number, so that no message id comes twice."""
        life = self._recorder.number()
        chance = random.Random(f"{self._recorder.seed} {target.name} {lane}")
        count = 0
        while self._is_sending and sender.failure is None:
            count += target.batch
            ids = [f"{lane}-{life}-{count - at}" for at in range(target.batch)]
            messages = _messages(target, chance, ids, lane)
            await self._send_one(sender, target, messages)
            if target.is_deduplicating and chance.randrange(REPEATS) == 0:
                await self._send_one(sender, target, messages)

    async def _send_one(self, sender: Sender, target: Target, messages: list[OutgoingMessage]) -> None:
        recorder = self._recorder
        batch = recorder.number() if len(messages) > 1 else 0
        operations = [
            recorder.sending(target.name, message, key_of(target, message), batch=batch) for message in messages
        ]
        failure: BaseException | None = None
        try:
            await (sender.send(messages[0]) if len(messages) == 1 else sender.send_batch(messages))
        except ClientFailure as error:
            failure = error
        for operation in operations:
            recorder.sent(operation, failure)
        self._progress.set()
        if failure is not None:
            await asyncio.sleep(0)  # a refusal on the spot must not keep everybody else from their turn

    async def _receive(self, target: Target, chance: random.Random, client: ServiceBus) -> None:
        if target.sessions:
            while self._is_receiving:
                await self._receive_session(client, target)
        else:
            receiver = await client.receiver(target.name, prefetch=chance.choice((0, FETCH)))
            await self._receive_from(receiver, target, chance)

    async def _receive_from(self, receiver: Receiver, target: Target, chance: random.Random) -> None:
        number = self._recorder.number()
        try:
            while self._is_receiving:
                messages = await receiver.receive(FETCH, WAIT_S)
                for message in messages:
                    self._recorder.received(target.name, message, number)
                await self._settle(receiver, target, messages, chance)
        finally:
            self._recorder.say("closed", receiver=number)
            await receiver.close()

    async def _settle(
        self, receiver: Receiver, target: Target, messages: Sequence[ReceivedMessage], chance: random.Random | None
    ) -> None:
        """Nearly all are completed. Some are given back, and a few are forgotten: their locks lapse."""
        settlements = []
        for message in messages:
            draw = chance.random() if chance is not None else 1.0
            if draw < 0.002:
                continue
            if draw < 0.03:
                settlements.append(self._settle_one(target, message, "abandon", receiver.abandon))
            elif draw < 0.05:
                settlements.append(self._settle_one(target, message, "release", receiver.release))
            else:
                settlements.append(self._settle_one(target, message, "complete", receiver.complete))
        await asyncio.gather(*settlements)

    async def _settle_one(
        self, target: Target, message: ReceivedMessage, how: str, settle: Callable[..., Awaitable[None]]
    ) -> None:
        operation = self._recorder.settling(target.name, message, how)
        failure: BaseException | None = None
        try:
            await settle(message)
        except ClientFailure as error:
            failure = error
        self._recorder.done(operation, failure)

    async def _receive_session(self, client: ServiceBus, target: Target) -> None:
        try:
            receiver = await client.accept_session(target.name, None, WAIT_S)
        except BusError:
            return  # none has messages just now, or the fragment that has is away
        number = self._hold(target, receiver)
        got = 0
        try:
            while got < IN_A_SESSION and (messages := await receiver.receive(10, 0.05)):
                got += len(messages)
                for message in messages:
                    self._recorder.received(target.name, message, number)
                await self._settle(receiver, target, messages, None)
        except BusError:
            pass  # the session's lock is lost, with its broker
        finally:
            self._recorder.say("closed", receiver=number)
            await receiver.close()

    def _hold(self, target: Target, receiver: SessionReceiver) -> int:
        number = self._recorder.number()
        locked_until = receiver.locked_until
        self._recorder.say(
            "session", entity=target.name, session=receiver.session_id, receiver=number, locked_until=locked_until
        )
        return number


def key_of(target: Target, message: OutgoingMessage) -> str | None:
    """What decides the fragment on a partitioned entity; the id does where duplicates are detected."""
    if message.session_id is not None or message.partition_key is not None:
        return message.session_id or message.partition_key
    return message.message_id if target.is_deduplicating else None


def _messages(target: Target, chance: random.Random, ids: list[str], lane: str) -> list[OutgoingMessage]:
    """What goes in one transfer has one key. A session belongs to one lane of one sender: only so the order in which
    its messages were sent is known."""
    session = f"{lane}.{chance.randrange(target.sessions)}" if target.sessions else None
    key = f"key-{chance.randrange(target.keys)}" if target.keys else None
    return [OutgoingMessage(body_of(chance, LARGEST_BODY), one, session_id=session, partition_key=key) for one in ids]
