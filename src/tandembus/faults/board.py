"""The board: which faults stand at the moment, and whom they concern.

Every process of a namespace has one. People change the board of the process that administers the namespace; the others
get its records (`to_records`, `replace`). Faults are not durable: a namespace that is started again has none.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tandembus.clock import Clock
from tandembus.errors import (
    BusError,
    EntityNotFound,
    OperationTimeout,
    QuotaExceeded,
    StoreUnavailable,
)
from tandembus.faults.fault import Fault, Kind, Scope, Topology, read_fault
from tandembus.faults.switch import NEVER, FragmentSwitch, Switched

log = logging.getLogger("tandembus.faults")

TICK_S = 0.2
MAX_FAULTS = 100

R = TypeVar("R")


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
        """`draw` returns a random number from 0 to 1, `later` calls after so many seconds."""
        self.topology = topology or Topology()
        self.clock = clock
        self.later = later or _in_the_loop
        self._max_faults = max_faults
        self._draw = draw
        self._standing: dict[str, StandingFault] = {}
        self._next_end = NEVER
        """When the next fault ends by itself, on the monotonic clock."""
        self._listeners: list[Callable[[], None]] = []
        self._changed = asyncio.Event()
        self._switched: dict[int, tuple[Switched, FragmentPlace]] = {}
        """The fragments that clients of this process use, by their keys."""

    # Changes.

    def put(self, fault: Fault) -> bool:
        """The fault stands from now on and replaces the one with its id. Returns whether it is a new one. Raises
        QuotaExceeded."""
        is_new = fault.id not in self._standing
        if is_new and len(self._standing) >= self._max_faults:
            raise QuotaExceeded(f"There are {self._max_faults} faults already: clear some first.")
        until = None if fault.for_s is None else self.clock.monotonic() + fault.for_s
        self._standing[fault.id] = StandingFault(fault, self.clock.now(), until)
        log.warning("fault '%s': %s is %s", fault.id, fault.target, fault.describe())
        self._apply()
        return is_new

    def remove(self, fault_id: str) -> None:
        """Raises EntityNotFound."""
        self.get(fault_id)
        del self._standing[fault_id]
        log.warning("fault '%s' is cleared", fault_id)
        self._apply()

    def clear(self) -> int:
        """Remove all faults; returns how many there were."""
        count = len(self._standing)
        if count:
            self._standing = {}
            log.warning("all faults are cleared")
            self._apply()
        return count

    def tick(self) -> None:
        """Remove the faults whose time is over. Called before a fault hits anything, and several times a second."""
        if self._next_end == NEVER or (now := self.clock.monotonic()) < self._next_end:
            return
        for fault_id, each in list(self._standing.items()):
            if each.until is not None and each.until <= now:
                del self._standing[fault_id]
                log.warning("fault '%s' is over", fault_id)
        self._apply()

    def replace(self, records: Sequence[Mapping[str, object]]) -> None:
        """Take over the faults of another process. Raises InvalidArgument, and then nothing has changed."""
        now, now_wall = self.clock.monotonic(), self.clock.now()
        standing = [_standing(record, now, now_wall) for record in records]
        self._standing = {each.fault.id: each for each in standing}
        self._apply()

    def _apply(self) -> None:
        ends = [each.until for each in self._standing.values() if each.until is not None]
        self._next_end = min(ends, default=NEVER)
        changed, self._changed = self._changed, asyncio.Event()
        for traffic, place in list(self._switched.values()):
            self._switch(traffic, self.faults_of(place))
        for listener in list(self._listeners):
            listener()
        changed.set()

    def listen(self, listener: Callable[[], None]) -> None:
        """`listener` is called after every change, also when a fault ends by itself."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """End faults in time although nobody asks."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    # What stands.

    def get(self, fault_id: str) -> StandingFault:
        """Raises EntityNotFound."""
        self.tick()
        found = self._standing.get(fault_id)
        if found is None:
            raise EntityNotFound(f"There is no fault '{fault_id[:64]}'.")
        return found

    def standing(self) -> Sequence[StandingFault]:
        """Sorted by id."""
        self.tick()
        return [self._standing[key] for key in sorted(self._standing)]

    def to_records(self) -> list[dict[str, object]]:
        """Plain data for `replace`, which may read it later than it is written."""
        now, told_at = self.clock.monotonic(), self.clock.now()
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

    # Whom the faults concern.

    def connect(self, fragment_key: int, traffic: Switched, place: FragmentPlace) -> None:
        """From now on faults hit this traffic of a fragment."""
        self._switched[fragment_key] = traffic, place
        self._switch(traffic, self.faults_of(place))

    def disconnect(self, fragment_key: int) -> None:
        """Nobody uses the fragment here any more. Operations that wait go on."""
        found = self._switched.pop(fragment_key, None)
        if found is not None:
            self._switch(found[0], [])

    def _switch(self, traffic: Switched, faults: Sequence[Fault]) -> None:
        if faults and traffic.fault is None:
            traffic.fault = FragmentSwitch(self, traffic)
        if traffic.fault is not None:
            traffic.fault.change(faults)
        if not faults:
            traffic.fault = None

    def faults_of(self, place: FragmentPlace) -> list[Fault]:
        """The faults that hit the traffic of a fragment. A store that is out, slow or full is hit where its broker
        uses it (`StoreFaults`)."""
        return [fault for fault in self._all() if self._concerns(fault, place)]

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

    def outage_of(self, place: FragmentPlace) -> BusError | None:
        """The fault that keeps this fragment from taking anything, also from a broker that forwards."""
        refusing = (fault for fault in self.faults_of(place) if fault.kind is not Kind.SLOW and fault.is_certain)
        return next((fault.error() for fault in refusing), None)

    def namespace_outage(self) -> StoreUnavailable | None:
        """While the whole namespace is out: it answers nobody."""
        outages = (fault for fault in self._faults(Scope.NAMESPACE) if fault.is_outage)
        return next((StoreUnavailable(fault.text) for fault in outages), None)

    def broker_outage(self, store: int) -> StoreUnavailable | None:
        """While the broker of this store cannot be asked for anything."""
        for fault in self._faults(Scope.BROKER):
            if fault.is_outage and store % self.topology.brokers == fault.target.index:
                return StoreUnavailable(fault.text)
        return None

    def of_store(self, index: int) -> list[Fault]:
        """The faults that hit the store of this number itself."""
        return [fault for fault in self._faults(Scope.STORE) if fault.target.index == index]

    def _faults(self, scope: Scope) -> list[Fault]:
        return [fault for fault in self._all() if fault.target.scope is scope]

    def _all(self) -> list[Fault]:
        return [each.fault for each in self.standing()] if self._standing else []

    # What they do to requests that are about no fragment, or about all of an entity.

    async def hit_namespace(self, *, grows: bool = False) -> None:
        """Faults of the whole namespace delay the request, or raise what they cause."""
        delay_s = 0.0
        for fault in self._faults(Scope.NAMESPACE):
            if not self.hits(fault):
                continue
            if fault.kind is Kind.UNAVAILABLE:
                raise StoreUnavailable(fault.text)
            if fault.kind is Kind.THROTTLED or (fault.kind is Kind.DISK_FULL and grows):
                raise fault.error()
            delay_s += fault.latency_s
        await self.delay(delay_s, lambda: any(each.kind is Kind.SLOW for each in self._faults(Scope.NAMESPACE)))

    async def hit_change(
        self, places: Sequence[FragmentPlace], is_new: bool = False, within_s: float = math.inf
    ) -> None:
        """Before an entity is created, changed or deleted: raises when one of these fragments is out of reach. Where
        one is slow, the change takes its time, but no longer than `within_s`, because other changes wait for it; then
        it is OperationTimeout. A store that is out or slow reports that itself. `is_new`: faults of an entity wait
        until it exists."""
        standing = [fault for fault in self._all() if not (is_new and fault.target.name)]
        concerning = [fault for fault in standing if any(self._concerns(fault, place) for place in places)]
        for fault in concerning:
            if fault.kind is Kind.UNAVAILABLE and self.hits(fault):
                raise StoreUnavailable(fault.text)
        slow = [fault for fault in concerning if fault.kind is Kind.SLOW and fault.target.scope is not Scope.NAMESPACE]
        slowest = max((fault for fault in slow if self.hits(fault)), key=lambda one: one.latency_ms, default=None)
        if slowest is not None:
            await self.delay(min(slowest.latency_s, within_s), lambda: self._is_any_standing(slow))
            if slowest.latency_s > within_s and self._is_any_standing(slow):
                raise OperationTimeout(slowest.text)

    def _is_any_standing(self, faults: Sequence[Fault]) -> bool:
        standing = self._all()
        return any(fault in standing for fault in faults)

    def hits(self, fault: Fault) -> bool:
        """Whether the fault hits this operation."""
        return fault.is_certain or self._draw() < fault.probability

    async def delay(self, delay_s: float, is_slow: Callable[[], bool]) -> None:
        """Wait so long, or until nothing is slow any more."""
        due = self.clock.monotonic() + delay_s
        while (left_s := due - self.clock.monotonic()) > 0 and is_slow():
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                pass


