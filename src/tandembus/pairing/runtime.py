"""How pairing waits, starts work in the background and gives up calls."""

from __future__ import annotations

import asyncio
import collections
import logging
import math
import weakref
from asyncio import current_task
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, final

from tandembus.clock import Clock

T = TypeVar("T")
INSIST_AFTER_S: Final = 0.02
LEAST_ALARM_S: Final = 0.005
"""Time-outs that are nearer to each other come together: each time, all calls under way are looked through."""
_log = logging.getLogger("tandembus.pairing")


class Timer(Protocol):
    def cancel(self) -> None: ...


class GivenUp(Exception):
    """A call was given up before it was answered: what became of it nobody knows."""


class OutOfTime(GivenUp):
    """It took too long."""


class FailedOver(GivenUp):
    """The entity failed over meanwhile."""


class Stopped(GivenUp):
    """Nobody wants the answer any more."""


class Retired(GivenUp):
    """What it was to be made on is not used any more, so the call was not made at all: make it on another."""


Calls: TypeAlias = "dict[Attempt | asyncio.Task[Any], float]"
"""Those under way, and when their time is up. One of `begin_here` is known by its caller's task."""


class CalledOn(Protocol):
    """What calls are made on: it knows those under way, so that they can be given up together."""

    calls: Calls

    def refusal(self) -> GivenUp | None:
        """Why no call may be begun on it any more."""


