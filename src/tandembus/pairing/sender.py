"""Looks like the SDK's sender, and does not stop where that would (N17)."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar, final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusSender

from tandembus.pairing.backlog_sender import BacklogSender
from tandembus.pairing.batch import PairedMessageBatch
from tandembus.pairing.closing import Gate, PrimaryKey
from tandembus.pairing.errors import SchedulingUnavailable
from tandembus.pairing.failures import Verdict, verdict_on
from tandembus.pairing.links import Link
from tandembus.pairing.primary_entity import PrimaryEntity
from tandembus.pairing.runtime import Attempt, FailedOver, Retired, Runtime, Stopped, together
from tandembus.pairing.sdk import Sendable, can_be_encoded, outgoing, ping_key_of, rereadable
from tandembus.pairing.transfer import AnyMessage

T = TypeVar("T")
NOTHING: Final[Mapping[str, object]] = {}
_log = logging.getLogger("tandembus.pairing")


class GoesToBacklog(Exception):
    """The primary did not take it, and the entity is failed over by now: the backlog is to take it."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__(str(error))
        self.error = error


@final
class PairedSender:
    """Sends to the primary; to the backlog while the entity is failed over. Made by `PairedServiceBusClient`."""

    def __init__(
        self,
        entity: PrimaryEntity,
        open_primary: Callable[[], ServiceBusSender],
        backlog: BacklogSender,
        timeout_s: float,
        runtime: Runtime,
        gate: Gate,
        key: PrimaryKey,
    ) -> None:
        self._entity: Final = entity
        self._open_primary = open_primary
        self._backlog = backlog
        self._timeout_s = timeout_s
        self._runtime = runtime
        self._gate = gate
        self._key = key
        self._is_closed = False
        self._beside_failover: set[Attempt] = set()
        """Calls under way that a failover does not end."""
        self._link = entity.new_link(open_primary)

    # As the SDK's sender.

    async def __aenter__(self) -> PairedSender:
        """Opens the link as the SDK does. A primary that is away is no reason to fail here: the sends will tell."""
        self._check()
        try:
            await self._on_primary(lambda sdk, _: sdk.__aenter__(), (), None, False)
        except GoesToBacklog:
            pass
        except Exception as error:
            if verdict_on(error) in (Verdict.ANSWERED, Verdict.RAISED):
                raise
            _log.warning("%s cannot be reached yet: %r", self._entity.path, error)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.close()

    async def send_messages(self, message: Sendable, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Returns when the primary has the messages, or the backlog. Raises what the SDK raises, until the entity is
        failed over; then `SendAvailabilityBacklogError`, `BacklogMessageTooLarge` or `ReservedPropertyName`."""
        link = self._link
        if (
            link.is_ready
            and timeout is None
            and type(message) is ServiceBusMessage
            and not kwargs
            and (caller := self._runtime.begin_here(link, self._timeout_s)) is not None
        ):
            # What nearly every send is, in as few steps as possible: `_on_primary` says the same in more. A link that
            # is ready is of a sender that is open.
            try:
                await link.sdk.send_messages(message)
            except BaseException as failure:
                attempt = self._runtime.end_here(link, caller)
                error = self._failed(link, attempt, attempt.failed_here(failure), message)
                if error is failure:
                    raise
                if not isinstance(error, GoesToBacklog):
                    raise error from None
            else:
                if link.calls.pop(caller, None) is None:
                    self._runtime.end_here(link, caller).ended_here()
                if link.is_retired:
                    # Another call on it was given up meanwhile, and left closing it to the last one.
                    link.close_if_unused()
                if self._entity.is_failing:
                    self._entity.answered()
                if self._key.is_suspect:
                    self._key.taken()
                return
        else:
            self._check(timeout, kwargs)
            message = rereadable(message)
            sendable: Any = message.sdk_batch if isinstance(message, PairedMessageBatch) else message
            try:
                await self._on_primary(
                    lambda sdk, limit_s: sdk.send_messages(sendable, timeout=limit_s), message, timeout
                )
                return
            except GoesToBacklog:
                pass
        await self._backlog.send(outgoing(message), timeout)

    async def schedule_messages(
        self,
        messages: AnyMessage | Iterable[AnyMessage],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[int]:
        """On the primary only: `SchedulingUnavailable` while the entity is failed over."""
        self._check(timeout, kwargs)
        given: Any = rereadable(messages)
        try:
            return await self._on_primary(
                lambda sdk, limit_s: sdk.schedule_messages(given, schedule_time_utc, timeout=limit_s), given, timeout
            )
        except GoesToBacklog as gone:
            raise SchedulingUnavailable(self._entity.path) from gone.error

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """On the primary, failed over or not: only it knows these numbers. Says nothing about its health."""
        self._check(timeout, kwargs)
        limit_s = self._timeout_s if timeout is None else timeout
        is_failed_over = self._entity.is_failed_over
        link = Link(self._open_primary(), self._runtime) if is_failed_over else self._fresh_link()
        attempt = Attempt(self._runtime)
        self._beside_failover.add(attempt)
        try:
            await attempt.run(lambda: link.sdk.cancel_scheduled_messages(sequence_numbers, timeout=limit_s), limit_s)
        except BaseException as failure:
            error = self._gate.gone() if isinstance(failure, Stopped) else link.failed(attempt, failure, limit_s)
            if error is failure:
                raise
            raise error from None
        finally:
            self._beside_failover.discard(attempt)
            if is_failed_over or link.is_retired:
                link.retire()

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """A batch that keeps its messages, so that either namespace can take them."""
        self._check()
        try:
            batch = await self._on_primary(lambda sdk, _: sdk.create_message_batch(max_size_in_bytes), (), None, False)
            return PairedMessageBatch(batch)
        except GoesToBacklog:
            pass
        return await self._backlog.create_message_batch(max_size_in_bytes)

    async def close(self) -> None:
        """Closes its links to both namespaces. What is being sent is given up, and raises `PairClosed`: whether it was
        stored nobody knows."""
        self.stop()
        await together([self._link.close, self._backlog.close])

    def stop(self) -> None:
        """Gives up what is being sent. From now on every call is answered with what the gate says."""
        self._is_closed = True
        for attempt in tuple(self._beside_failover):
            attempt.give_up(Stopped())
        self._link.stop()
        self._backlog.stop()

    @property
    def entity_name(self) -> str:
        return self._entity.path

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary's."""
        return self._link.sdk.fully_qualified_namespace

    @property
    def client_identifier(self) -> str:
        return self._link.sdk.client_identifier

    def __str__(self) -> str:
        return f"Paired sender client id: {self.client_identifier}, entity: {self.entity_name}"

    # How.

    def _check(self, timeout: float | None = None, unknown: Mapping[str, object] = NOTHING) -> None:
        if unknown:
            warnings.warn(f"Unsupported keyword args: {unknown}", stacklevel=3)
        self._gate.check()
        if self._is_closed:
            raise self._gate.gone()
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")

    async def _on_primary(
        self,
        call: Callable[[ServiceBusSender, float | None], Coroutine[Any, Any, T]],
        message: Sendable,
        timeout: float | None,
        is_send: bool = True,
    ) -> T:
        """Make a call on the primary, and judge the primary by how it ends. Raises `GoesToBacklog` where the entity is
        failed over when it is over, because of this call or of others.

        A call on an open link is given no time-out but the caller's: ours bounds it as well, and the SDK's costs more
        than all the rest of pairing.
        """
        limit_s = self._timeout_s if timeout is None else timeout
        while not self._entity.is_failed_over:
            link = self._fresh_link()
            attempt = Attempt(self._runtime, link)
            try:
                if link.is_ready:
                    result = await attempt.run_here(call, limit_s, link.sdk, timeout)
                else:
                    result = await attempt.run(partial(call, link.sdk, limit_s), limit_s)
            except Retired:
                # Somebody else's call on it was given up a moment ago: this one was not made.
                link.retire()
                continue
            except BaseException as failure:
                error = self._failed(link, attempt, failure, message, limit_s)
                if error is failure:
                    raise
                raise error from None
            finally:
                link.close_if_unused()
            link.succeeded()
            if is_send and self._entity.is_failing:
                self._entity.answered()
            if self._key.is_suspect:
                self._key.taken()
            return result
        raise GoesToBacklog(None)

    def _failed(
        self, link: Link, attempt: Attempt, failure: BaseException, message: Sendable, limit_s: float | None = None
    ) -> BaseException:
        """What to raise: the failure itself, or `GoesToBacklog`."""
        error = link.failed(attempt, failure, self._timeout_s if limit_s is None else limit_s)
        link.close_if_unused()
        if isinstance(failure, Stopped):
            return self._gate.gone()
        if not isinstance(failure, FailedOver):
            self._key.not_taken(self._entity.path, error)
        if isinstance(failure, FailedOver) or self._speaks_against_the_primary(error, message):
            return GoesToBacklog(error)
        return error

    def _speaks_against_the_primary(self, error: BaseException, message: Sendable) -> bool:
        """Counts it if so; whether the entity is failed over now. An answer of the entity's own stops the timer."""
        verdict = verdict_on(error)
        if verdict is Verdict.UNCLEAR and can_be_encoded(message):
            verdict = Verdict.COUNTS
        if verdict is Verdict.ANSWERED and self._entity.is_failing:
            self._entity.answered()
        if verdict is not Verdict.COUNTS:
            return False
        self._entity.send_failed(error, ping_key_of(message))
        return self._entity.is_failed_over

    def _fresh_link(self) -> Link:
        """Connections from before a failover, or with a call on them that was given up, are not used again."""
        if self._is_closed:
            raise self._gate.gone()
        link = self._link
        if link.is_retired or link.is_outdated:
            self._link = self._entity.new_link(self._open_primary)
            link.retire()
        return self._link
