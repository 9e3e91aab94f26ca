"""How fast keys may be tried at the sign-in: a few at once, then one every so often, from one address and in all."""

from __future__ import annotations

from typing import Final, final

ADDRESS_BURST: Final = 10
ADDRESS_INTERVAL_S: Final = 6.0
"""After a burst of wrong sign-ins, one address may try again so often."""
OVERALL_BURST: Final = 100
OVERALL_INTERVAL_S: Final = 1.0
MANY_ADDRESSES: Final = 1_000


@final
class SignInPace:
    """Counts tries before they are judged, so that many at once are no way around it; a right one is given back."""

    def __init__(self) -> None:
        self._overall_until = 0.0
        self._until: dict[str, float] = {}
        """By address, the time at which all of its tries are forgotten."""

    def take(self, address: str, now: float) -> float:
        """0.0: a try is taken. Otherwise it must not be looked at, and may be repeated after so many seconds."""
        until = max(self._until.get(address, now), now)
        overall_until = max(self._overall_until, now)
        wait_s = max(
            until - now - (ADDRESS_BURST - 1) * ADDRESS_INTERVAL_S,
            overall_until - now - (OVERALL_BURST - 1) * OVERALL_INTERVAL_S,
        )
        if wait_s > 0.0:
            return wait_s
        if len(self._until) >= MANY_ADDRESSES:
            self._until = {one: time for one, time in self._until.items() if time > now}
        self._until[address] = until + ADDRESS_INTERVAL_S
        self._overall_until = overall_until + OVERALL_INTERVAL_S
        return 0.0

    def give_back(self, address: str) -> None:
        self._until[address] -= ADDRESS_INTERVAL_S
        self._overall_until -= OVERALL_INTERVAL_S
