"""The work behind `tandembus receive`: from a queue or subscription, from sessions, or by sequence number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from tandembus.cli.output import message_record, print_json, print_message
from tandembus.client import (
    Disposition,
    Management,
    ReceivedMessage,
    ReceiveMode,
    Receiver,
    ServiceBus,
    SessionReceiver,
    SubQueue,
)
from tandembus.client.errors import ClientFailure
from tandembus.clock import SystemClock
from tandembus.errors import OperationTimeout

BATCH: Final = 100
REST_WAIT_S: Final = 1.0
"""How long an accepted session may be silent before the next one is asked for."""
SHORTEST_RENEWAL_S: Final = 0.1

_DISPOSITIONS: Final = {
    "complete": Disposition.COMPLETE,
    "abandon": Disposition.ABANDON,
    "defer": Disposition.DEFER,
    "dead-letter": Disposition.DEAD_LETTER,
}


@dataclass(frozen=True, slots=True)
class Settlement:
    """What happens to a message once it is printed."""

    action: str
    reason: str | None
    description: str | None

    async def apply(self, receiver: Receiver, messages: Sequence[ReceivedMessage]) -> None:
        match self.action:
            case "complete":
                await receiver.complete(*messages)
            case "abandon":
                await receiver.abandon(*messages)
            case "defer":
                await receiver.defer(*messages)
            case _:
                await receiver.dead_letter(*messages, reason=self.reason, description=self.description)

    async def apply_by_token(
        self, management: Management, messages: Sequence[ReceivedMessage], session: SessionReceiver | None
    ) -> None:
        """For messages that came by their sequence number, and so on no link."""
        await management.settle(
            _DISPOSITIONS[self.action],
            [message.lock_token for message in messages if message.lock_token is not None],
            reason=self.reason,
            description=self.description,
            session_id=None if session is None else session.session_id,
            link_name=None if session is None else session.name,
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be received. `settlement` is None where the service deletes on delivery."""

    entity: str
    part: SubQueue | None
    mode: ReceiveMode
    settlement: Settlement | None
    limit: int | None
    wait_s: float
    follow: bool
    as_json: bool
    session_id: str | None = None
    next_session: bool = False

    def show(self, message: ReceivedMessage) -> None:
        if self.as_json:
            print_json(message_record(message))
        else:
            print_message(message)


async def receive(namespace: ServiceBus, wanted: Wanted) -> int:
    """Print and settle what comes; how many it were."""
    if wanted.next_session:
        return await _from_sessions(namespace, wanted)
    if wanted.session_id is not None:
        async with _accepted(namespace, wanted, wanted.session_id) as session:
            return await _from(session, wanted)
    return await _from(await namespace.receiver(wanted.entity, wanted.part, mode=wanted.mode), wanted)


async def receive_deferred(namespace: ServiceBus, wanted: Wanted, numbers: Sequence[int]) -> int:
    """All of these, or none: the service does not tell which of them is not there."""
    if wanted.session_id is not None:
        async with _accepted(namespace, wanted, wanted.session_id) as session:
            return await _by_number(namespace, wanted, numbers, session)
    return await _by_number(namespace, wanted, numbers, None)


async def _by_number(
    namespace: ServiceBus, wanted: Wanted, numbers: Sequence[int], session: SessionReceiver | None
) -> int:
    management = await namespace.management(wanted.entity, wanted.part)
    session_id, link_name = (None, None) if session is None else (session.session_id, session.name)
    messages = await management.receive_deferred(numbers, wanted.mode, session_id=session_id, link_name=link_name)
    for message in messages:
        wanted.show(message)
    if wanted.settlement is not None:
        await wanted.settlement.apply_by_token(management, messages, session)
    return len(messages)


async def _from_sessions(namespace: ServiceBus, wanted: Wanted) -> int:
    """The next session that has messages; when following, one after the other."""
    received = 0
    while True:
        left = None if wanted.limit is None else wanted.limit - received
        try:
            async with _accepted(namespace, wanted, None) as session:
                received += await _from(session, replace(wanted, limit=left, wait_s=REST_WAIT_S, follow=False))
        except OperationTimeout:
            if not wanted.follow:
                return received
        if not wanted.follow or received == wanted.limit:
            return received


@asynccontextmanager
async def _accepted(namespace: ServiceBus, wanted: Wanted, session_id: str | None) -> AsyncIterator[SessionReceiver]:
    """A session's receiver, whose lock is renewed until the end of the block."""
    session = await namespace.accept_session(wanted.entity, session_id, wanted.wait_s, mode=wanted.mode)
    renewing = asyncio.create_task(_keep(session))
    try:
        yield session
    finally:
        renewing.cancel()
        await session.close()


async def _keep(session: SessionReceiver) -> None:
    """Renew the lock at half of its time. A lock that is lost is told by the receiver itself."""
    clock = SystemClock()
    try:
        while True:
            await asyncio.sleep(max((session.locked_until - clock.now()) / 2, SHORTEST_RENEWAL_S))
            await session.renew()
    except ClientFailure:
        return


async def _from(receiver: Receiver, wanted: Wanted) -> int:
    """Until the limit is reached or, unless it follows, until there is nothing more right now."""
    received = 0
    given_back: set[int] = set()
    while wanted.limit is None or received < wanted.limit:
        size = BATCH if wanted.limit is None else min(BATCH, wanted.limit - received)
        messages = await receiver.receive(size, wanted.wait_s)
        if any(message.sequence_number in given_back for message in messages):
            # Everything there was has been given back once: more of it would only fill the dead letters.
            await receiver.release(*messages)
            break
        for message in messages:
            wanted.show(message)
        if wanted.settlement is not None:
            await wanted.settlement.apply(receiver, messages)
            if wanted.settlement.action == "abandon":
                given_back.update(message.sequence_number for message in messages)
        received += len(messages)
        if len(messages) < size and not wanted.follow:
            break
    return received
