"""The SDK's sender behind one of ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, final

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from tandembus.pairing.runtime import (
    Attempt,
    Calls,
    FailedOver,
    GivenUp,
    OutOfTime,
    Retired,
    Runtime,
    Signal,
    Stopped,
    Turns,
)

T = TypeVar("T")
ABANDONED_FOR_S: Final = 120.0
CLOSE_PATIENCE_S: Final = 5.0
"""How long the SDK may take to say goodbye to a peer that may be stopped."""
_log = logging.getLogger("tandembus.pairing")


@final
class Link:
    """A sender of the SDK until it is retired: after a call on it was given up, nobody knows in which state it is.

    It is closed in the background, once nobody uses it any more: others may be sending on it at the same time.
    """

    def __init__(self, sdk: ServiceBusSender, runtime: Runtime) -> None:
        self.sdk = sdk
        self.calls: Calls = runtime.calls_for(self)
        """Those under way on it. Kept by the runtime."""
        self.is_outdated = False
        """The entity has failed over since it was made: calls on it are given up, and none is begun."""
        self.is_retired = False
        self.is_ready = False
        """The last call on it succeeded, so it is open, and nothing is known against it."""
        self.has_worked = False
        """Something was accepted on it once."""
        self.turns = Turns(runtime)
        self._runtime = runtime
        self._abandoned: list[Attempt] = []
        self._is_stopped = False
        self._is_closing = False
        self._closed = Signal(runtime)

    def refusal(self) -> GivenUp | None:
        if self._is_stopped:
            return Stopped()
        if self.is_outdated:
            return FailedOver()
        return Retired() if self.is_retired else None

    async def call(self, call: Callable[[], Coroutine[Any, Any, T]], limit_s: float) -> T:
        """Make a call on the SDK's sender. One that takes too long is the SDK's own time-out error; after one that was
        given up or cancelled, the link is retired."""
        attempt = Attempt(self._runtime, self)
        try:
            return await attempt.run(call, limit_s)
        except BaseException as failure:
            error = self.failed(attempt, failure, limit_s)
            if error is failure:
                raise
            raise error from None
        finally:
            self.close_if_unused()

    def succeeded(self) -> None:
        self.is_ready = not (self.is_retired or self.is_outdated)

    def failed(self, attempt: Attempt, error: BaseException, limit_s: float) -> BaseException:
        """What to raise instead."""
        self.is_ready = False
        if isinstance(error, GivenUp) or not isinstance(error, Exception):
            self._abandoned.append(attempt)
            self.is_retired = True
        if isinstance(error, OutOfTime):
            return OperationTimeoutError(message=f"{self.sdk.entity_name} did not answer within {limit_s:g} s.")
        return error

    def outdate(self) -> None:
        """The entity fails over: what is under way on it goes to the backlog."""
        self.is_outdated, self.is_ready = True, False
        for attempt in self._runtime.calls_on(self):
            attempt.give_up(FailedOver())

    def retire(self) -> None:
        """Not used for anything new. Closed now, or when the last call on it is over."""
        self.is_retired, self.is_ready = True, False
        self.close_if_unused()

    def stop(self) -> None:
        """Whoever used it is gone: what is under way on it is given up."""
        self._is_stopped = self.is_retired = True
        self.is_ready = False
        for attempt in self._runtime.calls_on(self):
            attempt.give_up(Stopped())
        self.close_if_unused()

    async def close(self, patience_s: float = CLOSE_PATIENCE_S) -> None:
        """Returns when it is closed, or after a few seconds: the rest goes on in the background."""
        self.stop()
        await self._closed.wait(patience_s)

    def close_if_unused(self) -> None:
        """To be called when a call on it is over."""
        if not self.is_retired:
            return
        if self._is_closing or self.calls:
            return
        self._is_closing = True
        self._runtime.start(self._close)

    async def _close(self) -> None:
        """Not under a call that was given up and is still going on: only the SDK knows what it is at."""
        clock = self._runtime.clock
        ends_at = clock.monotonic() + ABANDONED_FOR_S
        try:
            for attempt in self._abandoned:
                await attempt.ended(max(ends_at - clock.monotonic(), 0.0))
            await Attempt(self._runtime).run(self.sdk.close, CLOSE_PATIENCE_S)
        except Exception as error:
            _log.debug("a sender of %s was not closed in order: %r", self.sdk.entity_name, error)
        finally:
            self._closed.give()
