"""Sends messages to an entity, many at a time, and knows of each whether it was accepted.

Sending costs no future, task or timer per message when it goes through `send_many`; a link that gives no
answer for the connection's time-out is given up as a whole, since nobody can tell then what happened to what
was sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from tandembus.amqp.encoding.delivery_states import ACCEPTED_STATE
from tandembus.amqp.encoding.descriptors import ACCEPTED, REJECTED, TRANSACTIONAL_STATE
from tandembus.amqp.engine import AmqpSession, DispositionReceived, Outcome, OutgoingLink
from tandembus.client.connection import Connection, LinkOwner
from tandembus.client.errors import ConnectionLost, failure_of
from tandembus.client.groups import Group, Turn, Turns
from tandembus.client.messages import BATCH_FORMAT, Payload, batches_of, payload_of
from tandembus.errors import MessageTooLarge, OperationTimeout, StoreUnavailable

DEFAULT_WINDOW: Final = 500
DEFAULT_BATCH_BYTES: Final = 262_144
"""Where the service names no limit: its smallest one."""
Progress = Callable[[int], None]
Transfer = tuple[bytes, int, Turn | None]
"""What is sent in one go, how many messages that is, and whose turn it was."""
Supply = Callable[[], Transfer | None]
"""None: nothing at the moment, and nothing at all if nothing is under way."""


class _Run:
    """One `send_many`: how much of it is under way, and how it stands."""

    __slots__ = ("accepted", "failure", "in_flight", "on_accepted", "wake")

    def __init__(self, on_accepted: Progress | None) -> None:
        self.in_flight = 0
        self.accepted = 0
        self.failure: Exception | None = None
        self.wake: asyncio.Future[None] | None = None
        self.on_accepted = on_accepted


class _Batch:
    """A delivery of a run that holds more than one message, or somebody's turn."""

    __slots__ = ("count", "run", "turn")

    def __init__(self, run: _Run, count: int, turn: Turn | None) -> None:
        self.run = run
        self.count = count
        self.turn = turn