class FaultDesk:
    """Where faults are asked for. Each call returns when the change holds in every process of the namespace."""

    def __init__(self, board: FaultBoard, publish: Callable[[], Awaitable[None]] | None = None) -> None:
        """`publish` sends the records of the board to the other processes, and returns when they have them."""
        self._board = board
        self._publish = publish
        self._turn = asyncio.Lock()

    async def put(self, fault: Fault) -> bool:
        """Returns whether it is a new one. Raises QuotaExceeded."""
        return await self._change(functools.partial(self._board.put, fault))

    async def remove(self, fault_id: str) -> None:
        """Raises EntityNotFound."""
        await self._change(functools.partial(self._board.remove, fault_id))

    async def clear(self) -> int:
        """Returns how many there were."""
        return await self._change(self._board.clear)

    async def _change(self, act: Callable[[], R]) -> R:
        async with self._turn:
            result = act()
            if self._publish is not None:
                await self._publish()
            return result


def _standing(record: Mapping[str, object], now: float, now_wall: float) -> StandingFault:
    """The time since the record was written is taken off what was left then."""
    wanted = {name: value for name, value in record.items() if name not in ("left_s", "told_at", "started_at")}
    fault = read_fault(str(record.get("id")), wanted)
    left_s, told_at, started_at = (record.get(name) for name in ("left_s", "told_at", "started_at"))
    passed_s = max(now_wall - told_at, 0.0) if isinstance(told_at, int | float) else 0.0
    until = now + left_s - passed_s if isinstance(left_s, int | float) else None
    return StandingFault(fault, float(started_at) if isinstance(started_at, int | float) else 0.0, until)


def _in_the_loop(delay_s: float, act: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, act)
