"""The board: which faults stand at the moment, and whom they concern.

Every process of a namespace has one. The one of the process that administers is changed by people; the others are told
(`to_records`, `replace`). Faults are not durable: a namespace that is started anew has none.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    EntityNotFound,
    OperationTimeout,
    QuotaExceeded,
    ServerBusy,
    StoreFull,
    StoreUnavailable,
)
from tandembus.faults.effects import DISK_FULL, NEVER, SLOW, THROTTLED, UNAVAILABLE, Effect, FaultState
from tandembus.faults.fault import Fault, Kind, Scope, Topology, read_fault
from tandembus.faults.gate import FaultGate
from tandembus.interconnect.traffic import Traffic

log = logging.getLogger("tandembus.faults")

TICK_S = 0.2
MAX_FAULTS = 100

_KINDS = {Kind.UNAVAILABLE: UNAVAILABLE, Kind.SLOW: SLOW, Kind.THROTTLED: THROTTLED, Kind.DISK_FULL: DISK_FULL}


@dataclass(frozen=True, slots=True)
class FragmentPlace:
    """Where a fragment is, in the words in which faults name their targets."""

    path: str
    """Of its entity, in lower case."""
    index: int = 0
    store: int = 0
    topic: str = ""
    """Of a subscription: its topic, which cannot be out without it."""

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, self.topic) if self.topic else (self.path,)


@dataclass(frozen=True, slots=True)
class StandingFault:
    fault: Fault
    started_at: float
    """Wall time."""
    until: float | None
    """On the monotonic clock; None: until somebody clears it."""

    def left_s(self, now: float) -> float | None:
        return None if self.until is None else max(self.until - now, 0.0)


class FaultBoard:
    def __init__(
        self,
        clock: Clock,
        topology: Topology | None = None,
        *,
        max_faults: int = MAX_FAULTS,
        draw: Callable[[], float] = random.random,
        later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """`draw` and `later` are chance and timers, for tests that have their own."""
        self.topology = topology or Topology()
        self._clock = clock
        self._max_faults = max_faults
        self._draw = draw
        self._standing: dict[str, StandingFault] = {}
        self._listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self.state = FaultState(clock, draw, later or _in_the_loop, self.tick)

    # Changing it.

    def put(self, fault: Fault) -> bool:
        """From now on, in the place of the one with the same id; its time begins anew. Returns whether it is a new
        one. Raises QuotaExceeded."""
        is_new = fault.id not in self._standing
        if is_new and len(self._standing) >= self._max_faults:
            raise QuotaExceeded(f"There are {self._max_faults} faults already: clear some first.")
        until = None if fault.for_s is None else self._clock.monotonic() + fault.for_s
        self._standing[fault.id] = StandingFault(fault, self._clock.now(), until)
        log.warning("fault '%s': %s is %s", fault.id, fault.target, describe(fault))
        self._apply()
        return is_new

    def remove(self, fault_id: str) -> None:
        """Raises EntityNotFound."""
        self.get(fault_id)
        del self._standing[fault_id]
        log.warning("fault '%s' is cleared", fault_id)
        self._apply()

    def clear(self) -> int:
        """All of them; returns how many there were."""
        count = len(self._standing)
        if count:
            self._standing = {}
            log.warning("all faults are cleared")
            self._apply()
        return count

    def tick(self) -> None:
        """Faults whose time is over end. Called before one hits anything, and several times a second."""
        now = self._clock.monotonic() if self.state.next_end != NEVER else 0.0
        if now < self.state.next_end:
            return
        ended = [each.fault.id for each in self._standing.values() if each.until is not None and each.until <= now]
        for fault_id in ended:
            del self._standing[fault_id]
            log.warning("fault '%s' is over", fault_id)
        self._apply()

    def _apply(self) -> None:
        ends = [each.until for each in self._standing.values() if each.until is not None]
        self.state.next_end = min(ends, default=NEVER)
        changed, self._changed = self._changed, asyncio.Event()
        self.state.changed()
        for listener in list(self._listeners):
            listener()
        changed.set()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Called after every change, also when a fault ends by itself. Returns what ends it."""
        self._listeners.append(listener)
        return functools.partial(self._listeners.remove, listener)

    async def run(self) -> None:
        """Lets faults end in time although nobody asks."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    # Looking at it.

    def get(self, fault_id: str) -> StandingFault:
        """Raises EntityNotFound."""
        self.tick()
        found = self._standing.get(fault_id)
        if found is None:
            raise EntityNotFound(f"There is no fault '{fault_id[:64]}'.")
        return found

    def standing(self) -> Sequence[StandingFault]:
        """By their ids."""
        self.tick()
        return [self._standing[key] for key in sorted(self._standing)]

    # Telling other processes.

    def to_records(self) -> list[dict[str, object]]:
        """Plain data for `replace`, which may be read later than it is written."""
        now, told_at = self._clock.monotonic(), self._clock.now()
        return [
            {
                **each.fault.document(),
                "id": each.fault.id,
                "left_s": each.left_s(now),
                "told_at": told_at,
                "started_at": each.started_at,
            }
            for each in self.standing()
        ]

    def replace(self, records: Sequence[Mapping[str, object]]) -> None:
        """All that stands from now on. Raises InvalidArgument, and then nothing has changed."""
        now, now_wall = self._clock.monotonic(), self._clock.now()
        standing = [_standing(record, now, now_wall) for record in records]
        self._standing = {each.fault.id: each for each in standing}
        self._apply()

    # What it does.

    def gate(self, inner: Traffic, place: FragmentPlace) -> FaultGate:
        """In front of this traffic, which is that of one fragment."""
        return FaultGate(inner, self.state, functools.partial(self.effects, place))

    def effects(self, place: FragmentPlace) -> list[Effect]:
        """What concerns one fragment, as far as its traffic is hit. A store that is out, slow or full is hit where its
        commits are (`FaultyStore`)."""
        return [_effect(fault) for fault in self._all() if self._concerns(fault, place)]

    def _concerns(self, fault: Fault, place: FragmentPlace) -> bool:
        target = fault.target
        match target.scope:
            case Scope.NAMESPACE:
                return True
            case Scope.ENTITY:
                return target.key in place.paths
            case Scope.FRAGMENT:
                return target.key in place.paths and target.index == place.index
            case Scope.BROKER:
                return place.store % self.topology.brokers == target.index
            case Scope.STORE:
                return place.store == target.index and fault.kind is Kind.THROTTLED

    def namespace_outage(self) -> StoreUnavailable | None:
        """While the whole namespace is out: it answers nobody."""
        for fault in self._faults(Scope.NAMESPACE, Kind.UNAVAILABLE):
            if fault.probability >= 1.0:
                return StoreUnavailable(fault_text(fault))
        return None

    async def hit_namespace(self, *, grows: bool = False) -> None:
        """What a fault of the whole namespace does to a request that is about no fragment. Raises, or takes its
        time."""
        if not self._standing:
            return
        delay_s = 0.0
        for fault in self._faults(Scope.NAMESPACE):
            if not self.hits(fault):
                continue
            match fault.kind:
                case Kind.SLOW:
                    delay_s += _latency_s(fault)
                case Kind.THROTTLED:
                    raise ServerBusy(fault_text(fault))
                case Kind.UNAVAILABLE:
                    raise StoreUnavailable(fault_text(fault))
                case Kind.DISK_FULL if grows:
                    raise StoreFull(fault_text(fault))
        await self.delay(delay_s, lambda: bool(self._faults(Scope.NAMESPACE, Kind.SLOW)))

    async def hit_change(
        self, places: Sequence[FragmentPlace], is_new: bool = False, within_s: float = math.inf
    ) -> None:
        """Before an entity is created, changed or deleted: raises when any of these fragments of it cannot be told,
        and takes its time where one is slow, but no longer than `within_s`: others wait to change it, too. Then it is
        OperationTimeout. A store that is out or slow says so itself. `is_new`: faults of an entity wait until it is
        there."""
        standing = [fault for fault in self._all() if not (is_new and fault.target.name)]
        concerning = [fault for fault in standing if any(self._concerns(fault, place) for place in places)]
        for fault in concerning:
            if fault.kind is Kind.UNAVAILABLE and self.hits(fault):
                raise StoreUnavailable(fault_text(fault))
        slow = [fault for fault in concerning if fault.kind is Kind.SLOW and fault.target.scope is not Scope.NAMESPACE]
        slowest = max((fault for fault in slow if self.hits(fault)), key=_latency_s, default=None)
        if slowest is not None:
            latency_s = _latency_s(slowest)
            is_still_slow = functools.partial(self._is_any_standing, slow)
            await self.delay(min(latency_s, within_s), is_still_slow)
            if latency_s > within_s and is_still_slow():
                raise OperationTimeout(fault_text(slowest))

    def _is_any_standing(self, faults: Sequence[Fault]) -> bool:
        standing = self._all()
        return any(fault in standing for fault in faults)

    def broker_outage(self, store: int) -> StoreUnavailable | None:
        """While the broker of this store cannot be asked for anything."""
        for fault in self._faults(Scope.BROKER, Kind.UNAVAILABLE):
            if fault.probability >= 1.0 and store % self.topology.brokers == fault.target.index:
                return StoreUnavailable(fault_text(fault))
        return None

    def outage_of(self, place: FragmentPlace) -> BusError | None:
        """Why nothing can be handed to this fragment at the moment, be it by a broker that forwards."""
        for effect in self.effects(place):
            if effect.kind != SLOW and effect.probability >= 1.0:
                return effect.error()
        return None

    def of_store(self, index: int) -> list[Fault]:
        """What hits the store of this number itself."""
        if not self._standing:
            return []  # asked for with every commit and read
        return [fault for fault in self._faults(Scope.STORE) if fault.target.index == index]

    def _faults(self, scope: Scope, kind: Kind | None = None) -> list[Fault]:
        found = [fault for fault in self._all() if fault.target.scope is scope]
        return [fault for fault in found if kind is None or fault.kind is kind]

    def _all(self) -> list[Fault]:
        return [each.fault for each in self.standing()] if self._standing else []

    def hits(self, fault: Fault) -> bool:
        """An operation that it concerns, this time."""
        return fault.probability >= 1.0 or self._draw() < fault.probability

    async def delay(self, delay_s: float, is_slow: Callable[[], bool]) -> None:
        """Returns after so long, or as soon as nothing is slow any more."""
        due = self._clock.monotonic() + delay_s
        while (left_s := due - self._clock.monotonic()) > 0 and is_slow():
            await self._change_within(left_s)

    async def _change_within(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            pass


def describe(fault: Fault) -> str:
    """In words, for logs."""
    words = fault.kind.value
    if fault.kind is Kind.SLOW:
        words += f" by {fault.latency_ms} ms"
    if fault.probability < 1.0:
        words += f", with probability {fault.probability:g}"
    if fault.for_s is not None:
        words += f", for {fault.for_s:g} s"
    return words


_TEXTS = {
    Kind.UNAVAILABLE: "{target} is unavailable",
    Kind.SLOW: "{target} is slow",
    Kind.THROTTLED: "{target} is throttled. Please wait 10 seconds and retry",
    Kind.DISK_FULL: "{target} has no room left in its messaging store; receiving and settling go on",
}


def fault_text(fault: Fault) -> str:
    """Says that it is an injected fault: whoever wonders finds it on the board."""
    target = "The namespace" if fault.target.scope is Scope.NAMESPACE else f"'{fault.target}'"
    return f"{_TEXTS[fault.kind].format(target=target)} (injected fault '{fault.id}')."


def _latency_s(fault: Fault) -> float:
    return fault.latency_ms / 1000


def _effect(fault: Fault) -> Effect:
    return Effect(_KINDS[fault.kind], fault_text(fault), fault.probability, _latency_s(fault))


def _standing(record: Mapping[str, object], now: float, now_wall: float) -> StandingFault:
    """What is left of its time is less by now, if it was told a while ago."""
    wanted = {name: value for name, value in record.items() if name not in ("left_s", "told_at", "started_at")}
    fault = read_fault(str(record.get("id")), wanted)
    left_s, told_at, started_at = (record.get(name) for name in ("left_s", "told_at", "started_at"))
    passed_s = max(now_wall - told_at, 0.0) if isinstance(told_at, int | float) else 0.0
    until = now + left_s - passed_s if isinstance(left_s, int | float) else None
    return StandingFault(fault, float(started_at) if isinstance(started_at, int | float) else 0.0, until)


def _in_the_loop(delay_s: float, act: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, act)
