"""A sender of the SDK as a paired sender uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar, final

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from tandembus.pairing.runtime import Attempt, Calls, Ending, Runtime, ending_of

T = TypeVar("T")
ABANDONED_FOR_S: Final = 120.0
CLOSE_PATIENCE_S: Final = 5.0
"""How long the SDK may take to close a link to a peer that may be stopped."""
_log = logging.getLogger("tandembus.pairing")


@final
class Link:
    """A sender of the SDK, until it is retired: after a call on it was given up its state is unknown.

    It is closed in the background once no call uses it any more.
    """

    def __init__(self, sdk: ServiceBusSender, runtime: Runtime) -> None:
        self.sdk = sdk
        self.calls: Calls = runtime.calls_for(self)
        """Calls under way on it. The runtime keeps them."""
        self.is_outdated = False
        """The entity has failed over since the link was made: calls on it are given up, and none begins."""
        self.is_retired = False
        self.is_ready = False
        """The last call on it succeeded, so it is open."""
        self._runtime = runtime
        self._abandoned: list[Attempt] = []
        self._is_stopped = False
        self._is_closing = False
        self._closed = asyncio.Event()

    def refusal(self) -> Ending | None:
        if self._is_stopped:
            return Ending.STOPPED
        if self.is_outdated:
            return Ending.FAILED_OVER
        return Ending.RETIRED if self.is_retired else None

    async def call(self, call: Callable[[], Coroutine[Any, Any, T]], limit_s: float) -> T:
        """Makes a call on the SDK's sender. One that takes too long raises the SDK's own time-out error. A call that
        was given up or cancelled retires the link."""
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
        """Returns the error to raise instead."""
        self.is_ready = False
        if ending_of(error) is not None or not isinstance(error, Exception):
            self._abandoned.append(attempt)
            self.is_retired = True
        if ending_of(error) is Ending.OUT_OF_TIME:
            return OperationTimeoutError(message=f"{self.sdk.entity_name} did not answer within {limit_s:g} s.")
        return error

    def outdate(self) -> None:
        """The entity fails over: calls under way are given up, and their messages go to the backlog."""
        self.is_outdated, self.is_ready = True, False
        for attempt in self._runtime.calls_on(self):
            attempt.give_up(Ending.FAILED_OVER)

    def retire(self) -> None:
        """Begins no more calls. The link is closed when the last call on it is over."""
        self.is_retired, self.is_ready = True, False
        self.close_if_unused()

    def stop(self) -> None:
        """Its sender was closed: calls under way are given up."""
        self._is_stopped = self.is_retired = True
        self.is_ready = False
        for attempt in self._runtime.calls_on(self):
            attempt.give_up(Ending.STOPPED)
        self.close_if_unused()

    async def close(self, patience_s: float = CLOSE_PATIENCE_S) -> None:
        """Returns when it is closed, or after a few seconds; then closing goes on in the background."""
        self.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._closed.wait()

    def close_if_unused(self) -> None:
        """Called when a call on it is over."""
        if not self.is_retired:
            return
        if self._is_closing or self.calls:
            return
        self._is_closing = True
        self._runtime.start(self._close)

    async def _close(self) -> None:
        """Waits for calls that were given up and still run inside the SDK, then closes."""
        clock = self._runtime.clock
        ends_at = clock.monotonic() + ABANDONED_FOR_S
        try:
            for attempt in self._abandoned:
                await attempt.ended(max(ends_at - clock.monotonic(), 0.0))
            await Attempt(self._runtime).run(self.sdk.close, CLOSE_PATIENCE_S)
        except Exception as error:
            _log.debug("closing a sender of %s failed: %r", self.sdk.entity_name, error)
        finally:
            self._closed.set()
