"""The syphon's ports on `tandembus.client`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from tandembus.client import (
    ClientFailure,
    Disposition,
    Management,
    ReceivedMessage,
    Receiver,
    Sender,
    ServiceBus,
)
from tandembus.client.errors import ConnectionLost, SomeLocksLost
from tandembus.errors import EntityNotFound, MessageLockLost, MessageNotFound
from tandembus.pairing.aliases import IS_HOME
from tandembus.pairing.syphon_messages import Delivery, LocksLost
from tandembus.pairing.syphon_rules import PrimaryUnreachable
from tandembus.pairing.syphon_senders import SenderPool

Connect: TypeAlias = Callable[[], Coroutine[Any, Any, ServiceBus]]
ByToken: TypeAlias = Callable[[Management, list[UUID]], Coroutine[Any, Any, None]]
NOT_OURS: Final = (MessageLockLost, MessageNotFound)
"""What the service says to lock tokens that it knows nothing of any more."""
DEFERRED_AT_ONCE: Final = 50
"""Their payloads come in one answer, so not too many."""
TOKENS_AT_ONCE: Final = 250
MAX_SENDERS: Final = 256
PURPOSE: Final[dict[str, object]] = {"tandembus:purpose": "syphon"}
"""So that a tandembus primary counts these sends as the outage's (N13); other services ignore it."""


class SharedConnection:
    """One connection to a namespace for all that need it, made anew when it was lost."""

    def __init__(self, connect: Connect) -> None:
        self._connect: Final = connect
        self._bus: ServiceBus | None = None
        self._opening: Final = asyncio.Lock()

    async def get(self) -> ServiceBus:
        async with self._opening:
            if self._bus is None or self._bus.connection.failure is not None:
                self._bus = None
                self._bus = await self._connect()
            return self._bus

    @property
    def is_alive(self) -> bool:
        return self._bus is not None and self._bus.connection.failure is None

    async def close(self) -> None:
        if self._bus is not None:
            await self._bus.close()


class Origin(NamedTuple):
    """What a delivery is settled by. `link` is the one it came on, whose delivery ids mean nothing on any other;
    None if it was received by its sequence number, from `node`: then its lock token does."""

    message: ReceivedMessage
    link: Receiver | None = None
    node: Management | None = None

    @property
    def lock_token(self) -> UUID | None:
        return self.message.lock_token


