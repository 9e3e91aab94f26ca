"""An application on the public SDK: senders through the pair, receivers on the primary. Nobody tells it of outages."""

from __future__ import annotations

import asyncio
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from demo.stage import QUEUES
from demo.tally import MessageKey, Tally
from tandembus.clock import Clock
from tandembus.pairing import EntityState, PairedSender, PairedServiceBusClient, PairingError

TRY_AGAIN_S: Final = 0.1
RECEIVE_AGAIN_S: Final = 1.0
"""For every connection that it tries, the SDK loads all certificates that it trusts, and the event loop stands still
for about 50 ms: receivers that try ten times a second would take the senders' time."""
PREFETCH: Final = 50
"""Without it the SDK gives back what arrives between two receives, and that changes the order."""
RECEIVE_WAIT_S: Final = 1.0
TROUBLE: Final = (AzureError, PairingError, OSError)
"""What an application has to expect while the service is away."""


class Observed:
    """What the senders of one queue saw, by their own clock: not what the pair says of itself."""

    def __init__(self) -> None:
        self.refused_since: float | None = None
        """The first refusal after which the primary has accepted nothing."""
        self.backlog_tried_at: float | None = None
        """When the last send began that the backlog accepted."""
        self.primary_tried_at: float | None = None
        """When the first send began that the primary accepted."""
        self.primary_accepted_at: float | None = None

    def refused(self, at: float) -> None:
        self.refused_since = self.refused_since or at

    def accepted(self, began_at: float, at: float, is_diverted: bool) -> None:
        if is_diverted:
            self.backlog_tried_at = began_at
        else:
            self.refused_since = None
            self.primary_tried_at = self.primary_tried_at or began_at
            self.primary_accepted_at = self.primary_accepted_at or at


class Traffic:
    """Senders number their messages, and send each until it is accepted: so whatever is missing in the end was lost by
    somebody else. Each queue has one receiver, so that nobody but the pair changes the order."""

    def __init__(self, paired: PairedServiceBusClient, primary: ServiceBusClient, tally: Tally, clock: Clock) -> None:
        self._paired: Final = paired
        self._primary: Final = primary
        self._tally: Final = tally
        self._clock: Final = clock
        self._is_sending = True
        self._is_receiving = True
        self._senders: Final[list[asyncio.Task[None]]] = []
        self._receivers: Final[list[asyncio.Task[None]]] = []
        self.observed: Final = {queue: Observed() for queue in QUEUES}

    def start(self, senders: int, rate: float) -> None:
        """`rate`: messages per second, over all senders."""
        for number in range(senders):
            sending = self._send_all(number, QUEUES[number % len(QUEUES)], senders / rate)
            self._senders.append(asyncio.create_task(sending))
        self._receivers.extend([asyncio.create_task(self._receive_all(queue)) for queue in QUEUES])

    async def stop_sending(self) -> None:
        """What is being sent is still accepted."""
        self._is_sending = False
        await asyncio.gather(*self._senders)

    async def stop_receiving(self) -> None:
        self._is_receiving = False
        await asyncio.gather(*self._receivers)

    def forget(self) -> None:
        """What was observed until now."""
        for queue in QUEUES:
            self.observed[queue] = Observed()

    # Sending.

    async def _send_all(self, sender: int, queue: str, pause_s: float) -> None:
        number = 0
        due_at = self._clock.monotonic()
        self._tally.started(sender, due_at)
        async with self._paired.get_queue_sender(queue) as link:
            while self._is_sending:
                await self._send_until_accepted(link, (sender, number))
                number += 1
                now = self._clock.monotonic()
                due_at = max(due_at + pause_s, now)  # what was not sent in time is not made up for
                await asyncio.sleep(due_at - now)

    async def _send_until_accepted(self, link: PairedSender, key: MessageKey) -> None:
        message = ServiceBusMessage(f"number {key[1]}", message_id=f"{key[0]}-{key[1]}")
        while True:
            began_at, is_for_backlog = self._clock.monotonic(), self._is_failed_over(link)
            try:
                await link.send_messages(message)
            except TROUBLE:
                self._tally.refused()
                self.observed[link.entity_name].refused(self._clock.monotonic())
                await asyncio.sleep(TRY_AGAIN_S)
            else:
                # One that began on the primary and ended in the backlog has seen the failover on its way.
                is_diverted = is_for_backlog or self._is_failed_over(link)
                now = self._clock.monotonic()
                self._tally.accepted(key, now, is_diverted)
                self.observed[link.entity_name].accepted(began_at, now, is_diverted)
                return

    def _is_failed_over(self, link: PairedSender) -> bool:
        return self._paired.entity_state(link.entity_name) is EntityState.FAILED_OVER

    # Receiving.

    async def _receive_all(self, queue: str) -> None:
        while self._is_receiving:
            try:
                async with self._primary.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
                    while self._is_receiving:
                        await self._receive(receiver)
            except TROUBLE:
                await asyncio.sleep(RECEIVE_AGAIN_S)

    async def _receive(self, receiver: ServiceBusReceiver) -> None:
        for message in await receiver.receive_messages(PREFETCH, max_wait_time=RECEIVE_WAIT_S):
            key = _key_of(message)
            self._tally.received(key)
            await receiver.complete_message(message)
            self._tally.completed(key)


def _key_of(message: ServiceBusReceivedMessage) -> MessageKey:
    sender, _, number = str(message.message_id).partition("-")
    return int(sender), int(number)