@final
class Attempt:
    """One call of the SDK that can be given up at once, whatever the SDK is doing. Cancelling the caller cancels it."""

    __slots__ = ("_again", "_caller", "_cancel_count", "_reason", "_runtime", "_task", "_waiter", "link")

    def __init__(self, runtime: Runtime, link: CalledOn | None = None, caller: asyncio.Task[Any] | None = None) -> None:
        self.link: Final[CalledOn] = runtime if link is None else link
        self._runtime = runtime
        self._reason: GivenUp | None = None
        self._caller = caller
        self._cancel_count = 0
        self._again: Timer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Any] | None = None

    async def run(self, call: Callable[[], Coroutine[Any, Any, T]], limit_s: float) -> T:
        """What the call returns or raises; a `GivenUp` if it is given up first.

        In a task of its own: a call that is cancelled while the SDK opens its link first closes it in order, which
        takes as long as it takes on a peer that is stopped. The caller does not wait for that.
        """
        if (refusal := self.link.refusal()) is not None:
            raise refusal
        waiter = self._waiter = self._runtime.loop.create_future()
        task = self._task = self._runtime.loop.create_task(call())
        task.add_done_callback(self._ended)
        self._runtime.begin(self, limit_s)
        try:
            await waiter
        except BaseException:
            self._runtime.abandon(task)
            raise
        finally:
            self._runtime.end(self)
        result: T = task.result()
        return result

    async def run_here(self, call: Callable[..., Coroutine[Any, Any, T]], limit_s: float, *arguments: Any) -> T:
        """The same in the caller's own task, for calls that end as soon as they are cancelled, as sends on an open link
        do. A task for each would cost a healthy send four times as much.
        """
        caller = current_task()
        assert caller is not None
        cancelled_before = caller.cancelling()
        self._caller = caller
        runtime = self._runtime
        runtime.begin(self, limit_s)
        try:
            result = await call(*arguments)
        except BaseException as failure:
            error = self.failed_here(failure, cancelled_before)
            if error is failure:
                raise
            raise error from None
        finally:
            self.ended_here()
            runtime.end(self)
        return result

    def failed_here(self, failure: BaseException, cancelled_before: int = 0) -> BaseException:
        """What became of the call: the failure, unless that is our own doing."""
        return failure if self._reason is None or self.ended_here() > cancelled_before else self._reason

    def ended_here(self) -> int:
        """The caller goes on, without our cancellations; how many are left then. An answer that comes at the last
        moment is what counts."""
        caller, self._caller = self._caller, None
        return 0 if caller is None else self._take_back(caller)

    def give_up(self, reason: GivenUp) -> None:
        if self._caller is not None and self._reason is None:
            self._reason = reason
            self._insist()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(reason)

    def _insist(self) -> None:
        """Cancel the call until it is over. Before Python 3.12 `asyncio.wait_for`, which the SDK reads with, forgets a
        cancellation that comes in the moment when there is something to read."""
        if self._caller is not None:
            self._cancel_count += 1
            self._caller.cancel()
            self._again = self._runtime.call_later(INSIST_AFTER_S, self._insist)

    def _take_back(self, caller: asyncio.Task[Any]) -> int:
        """Our own cancellations; how many are left then."""
        if self._again is not None:
            self._again.cancel()
        for _ in range(self._cancel_count):
            caller.uncancel()
        return caller.cancelling()

    async def ended(self, limit_s: float) -> None:
        """Returns when the call is over, even if it was given up; or when it is time to wait no longer."""
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,), timeout=limit_s)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@final
class Turns:
    """One at a time, in the order in which they came; nobody waits longer than they want to."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_taken = False
        self._waiting: collections.deque[asyncio.Future[bool]] = collections.deque()

    async def take(self, limit_s: float | None) -> bool:
        """Whether it is our turn; False if it did not come in time."""
        if not self._is_taken:
            self._is_taken = True
            return True
        waiter: asyncio.Future[bool] = self._runtime.loop.create_future()
        self._waiting.append(waiter)
        timer = None if limit_s is None else self._runtime.call_later(limit_s, partial(_refuse, waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.give_back()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def give_back(self) -> None:
        while self._waiting:
            if _give(self._waiting.popleft()):
                return
        self._is_taken = False


def _give(waiter: asyncio.Future[bool]) -> bool:
    if waiter.done():
        return False
    waiter.set_result(True)
    return True


def _refuse(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


@final
class Signal:
    """Something that happens once; nobody waits for it longer than they want to."""

    def __init__(self, runtime: Runtime) -> None:
        self._given: asyncio.Future[None] = runtime.loop.create_future()

    def give(self) -> None:
        if not self._given.done():
            self._given.set_result(None)

    async def wait(self, limit_s: float) -> None:
        await asyncio.wait((self._given,), timeout=limit_s)


class Runtime:
    """The event loop of the application, and the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.calls: Calls = {}
        """Those on no link."""
        self._links: weakref.WeakSet[CalledOn] = weakref.WeakSet()
        self._given_up: dict[asyncio.Task[Any], Attempt] = {}
        self._alarm: Timer | None = None
        self._alarm_at = math.inf
        self._now = clock.monotonic

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self.loop.call_later(delay_s, callback)

    def begin(self, attempt: Attempt, limit_s: float) -> None:
        """A call is under way; it is given up when its time is up. One timer serves all: nearly all calls end long
        before, and a timer for each would be half of what pairing costs them."""
        attempt.link.calls[attempt] = deadline = self._now() + limit_s
        if deadline < self._alarm_at:
            self._set_alarm(deadline)

    def end(self, attempt: Attempt) -> None:
        del attempt.link.calls[attempt]

    def begin_here(self, link: CalledOn, limit_s: float) -> asyncio.Task[Any] | None:
        """For a call that its caller makes by itself, as `Attempt.run_here` does, but with nothing made for it except
        for an entry. When it is over the caller removes that: if it is gone, the call was given up; `end_here`.

        None outside a task, or while a cancellation is being dealt with.
        """
        caller = current_task(self.loop)
        if caller is None or caller.cancelling():
            return None
        link.calls[caller] = deadline = self._now() + limit_s
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        return caller

    def end_here(self, link: CalledOn, caller: asyncio.Task[Any]) -> Attempt:
        """The attempt that a call of `begin_here` became when it was given up; a new one if it was not."""
        attempt = self._given_up.pop(caller, None) or Attempt(self, link)
        for call in (caller, attempt):
            link.calls.pop(call, None)
        return attempt

    def calls_on(self, link: CalledOn) -> list[Attempt]:
        """To give them up."""
        return [self._attempt(call, link) for call in tuple(link.calls)]

    def _attempt(self, call: Attempt | asyncio.Task[Any], link: CalledOn) -> Attempt:
        if isinstance(call, Attempt):
            return call
        attempt = self._given_up[call] = Attempt(self, link, call)
        link.calls[attempt] = link.calls.pop(call)
        return attempt

    def refusal(self) -> GivenUp | None:
        return None

    def calls_for(self, link: CalledOn) -> Calls:
        """Where it keeps them: looked through when somebody's time is up."""
        self._links.add(link)
        return {}

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self.call_later(at - self.clock.monotonic(), self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        now = self._now()
        next_at = math.inf
        for link in (self, *self._links):
            for call in [one for one, deadline in link.calls.items() if deadline <= now]:
                self._attempt(call, link).give_up(OutOfTime())
            next_at = min([next_at, *(deadline for deadline in link.calls.values() if deadline > now)])
        if next_at < math.inf:
            self._set_alarm(max(next_at, now + LEAST_ALARM_S))

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """In the background. What it raises is a defect, and is logged as one."""
        task = self.loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Cancelled, and kept until it is over; nobody asks what became of it."""
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        task.cancel()

    async def close(self, limit_s: float) -> None:
        """Waits for what is still going on in the background, but not for ever. The loop is the application's."""
        if self._alarm is not None and not any(link.calls for link in (self, *self._links)):
            self._alarm.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("pairing failed in the background", exc_info=error)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def together(calls: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """All of them at the same time; returns when all are over, and raises what the first of them raised."""
    results = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
