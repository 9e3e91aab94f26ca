"""How injected faults change the requests to one fragment."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from tandembus.interconnect.fragment_traffic import FragmentTraffic

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="FaultyRequests")


class FaultyRequests:
    """Requests and ledgers of a fragment, hit by the faults of its traffic.

    Throttling refuses what can be repeated later; whoever holds a lock or a reservation may settle and renew it."""

    def __init__(self, traffic: FragmentTraffic | None) -> None:
        """`traffic`: None where the faults are looked at elsewhere."""
        self.traffic = traffic

    async def pass_faults(self, is_new: bool = False, grows: bool = False) -> None:
        """Raises what a fault does to a request that it hits, or takes its time."""
        traffic = self.traffic
        if traffic is not None and traffic.fault is not None:
            await self._delay(traffic, traffic.fault.hit(is_new, grows))

    async def pass_outage(self) -> None:
        """For counting, which tells whether the entity is limited: chance refuses nothing."""
        traffic = self.traffic
        if traffic is not None and traffic.fault is not None:
            _check_reach(traffic)
            await self._delay(traffic, traffic.fault.delay_s() if traffic.fault is not None else 0.0)

    async def _delay(self, traffic: FragmentTraffic, delay_s: float) -> None:
        fault = traffic.fault
        if fault is not None and delay_s > 0.0:
            await fault.delay(delay_s)
            _check_reach(traffic)


def _check_reach(traffic: FragmentTraffic) -> None:
    outage = traffic.outage()
    if outage is not None:
        raise outage


def faulty(
    is_new: bool = False, grows: bool = False
) -> Callable[[Callable[Concatenate[S, P], Awaitable[R]]], Callable[Concatenate[S, P], Coroutine[Any, Any, R]]]:
    """Lets faults hit a request. `is_new`: it can be repeated later. `grows`: it needs room in the store."""

    def decorate(
        request: Callable[Concatenate[S, P], Awaitable[R]],
    ) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
        @functools.wraps(request)
        async def ask(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            await self.pass_faults(is_new, grows)
            return await request(self, *args, **kwargs)

        return ask

    return decorate