class ClientBacklog:
    """One backlog queue on the secondary."""

    failures: tuple[type[Exception], ...] = (*ClientFailure, LocksLost)

    def __init__(self, secondary: SharedConnection, queue: str) -> None:
        self.queue = queue
        self._secondary: Final = secondary
        self._receiver: Receiver | None = None
        self._management: Management | None = None
        self._opening: Final = asyncio.Lock()
        self._polling: asyncio.Task[list[ReceivedMessage]] | None = None
        self._is_interrupted = False
        self._is_woken = False

    async def receive(self, max_count: int, wait_s: float) -> Sequence[Delivery]:
        receiver = await self._open_receiver()
        if self._is_interrupted or self._is_woken:
            self._is_woken = False
            return []
        self._polling = asyncio.ensure_future(receiver.receive(max_count, wait_s))
        try:
            await asyncio.wait((self._polling,))
            messages = [] if self._polling.cancelled() else self._polling.result()
        except asyncio.CancelledError:
            self._polling.cancel()
            raise
        finally:
            self._polling = None
            self._is_woken = False
        return [Delivery(message.payload, Origin(message, receiver)) for message in messages]

    async def interrupt(self) -> None:
        self._is_interrupted = True
        if self._polling is not None:
            self._polling.cancel()

    async def wake(self) -> None:
        self._is_woken = True
        if self._polling is not None and self._receiver is not None:
            self._receiver.wake()

    def has_lost(self, deliveries: Sequence[Delivery]) -> bool:
        ways = {each.origin.link or each.origin.node for each in deliveries}
        return any(way.failure is not None if isinstance(way, Receiver) else way.is_lost for way in ways)

    async def complete(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle(deliveries, Receiver.complete, Disposition.COMPLETE)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle(deliveries, Receiver.release, Disposition.ABANDON)

    async def abandon(self, deliveries: Sequence[Delivery], are_home: bool) -> None:
        on_link = partial(Receiver.abandon, properties={IS_HOME: True} if are_home else None)
        await self._settle(deliveries, on_link, Disposition.ABANDON)

    async def defer(self, deliveries: Sequence[Delivery]) -> None:
        await self._settle(deliveries, Receiver.defer, Disposition.DEFER)

    async def dead_letter(self, deliveries: Sequence[Delivery], reason: str, description: str) -> None:
        on_link = partial(Receiver.dead_letter, reason=reason, description=description)
        await self._settle(deliveries, on_link, Disposition.DEAD_LETTER, reason, description)

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        self._check_link()
        ours, lost = _ours_and_lost(deliveries, self._receiver)
        link_name = self._receiver.name if self._receiver is not None else None
        lost += await _by_token(ours, partial(self._on_tokens, partial(_renew, link_name)))
        if lost:
            raise LocksLost(lost)

    async def receive_deferred(self, sequence_numbers: Sequence[int]) -> Sequence[Delivery]:
        self._check_link()
        management = await self._open_management()
        firsts = range(0, len(sequence_numbers), DEFERRED_AT_ONCE)
        answers = await asyncio.gather(
            *[_receive_deferred(management, sequence_numbers[first : first + DEFERRED_AT_ONCE]) for first in firsts]
        )
        return [Delivery(message.payload, Origin(message, node=management)) for answer in answers for message in answer]

    async def browse(self, from_number: int, max_count: int) -> Sequence[bytes]:
        self._check_link()
        management = await self._open_management()
        return [message.payload for message in await management.peek(from_number, max_count)]

    async def close(self) -> None:
        receiver, self._receiver = self._receiver, None
        management, self._management = self._management, None
        try:
            if receiver is not None:
                await receiver.close()
            if management is not None:
                await management.close()
        except ClientFailure:
            pass  # It is gone, which is what was wanted.

    def _check_link(self) -> None:
        """Raises once what became of a link that was lost since the last call; then there is none."""
        if self._receiver is not None and self._receiver.failure is not None:
            failure, self._receiver = self._receiver.failure, None
            raise MessageLockLost(f"the locks went with their link: {failure}") from failure

    async def _open_receiver(self) -> Receiver:
        self._check_link()
        if self._receiver is None:
            self._receiver = await (await self._secondary.get()).receiver(self.queue)
        return self._receiver

    async def _open_management(self) -> Management:
        """Also used by whoever renews locks, beside other calls."""
        async with self._opening:
            if self._management is None or self._management.is_lost:
                self._management = None
                self._management = await (await self._secondary.get()).management(self.queue)
            return self._management

    async def _settle(
        self,
        deliveries: Sequence[Delivery],
        on_link: Callable[..., Coroutine[Any, Any, None]],
        disposition: Disposition,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        self._check_link()
        ours, lost = _ours_and_lost(deliveries, self._receiver)
        lost += await self._settle_on_link([each for each in ours if each.origin.link is not None], on_link)
        by_number = [each for each in ours if each.origin.link is None]
        settle = partial(self._on_tokens, partial(_settle, disposition, reason, description))
        lost += await _by_token(by_number, settle)
        if lost:
            raise LocksLost(lost)

    async def _settle_on_link(
        self, deliveries: Sequence[Delivery], on_link: Callable[..., Coroutine[Any, Any, None]]
    ) -> list[Delivery]:
        """Returns those whose locks were lost."""
        if not deliveries:
            return []
        try:
            await on_link(self._receiver, *[each.origin.message for each in deliveries])
        except SomeLocksLost as error:
            return [each for each in deliveries if each.origin.message.delivery_id in error.delivery_ids]
        return []

    async def _on_tokens(self, do: ByToken, tokens: list[UUID]) -> None:
        await do(await self._open_management(), tokens)


class _Destination:
    """A link to a destination. Opens itself when it is used, and anew when it was lost."""

    def __init__(self, primary: SharedConnection, path: str) -> None:
        self._primary: Final = primary
        self._path: Final = path
        self._opening: Final = asyncio.Lock()
        self._sender: Sender | None = None

    async def open(self) -> Sender:
        if self._sender is not None and self._sender.failure is None:
            return self._sender
        async with self._opening:
            if self._sender is None or self._sender.failure is not None:
                self._sender = None
                self._sender = await (await self._connected()).sender(self._path, properties=PURPOSE)
            return self._sender

    async def close(self) -> None:
        if self._sender is not None:
            with suppress(*ClientFailure):
                await self._sender.close()

    async def _connected(self) -> ServiceBus:
        try:
            return await self._primary.get()
        except ClientFailure as error:
            raise PrimaryUnreachable(str(error)) from error


class ClientPrimary:
    """The paired primary: one connection, and a link for each destination in use."""

    def __init__(self, primary: SharedConnection, max_senders: int = MAX_SENDERS) -> None:
        self._primary: Final = primary
        self._destinations: Final = SenderPool(partial(_Destination, primary), max_senders)

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        destination = self._destinations.borrow(path)
        try:
            sender = await destination.open()
            if len(payloads) == 1:
                await sender.send(payloads[0])
            else:
                await sender.send_batch(payloads)
        except ConnectionLost as error:
            if self._primary.is_alive:
                raise
            raise PrimaryUnreachable(str(error)) from error
        finally:
            for unused in self._destinations.give_back(path):
                await unused.close()

    async def close(self) -> None:
        await self._primary.close()


async def _renew(link_name: str | None, management: Management, tokens: list[UUID]) -> None:
    await management.renew_locks(tokens, link_name)


async def _settle(
    disposition: Disposition, reason: str | None, description: str | None, management: Management, tokens: list[UUID]
) -> None:
    await management.settle(disposition, tokens, reason=reason, description=description)


async def _receive_deferred(management: Management, numbers: Sequence[int]) -> list[ReceivedMessage]:
    """The node answers with all of them or none: if one is not there, they are asked for one by one."""
    try:
        return await management.receive_deferred(numbers)
    except (MessageNotFound, MessageLockLost, EntityNotFound):
        if len(numbers) == 1:
            return []
    found: list[ReceivedMessage] = []
    for number in numbers:
        found += await _receive_deferred(management, [number])
    return found


def _ours_and_lost(deliveries: Sequence[Delivery], link: object) -> tuple[list[Delivery], list[Delivery]]:
    """Those that may be settled while this is the link, and those that came on one that is gone."""
    ours: list[Delivery] = []
    lost: list[Delivery] = []
    for each in deliveries:
        came_on = each.origin.link
        (ours if came_on is None or came_on is link else lost).append(each)
    return ours, lost


async def _by_token(
    deliveries: Sequence[Delivery], do: Callable[[list[UUID]], Coroutine[Any, Any, None]]
) -> list[Delivery]:
    """Have it done through the management node, which does it for all of them or none: if one lock is lost, one by one.
    Returns those whose locks were lost."""
    lost: list[Delivery] = []
    for first in range(0, len(deliveries), TOKENS_AT_ONCE):
        some = deliveries[first : first + TOKENS_AT_ONCE]
        try:
            await do([each.origin.lock_token for each in some])
        except NOT_OURS:
            if len(some) == 1:
                lost += some
                continue
            for each in some:
                lost += await _by_token([each], do)
    return lost
