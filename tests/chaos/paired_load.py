"""An application on a pair: senders of the public SDK that nobody tells of outages, and what they see of them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage

from tandembus.client import OutgoingMessage
from tandembus.pairing import (
    EntityHealthy,
    EntityState,
    FailoverEngaged,
    PairedSender,
    PairedServiceBusClient,
    PairingError,
    PairingEvent,
    SendAvailabilityBacklogError,
)
from tests.chaos.recorder import Recorder
from tests.chaos.targets import Target

PATIENCE_S = 60.0
TROUBLE = (AzureError, PairingError, OSError)
"""What an application has to expect while the service is away."""


class PairedLoad:
    """Use it as `async with`: what is sent where follows from the seed of the recorder."""

    def __init__(self, client: PairedServiceBusClient, recorder: Recorder, targets: Sequence[Target]) -> None:
        self._client = client
        self._recorder = recorder
        self._targets = targets
        self._tasks: list[asyncio.Task[None]] = []
        self._is_sending = True
        self._changed = asyncio.Event()
        self.told: Counter[str] = Counter()
        """What pairing told, by the kind of event."""
        client.options.on_event(self._hear)

    async def __aenter__(self) -> PairedLoad:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def start(self, senders_each: int, pause_s: float) -> None:
        """One after the other: each has a connection to make."""
        for target in self._targets:
            for number in range(senders_each):
                work = self._send_along(target, f"{target.name}-{number}", pause_s)
                self._tasks.append(asyncio.create_task(work))
                await self.until_accepted(1)

    async def stop(self) -> None:
        self._is_sending = False
        await asyncio.wait_for(asyncio.gather(*self._tasks), PATIENCE_S)

    async def until_failed_over(self, *targets: Target) -> None:
        """These, or else all of them."""
        await self._until_all_are(EntityState.FAILED_OVER, targets or self._targets)

    async def until_healthy(self, *targets: Target) -> None:
        await self._until_all_are(EntityState.HEALTHY, targets or self._targets)

    async def _until_all_are(self, state: EntityState, targets: Iterable[Target]) -> None:
        await self._until(lambda: all(self._state(one) is state for one in targets))

    async def until_accepted(self, count: int) -> None:
        goal = self._recorder.accepted_count + count
        await self._until(lambda: self._recorder.accepted_count >= goal)

    async def until_refused(self, count: int) -> None:
        goal = self.told["refused"] + count
        await self._until(lambda: self.told["refused"] >= goal)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not is_so():
                self._changed.clear()
                for task in self._tasks:
                    if task.done():
                        task.result()  # a mistake of the load itself must not look like a pair that does nothing
                await self._changed.wait()

        await asyncio.wait_for(wait(), PATIENCE_S)

    def _state(self, target: Target) -> EntityState:
        return self._client.entity_state(target.name)

    def _hear(self, event: PairingEvent) -> None:
        self.told[type(event).__name__] += 1
        if isinstance(event, FailoverEngaged):
            self._recorder.say_at(event.at, "failover", entity=event.path, took_s=event.failing_for_s)
        elif isinstance(event, EntityHealthy):
            self._recorder.say_at(event.at, "healthy", entity=event.path)
        self._changed.set()

    # Sending.

    async def _send_along(self, target: Target, lane: str, pause_s: float) -> None:
        chance = random.Random(f"{self._recorder.seed} {lane}")
        open_sender = self._client.get_topic_sender if target.subscriptions else self._client.get_queue_sender
        count = 0
        async with open_sender(target.name) as sender:
            while self._is_sending:
                ids = [f"{lane}-{count + at}" for at in range(target.batch)]
                count += target.batch
                await self._send(sender, target, target.messages(chance, ids, lane))
                await asyncio.sleep(pause_s * chance.uniform(0.5, 1.5))

    async def _send(self, sender: PairedSender, target: Target, messages: list[OutgoingMessage]) -> None:
        operations = [self._recorder.sending(target.name, one, target.key_of(one)) for one in messages]
        failure = ""
        try:
            await sender.send_messages([_for_the_sdk(one) for one in messages])
        except TROUBLE as error:
            failure = _named(error)
            self.told["refused"] += 1
        for operation in operations:
            self._outcome(operation, failure)
        self._changed.set()

    def _outcome(self, operation: int, failure: str) -> None:
        """Whatever is raised, the primary may have the message all the same."""
        if failure:
            self._recorder.say("unknown", op=operation, error=failure)
        else:
            self._recorder.sent(operation)


def _named(error: BaseException) -> str:
    causes = error.causes.values() if isinstance(error, SendAvailabilityBacklogError) else ()
    return type(error).__name__ + "".join(f" ({type(one).__name__})" for one in causes)


def _for_the_sdk(message: OutgoingMessage) -> ServiceBusMessage:
    return ServiceBusMessage(
        message.body,
        message_id=message.message_id,
        session_id=message.session_id,
        partition_key=message.partition_key,
        time_to_live=timedelta(hours=1),
    )
