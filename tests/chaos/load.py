"""The load of the fault matrix: senders and receivers that never give up, and write down what they did and saw.

What is sent, to where and under which key follows from the seed; when, and in which order, from the machine. A lost
connection is made again, a lost link attached again, until the load is told to stop.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tandembus.client import (
    OutgoingMessage,
    ReceivedMessage,
    ReceiveMode,
    Receiver,
    Sender,
    ServiceBus,
    SessionReceiver,
    connect,
)
from tandembus.client.administration import Administration
from tandembus.client.errors import ClientFailure
from tandembus.errors import BusError
from tandembus.namespace.partitioning import fragment_of_key
from tests.chaos.recorder import Recorder
from tests.chaos.targets import Target, key_in

PATIENCE_S = 60.0
WAIT_S = 0.5
WINDOW = 4
"""Sends that one sender has under way."""
MOST_WAITING = 400
"""So many messages of one target that nobody has received yet, and its senders take their time."""
BREATH_S = 0.005
"""After a refusal, which costs next to nothing: others need the processor more."""
RECONNECT_S = 0.02
FETCH = 20
IN_A_SESSION = 30
REPEATS = 8
"""One in so many messages of a queue with duplicate detection is sent again, and once more under another key."""


class Load:
    """Senders and receivers in this event loop, spread over the targets in turn."""

    def __init__(
        self,
        connection_string: str,
        recorder: Recorder,
        targets: Sequence[Target],
        received_only: Sequence[Target] = (),
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        """`received_only`: those that somebody else sends to."""
        self._reconnect_s = reconnect_s
        self.targets = targets
        self._received_only = received_only
        self._connection_string = connection_string
        self._recorder = recorder
        self._tasks: list[asyncio.Task[None]] = []
        self._is_sending = True
        self._is_receiving = True
        self._progress = asyncio.Event()
        self._arrival = asyncio.Event()
        self._waiting: Counter[str] = Counter()
        """Accepted by a target, and not received from its first outlet; redeliveries make it less than it is."""

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
            for target in (*self.targets, *self._received_only):
                await target.create(administration)
        self.introduce()

    def introduce(self) -> None:
        for target in (*self.targets, *self._received_only):
            target.introduce(self._recorder)

    def start(self, senders: int = 0, receivers: int = 0) -> None:
        """Spread over the targets, and over all that comes out of them, in turn; one each, unless more are wanted."""
        for at in range(max(senders, len(self.targets))):
            target = self.targets[at % len(self.targets)]
            self._begin(f"sender {at} of {target.name}", partial(self._send, target, at))
        outlets = [(target, path) for target in (*self.targets, *self._received_only) for path in target.outlets]
        for at in range(max(receivers, len(outlets))):
            target, path = outlets[at % len(outlets)]
            chance = random.Random(f"{self._recorder.seed} receiver {at}")
            self._begin(f"receiver {at} of {path}", partial(self._receive, target, path, chance))

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
            await asyncio.sleep(self._reconnect_s)  # a service that is down refuses faster than it comes back

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
            messages = target.messages(chance, ids, lane)
            await self._until_there_is_room(target)
            await self._send_one(sender, target, messages)
            if target.is_deduplicating and chance.randrange(REPEATS) == 0:
                await self._send_one(sender, target, messages)
                if target.is_partitioned:  # the same id in the same fragment, and yet another message (P10)
                    beside = key_in(int(fragment_of_key(messages[0].message_id)), number=1)
                    await self._send_one(sender, target, [replace(one, partition_key=beside) for one in messages])

    async def _until_there_is_room(self, target: Target) -> None:
        while self._is_sending and self._waiting[target.outlets[0]] > MOST_WAITING:
            self._arrival.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrival.wait(), WAIT_S)

    async def _send_one(self, sender: Sender, target: Target, messages: list[OutgoingMessage]) -> None:
        recorder = self._recorder
        batch = recorder.number() if len(messages) > 1 else 0
        operations = [
            recorder.sending(target.name, message, target.key_of(message), batch=batch) for message in messages
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
            await asyncio.sleep(BREATH_S)
        else:
            self._waiting[target.outlets[0]] += len(messages)

    async def _receive(self, target: Target, path: str, chance: random.Random, client: ServiceBus) -> None:
        if target.sessions:
            while self._is_receiving:
                await self._receive_session(client, path)
        elif target.is_at_most_once:
            mode = ReceiveMode.RECEIVE_AND_DELETE
            await self._receive_from(await client.receiver(path, mode=mode), path, None)
        else:
            receiver = await client.receiver(path, prefetch=chance.choice((0, FETCH)))
            await self._receive_from(receiver, path, chance)

    async def _receive_from(self, receiver: Receiver, path: str, chance: random.Random | None) -> None:
        """Without a choice of what to do with a message it is gone when it comes."""
        number = self._recorder.number()
        try:
            while self._is_receiving:
                messages = await receiver.receive(FETCH, WAIT_S)
                self._received(path, messages, number, is_locked=chance is not None)
                if chance is not None:
                    await self._settle(receiver, path, messages, chance)
        finally:
            self._recorder.say("closed", receiver=number)
            await receiver.close()

    def _received(self, path: str, messages: Sequence[ReceivedMessage], receiver: int, is_locked: bool = True) -> None:
        for message in messages:
            self._recorder.received(path, message, receiver, is_locked)
        self._waiting[path] -= len(messages)
        self._arrival.set()

    async def _settle(
        self, receiver: Receiver, path: str, messages: Sequence[ReceivedMessage], chance: random.Random | None
    ) -> None:
        """Nearly all are completed. Some are given back, and a few are forgotten: their locks lapse."""
        settlements = []
        for message in messages:
            draw = chance.random() if chance is not None else 1.0
            if draw < 0.002:
                continue
            if draw < 0.03:
                settlements.append(self._settle_one(receiver, path, message, "abandon", receiver.abandon))
            elif draw < 0.05:
                settlements.append(self._settle_one(receiver, path, message, "release", receiver.release))
            else:
                settlements.append(self._settle_one(receiver, path, message, "complete", receiver.complete))
        await asyncio.gather(*settlements)

    async def _settle_one(
        self,
        receiver: Receiver,
        path: str,
        message: ReceivedMessage,
        how: str,
        settle: Callable[..., Awaitable[None]],
    ) -> None:
        """One that is under way when its link goes is told why the link went. What became of it nobody knows: the
        broker may have carried it out before it lost the session."""
        operation = self._recorder.settling(path, message, how)
        was_attached = receiver.failure is None
        failure: BaseException | None = None
        try:
            await settle(message)
        except ClientFailure as error:
            failure = error
        is_cut_off = was_attached and receiver.failure is not None
        self._recorder.done(operation, ConnectionError(str(failure)) if failure and is_cut_off else failure)

    async def _receive_session(self, client: ServiceBus, path: str) -> None:
        try:
            receiver = await client.accept_session(path, None, WAIT_S)
        except BusError:
            return  # none has messages just now, or the fragment that has is away
        number = self._hold(path, receiver)
        got = 0
        try:
            while got < IN_A_SESSION and (messages := await receiver.receive(10, 0.05)):
                got += len(messages)
                self._received(path, messages, number)
                await self._settle(receiver, path, messages, None)
        except BusError:
            pass  # the session's lock is lost, with its broker
        finally:
            self._recorder.say("closed", receiver=number)
            await receiver.close()

    def _hold(self, path: str, receiver: SessionReceiver) -> int:
        number = self._recorder.number()
        locked_until = receiver.locked_until
        self._recorder.say(
            "session", entity=path, session=receiver.session_id, receiver=number, locked_until=locked_until
        )
        return number
