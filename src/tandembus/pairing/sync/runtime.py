"""How pairing waits, starts work in the background and gives up calls, on threads: the blocking form of
`tandembus.pairing.runtime`, word for word. Written by hand; everything around it is generated.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, final

from tandembus.clock import Clock
from tandembus.pairing.runtime import FailedOver, GivenUp, OutOfTime, Retired, Stopped, Timer

__all__ = [
    "CAN_CANCEL",
    "Attempt",
    "Calls",
    "FailedOver",
    "GivenUp",
    "Mutex",
    "OutOfTime",
    "Retired",
    "Runtime",
    "Signal",
    "Stopped",
    "Timer",
    "Turns",
    "pause",
    "together",
]

T = TypeVar("T")
CAN_CANCEL: Final[Literal[False]] = False
"""Calls of the SDK end by themselves only, so they are given a time-out."""
MAX_IDLE_WORKERS = 16
_log = logging.getLogger("tandembus.pairing")


@final
class Mutex:
    """Guards what senders share. Never held while anything is waited for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class _Worker:
    """A thread that makes one call after the other. A call that hangs takes its thread along, and nobody else."""

    def __init__(self, workers: _Workers) -> None:
        self._workers = workers
        self._work: Callable[[], None] | None = None
        self._wake = threading.Semaphore(0)
        threading.Thread(target=self._run, name="tandembus-pairing", daemon=True).start()

    def call(self, work: Callable[[], None] | None) -> None:
        self._work = work
        self._wake.release()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            work, self._work = self._work, None
            if work is None:
                return
            work()
            del work
            if not self._workers.take_back(self):
                return


class _Workers:
    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._mutex = threading.Lock()
        self._is_closed = False

    def call(self, work: Callable[[], None]) -> None:
        with self._mutex:
            worker = self._idle.pop() if self._idle else _Worker(self)
        worker.call(work)

    def take_back(self, worker: _Worker) -> bool:
        with self._mutex:
            if self._is_closed or len(self._idle) >= MAX_IDLE_WORKERS:
                return False
            self._idle.append(worker)
            return True

    def close(self) -> None:
        with self._mutex:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.call(None)


Calls: TypeAlias = "set[Attempt]"
"""Those under way."""


class CalledOn(Protocol):
    """What calls are made on: it knows those under way, so that they can be given up together."""

    calls: Calls

    def refusal(self) -> GivenUp | None:
        """Why no call may be begun on it any more."""


@final
class Attempt:
    """One call of the SDK that can be given up at once, whatever the SDK is doing.

    A blocking call cannot be interrupted, so it is made by another thread, which is left behind with it. It ends by
    the time-out that the SDK was given.
    """

    def __init__(self, runtime: Runtime, link: CalledOn | None = None) -> None:
        self.link: Final = link
        self._runtime = runtime
        self._mutex = threading.Lock()
        self._answered = threading.Semaphore(0)
        self._over = threading.Event()
        self._is_decided = False
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self, call: Callable[..., T], limit_s: float, *arguments: Any) -> T:
        """What the call returns or raises; a `GivenUp` if it is given up first."""
        self._runtime.begin(self)
        try:
            # Asked after it has begun: who refuses first and looks for calls then finds this one, or is heard here.
            if self.link is not None and (refusal := self.link.refusal()) is not None:
                self._over.set()
                raise refusal
            self._runtime.workers.call(lambda: self._make(lambda: call(*arguments)))
            if not self._answered.acquire(timeout=limit_s):
                self.give_up(OutOfTime())
        except BaseException:
            self.give_up(Stopped())
            raise
        finally:
            self._runtime.end(self)
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    run_here = run
    """A blocking call cannot be ended from outside, whatever it does."""

    def give_up(self, reason: GivenUp) -> None:
        self._decide(None, reason)

    def ended(self, limit_s: float) -> None:
        """Returns when the call is over, even if it was given up; or when it is time to wait no longer."""
        self._over.wait(limit_s)

    def _make(self, call: Callable[[], Any]) -> None:
        try:
            self._decide(call(), None)
        except BaseException as error:
            self._decide(None, error)
        finally:
            self._over.set()

    def _decide(self, result: Any, error: BaseException | None) -> None:
        with self._mutex:
            if self._is_decided:
                return
            self._is_decided = True
            self._result, self._error = result, error
        self._answered.release()


@final
class Turns:
    """One at a time; nobody waits longer than they want to."""

    def __init__(self, runtime: Runtime) -> None:
        self._lock = threading.Lock()

    def take(self, limit_s: float | None) -> bool:
        """Whether it is our turn; False if it did not come in time."""
        return self._lock.acquire(timeout=-1 if limit_s is None else limit_s)

    def give_back(self) -> None:
        self._lock.release()


@final
class Signal:
    """Something that happens once; nobody waits for it longer than they want to."""

    def __init__(self, runtime: Runtime) -> None:
        self._given = threading.Event()

    def give(self) -> None:
        self._given.set()

    def wait(self, limit_s: float) -> None:
        self._given.wait(limit_s)


@final
class _ThreadTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _Timers:
    """One thread that calls what is due. Callbacks are short: what takes time is started in the background."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, _ThreadTimer]] = []
        self._number = itertools.count()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = _ThreadTimer(callback)
        with self._changed:
            heapq.heappush(self._due, (self._clock.monotonic() + delay_s, next(self._number), timer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tandembus-pairing-timers", daemon=True)
                self._thread.start()
            self._changed.notify()
        return timer

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while (timer := self._next()) is not None:
            callback = timer.callback
            if callback is None:
                continue
            try:
                callback()
            except Exception:
                _log.exception("pairing failed in the background")

    def _next(self) -> _ThreadTimer | None:
        """Waits until one is due; None when there will be none any more."""
        with self._changed:
            while not self._is_closed:
                while self._due and self._due[0][2].callback is None:
                    heapq.heappop(self._due)
                left_s = self._due[0][0] - self._clock.monotonic() if self._due else None
                if left_s is not None and left_s <= 0.0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left_s)
        return None


class Runtime:
    """Threads of our own, and the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.workers = _Workers()
        self._timers = _Timers(clock)
        self._under_way = 0
        self._changed = threading.Condition()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return self._timers.call_later(delay_s, callback)

    def begin(self, attempt: Attempt) -> None:
        """A call is under way; it keeps its time by itself."""
        if attempt.link is not None:
            with self._changed:
                attempt.link.calls.add(attempt)

    def end(self, attempt: Attempt) -> None:
        if attempt.link is not None:
            with self._changed:
                attempt.link.calls.discard(attempt)

    def calls_on(self, link: CalledOn) -> list[Attempt]:
        with self._changed:
            return list(link.calls)

    def calls_for(self, link: CalledOn) -> Calls:
        return set()

    def start(self, work: Callable[[], None]) -> None:
        """In the background. What it raises is a defect, and is logged as one."""
        with self._changed:
            self._under_way += 1
        self.workers.call(lambda: self._do(work))

    def close(self, limit_s: float) -> None:
        """No timer comes any more, and threads end with what they are doing. Waits for that, but not for ever."""
        self._timers.close()
        with self._changed:
            self._changed.wait_for(lambda: self._under_way == 0, limit_s)
        self.workers.close()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            _log.exception("pairing failed in the background")
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def together(calls: list[Callable[[], None]]) -> None:
    """All of them at the same time; returns when all are over, and raises what the first of them raised."""
    errors: list[BaseException | None] = [None] * len(calls)

    def make(index: int) -> None:
        try:
            calls[index]()
        except BaseException as error:
            errors[index] = error

    threads = [threading.Thread(target=make, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if error is not None:
            raise error