class Sender(LinkOwner):
    """A link to send on. Made by `ServiceBus.sender`."""

    def __init__(
        self,
        connection: Connection,
        address: str,
        window: int = DEFAULT_WINDOW,
        session: AmqpSession | None = None,
        properties: dict[str, object] | None = None,
    ) -> None:
        super().__init__(connection, session)
        self.address: Final = address
        self._window: Final = window
        self._link: Final[OutgoingLink] = self.session.attach_sender(
            self.name, address, self.name, snd_settle_mode=0, properties=properties
        )
        self._link.context = self
        self._in_flight = 0
        self._tag = 0
        self._waiting: Final[deque[tuple[bytes, asyncio.Future[None]]]] = deque()
        self._pending: Final[set[asyncio.Future[None]]] = set()
        self._runs: Final[set[_Run]] = set()
        self._progress_at = 0.0

    @property
    def max_message_size(self) -> int:
        """What the service takes at most, in bytes; 0 = it did not say."""
        return int(self._link.max_message_size)

    async def send(self, message: Payload) -> None:
        """Until the service has accepted it, which is when it is durable there. Many may be under way at once."""
        self.raise_if_lost()
        payload = self._checked(payload_of(message))
        outcome: asyncio.Future[None] = self.connection.loop.create_future()
        self._pending.add(outcome)
        if self._waiting or not self._has_room():
            self._waiting.append((payload, outcome))
            self._begin_waiting()
        else:
            self._transfer(payload, outcome, 0)
            self.connection.flush_soon()
        try:
            await outcome
        finally:
            self._pending.discard(outcome)

    async def send_batch(self, messages: Iterable[Payload]) -> None:
        """All of them in one transfer: stored all or none, in this order. `MessageTooLarge` if they do not fit."""
        together = list(batches_of(messages, 1 << 31, 1 << 31))
        if together:
            await self._send_run(_supply(together), 1, None)

    async def send_many(
        self, messages: Iterable[Payload], window: int = DEFAULT_WINDOW, on_accepted: Progress | None = None
    ) -> int:
        """Send as fast as the service takes them, `window` at a time; returns how many were accepted.

        The first refusal stops it: what is under way is waited for, then the refusal is raised. `on_accepted`
        is told of every acceptance, so that a caller knows how far it came.
        """
        return await self._send_run(_supply((payload_of(each), 1) for each in messages), window, on_accepted)

    async def send_batches(
        self,
        messages: Iterable[Payload],
        size: int,
        window: int = DEFAULT_WINDOW,
        on_accepted: Progress | None = None,
    ) -> int:
        """The same with up to `size` messages per transfer; each batch is stored as a whole or not at all."""
        limit_bytes = self.max_message_size or DEFAULT_BATCH_BYTES
        supply = _supply(batches_of(messages, size, limit_bytes))
        return await self._send_run(supply, window, on_accepted)

    async def send_groups(
        self,
        groups: Iterable[Group],
        size: int,
        window: int = DEFAULT_WINDOW,
        on_accepted: Progress | None = None,
    ) -> int:
        """The same for groups beside each other, each in its own order: no batch holds messages of two groups, and one
        of a group is under way at a time. After a failure, the same groups go on where they were."""
        turns = Turns(groups, size, self.max_message_size or DEFAULT_BATCH_BYTES)
        return await self._send_run(turns.take, window, on_accepted)

    async def close(self) -> None:
        """Detach. What is still under way fails, with an unknown outcome."""
        if self.failure is None:
            self._link.detach()
            self.session.end()
            self.connection.flush()
            self.on_lost(ConnectionLost("the sender was closed"))

    async def _send_run(
        self,
        supply: Supply,
        window: int,
        on_accepted: Progress | None,
    ) -> int:
        run = _Run(on_accepted)
        if not (self._in_flight or self._waiting or self._runs):
            self._progress_at = self.connection.clock.monotonic()  # there may be no credit to begin with
        self._runs.add(run)
        try:
            await self._drive(run, supply, window)
        finally:
            self._runs.discard(run)
        if run.failure is not None:
            raise run.failure
        return run.accepted

    async def _drive(self, run: _Run, supply: Supply, window: int) -> None:
        link = self._link
        while True:
            self.raise_if_lost()
            is_empty = False
            while run.in_flight < window and link.credit > 0 and run.failure is None:
                transfer = supply()
                if transfer is None:
                    is_empty = True
                    break
                payload, count, turn = transfer
                context = run if count == 1 and turn is None else _Batch(run, count, turn)
                self._transfer(self._checked(payload), context, BATCH_FORMAT if count > 1 else 0)
                run.in_flight += 1
            self.connection.flush()
            if not run.in_flight and (run.failure is not None or is_empty):
                return
            run.wake = self.connection.loop.create_future()
            await run.wake

    def _checked(self, payload: bytes) -> bytes:
        limit = self._link.max_message_size
        if limit and len(payload) > limit:
            raise MessageTooLarge(f"the message has {len(payload)} bytes; {self.address} takes {limit}")
        return payload

    def _transfer(self, payload: bytes, context: object, message_format: int) -> None:
        if self._in_flight == 0:
            self._progress_at = self.connection.clock.monotonic()
        self._in_flight += 1
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        self._link.send(self._tag.to_bytes(4, "big"), payload, False, context, message_format)

    def _has_room(self) -> bool:
        return self._in_flight < self._window and self._link.credit > 0

    def _begin_waiting(self) -> None:
        """From when on silence counts as trouble."""
        if self._in_flight == 0 and len(self._waiting) <= 1:
            self._progress_at = self.connection.clock.monotonic()

    def on_flow(self) -> None:
        self._go_on()

    def on_outcomes(self, event: DispositionReceived) -> None:
        if event.outcome is None and not event.settled:
            return
        failure = _failure_in(event.outcome)
        for delivery in event.deliveries:
            self._in_flight -= 1
            context = delivery.context
            if type(context) is _Run:
                _count(context, 1, failure)
            elif isinstance(context, _Batch):
                if failure is None and context.turn is not None:
                    context.turn.accept(context.count)
                _count(context.run, context.count, failure)
            elif isinstance(context, asyncio.Future) and not context.done():
                _resolve(context, failure)
        if not event.settled and event.deliveries:
            first, last = event.deliveries[0].delivery_id, event.deliveries[-1].delivery_id
            self.session.settle(int(first), int(last), ACCEPTED_STATE, True, False)
        self._progress_at = self.connection.clock.monotonic()
        self._go_on()

    def on_tick(self, now: float) -> None:
        is_busy = self._in_flight > 0 or self._waiting or self._runs
        if is_busy and now - self._progress_at > self.connection.timeout_s:
            self._link.detach()
            self.session.end()
            self.on_lost(OperationTimeout(f"{self.address} gave no answer for {self.connection.timeout_s:g} s"))

    def on_lost(self, failure: Exception) -> None:
        super().on_lost(failure)
        self._in_flight = 0
        for outcome in self._pending:
            if not outcome.done():
                outcome.set_exception(failure)
        self._waiting.clear()
        self._wake_runs()

    def _go_on(self) -> None:
        while self._waiting and self._has_room():
            payload, outcome = self._waiting.popleft()
            if not outcome.done():
                self._transfer(payload, outcome, 0)
        self._wake_runs()

    def _wake_runs(self) -> None:
        for run in self._runs:
            if run.wake is not None and not run.wake.done():
                run.wake.set_result(None)


def _supply(transfers: Iterable[tuple[bytes, int]]) -> Supply:
    source = iter(transfers)

    def take() -> Transfer | None:
        transfer = next(source, None)
        return None if transfer is None else (*transfer, None)

    return take


def _count(run: _Run, messages: int, failure: Exception | None) -> None:
    run.in_flight -= 1
    if failure is not None:
        run.failure = run.failure or failure
        return
    run.accepted += messages
    if run.on_accepted is not None:
        run.on_accepted(messages)


def _resolve(outcome: asyncio.Future[None], failure: Exception | None) -> None:
    if failure is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(failure)


def _failure_in(outcome: Outcome | None) -> Exception | None:
    """Why a send was not accepted; None if it was."""
    if outcome is not None and outcome.code == TRANSACTIONAL_STATE:
        outcome = outcome.inner
    if outcome is not None and outcome.code == ACCEPTED:
        return None
    if outcome is not None and outcome.code == REJECTED and outcome.error is not None:
        return failure_of(outcome.error.condition, outcome.error.description)
    return StoreUnavailable("the service did not take the message, and gave no reason")
